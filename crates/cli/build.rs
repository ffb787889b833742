//! What the binary knows from the repository it is built in: the commit, and the experiments.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    commit();
    experiments();
}

/// Tells the build which commit this is; without git or outside a repository it is not known.
fn commit() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(commit) = git(&["rev-parse", "HEAD"]) {
        println!("cargo::rustc-env=POSSE_COMMIT={commit}");
    }
    // The log of HEAD grows with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// What git says, in a line.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Writes a list of all experiments with their texts, by id. The directory is a link to the one at the root of the
/// repository, so that the package has the files too and not only a checkout.
fn experiments() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
        .map(|files| files.filter_map(|file| Some(file.ok()?.path())).collect())
        .unwrap_or_default();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty(), "there are no experiments in {}", directory.display());
    let mut code = String::from("&[\n");
    for file in files {
        let id = file.file_stem().unwrap_or_default().to_string_lossy();
        code.push_str(&format!("    ({id:?}, include_str!({:?})),\n", file.display().to_string()));
    }
    code.push_str("]\n");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join("experiments.rs"), code).expect("cargo's directory can be written");
}
