//! libFuzzer over the targets in `fuzz/`, with the stable compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{cargo_command, output, run};

/// The programs in `fuzz/fuzz_targets`.
const TARGETS: [&str; 4] = ["decode_uplink", "decode_downlink", "decode_frames", "restore_state"];
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
    let (mut targets, mut seconds) = (TARGETS.to_vec(), SECONDS);
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        if *option == "--seconds" {
            let number = rest.next().and_then(|number| number.parse().ok());
            seconds = number.ok_or("--seconds takes a whole number")?;
        } else if TARGETS.contains(option) {
            targets = vec![option];
        } else {
            return Err(format!("there is no target {option:?}; there are {}", TARGETS.join(", ")));
        }
    }
    fuzz(root, &targets, seconds)
}

/// Builds and runs every target for some seconds.
pub(crate) fn all(root: &Path, seconds: u64) -> Result<(), String> {
    fuzz(root, &TARGETS, seconds)
}

fn fuzz(root: &Path, targets: &[&str], seconds: u64) -> Result<(), String> {
    let version = output(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    // With a target named, the flags are for the targets alone and not for build scripts and macros.
    let build =
        ["build", "--package=posse-fuzz", "--bins", "--features=libfuzzer", "--locked", "--target", host];
    run(cargo_command(root).args(build).env("RUSTFLAGS", COVERAGE.join(" ")))?;
    let home = root.join("target/fuzz");
    for target in targets {
        let program = root.join(format!("target/{host}/debug/{target}"));
        one(&program, target, &home, seconds)?;
    }
    Ok(())
}

fn one(program: &Path, target: &str, home: &Path, seconds: u64) -> Result<(), String> {
    let seeds = home.join("seeds").join(target);
    let _ = std::fs::remove_dir_all(&seeds);
    run(Command::new(program).env("POSSE_SEEDS", &seeds))?;
    let directory = |name: &str| -> Result<PathBuf, String> {
        let path = home.join(name).join(target);
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    };
    let (corpus, artifacts) = (directory("corpus")?, directory("artifacts")?);
    println!("   {target}: {seconds} s from {} seeds", std::fs::read_dir(&seeds).map_or(0, Iterator::count));
    let mut fuzzer = Command::new(program);
    // libFuzzer writes what it finds into the first directory.
    fuzzer.arg(corpus).arg(seeds);
    fuzzer
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()));
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
        println!("   {}", done.trim());
    }
    Ok(())
}
