//! The results of record in `docs/figures`: they belong to the experiments as they are, and can be had again.

use std::path::{Path, PathBuf};

use posse_testing::skip;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::command::posse;
use crate::frames::{column, read};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of an experiment of this repository.
fn experiment(id: &str) -> String {
    std::fs::read_to_string(root().join(format!("experiments/{id}.toml"))).unwrap()
}

/// The directories of all pages, with their records.
fn pages() -> Vec<(PathBuf, Value)> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(root().join("docs/figures")).unwrap() {
        let directory = entry.unwrap().path();
        if directory.is_dir() {
            let text = std::fs::read_to_string(directory.join("record.json")).unwrap();
            pages.push((directory, serde_json::from_str(&text).unwrap()));
        }
    }
    pages.sort_by(|a: &(PathBuf, Value), b| a.0.cmp(&b.0));
    assert!(!pages.is_empty(), "docs/figures has no pages");
    pages
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What an experiment says, without comments, empty lines and the time that it took.
fn essence(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines().map(str::trim) {
        if !(line.is_empty() || line.starts_with('#') || line.starts_with("processor_minutes")) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[test]
fn pages_numbers_and_experiments_belong_together() {
    let index = std::fs::read_to_string(root().join("docs/figures/README.md")).unwrap();
    for (directory, record) in pages() {
        let id = record["id"].as_str().unwrap();
        assert_eq!(directory.file_name().unwrap().to_str(), Some(id));
        let text = experiment(id);
        assert_eq!(
            record["experiment_sha256"],
            sha256(essence(&text).as_bytes()),
            "{id} was made from another experiment: `posse reproduce --all --out DIR --gallery docs/figures` makes its page anew"
        );
        assert!(
            text.lines().any(|line| line.starts_with("processor_minutes = ")),
            "{id} has a page and does not say what it costs"
        );
        let summary = directory.join("summary.parquet");
        assert_eq!(record["summary_sha256"], sha256(&std::fs::read(&summary).unwrap()), "{id}");
        let rows = column(&read(&summary), "id").len();
        assert_eq!(record["cells"], rows, "{id}: cells that failed have no row");
        let page = std::fs::read_to_string(directory.join("README.md")).unwrap();
        for check in record["checks"].as_array().unwrap() {
            let line =
                format!("**{}** {}", check["result"].as_str().unwrap(), check["says"].as_str().unwrap());
            assert!(page.contains(&line), "{id}: {line}");
        }
        for picture in record["pictures"].as_array().unwrap() {
            let picture = picture.as_str().unwrap();
            assert!(directory.join(picture).exists() && page.contains(picture), "{id}: {picture}");
        }
        assert!(index.contains(&format!("({id}/README.md)")), "{id} is not in the index");
    }
}

/// Prepares the data of an experiment as it says, from the publishers' files where `POSSE_DATA` is; false if they are not.
fn prepare(directory: &Path, text: &str) -> bool {
    let command =
        text.lines().find_map(|line| line.strip_prefix("prepare = \"")).unwrap().trim_end_matches('"');
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    let set = words[2];
    let raw = std::env::var_os("POSSE_DATA").map(|home| Path::new(&home).join(set));
    let Some(raw) = raw.filter(|raw| raw.exists()) else { return false };
    let raw = raw.canonicalize().unwrap().display().to_string();
    let words: Vec<&str> =
        words.into_iter().map(|word| if word == "RAW" { raw.as_str() } else { word }).collect();
    let out = words[words.iter().position(|word| *word == "--out").unwrap() + 1];
    if !directory.join(out).exists() {
        let ran = posse(directory, &words);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    true
}

/// An experiment whose runs all end after so many interactions. Its cells keep their places.
fn shortened(text: &str, interactions: u64) -> String {
    let is_horizon = |line: &&str| line.starts_with("horizon = ") || line.starts_with("horizon_each = ");
    assert_eq!(text.lines().filter(is_horizon).count(), 1, "runs of this experiment have several lengths");
    let short = |line: &str| match is_horizon(&line) {
        true => format!("horizon = {interactions}\n"),
        false => format!("{line}\n"),
    };
    text.lines().map(short).collect()
}

/// Of cells that take long, the beginning: whatever changes numbers changes them there, too.
#[test]
fn a_cell_of_every_page_gives_the_same_bits_again() {
    let scratch = tempfile::tempdir().unwrap();
    for (directory, record) in pages() {
        let id = record["id"].as_str().unwrap();
        let (cell, cells) = (record["quickest_cell"].as_u64().unwrap(), record["cells"].as_u64().unwrap());
        let text = experiment(id);
        if text.lines().any(|line| line.starts_with("data =")) && !prepare(scratch.path(), &text) {
            skip(&format!("the data of {id} is not here: set POSSE_DATA to where it is"));
            continue;
        }
        let shard = format!("{}/{cells}", cell + 1);
        let beginning = &record["beginning"];
        let ran = if beginning.is_null() {
            let arguments = ["reproduce", id, "--shard", &shard, "--out", id, "--json", "-q"];
            posse(scratch.path(), &arguments).json()
        } else {
            let file = format!("{id}.toml");
            let begun = shortened(&text, beginning["interactions"].as_u64().unwrap());
            std::fs::write(scratch.path().join(&file), begun).unwrap();
            posse(scratch.path(), &["run", &file, "--shard", &shard, "--out", id, "--json", "-q"]).json()
        };
        let row = &ran["rows"][0];
        let columns = read(&directory.join("summary.parquet"));
        let place = column(&columns, "id").iter().position(|own| row["id"] == own.as_str());
        for metric in ["regret", "reward", "messages", "rounds", "bytes_up"] {
            let found = row[metric].as_f64().unwrap();
            let kept = match &beginning[metric] {
                Value::Null => column(&columns, metric)[place.unwrap()].parse().unwrap(),
                kept => kept.as_f64().unwrap(),
            };
            assert_eq!(found.to_bits(), kept.to_bits(), "{id}: {metric} {found} {kept}");
        }
    }
}
