//! Interrupting, killing and dividing runs changes nothing in their results.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};

use serde_json::Value;

use crate::command::{command, directory_with, posse};
use crate::frames::{Columns, read_timeless};

const SWEEP: &str = r#"
title = "sweep"
horizon = 1500
agents = 20
repetitions = 4
[environment]
dimension = 8
arms = 10
[[algorithm]]
name = "async-lin-ucb"
threshold = [1.05, 1.5, 2, 5, inf]
[[algorithm]]
name = "sync-lin-ucb"
round_threshold = [0.1, 1, 10]
[[check]]
kind = "range"
metric = "regret"
low = 0
"#;

fn content(results: &Path) -> (Columns, Columns) {
    (read_timeless(&results.join("summary.parquet")), read_timeless(&results.join("curves.parquet")))
}

/// The results of a run that nothing happened to.
fn undisturbed() -> (tempfile::TempDir, (Columns, Columns)) {
    let directory = directory_with(SWEEP);
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "whole", "-q", "--jobs", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let whole = content(&directory.path().join("whole"));
    (directory, whole)
}

fn start(directory: &Path, more: &[&str]) -> Child {
    let mut run = command(directory);
    run.args(["run", "x.toml", "--out", "results"]).args(more);
    run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a run has said that so many cells are finished.
fn watch(child: &mut Child, cells: usize) -> BufReader<ChildStderr> {
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let mut finished = 0;
    while finished < cells && stderr.read_line(&mut line).unwrap() > 0 {
        finished += usize::from(line.starts_with("cell "));
        line.clear();
    }
    stderr
}

fn manifest(results: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(results.join("manifest.json")).unwrap()).unwrap()
}

fn count(results: &Path) -> usize {
    let Ok(files) = fs::read_dir(results.join("cells")) else { return 0 };
    files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == "json")).count()
}

#[test]
fn a_run_killed_ten_times_ends_with_the_same_results() {
    let (directory, whole) = undisturbed();
    let results = directory.path().join("results");
    // A simple generator with a fixed seed: ten times up to three of the 32 cells, then the end.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut kept = 0;
    for _ in 0..10 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut child = start(directory.path(), &["--jobs", "1"]);
        watch(&mut child, (state >> 62) as usize);
        child.kill().unwrap();
        child.wait().unwrap();
        let now = count(&results);
        assert!(now >= kept, "{now} of {kept} finished cells are left");
        kept = now;
    }
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "results"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    if kept > 0 {
        assert!(ran.stderr.starts_with(&format!("{kept} of 32 cells are there already\n")), "{}", ran.stderr);
    }
    assert!(content(&results) == whole, "the results differ from those of an undisturbed run");
    let left = fs::read_dir(&results).unwrap().chain(fs::read_dir(results.join("cells")).unwrap());
    let partial = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".partial");
    assert!(!left.into_iter().any(|file| partial(&file.unwrap().file_name())));
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_is_finished_and_says_how_to_go_on() {
    let (directory, whole) = undisturbed();
    let results = directory.path().join("results");
    let mut child = start(directory.path(), &[]);
    let mut stderr = watch(&mut child, 2);
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    // On a machine that is fast enough everything has run before the signal arrives.
    if status.code() == Some(130) {
        assert!(said.contains("interrupted: ") && said.contains("the same command goes on"), "{said}");
        let cells = manifest(&results)["cells"].as_array().unwrap().clone();
        let done = cells.iter().filter(|cell| cell["status"] == "done").count();
        assert_eq!(done, count(&results));
        assert!(done < cells.len() && !results.join("summary.parquet").exists());
    } else {
        assert_eq!((status.code(), count(&results)), (Some(0), 32), "{said}");
    }
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "results", "-q"]).code, 0);
    assert!(content(&results) == whole);
}

