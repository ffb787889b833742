//! Which part of this crate may know which: read off the `use` lines.

use std::collections::{BTreeMap, BTreeSet};
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

/// The name of the type that a line defines at the top of a file, if it defines one.
fn defined(line: &str) -> Option<&str> {
    let line =
        ["pub(crate) ", "pub(super) ", "pub "].iter().find_map(|p| line.strip_prefix(p)).unwrap_or(line);
    let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| line.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric()).next()
}

#[test]
fn a_name_stands_for_one_type_in_a_crate() {
    for crate_ in ["core", "sim", "net", "conformance"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_).join("src");
        let mut files = Vec::new();
        sources(&root, &mut files);
        let mut known: BTreeMap<String, PathBuf> = BTreeMap::new();
        for file in files {
            // Generated types mirror ours under the same names, in a module of their own.
            if file.ends_with("v1.rs") || file.ends_with("tests.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            for name in text.lines().filter_map(defined) {
                if let Some(other) = known.insert(name.into(), file.clone()) {
                    panic!("{name} is a type in {} and in {}", other.display(), file.display());
                }
            }
        }
        assert!(known.len() > 5, "{crate_} has its types where they were");
    }
}

#[test]
fn the_page_about_the_protocol_names_every_kind_of_message() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(root.join("src/message.rs")).unwrap();
    let page = std::fs::read_to_string(root.join("../../docs/protocol.md")).unwrap();
    // The arms of `kind`: `Self::Receipt { .. } => "receipt",`.
    let ends = source.lines().filter_map(|line| line.trim().strip_suffix("\","));
    let kinds: BTreeSet<&str> = ends.filter_map(|line| Some(line.split_once("=> \"")?.1)).collect();
    assert!(kinds.len() >= 25, "the kinds are where they were: {kinds:?}");
    for kind in kinds {
        assert!(page.contains(&format!("| **{kind}** |")), "no row says who sends `{kind}`, and when");
    }
}
