//! What tests need from outside: found, or installed where that can be done. An error is the reason why it is not there.

mod apt;
mod axe;
mod browser;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{cargo_command, output, run, works};

pub(crate) use axe::axe;
pub(crate) use browser::browser;

/// Python packages that tests import: pyarrow reads our Parquet files, grpcio-tools speaks to our coordinator, and with numpy
/// `posse bench` runs published programs.
const PYTHON_PACKAGES: [&str; 3] = ["pyarrow==26.0.1", "grpcio-tools==1.85.1", "numpy==2.4.6"];
const DENY_VERSION: &str = "0.20.2";

/// A Python that has [`PYTHON_PACKAGES`]: the one that `PYTHON` names, or one in `target/xtask/python`.
pub(crate) fn python(root: &Path) -> Result<OsString, String> {
    if let Some(named) = std::env::var_os("PYTHON") {
        return Ok(named);
    }
    let home = root.join("target/xtask/python");
    let python = home.join("bin/python");
    let check = ["-c", "import pyarrow.parquet, grpc, grpc_tools, numpy"];
    if works(&python.to_string_lossy(), &check) {
        return Ok(python.into_os_string());
    }
    if !works("python3", &["-m", "venv", "--help"]) {
        return Err("there is no python3 that makes virtual environments".into());
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"];
    run(Command::new(&python).args(install).args(PYTHON_PACKAGES))
        .map_err(|error| format!("pip could not install {}: {error}", PYTHON_PACKAGES.join(" and ")))?;
    Ok(python.into_os_string())
}

/// `Ok` if valgrind is there, which counts instructions.
pub(crate) fn valgrind() -> Result<(), String> {
    let is_there = || works("valgrind", &["--version"]);
    if is_there() {
        return Ok(());
    }
    apt::install("valgrind", "instructions are not counted: there is no valgrind", is_there)
}

/// The directory of the publishers' data sets: the one that `POSSE_DATA` names, or `../shared/data`.
pub(crate) fn data(root: &Path) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("POSSE_DATA") {
        return Ok(named.into());
    }
    let beside = root.join("../shared/data");
    beside.canonicalize().map_err(|_| {
        "the publishers' data sets are not here: set POSSE_DATA to a directory with a folder for each".into()
    })
}

/// The program cargo-deny: the one on the path, or one in `target/xtask`, built without optimisation
/// because that takes a third of the time and our graph is small.
pub(crate) fn deny(root: &Path) -> Result<PathBuf, String> {
    if works("cargo-deny", &["--version"]) {
        return Ok("cargo-deny".into());
    }
    let home = root.join("target/xtask/cargo-deny");
    let program = home.join("bin/cargo-deny");
    let is_ours = |text: String| text.trim() == format!("cargo-deny {DENY_VERSION}");
    if output(Command::new(&program).arg("--version")).is_ok_and(is_ours) {
        return Ok(program);
    }
    let mut install = cargo_command(root);
    install.args([
        "install",
        "cargo-deny",
        "--version",
        DENY_VERSION,
        "--locked",
        "--debug",
        "--quiet",
        "--root",
    ]);
    install.arg(&home).env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_TARGET_DIR", home.join("build"));
    run(&mut install)
        .map_err(|error| format!("there is no cargo-deny, and cargo could not install it: {error}"))?;
    // The program is all we need; what it was built from is a gigabyte.
    let _ = std::fs::remove_dir_all(home.join("build"));
    Ok(program)
}

/// Makes sure that there is promtool, which checks the alert rules. Installs Prometheus if this is root on a system with apt-get.
pub(crate) fn promtool() -> Result<(), String> {
    let is_there = || works("promtool", &["--version"]);
    if is_there() {
        return Ok(());
    }
    apt::install("prometheus", "the alert rules are not tested: there is no promtool", is_there)
}

/// Makes sure that there is PostgreSQL, which coordinators can share. Installs it if this is root on a system with apt-get. Its
/// programs are not on the path of Debian's systems; tests find them where the package puts them, or in `POSTGRES`.
pub(crate) fn postgres() -> Result<(), String> {
    let is_there = || {
        let packages = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        std::env::var_os("POSTGRES").is_some()
            || packages.into_iter().any(|package| package.path().join("bin/initdb").exists())
    };
    if is_there() {
        return Ok(());
    }
    apt::install(
        "postgresql",
        "coordinators that share a database are not tested: there is no PostgreSQL",
        is_there,
    )
}

/// Whether there is a C++ compiler, which libFuzzer is built with.
pub(crate) fn cpp_compiler() -> Result<(), String> {
    let named = std::env::var_os("CXX").is_some();
    if named || works("c++", &["--version"]) {
        return Ok(());
    }
    Err("there is no C++ compiler, without which libFuzzer cannot be built".into())
}
