//! Instructions that small kernels need, counted by callgrind and compared with a table in the tree.
//!
//! Counts hardly depend on what else the machine does, so that a slower kernel is seen also on a busy one. What is counted
//! is the build of the tests, because it is there already: decision 0160 says what that means.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::provide;
use crate::python::target;
use crate::run::{cargo, output};

/// The committed table: a name and instructions a call, separated by a tab.
const TABLE: &str = "crates/bench/counts.tsv";
/// Each kernel runs this often, and then three times as often.
const REPETITIONS: u64 = 100;
/// A kernel that needs more than this over its line in the table fails.
const TOLERANCE: f64 = 0.03;

/// `Ok` if instructions can be counted here. The error is the reason why not: the table is of one kind of processor.
pub(crate) fn possible() -> Result<(), String> {
    provide::valgrind()?;
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !processor.contains(" avx2 ") {
        return Err("instructions are not counted: the table is of processors with AVX2".into());
    }
    Ok(())
}

/// Builds the kernels as the tests do, then does what [`compare`] does.
pub(crate) fn run(root: &Path, update: bool) -> Result<(), String> {
    possible()?;
    cargo(root, &["build", "--workspace", "--locked", "--example=counts"])?;
    compare(root, update)
}

/// Counts every kernel of the build that is there and compares it with the table, or with `update` writes the table.
pub(crate) fn compare(root: &Path, update: bool) -> Result<(), String> {
    let program = target(root).join("debug/examples/counts");
    let names = output(&mut Command::new(&program))?;
    let path = root.join(TABLE);
    let table = std::fs::read_to_string(&path).unwrap_or_default();
    let (mut fresh, mut worse) = (String::new(), Vec::new());
    for name in names.lines() {
        let counted = count(&program, name)?;
        let _ = writeln!(fresh, "{name}\t{counted}");
        let known = table.lines().filter_map(|line| line.split_once('\t')).find(|(own, _)| *own == name);
        let Some(known) = known.and_then(|(_, count)| count.parse::<u64>().ok()) else {
            println!("   {name}: {counted}, not in the table");
            worse.push(format!("{name} is not in {TABLE}"));
            continue;
        };
        let change = counted as f64 / known as f64 - 1.0;
        println!("   {name}: {counted} ({:+.1} %)", 100.0 * change);
        if change > TOLERANCE {
            worse.push(format!("{name} needs {counted} instructions instead of {known}"));
        }
    }
    if update {
        return std::fs::write(&path, fresh).map_err(|error| format!("{}: {error}", path.display()));
    }
    if worse.is_empty() {
        return Ok(());
    }
    Err(format!("{}\nIf that is meant: cargo xtask counts --update", worse.join("\n")))
}

/// Instructions of one call: what more repetitions cost more.
fn count(program: &Path, name: &str) -> Result<u64, String> {
    let few = collected(program, name, REPETITIONS)?;
    let many = collected(program, name, 3 * REPETITIONS)?;
    Ok(many.saturating_sub(few) / (2 * REPETITIONS))
}

fn collected(program: &Path, name: &str, repetitions: u64) -> Result<u64, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program).arg(name);
    let output =
        valgrind.arg(repetitions.to_string()).output().map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find_map(|line| line.split_once("Collected :"));
    let count = line.and_then(|(_, count)| count.trim().parse().ok());
    count
        .filter(|_| output.status.success())
        .ok_or_else(|| format!("callgrind counted nothing for {name}:\n{said}"))
}
