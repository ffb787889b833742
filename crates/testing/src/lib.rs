//! What the tests of several crates share.
//!
//! A test that needs something from outside, such as a browser or a data set, calls [`skip`] when it is not
//! there. `cargo xtask test` provides what it can and lists what was skipped at its end.
#![forbid(unsafe_code)]

pub mod gate;
pub mod postgres;

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;

/// Names the file to which skipped tests are appended, one line each. `cargo xtask test` sets it.
pub const SKIPS: &str = "POSSE_SKIPS";
/// With the value `1`, a test that would be skipped fails. `.ci/run` sets it.
pub const REQUIRE_ALL: &str = "POSSE_REQUIRE_ALL";

/// Says that the current test, or a part of it, cannot run here; the caller then returns.
///
/// # Panics
/// If [`REQUIRE_ALL`] is `1`, or if the file that [`SKIPS`] names cannot be written.
pub fn skip(reason: &str) {
    let required = std::env::var_os(REQUIRE_ALL).is_some_and(|value| value == "1");
    assert!(!required, "{REQUIRE_ALL}=1, but this test would be skipped: {reason}");
    // The test runner names the thread of a test after it.
    let thread = std::thread::current();
    let line = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
    match std::env::var_os(SKIPS) {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list of skipped tests");
        }
        // Not `eprintln!`, whose words the test runner drops when the test passes.
        None => drop(write!(std::io::stderr(), "SKIPPED {line}")),
    }
}

/// A Python that can import all `modules`: the one that `PYTHON` names, or `python3`. Without one, calls
/// [`skip`] and returns `None`.
#[must_use]
pub fn python(modules: &str) -> Option<String> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let check = Command::new(&python).args(["-c", &format!("import {modules}")]).output();
    if check.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    skip(&format!("{python} cannot import {modules}: name a Python that can in the variable PYTHON"));
    None
}
