//! The Python package: its wheel, its pages, and its tests in environments made for them.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{output, run, works};

/// What builds the wheel, what the package's tests import, and what checks its types. Versions are fixed, so that a tree that
/// passed here passes there.
const PACKAGES: [&str; 10] = [
    "maturin==1.16.0",
    "matplotlib==3.11.2",
    "mypy==2.4.1",
    "numpy==2.4.6",
    "pandas==3.1.1",
    "polars==2.1.0",
    "pyarrow==26.0.1",
    "pytest==9.2.0",
    "ruff==0.17.4",
    "tqdm==4.70.1",
];

/// Packages that posse has adapters for or is compared with, what runs notebooks, and a second type checker: half a
/// gigabyte, which `cargo xtask python --all` installs and `cargo xtask test` does not.
const NEIGHBOURS: [&str; 12] = [
    "coba==8.1.0",
    // It is published as source alone; a C compiler makes it.
    "--no-binary=contextualbandits",
    "contextualbandits==0.3.30",
    "gymnasium==1.4.0",
    "ipykernel==7.4.0",
    "mabwiser==2.7.4",
    "nbclient==0.11.0",
    "pyright==1.1.414",
    "ray==2.60.0",
    "river==0.26.1",
    "scikit-learn==1.9.1",
    "vowpalwabbit==9.11.9",
];

/// The directory of everything that is made here.
fn home(root: &Path) -> PathBuf {
    root.join("target/xtask/wheel")
}

/// A virtual environment with [`PACKAGES`], made anew unless one with the same packages is there.
pub(crate) fn environment(root: &Path) -> Result<PathBuf, String> {
    made(&home(root).join("environment"), &PACKAGES)
}

/// The same with [`NEIGHBOURS`].
fn whole_environment(root: &Path) -> Result<PathBuf, String> {
    made(&home(root).join("neighbours"), &[&PACKAGES[..], &NEIGHBOURS].concat())
}

fn made(home: &Path, packages: &[&str]) -> Result<PathBuf, String> {
    let (python, stamp) = (home.join("bin/python"), home.join("packages.txt"));
    let wanted = packages.join("\n");
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
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(home))?;
    let packages: Vec<OsString> = packages.iter().map(OsString::from).collect();
    pip(&python, &packages).map_err(|error| {
        format!("the Python package is not built: pip could not install its tools: {error}")
    })?;
    std::fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}

/// Packs the module that the tests of the workspace have built as a wheel, installs it, and runs the package's tests, its
/// notebooks, the type checker and the linter. Compiling it once more for maturin would take as long as half of the other
/// tests (docs/decisions/0090).
pub(crate) fn test(root: &Path, python: &Path) -> Result<(), String> {
    install(root, python)?;
    run(tool(root, python, "pytest").arg("--quiet"))?;
    let cache = home(root).join("mypy");
    run(tool(root, python, "mypy").args(["--strict", "--cache-dir"]).arg(cache))?;
    run(tool(root, python, "ruff").args(["check", "--no-cache", "crates/python"]))
}

/// Builds the package and runs its tests.
pub(crate) fn test_alone(root: &Path) -> Result<(), String> {
    let python = environment(root)?;
    build(root)?;
    test(root, &python)
}

/// Everything about the Python package: its tests, and those against the packages that it has adapters for.
pub(crate) fn test_all(root: &Path) -> Result<(), String> {
    let python = whole_environment(root)?;
    build(root)?;
    test(root, &python)?;
    run(tool(root, &python, "pytest").args(["--quiet", "crates/python/neighbours"]))?;
    run(tool(root, &python, "pyright").arg("--pythonpath").arg(&python))
}

/// Runs the notebooks, with their output and pictures written into them, and writes the reference of all names.
pub(crate) fn pages(root: &Path) -> Result<(), String> {
    let python = whole_environment(root)?;
    build(root)?;
    install(root, &python)?;
    let mut reference = Command::new(&python);
    reference.current_dir(root).args(["crates/python/reference.py", "docs/guides/python-api.md"]);
    run(&mut reference)?;
    let mut notebooks = Command::new(&python);
    notebooks.current_dir(root).arg("crates/python/notebooks.py").env("POSSE_COMMAND", command(root));
    run(&mut notebooks)
}

/// Compares the speed of posse with that of other packages. The wheel is built for it, as it is published.
pub(crate) fn compare(root: &Path) -> Result<(), String> {
    let python = whole_environment(root)?;
    wheel(root)?;
    let wheels = home(root).join("out");
    let entries = std::fs::read_dir(&wheels).map_err(|error| format!("{}: {error}", wheels.display()))?;
    let newest = entries.flatten().map(|entry| entry.path()).max();
    let newest = newest.ok_or_else(|| format!("{} holds no wheel", wheels.display()))?;
    pip(&python, &["--force-reinstall".into(), "--no-deps".into(), newest.into_os_string()])?;
    run(Command::new(&python).current_dir(root).arg("crates/python/benchmarks/compare.py"))
}

/// Builds the module as the tests of the workspace do. Without it an older module would be tested, and its docstrings would
/// get into the reference.
fn build(root: &Path) -> Result<(), String> {
    let mut build = Command::new(env!("CARGO"));
    run(build.current_dir(root).args(["test", "--workspace", "--locked", "--no-run", "--quiet"]))
}

/// Packs the module and installs it.
fn install(root: &Path, python: &Path) -> Result<(), String> {
    let (debug, out) = (target(root).join("debug"), home(root).join("tested"));
    if out.exists() {
        std::fs::remove_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    }
    let module = debug.join("deps").join(format!("{DLL_PREFIX}_posse{DLL_SUFFIX}"));
    let mut pack = Command::new(python);
    pack.arg(root.join("crates/python/pack.py")).arg(module).arg(env!("CARGO_PKG_VERSION")).arg(&out);
    let wheel = PathBuf::from(output(&mut pack)?.trim());
    pip(python, &["--force-reinstall".into(), "--no-deps".into(), wheel.into_os_string()])
}

/// A tool of Python at the root of the tree. Tests compare with the command and with a program in Rust, which the tests of
/// the workspace have built.
fn tool(root: &Path, python: &Path, name: &str) -> Command {
    let mut tool = Command::new(python);
    tool.current_dir(root).args(["-m", name]);
    tool.env("POSSE_COMMAND", command(root)).env("POSSE_PLAY", target(root).join("debug/examples/play"));
    tool.env("PYTHONDONTWRITEBYTECODE", "1");
    tool
}

/// Where cargo puts the command.
fn command(root: &Path) -> PathBuf {
    target(root).join("debug/posse")
}

/// Builds the wheel that is published, in `target/xtask/wheel/out`.
pub(crate) fn wheel(root: &Path) -> Result<(), String> {
    let python = environment(root)?;
    let out = home(root).join("out");
    let mut maturin = Command::new(&python);
    maturin.current_dir(root).args(["-m", "maturin", "build", "--release", "--locked", "--out"]).arg(&out);
    run(maturin.env("CARGO", env!("CARGO")))
}

/// The directory that cargo builds in.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn pip(python: &Path, what: &[OsString]) -> Result<(), String> {
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"];
    run(Command::new(python).args(install).args(what))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
