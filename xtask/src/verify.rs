//! The one test command.

use std::path::Path;
use std::process::Command;

use crate::run::{cargo, cargo_command, run};
use crate::skips::Skips;
use crate::{codegen, fuzz, provide, python};

/// The crates that are published, dependencies first.
const PUBLISHED: [&str; 7] =
    ["posse-core", "posse-conformance", "posse-sim", "posse-data", "posse-net", "posse-bench", "posse-cli"];
/// Examples that end by themselves. They check what they show.
const EXAMPLES: [(&str, &str); 2] = [("posse-core", "lossy_link"), ("posse-sim", "federation")];

/// Runs every check and stops at the first that fails. Lists at the end what was skipped.
pub(crate) fn test(root: &Path) -> Result<(), String> {
    let mut skips = Skips::begin(root)?;
    step("generated code is fresh");
    codegen::run(root, true)?;
    step("format");
    cargo(root, &["fmt", "--all", "--check"])?;
    step("lints");
    cargo(root, &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    step("what tests need: a browser, Python with pyarrow and grpcio-tools, data sets");
    skips.or_skip(provide::browser())?;
    let interpreter = skips.or_skip(provide::python(root))?;
    let data = skips.or_skip(provide::data(root))?;
    step("tests and doctests");
    let mut tests = cargo_command(root);
    tests.args(["test", "--workspace", "--locked"]).env("POSSE_SKIPS", &skips.file);
    tests.envs(interpreter.map(|python| ("PYTHON", python))).envs(data.map(|data| ("POSSE_DATA", data)));
    run(&mut tests)?;
    step("the Python package: its wheel, its tests, its types");
    if let Some(environment) = skips.or_skip(python::environment(root))? {
        python::test(root, &environment)?;
    }
    step("examples");
    for (package, example) in EXAMPLES {
        cargo(root, &["run", "--quiet", "--locked", "--package", package, "--example", example])?;
    }
    step("documentation, as docs.rs builds it and with private items");
    documentation(root)?;
    step("packages");
    packages(root)?;
    step("licences and sources of dependencies");
    if let Some(deny) = skips.or_skip(provide::deny(root))? {
        run(deny_command(root, &deny).args(["--locked", "check", "licenses", "bans", "sources"]))?;
    }
    step("fuzz targets");
    if skips.or_skip(provide::cpp_compiler())?.is_some() {
        fuzz::all(root)?;
    }
    skips.finish()
}

/// Compares privacy accounting and noise with OpenDP, in a workspace of its own because OpenDP is heavy.
pub(crate) fn second_opinion(root: &Path) -> Result<(), String> {
    let manifest = "--manifest-path=second-opinion/Cargo.toml";
    cargo(root, &["test", manifest, "--locked", "--target-dir=target/second-opinion", "--", "--nocapture"])
}

/// Asks the RustSec database. No part of the test command: the answer changes with the day and not with the tree.
pub(crate) fn advisories(root: &Path, deny: &Path) -> Result<(), String> {
    run(deny_command(root, deny).args(["check", "advisories"]))
}

fn documentation(root: &Path) -> Result<(), String> {
    let doc = |arguments: &[&str]| {
        let mut command = cargo_command(root);
        command.args(["doc", "--no-deps", "--locked"]).args(arguments).env("RUSTDOCFLAGS", "-D warnings");
        run(&mut command)
    };
    doc(&["--workspace", "--document-private-items"])?;
    // docs.rs shows no private items, so a link to one is an error there and not above.
    let libraries = PUBLISHED.iter().filter(|name| **name != "posse-cli");
    let libraries: Vec<String> = libraries.map(|name| format!("--package={name}")).collect();
    let libraries: Vec<&str> = libraries.iter().map(String::as_str).collect();
    doc(&[&libraries[..], &["--lib", "--all-features"]].concat())
}

/// Makes the packages that would be published, and does not build them: they are the crates that were just tested.
fn packages(root: &Path) -> Result<(), String> {
    let published: Vec<String> = PUBLISHED.iter().map(|name| format!("--package={name}")).collect();
    let mut command = cargo_command(root);
    run(command.args(["package", "--quiet", "--no-verify", "--locked", "--allow-dirty"]).args(published))
}

fn deny_command(root: &Path, deny: &Path) -> Command {
    let mut command = Command::new(deny);
    command.current_dir(root).arg("--workspace");
    command
}

fn step(name: &str) {
    println!("── {name}");
}
