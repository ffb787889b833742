//! The pages of this repository: what they link to is there, and no decision is missing in the list of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Markdown file of the repository, by its path from the root. Directories of builds and of other programs have none of ours.
fn pages() -> Vec<PathBuf> {
    fn walk(directory: &Path, pages: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "results", "node_modules"].contains(&name.as_str()) {
                    walk(&path, pages);
                }
            } else if name.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    let mut pages = Vec::new();
    for directory in ["crates", "docs", "examples", "fuzz"] {
        walk(&root().join(directory), &mut pages);
    }
    pages.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)),
    );
    pages.sort();
    pages
}

/// The text of a page without its blocks of code, in which brackets mean something else.
fn prose(page: &Path) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    text.split("```").step_by(2).collect()
}

/// The targets of all links and pictures of a page that stay inside the repository.
fn targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for (start, end) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')] {
        for rest in text.split(start).skip(1) {
            let target = rest.split(end).next().unwrap();
            let elsewhere = target.contains("://")
                || target.starts_with("mailto:")
                || target.contains(char::is_whitespace);
            if !target.is_empty() && !elsewhere {
                targets.push(target.to_owned());
            }
        }
    }
    targets
}

/// The name under which a heading can be linked to: lower case, hyphens for spaces, and no other punctuation.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().to_lowercase();
    let letters = letters.chars().filter(|&letter| letter.is_alphanumeric() || " -_".contains(letter));
    letters.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn anchors(page: &Path) -> BTreeSet<String> {
    let text = prose(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn every_link_of_every_page_leads_to_a_file_and_a_heading_that_exist() {
    let pages = pages();
    assert!(pages.len() > 100, "only {} pages were found", pages.len());
    let mut broken = Vec::new();
    for page in &pages {
        for target in targets(&prose(page)) {
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_page = file.extension().is_some_and(|extension| extension == "md");
            let found = file.exists() && (heading.is_empty() || !is_page || anchors(&file).contains(heading));
            if !found {
                broken.push(format!("{}: {target}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn the_list_of_decisions_has_every_decision() {
    let directory = root().join("docs/decisions");
    let listed: BTreeSet<String> = targets(&prose(&directory.join("README.md"))).into_iter().collect();
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "README.md" && !listed.contains(&name) {
            missing.push(name);
        }
    }
    missing.sort();
    assert!(missing.is_empty(), "add to docs/decisions/README.md: {missing:?}");
}
