//! `posse run`.

use std::io::Read;
use std::process::Stdio;

use serde_json::Value;

use crate::command::{command, directory_with, posse};

const SMALL: &str = r#"
title = "small"
seed = 7
repetitions = 2
horizon = 60
agents = [4, 8]
[environment]
dimension = 3
arms = 4
form = ["paper", "authors"]
[[algorithm]]
name = "async-lin-ucb"
threshold = [1.5, 5, inf]
[[algorithm]]
name = "sync-lin-ucb"
round_threshold = 0.5
"#;

fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().unwrap()
}

fn ids(text: &str) -> Vec<String> {
    let directory = directory_with(text);
    let document = posse(directory.path(), &["run", "x.toml", "--json", "--quiet"]).json();
    rows(&document).iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// The document without what depends on the clock.
fn timeless(mut document: Value) -> Value {
    for row in document["rows"].as_array_mut().unwrap() {
        assert!(row.as_object_mut().unwrap().remove("seconds").is_some());
    }
    document
}

#[test]
fn a_row_has_all_settings_and_results() {
    let directory = directory_with(SMALL);
    let document = posse(directory.path(), &["run", "x.toml", "--json", "--quiet"]).json();
    let top: Vec<&String> = document.as_object().unwrap().keys().collect();
    let expected = ["experiment", "quick", "config", "version", "rows", "failures", "checks", "privacy"];
    assert_eq!(top, expected);
    assert_eq!(document["experiment"], "x");
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["config"]["title"], "small");
    assert_eq!(document["config"]["environment"]["pool"], 1000);
    assert_eq!(rows(&document).len(), (3 + 1) * 2 * 2 * 2);
    let expected = [
        "id",
        "algorithm",
        "parameters",
        "environment",
        "arrival",
        "network",
        "faults",
        "adversaries",
        "seed",
        "agents",
        "horizon",
        "regret",
        "regret_each",
        "reward",
        "random_reward",
        "normalised_reward",
        "uploads",
        "downloads",
        "messages",
        "rounds",
        "scalars_up",
        "scalars_down",
        "paper_scalars_up",
        "paper_scalars_down",
        "bytes_up",
        "bytes_down",
        "control_messages",
        "agents_seen",
        "lost_observations",
        "clusters",
        "rand_index",
        "psd_repairs",
        "epsilon_spent",
        "signal_to_noise",
        "failed_trainings",
        "honest_regret",
        "set_aside",
        "seconds",
    ];
    for row in rows(&document) {
        assert_eq!(row.as_object().unwrap().keys().collect::<Vec<_>>(), expected);
        let whole = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(whole("messages"), whole("uploads") + whole("downloads"));
        assert_eq!(row["environment"]["kind"], "linear");
        assert!(row["regret"].as_f64().unwrap() > 0.0);
    }
    let never =
        rows(&document).iter().find(|row| row["id"].as_str().unwrap().contains("threshold=inf")).unwrap();
    assert_eq!(never["parameters"]["upload_threshold"], "inf");
    assert_eq!(never["parameters"]["download_threshold"], "inf");
    assert_eq!(never["messages"], 0);
    assert!(rows(&document).iter().any(|row| row["rounds"].as_u64() > Some(0)));
}

#[test]
fn ids_name_what_is_swept_and_the_last_list_varies_fastest() {
    let all = ids(SMALL);
    assert_eq!(
        all[..4],
        [
            "async-lin-ucb/agents=4/form=paper/threshold=1.5/seed=7",
            "async-lin-ucb/agents=4/form=paper/threshold=1.5/seed=8",
            "async-lin-ucb/agents=4/form=paper/threshold=5/seed=7",
            "async-lin-ucb/agents=4/form=paper/threshold=5/seed=8",
        ]
    );
    assert_eq!(all[6], "async-lin-ucb/agents=4/form=authors/threshold=1.5/seed=7");
    assert_eq!(all[12], "async-lin-ucb/agents=8/form=paper/threshold=1.5/seed=7");
    assert_eq!(all[24], "sync-lin-ucb/agents=4/form=paper/seed=7");
}

