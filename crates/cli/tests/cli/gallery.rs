//! The results of record in `docs/figures`: they belong to the experiments as they are, and can be had again.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::command::{posse, skip};
use crate::frames::{column, read};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
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
    pages.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!pages.is_empty(), "docs/figures has no pages");
    pages
}

fn sha256(path: &Path) -> String {
    let digest = Sha256::digest(std::fs::read(path).unwrap());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn pages_numbers_and_experiments_belong_together() {
    let index = std::fs::read_to_string(root().join("docs/figures/README.md")).unwrap();
    for (directory, record) in pages() {
        let id = record["id"].as_str().unwrap();
        assert_eq!(directory.file_name().unwrap().to_str(), Some(id));
        let experiment = root().join(format!("experiments/{id}.toml"));
        let stale = format!(
            "{id} was made from another experiment: run `posse reproduce --all --gallery docs/figures` again"
        );
        assert_eq!(record["experiment_sha256"], sha256(&experiment), "{stale}");
        assert_eq!(record["summary_sha256"], sha256(&directory.join("summary.parquet")), "{id}");
        let page = std::fs::read_to_string(directory.join("README.md")).unwrap();
        for check in record["checks"].as_array().unwrap() {
            let line =
                format!("**{}** {}", check["result"].as_str().unwrap(), check["says"].as_str().unwrap());
            assert!(page.contains(&line), "{id}: {line}");
        }
        for picture in record["pictures"].as_array().unwrap() {
            assert!(directory.join(picture.as_str().unwrap()).exists(), "{id}: {picture}");
        }
        assert!(index.contains(&format!("({id}/README.md)")), "{id} is not in the index");
    }
}

#[test]
fn a_cell_of_every_page_gives_the_same_bits_again() {
    let scratch = tempfile::tempdir().unwrap();
    for (directory, record) in pages() {
        let id = record["id"].as_str().unwrap();
        let (cell, cells) = (record["quickest_cell"].as_u64().unwrap(), record["cells"].as_u64().unwrap());
        let text = std::fs::read_to_string(root().join(format!("experiments/{id}.toml"))).unwrap();
        if text.lines().any(|line| line.starts_with("data =")) {
            skip(&format!("{id}: its data may not be passed on, so no cell of it is run again"));
            continue;
        }
        let shard = format!("{}/{cells}", cell + 1);
        let arguments = ["reproduce", id, "--shard", &shard, "--out", id, "--json", "-q"];
        let ran = posse(scratch.path(), &arguments).json();
        let row = &ran["rows"][0];
        let columns = read(&directory.join("summary.parquet"));
        let place = column(&columns, "id").iter().position(|own| row["id"] == own.as_str()).unwrap();
        let kept = |name: &str| column(&columns, name)[place].parse::<f64>().unwrap();
        for metric in ["regret", "reward", "messages", "rounds"] {
            let found = row[metric].as_f64().unwrap();
            assert_eq!(found.to_bits(), kept(metric).to_bits(), "{id}: {metric} {found} {}", kept(metric));
        }
    }
}
