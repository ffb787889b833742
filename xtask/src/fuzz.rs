//! libFuzzer over the targets in `fuzz/`, with the stable compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{cargo_command, output, run};

/// The programs in `fuzz/fuzz_targets`, and how many inputs each tries in the test command: its seeds and changes of them,
/// half a minute to a minute of one processor.
const TARGETS: [(&str, u64); 4] = [
    ("decode_uplink", 20_000),
    ("decode_downlink", 20_000),
    ("decode_frames", 2_000),
    ("restore_state", 300),
];
/// What libFuzzer wants to be told: which edges ran, and which values were compared. cargo-fuzz passes the same.
/// These flags are stable; only sanitisers need nightly, and the crates forbid `unsafe`.
const COVERAGE: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];
const SECONDS: u64 = 10;

/// `cargo xtask fuzz [TARGET] [--seconds N]`.
pub(crate) fn command(root: &Path, options: &[&str]) -> Result<(), String> {
    let names = TARGETS.map(|(name, _)| name);
    let (mut targets, mut seconds) = (names.to_vec(), SECONDS);
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        if *option == "--seconds" {
            let number = rest.next().and_then(|number| number.parse().ok());
            seconds = number.ok_or("--seconds takes a whole number")?;
        } else if names.contains(option) {
            targets = vec![option];
        } else {
            return Err(format!("there is no target {option:?}; there are {}", names.join(", ")));
        }
    }
    let (host, home) = (build(root)?, root.join("target/fuzz"));
    targets.into_iter().try_for_each(|target| one(root, &host, target, &home, Limit::Seconds(seconds)))
}

/// Builds every target and runs it with inputs that are the same every time.
pub(crate) fn all(root: &Path) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(root.join("target/fuzz/corpus"));
    let (host, home) = (&build(root)?, &root.join("target/fuzz"));
    // All at once: a fuzzer keeps one processor busy, and how many inputs it tries does not depend on the others.
    std::thread::scope(|scope| {
        let start = |(target, runs)| scope.spawn(move || one(root, host, target, home, Limit::Runs(runs)));
        let running = TARGETS.map(start);
        running.into_iter().try_for_each(|fuzzer| fuzzer.join().expect("it returns its errors"))
    })
}

/// When a fuzzer stops.
#[derive(Clone, Copy)]
enum Limit {
    Seconds(u64),
    Runs(u64),
}

/// Builds every target. Returns the host that they are built for.
fn build(root: &Path) -> Result<String, String> {
    let version = output(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    // With a target named, the flags are for the targets alone and not for build scripts and macros.
    let build =
        ["build", "--package=posse-fuzz", "--bins", "--features=libfuzzer", "--locked", "--target", host];
    run(cargo_command(root).args(build).env("RUSTFLAGS", COVERAGE.join(" ")))?;
    Ok(host.to_owned())
}

/// Runs one target to its limit, from seeds that it makes itself.
fn one(root: &Path, host: &str, target: &str, home: &Path, limit: Limit) -> Result<(), String> {
    let program = root.join(format!("target/{host}/debug/{target}"));
    let seeds = home.join("seeds").join(target);
    let _ = std::fs::remove_dir_all(&seeds);
    run(Command::new(&program).env("POSSE_SEEDS", &seeds))?;
    let directory = |name: &str| -> Result<PathBuf, String> {
        let path = home.join(name).join(target);
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    };
    let (corpus, artifacts) = (directory("corpus")?, directory("artifacts")?);
    let count = std::fs::read_dir(&seeds).map_or(0, Iterator::count);
    match limit {
        Limit::Seconds(seconds) => println!("   {target}: {seconds} s from {count} seeds"),
        Limit::Runs(runs) => println!("   {target}: {runs} inputs from {count} seeds"),
    }
    let mut fuzzer = Command::new(&program);
    // libFuzzer writes what it finds into the first directory.
    fuzzer.arg(corpus).arg(seeds);
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display()));
    match limit {
        Limit::Seconds(seconds) => fuzzer.arg(format!("-max_total_time={seconds}")),
        Limit::Runs(runs) => fuzzer.arg(format!("-runs={runs}")).arg("-seed=1"),
    };
    let log = home.join(format!("{target}.log"));
    let file = std::fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    run(fuzzer.stderr(file)).map_err(|error| {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(30).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        format!("{}\n{error}\nrun it again with: {} INPUT", last.join("\n"), program.display())
    })?;
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    if let Some(done) = said.lines().rev().find(|line| line.contains(" DONE ")) {
        println!("   {target}: {}", done.trim());
    }
    Ok(())
}