#[test]
fn ids_tell_namesakes_and_same_keys_apart() {
    let text = r#"
horizon = 20
agents = 3
[environment]
noise = [0.1, 0.2]
[[algorithm]]
name = "lin-ucb"
noise = [0.1, 0.3]
"#;
    assert_eq!(
        ids(text)[..2],
        [
            "lin-ucb/environment.noise=0.1/algorithm.noise=0.1/seed=0",
            "lin-ucb/environment.noise=0.1/algorithm.noise=0.3/seed=0",
        ]
    );
    let text = r#"
horizon = 20
agents = 3
[[algorithm]]
name = ["lin-ucb", "central-lin-ucb"]
[[algorithm]]
name = "lin-ucb"
fixed_width = 0.3
confidence = 0.2
[[algorithm]]
name = "lin-ucb"
fixed_width = 0.5
confidence = 0.2
noise = 0.1
"#;
    assert_eq!(
        ids(text),
        [
            // Of defaults, those in which namesakes differ.
            "lin-ucb/confidence=0.1/seed=0",
            "central-lin-ucb/seed=0",
            "lin-ucb/fixed_width=0.3/confidence=0.2/seed=0",
            "lin-ucb/fixed_width=0.5/confidence=0.2/seed=0",
        ]
    );
}

#[test]
fn results_depend_neither_on_the_clock_nor_on_the_number_of_jobs() {
    let directory = directory_with(SMALL);
    let run = |jobs| {
        timeless(posse(directory.path(), &["run", "x.toml", "--json", "--quiet", "--jobs", jobs]).json())
    };
    let once = run("1");
    assert_eq!(once, run("1"));
    assert_eq!(once, run("2"));
    assert_eq!(once, run("5"));
}

#[test]
fn the_table_has_a_line_for_each_group_and_fits_a_terminal() {
    let directory = directory_with(&SMALL.replace("agents = [4, 8]", "agents = 8"));
    let ran = posse(directory.path(), &["run", "x.toml"]);
    assert_eq!(ran.code, 0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 1 + (3 + 1) * 2);
    let words: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(words, ["cell", "regret", "messages", "scalars", "bytes", "reward", "seconds"]);
    assert!(lines[1].starts_with("async-lin-ucb/form=paper/threshold=1.5 "));
    let width = lines[0].chars().count();
    assert!(width <= 100, "{width}");
    assert!(lines.iter().all(|line| line.chars().count() == width));
    assert!(lines[1].contains('±'));
}

#[test]
fn progress_is_a_line_a_cell_unless_quiet() {
    let directory = directory_with(SMALL);
    let ran = posse(directory.path(), &["run", "x.toml", "--jobs", "1"]);
    assert_eq!(ran.stderr.lines().filter(|line| line.starts_with("cell ")).count(), 32);
    let first = ran.stderr.lines().next().unwrap();
    let start = "cell 1/32 async-lin-ucb/agents=4/form=paper/threshold=1.5/seed=7 regret ";
    assert!(first.starts_with(start) && first.ends_with(" s"), "{first}");
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--quiet"]).stderr, "");
}

#[test]
fn links_and_faults_are_part_of_an_experiment() {
    let text = r#"
horizon = 200
agents = 4
[environment]
dimension = 3
[network]
preset = ["ideal", "hostile"]
[faults]
agent_crash = 0.01
[[algorithm]]
name = "async-lin-ucb"
[[algorithm.override]]
agent = 1
upload_threshold = inf
"#;
    let directory = directory_with(text);
    let document = posse(directory.path(), &["run", "x.toml", "--json", "-q"]).json();
    assert_eq!(rows(&document)[1]["id"], "async-lin-ucb/preset=hostile/seed=0");
    assert_eq!(rows(&document)[1]["network"]["preset"], "hostile");
    assert_eq!(rows(&document)[1]["parameters"]["override"][0]["upload_threshold"], "inf");
    assert!(rows(&document)[0]["control_messages"].as_u64() > Some(0));
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    // More rows than a pipe holds, so that the command is still writing when the reader is gone.
    let thresholds: Vec<String> = (2..120).map(|threshold| threshold.to_string()).collect();
    let text = format!(
        "horizon = 2\nagents = 2\n[environment]\ndimension = 2\n[[algorithm]]\nname = \"async-lin-ucb\"\nthreshold = [{}]\n",
        thresholds.join(", ")
    );
    let directory = directory_with(&text);
    let mut child = command(directory.path())
        .args(["run", "x.toml", "--json", "--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
