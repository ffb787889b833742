//! The experiments of this repository, scaled down.

use std::path::Path;

use crate::command::{directory_with, posse};

/// The text with the value of a top-level key lowered to `value`, unless it is swept or lower already.
fn with(text: &str, key: &str, value: u32) -> String {
    let replace = |line: &str| {
        let written = line.strip_prefix(&format!("{key} = ")).map(|number| number.replace('_', ""));
        if written.and_then(|number| number.parse().ok()).is_some_and(|written: u32| written > value) {
            format!("{key} = {value}\n")
        } else {
            format!("{line}\n")
        }
    };
    text.lines().map(replace).collect()
}

fn small_rows(name: &str) -> Vec<serde_json::Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    // Tables of orders sweep what is replaced here, each algorithm with numbers of its own: those are scaled instead.
    let sweeps = name.contains("-tab1");
    let small = with(&with(&with(&text, "horizon", 300), "agents", 20), "repetitions", 1);
    let directory = directory_with(&if sweeps { text } else { with(&small, "horizon_each", 40) });
    // At this size the checks of the experiment need not hold.
    let quick: &[&str] = if sweeps { &["--quick"] } else { &[] };
    let ran = posse(directory.path(), &[&["run", "x.toml", "--json", "--quiet"], quick].concat());
    assert!(ran.code < 2, "{}", ran.stderr);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    document["rows"].as_array().unwrap().clone()
}

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn needs_data(name: &str) -> bool {
    text(name).lines().any(|line| line.starts_with("data ="))
}

/// Without its data an experiment does not run, and says which command makes it.
fn says_how_to_prepare(name: &str) {
    let directory = directory_with(&text(name));
    let ran = posse(directory.path(), &["run", "x.toml", "--quiet"]);
    assert_eq!(ran.code, 2, "{name}");
    assert!(ran.stderr.contains("help: prepare it: posse data prepare "), "{name}: {}", ran.stderr);
}

#[test]
fn every_experiment_runs_or_says_which_data_it_needs() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut seen = 0;
    for file in std::fs::read_dir(directory).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".toml") {
            continue;
        }
        if needs_data(&name) {
            says_how_to_prepare(&name);
        } else {
            assert!(!small_rows(&name).is_empty(), "{name}");
        }
        seen += 1;
    }
    assert!(seen >= 47, "{seen} experiments");
}

#[test]
fn figure_2_sweeps_both_algorithms_over_both_worlds() {
    for name in ["async-fig2a.toml", "async-fig2b.toml"] {
        let rows = small_rows(name);
        assert_eq!(rows.len(), 2 * (13 + 11), "{name}");
        let of = |algorithm: &str, form: &str| -> Vec<u64> {
            let rows =
                rows.iter().filter(|row| row["algorithm"] == algorithm && row["environment"]["form"] == form);
            rows.map(|row| row["messages"].as_u64().unwrap()).collect()
        };
        for form in ["paper", "authors"] {
            let messages = of("async-lin-ucb", form);
            assert!(messages.is_sorted_by(|more, less| more >= less), "{name} {form}: {messages:?}");
            assert_eq!(messages.last(), Some(&0));
            let messages = of("sync-lin-ucb", form);
            assert!(messages.is_sorted_by(|more, less| more >= less), "{name} {form}: {messages:?}");
        }
    }
}

#[test]
fn figure_3_sweeps_the_shared_features() {
    let rows = small_rows("async-fig3.toml");
    let shared: Vec<u64> = rows.iter().map(|row| row["environment"]["shared"].as_u64().unwrap()).collect();
    let once = [4, 8, 12, 16, 20, 24];
    // Each with and without a cold start, with and without more noise in the widths, in both worlds.
    let each: Vec<u64> = once.iter().flat_map(|&shared| [shared; 4]).collect();
    assert_eq!(shared, [each.clone(), each].concat());
}