#[test]
fn jobs_and_shards_change_nothing() {
    let (directory, whole) = undisturbed();
    let run = |more: &[&str]| {
        let ran = posse(directory.path(), &[&["run", "x.toml", "-q"], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    };
    run(&["--out", "two", "--jobs", "2"]);
    assert!(content(&directory.path().join("two")) == whole);
    for shard in ["1/3", "2/3", "3/3"] {
        run(&["--out", &format!("part{}", &shard[..1]), "--shard", shard]);
    }
    let merge = |arguments: &[&str]| posse(directory.path(), &[&["merge"], arguments].concat());
    // In any order.
    let merged = merge(&["merged", "part3", "part1", "part2"]);
    assert_eq!(merged.code, 0, "{}", merged.stderr);
    assert!(merged.stdout.contains("PASS"));
    assert!(content(&directory.path().join("merged")) == whole);
    assert_eq!(manifest(&directory.path().join("merged"))["shard"], Value::Null);

    let incomplete = merge(&["bad", "part1", "part3"]);
    assert_eq!(incomplete.code, 2);
    assert!(
        incomplete.stderr.contains("async-lin-ucb/threshold=1.05/seed=1 is missing"),
        "{}",
        incomplete.stderr
    );
    let twice = merge(&["bad", "part1", "part2", "part3", "part1"]);
    assert_eq!(twice.code, 2);
    assert!(twice.stderr.contains("seed=0 is in both part1 and part1"), "{}", twice.stderr);
    assert!(!directory.path().join("bad").exists());

    let wrong = posse(directory.path(), &["run", "x.toml", "--out", "part1", "--shard", "2/3"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("it is of shard 1/3, not shard 2/3"), "{}", wrong.stderr);
    fs::write(directory.path().join("x.toml"), SWEEP.replace("seed = ", "").replace("1500", "1501")).unwrap();
    run(&["--out", "other", "--shard", "2/3"]);
    let unlike = merge(&["bad", "part1", "other"]);
    assert_eq!(unlike.code, 2);
    assert!(unlike.stderr.contains("`horizon` is 1501, not 1500"), "{}", unlike.stderr);
}

const TINY: &str = "horizon = 50\nagents = 3\nrepetitions = 3\n[[algorithm]]\nname = \"lin-ucb\"\n";

#[test]
fn a_broken_cell_is_named_and_run_again() {
    let directory = directory_with(TINY);
    let run = || posse(directory.path(), &["run", "x.toml", "--out", "results"]);
    assert_eq!(run().code, 0);
    let results = directory.path().join("results");
    let before = content(&results);
    let file = results.join("cells/000001.json");
    let text = fs::read_to_string(&file).unwrap();
    let digit = text.find("regret\":").unwrap() + 8;
    let flipped = text[..digit].to_owned()
        + if text.as_bytes()[digit] == b'9' { "8" } else { "9" }
        + &text[digit + 1..];
    for broken in ["", &text[..text.len() / 2], &flipped, "\u{0}"] {
        fs::write(&file, broken).unwrap();
        let ran = run();
        assert_eq!(ran.code, 0);
        assert!(
            ran.stderr.contains("cells/000001.json ") && ran.stderr.contains("lin-ucb/seed=1 is run again"),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains("2 of 3 cells are there already"));
        assert!(content(&results) == before);
    }
}

#[test]
fn a_broken_manifest_and_another_version_are_refused() {
    let directory = directory_with(TINY);
    let run = |more: &[&str]| {
        posse(directory.path(), &[&["run", "x.toml", "--out", "results", "-q"], more].concat())
    };
    assert_eq!(run(&[]).code, 0);
    let path = directory.path().join("results/manifest.json");
    let good = fs::read_to_string(&path).unwrap();
    for (wrong, complaint) in [
        (String::new(), "manifest.json is corrupt: "),
        (good[..good.len() / 2].to_owned(), "manifest.json is corrupt: "),
        (good.replace("\"format\": 4", "\"format\": 99"), "has format 99"),
        (good.replace("\"version\": \"", "\"version\": \"9."), "it was made by posse 9."),
        (good.replace("\"experiment\": \"x\"", "\"experiment\": \"y\""), "the experiment is y, not x"),
    ] {
        fs::write(&path, &wrong).unwrap();
        let ran = run(&[]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{complaint}");
        assert!(ran.stderr.contains(complaint) && ran.stderr.contains("--force"), "{}", ran.stderr);
        assert_eq!(fs::read_to_string(&path).unwrap(), wrong);
    }
    assert_eq!(run(&["--force"]).code, 0);
    let again = posse(directory.path(), &["run", "x.toml", "--out", "results"]);
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (0, "3 of 3 cells are there already\nplots and tables: posse report results\n")
    );
}

#[test]
fn failed_cells_are_recorded_and_tried_again() {
    let directory = directory_with(
        "horizon = 20\nagents = 3\n[environment]\nnoise = [1e308, 0.1]\n[[algorithm]]\nname = \"lin-ucb\"\n",
    );
    for known in ["", "1 of 2 cells are there already\n"] {
        let ran = posse(directory.path(), &["run", "x.toml", "--out", "r"]);
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.starts_with(known), "{}", ran.stderr);
        let cells = manifest(&directory.path().join("r"))["cells"].clone();
        assert_eq!((&cells[0]["status"], &cells[1]["status"]), (&"failed".into(), &"done".into()));
        assert!(ran.stderr.contains(cells[0]["error"].as_str().unwrap()));
    }
}

#[cfg(unix)]
#[test]
fn a_directory_without_permission_is_refused_before_anything_runs() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let directory = directory_with(TINY);
    let closed = directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let mut command = command(directory.path());
    if fs::write(closed.join("probe"), "").is_ok() {
        // Root may write everywhere, so the command runs as `nobody`, who needs a copy that it may execute.
        fs::remove_file(closed.join("probe")).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = directory.path().join("posse");
        fs::copy(env!("CARGO_BIN_EXE_posse"), &copy).unwrap();
        command = std::process::Command::new(copy);
        command.current_dir(directory.path()).uid(65_534).gid(65_534);
    }
    let output = command.args(["run", "x.toml", "--out", "closed"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), [].as_slice()), "{said}");
    assert!(said.starts_with("error: cannot write to the directory closed: "), "{said}");
}

