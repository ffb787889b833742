//! `posse bench --published`: what is wrong is said before anything is measured, and what ran is in the document.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::command::{Ran, command, posse};

/// Runs `posse bench` with a Python of that name.
fn bench(directory: &Path, python: &str, arguments: &[&str]) -> Ran {
    let output = command(directory).env("PYTHON", python).arg("bench").args(arguments).output().unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
}

/// A clone with the names of the authors' files, which these tests do not import.
fn clone_into(directory: &Path) {
    let clone = directory.join("Async-LinUCB");
    fs::create_dir(&clone).unwrap();
    for script in ["SimulationHomogeneousClients.py", "SimulationHeterogeneousClients.py"] {
        fs::write(clone.join(script), "").unwrap();
    }
}

#[test]
fn a_directory_without_clones_is_refused_and_the_error_says_what_to_clone() {
    let directory = tempfile::tempdir().unwrap();
    let absent = posse(directory.path(), &["bench", "--published", "nowhere"]);
    assert_eq!((absent.code, absent.stdout.as_str()), (2, ""), "{}", absent.stderr);
    assert!(absent.stderr.starts_with("error: --published: cannot find nowhere"), "{}", absent.stderr);
    let empty = posse(directory.path(), &["bench", "--published", "."]);
    assert_eq!((empty.code, empty.stdout.as_str()), (2, ""), "{}", empty.stderr);
    for part in [
        "nothing to run in",
        "github.com/cyrilli/Async-LinUCB",
        "github.com/cyrilli/FedGLB-UCB",
        "github.com/ZhaoHaoRu/Federated-Clustering-of-Bandits",
    ] {
        assert!(empty.stderr.contains(part), "{part} in {}", empty.stderr);
    }
}

#[test]
fn suites_that_have_no_published_programs_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    clone_into(directory.path());
    let ran = posse(directory.path(), &["bench", "agent", "--published", "."]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(
        ran.stderr.contains("the suites `simulation` and `families`: name one of them"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_python_that_is_not_there_is_an_error_because_programs_were_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    clone_into(directory.path());
    let ran = bench(directory.path(), "/there/is/no/python", &["simulation", "--quick", "--published", "."]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("cannot start /there/is/no/python"), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn the_document_says_which_programs_ran_and_what_ran_them() {
    use std::process::Command;

    let directory = tempfile::tempdir().unwrap();
    clone_into(directory.path());
    // A shell plays Python: it says versions, or as many interactions as its row, the last argument, asks for.
    let script = r#"#!/bin/sh
case "$4" in
*algorithm*)
  n=$(printf %s "$4" | sed 's/.*"interactions":\([0-9]*\).*/\1/')
  echo '{"seconds": 60.0, "algorithm_seconds": 30.0, "interactions": '$n', "regret": 3.5, "communication": 7}' ;;
*) echo '{"python": "3.0", "numpy": "9.9"}' ;;
esac
"#;
    let python = directory.path().join("python");
    // Written by another process: while this one has a file open to write, no child of another test's may run it.
    let write = r#"printf %s "$1" > "$0" && chmod +x "$0""#;
    assert!(Command::new("sh").args(["-c", write]).arg(&python).arg(script).status().unwrap().success());
    let arguments = ["simulation", "--quick", "--json", "--published", "."];
    let document = bench(directory.path(), &python.to_string_lossy(), &arguments).json();
    let round = &document["rounds"][0];
    assert_eq!(round["published"], serde_json::json!({"python": "3.0", "numpy": "9.9"}));
    let rows = round["simulations"].as_array().unwrap();
    let ran: Vec<_> = rows.iter().filter(|row| row["published_from"] == "this-run").collect();
    assert_eq!(ran.len(), 6);
    for row in ran {
        assert_eq!(row["published_run"]["interactions"], row["interactions"]);
        assert_eq!(
            (&row["published_run"]["regret"], &row["published_run"]["messages"]),
            (&3.5.into(), &7.into())
        );
    }
}
