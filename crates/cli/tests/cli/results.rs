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
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "a/b", "--json", "-q"]);
    let results = directory.path().join("a/b");
    assert_eq!(fs::read_to_string(results.join("rows.json")).unwrap(), ran.stdout);
    let mut names: Vec<_> = fs::read_dir(&results).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["experiment.toml", "rows.json"]);

    let again = posse(directory.path(), &["run", "a/b/experiment.toml", "--json", "-q"]).json();
    assert_eq!(again["config"], ran.json()["config"]);
    assert_eq!(rows_without_seconds(&again), rows_without_seconds(&ran.json()));
}

#[test]
fn the_results_of_another_configuration_are_kept() {
    let directory = directory_with(ONE);
    let run = |file: &str, more: &[&str]| {
        posse(directory.path(), &[&["run", file, "--out", "results", "-q"], more].concat())
    };
    assert_eq!(run("x.toml", &[]).code, 0);
    let rows = || fs::read_to_string(directory.path().join("results/rows.json")).unwrap();
    let before = rows();

    fs::write(directory.path().join("y.toml"), ONE.replace("horizon = 40", "horizon = 41")).unwrap();
    let refused = run("y.toml", &[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    let expected = "error: results holds the results of another configuration: choose another directory, or \
                    give --force to replace them\n";
    assert_eq!(refused.stderr, expected);
    assert_eq!(rows(), before);
    assert_eq!(run("y.toml", &["--force"]).code, 0);
    assert!(rows().contains("\"horizon\": 41"));
}

#[test]
fn other_words_and_spellings_are_the_same_configuration() {
    let directory = directory_with(ONE);
    let run = |file: &str| posse(directory.path(), &["run", file, "--out", "results", "-q"]).code;
    assert_eq!(run("x.toml"), 0);
    let same = ONE
        .replace("title = \"one\"", "title = \"two\" # new\nrepetitions = 1\nseed = 0x0")
        .replace("regularization = 1", "regularization = 1.0\nconfidence = 0.1")
        .replace("inf", "\"inf\"");
    fs::write(directory.path().join("y.toml"), same).unwrap();
    assert_eq!(run("y.toml"), 0);
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
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "results"]).code, 2);
    assert_eq!(fs::read_to_string(directory.path().join("results/rows.json")).unwrap(), "mine");
}
