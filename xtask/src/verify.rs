//! The one test command.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Instant;

use crate::run::{cargo, cargo_command, run};
use crate::skips::Skips;
use crate::{codegen, counts, fuzz, provide, python};

/// The crates that are published, dependencies first.
const PUBLISHED: [&str; 8] = [
    "posse-derive",
    "posse-core",
    "posse-conformance",
    "posse-sim",
    "posse-data",
    "posse-net",
    "posse-bench",
    "posse-cli",
];
/// Examples that end by themselves. They check what they show.
const EXAMPLES: [&str; 2] = ["lossy_link", "federation"];

/// Runs every check and stops at the first that fails. Lists at the end what was skipped.
pub(crate) fn test(root: &Path) -> Result<(), String> {
    let mut skips = Skips::begin(root)?;
    step("generated code is fresh");
    codegen::run(root, true)?;
    step("format");
    cargo(root, &["fmt", "--all", "--check"])?;
    step("lints");
    cargo(root, &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    step("each feature of posse-net alone");
    features(root)?;
    step(
        "what tests need: a browser, axe-core, PostgreSQL, Python with pyarrow, grpcio-tools and numpy, data sets",
    );
    skips.or_skip(provide::browser())?;
    skips.or_skip(provide::postgres())?;
    let axe = skips.or_skip(provide::axe(root))?;
    let interpreter = skips.or_skip(provide::python(root))?;
    let data = skips.or_skip(provide::data(root))?;
    step("tests and doctests");
    let mut tests = cargo_command(root);
    tests.args(["test", "--workspace", "--locked", "--no-fail-fast"]).env("POSSE_SKIPS", &skips.file);
    tests.envs(interpreter.map(|python| ("PYTHON", python))).envs(data.map(|data| ("POSSE_DATA", data)));
    tests.envs(axe.map(|axe| ("AXE", axe)));
    run(&mut tests)?;
    step("the Python package: its wheel, its tests, its types");
    if let Some(environment) = skips.or_skip(python::environment(root))? {
        python::test(root, &environment)?;
    }
    step("alert rules for Prometheus");
    if skips.or_skip(provide::promtool())?.is_some() {
        alerts(root)?;
    }
    step("examples");
    // The tests have built them. `cargo run --package` would build core and all below it again, with the features
    // that this package alone asks for.
    for example in EXAMPLES {
        run(&mut Command::new(python::target(root).join("debug/examples").join(example)))?;
    }
    step("instructions of small kernels, against crates/bench/counts.tsv");
    if skips.or_skip(counts::possible())?.is_some() {
        counts::compare(root, false)?;
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

/// Compares privacy accounting and noise with OpenDP, in a workspace of its own because OpenDP is heavy, and what the command
/// promises with Google's dp-accounting.
pub(crate) fn second_opinion(root: &Path) -> Result<(), String> {
    let manifest = "--manifest-path=second-opinion/Cargo.toml";
    cargo(root, &["test", manifest, "--locked", "--target-dir=target/second-opinion", "--", "--nocapture"])?;
    cargo(root, &["build", "--locked", "--workspace", "--bin=posse"])?;
    let environment = root.join("target/xtask/dp-accounting");
    let python = environment.join("bin/python");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "dp-accounting==0.6.0"]))?;
    let script = root.join("second-opinion/promises.py");
    run(Command::new(&python).arg(script).arg(root.join("target/debug/posse")))
}

/// Attacks private federations: agents by themselves, over the network, and as processes. With `agents` of them in every attack
/// that counts guesses.
pub(crate) fn audit(root: &Path, agents: &str) -> Result<(), String> {
    if !agents.parse().is_ok_and(|agents: u64| agents >= 24 && agents.is_multiple_of(2)) {
        return Err(format!("{agents} is no even number of agents, 24 or more"));
    }
    let attacks = [
        ("core", "privacy"),
        ("core", "secure"),
        ("net", "privacy"),
        ("net", "secure"),
        ("network", "audit"),
    ];
    for (test, filter) in attacks {
        step(&format!("attacks in {test}"));
        let mut command = cargo_command(root);
        command.args(["test", "--locked", "--workspace", "--test", test, filter, "--", "--nocapture"]);
        run(command.env("POSSE_AUDIT_AGENTS", agents))?;
    }
    Ok(())
}

/// Asks the RustSec database. No part of the test command: the answer changes with the day and not with the tree.
pub(crate) fn advisories(root: &Path, deny: &Path) -> Result<(), String> {
    run(deny_command(root, deny).args(["check", "advisories"]))
}

/// Lints posse-net with each of its features alone, as programs outside of this workspace build it: here, other crates always
/// turn on all of them.
fn features(root: &Path) -> Result<(), String> {
    for feature in ["agent", "sidecar", "coordinator", "postgres"] {
        let alone = ["--no-default-features", "--features", feature];
        let package = ["clippy", "--package", "posse-net", "--lib", "--locked"];
        cargo(root, &[&package[..], &alone, &["--", "-D", "warnings"]].concat())?;
    }
    Ok(())
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

/// Lets Prometheus's own tool read the rules, and run them against the series of their tests.
fn alerts(root: &Path) -> Result<(), String> {
    let promtool =
        |arguments: &[&str]| run(Command::new("promtool").args(arguments).current_dir(root.join("deploy")));
    promtool(&["check", "rules", "alerts.yml"])?;
    promtool(&["test", "rules", "alerts-test.yml"])
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

/// Names the step that begins, and how long the command has run: what takes long is seen in every log.
fn step(name: &str) {
    static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
    println!("── {name} (after {} s)", BEGINNING.elapsed().as_secs());
}
