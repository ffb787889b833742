//! `posse run --out`.

use std::fs;

use serde_json::Value;

use crate::command::{directory_with, posse};

const ONE: &str = r#"
title = "one"
horizon = 40
agents = 3
[environment]
dimension = 3
noise_shape = { law = "uniform" }
[arrival]
kind = ["uniform", "zipf"]
[[algorithm]]
name = ["lin-ucb", "async-lin-ucb"]
regularization = 1
[[algorithm]]
name = "async-lin-ts"
threshold = [2, inf]
[[algorithm.override]]
agent = 1
upload_threshold = 3
"#;

fn rows_without_seconds(document: &Value) -> Vec<Value> {
    let mut rows = document["rows"].as_array().unwrap().clone();
    for row in &mut rows {
        row["seconds"] = Value::Null;
    }
    rows
}

#[test]
fn results_are_written_whole_beside_an_experiment_that_repeats_them() {
    let directory = directory_with(ONE);
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "a/b", "--json", "-q", "--csv"]);
    let results = directory.path().join("a/b");
    let mut names: Vec<_> = fs::read_dir(&results).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort_unstable();
    let expected = [
        ".lock",
        "agents.csv",
        "agents.parquet",
        "cells",
        "curves.csv",
        "curves.parquet",
        "experiment.toml",
        "manifest.json",
        "messages.csv",
        "messages.parquet",
        "summary.csv",
        "summary.parquet",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        fs::read_dir(results.join("cells")).unwrap().count(),
        ran.json()["rows"].as_array().unwrap().len()
    );

    let again = posse(directory.path(), &["run", "a/b/experiment.toml", "--json", "-q"]).json();
    assert_eq!(again["config"], ran.json()["config"]);
    assert_eq!(rows_without_seconds(&again), rows_without_seconds(&ran.json()));
}

#[test]
fn the_manifest_says_what_was_run_by_whom_and_how_far_it_came() {
    let directory = directory_with(ONE);
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "results", "--json", "-q"]).json();
    let manifest: Value =
        serde_json::from_str(&fs::read_to_string(directory.path().join("results/manifest.json")).unwrap())
            .unwrap();
    assert_eq!((&manifest["format"], &manifest["experiment"]), (&4.into(), &"x".into()));
    assert_eq!((&manifest["title"], &manifest["quick"]), (&"one".into(), &false.into()));
    assert_eq!(manifest["config"], ran["config"]);
    assert_eq!(manifest["posse"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(manifest["host"]["arch"], std::env::consts::ARCH);
    let cells = manifest["cells"].as_array().unwrap();
    assert_eq!(cells.len(), ran["rows"].as_array().unwrap().len());
    assert!(cells.iter().all(|cell| cell["status"] == "done"));
    assert_eq!(manifest["clock"]["cells"], cells.len());
    assert!(manifest["clock"]["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_results_of_another_configuration_are_kept() {
    let directory = directory_with(ONE);
    let run = |more: &[&str]| {
        posse(directory.path(), &[&["run", "x.toml", "--out", "results", "-q"], more].concat())
    };
    assert_eq!(run(&[]).code, 0);
    let summary = || fs::read(directory.path().join("results/summary.parquet")).unwrap();
    let before = summary();

    let other = ONE.replace("horizon = 40", "horizon = 41").replace("[2, inf]", "[2, 3]");
    fs::write(directory.path().join("x.toml"), other).unwrap();
    let refused = run(&[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    let expected = "error: results holds other results:\n  - `horizon` is 40, not 41\n  - `algorithm.2.threshold` \
                    is [2.0,\"inf\"], not [2.0,3.0]\nchoose another directory, or give --force to replace them\n";
    assert_eq!(refused.stderr, expected);
    assert_eq!(summary(), before);
    assert_eq!(run(&["--force"]).code, 0);
    assert!(summary() != before);
    assert_eq!(run(&[]).code, 0);
}

#[test]
fn other_words_and_spellings_are_the_same_configuration() {
    let directory = directory_with(ONE);
    let run = || posse(directory.path(), &["run", "x.toml", "--out", "results"]);
    assert_eq!(run().code, 0);
    let same = ONE
        .replace("title = \"one\"", "title = \"two\" # new\nrepetitions = 1\nseed = 0x0")
        .replace("regularization = 1", "regularization = 1.0\nconfidence = 0.1")
        .replace("inf", "\"inf\"");
    fs::write(directory.path().join("x.toml"), same).unwrap();
    let again = run();
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (0, "8 of 8 cells are there already\nplots and tables: posse report results\n")
    );
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_before_anything_runs() {
    let directory = directory_with(ONE);
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "x.toml"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert_eq!(ran.stderr, "error: cannot create the directory x.toml: File exists (os error 17)\n");
}

#[test]
fn a_file_that_is_not_ours_is_not_replaced() {
    let directory = directory_with(ONE);
    fs::create_dir(directory.path().join("results")).unwrap();
    fs::write(directory.path().join("results/rows.json"), "mine").unwrap();
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "results"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("holds rows.json but no manifest.json"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(directory.path().join("results/rows.json")).unwrap(), "mine");
}
