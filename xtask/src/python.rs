//! The Python package: its wheel, and its tests in an environment made for them.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{output, run, works};

/// What builds the wheel, what the package's tests import, and what checks its types. Versions are fixed, so that a tree that
/// passed here passes there.
const PACKAGES: [&str; 7] = [
    "maturin==1.16.0",
    "mypy==2.4.1",
    "numpy==2.4.6",
    "pandas==3.1.1",
    "polars==2.1.0",
    "pyarrow==26.0.1",
    "pytest==9.2.0",
];

/// The directory of everything that is made here.
fn home(root: &Path) -> PathBuf {
    root.join("target/xtask/wheel")
}

/// A virtual environment with [`PACKAGES`], made anew unless one with the same packages is there.
pub(crate) fn environment(root: &Path) -> Result<PathBuf, String> {
    let home = home(root).join("environment");
    let (python, stamp) = (home.join("bin/python"), home.join("packages.txt"));
    let wanted = PACKAGES.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted)
        && works(&text(&python), &["--version"])
    {
        return Ok(python);
    }
    if !works("python3", &["-m", "venv", "--help"]) {
        return Err(
            "the Python package is not built: there is no python3 that makes virtual environments".into()
        );
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
    pip(&python, &PACKAGES.map(OsString::from)).map_err(|error| {
        format!("the Python package is not built: pip could not install its tools: {error}")
    })?;
    std::fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}

/// Packs the module that the tests of the workspace have built as a wheel, installs it, and runs the package's tests and the
/// type checker. Compiling it once more for maturin would take as long as half of the other tests (docs/decisions/0090).
pub(crate) fn test(root: &Path, python: &Path) -> Result<(), String> {
    let (debug, out) = (target(root).join("debug"), home(root).join("tested"));
    if out.exists() {
        std::fs::remove_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    }
    let module = debug.join("deps").join(format!("{DLL_PREFIX}_posse{DLL_SUFFIX}"));
    let mut pack = Command::new(python);
    pack.arg(root.join("crates/python/pack.py")).arg(module).arg(env!("CARGO_PKG_VERSION")).arg(&out);
    let wheel = PathBuf::from(output(&mut pack)?.trim());
    pip(python, &["--force-reinstall".into(), "--no-deps".into(), wheel.into_os_string()])?;
    // Tests compare with the command and with a program in Rust, which the tests of the workspace have built.
    let mut tests = Command::new(python);
    tests.current_dir(root).args(["-m", "pytest", "--quiet"]);
    tests.env("POSSE_COMMAND", debug.join("posse")).env("POSSE_PLAY", debug.join("examples/play"));
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut tests)?;
    let cache = home(root).join("mypy");
    run(Command::new(python).current_dir(root).args(["-m", "mypy", "--strict", "--cache-dir"]).arg(cache))
}

/// Builds the wheel that is published, in `target/xtask/wheel/out`.
pub(crate) fn wheel(root: &Path) -> Result<(), String> {
    let python = environment(root)?;
    let out = home(root).join("out");
    let mut maturin = Command::new(&python);
    maturin.current_dir(root).args(["-m", "maturin", "build", "--release", "--locked", "--out"]).arg(&out);
    run(maturin.env("CARGO", env!("CARGO")))
}

/// Where cargo builds.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn pip(python: &Path, what: &[OsString]) -> Result<(), String> {
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"];
    run(Command::new(python).args(install).args(what))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