/// Runs with a limit on the size of files, which stands for a disk that is full.
#[cfg(unix)]
fn run_with_files_up_to(blocks: &str, directory: &Path) -> std::process::Output {
    let script =
        format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" run x.toml --out results -q --jobs 1");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_posse")]).current_dir(directory);
    shell.output().unwrap()
}

#[cfg(unix)]
#[test]
fn a_start_that_was_stopped_between_two_files_can_be_started_again() {
    let directory = directory_with(TINY);
    let results = directory.path().join("results");
    let mut stopped = Vec::new();
    // Whatever fits and whatever does not, the next attempt finds nothing that keeps it from starting.
    for blocks in ["1", "2", "3", "4", "6", "8", "12", "16"] {
        let output = run_with_files_up_to(blocks, directory.path());
        stopped.push(output.status.code());
        let ran = posse(directory.path(), &["run", "x.toml", "--out", "results", "-q"]);
        assert_eq!(ran.code, 0, "after a disk of {blocks} blocks: {}", ran.stderr);
        fs::remove_dir_all(&results).unwrap();
    }
    assert!(stopped.contains(&Some(2)), "the disk was never full: {stopped:?}");
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_that_leaves_nothing_half_written() {
    let directory = directory_with(SWEEP);
    let run = |blocks: &str| run_with_files_up_to(blocks, directory.path());
    let results = directory.path().join("results");
    // Nothing fits; the manifest fits and cells do not; cells fit and the summary does not.
    for (blocks, name) in [("1", "manifest.json"), ("24", "cells/000000.json"), ("80", "curves.parquet")] {
        let output = run(blocks);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{blocks}: {said}");
        let named = said.starts_with(&format!("error: cannot write results/{name}: "));
        assert!(named && said.contains("File too large"), "{said}");
        assert!(!results.join(name).exists());
        let cells = fs::read_dir(results.join("cells")).into_iter().flatten();
        let mut files = fs::read_dir(&results).unwrap().chain(cells);
        assert!(!files.any(|file| file.unwrap().file_name().to_string_lossy().ends_with(".partial")));
    }
    assert_eq!(count(&results), 32);
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "results"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, "32 of 32 cells are there already\nplots and tables: posse report results\n")
    );
}
