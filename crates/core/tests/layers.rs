//! Which part of this crate may know which: read off the `use` lines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Families know the parts below them and not each other; only the list of algorithms knows all of them.
const FAMILIES: [&str; 5] = ["linear", "glm", "kernel", "neural", "clustered"];
/// What knows families besides the list: messages of families, their encoding, and the link in a recipe.
const ABOVE: [&str; 5] = ["algorithm", "message", "wire", "recipe", "lib"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The parts that `text` uses, by the first name after `crate::`.
fn used(text: &str) -> BTreeSet<&str> {
    text.split("crate::")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""))
        .collect()
}

#[test]
fn families_do_not_know_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 50, "the sources are where they were");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let place = file.strip_prefix(&root).unwrap();
        let part = place.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if ABOVE.contains(&part) {
            continue;
        }
        // Tests may build on anything.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let families = used(text).into_iter().filter(|name| FAMILIES.contains(name) && *name != part);
        let others: Vec<&str> = families.collect();
        assert!(others.is_empty(), "{} uses {others:?}", place.display());
    }
}
