//! The first ten minutes: what `posse new` writes works, and the guide can be followed to its end.

use std::path::Path;

use crate::command::{Ran, posse};

const GUIDE: &str = include_str!("../../../../docs/guides/ten-minutes.md");

/// The code blocks of a language in the guide, in their order.
fn blocks(language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let parts = GUIDE.split(&fence).skip(1);
    parts.map(|part| part.split("```").next().unwrap().to_owned()).collect()
}

/// Runs a line of the guide.
fn follow(directory: &Path, line: &str) -> Ran {
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[0], "posse", "{line}");
    posse(directory, &words[1..])
}

#[test]
fn the_guide_of_ten_minutes_can_be_followed() {
    let home = tempfile::tempdir().unwrap();
    let changed = blocks("toml");
    let [arrival] = &changed[..] else { panic!("one change is made to the file") };
    let mut reports = 0;
    for line in blocks("sh").iter().flat_map(|block| block.lines()) {
        if line.starts_with("cargo install") {
            continue;
        }
        if line.contains("results/zipf") && line.contains("run") {
            let path = home.path().join("sharing.toml");
            let text = std::fs::read_to_string(&path).unwrap();
            let other = text.replace("[arrival]\nkind = \"uniform\"\n", arrival);
            assert_ne!(other, text, "the guide changes what is there");
            std::fs::write(path, other).unwrap();
        }
        let ran = follow(home.path(), line);
        assert_eq!(ran.code, 0, "{line}: {}\n{}", ran.stderr, ran.stdout);
        if line.contains("results/sharing") && line.contains("run") {
            assert!(ran.stdout.contains("PASS"), "the first claim holds: {}", ran.stdout);
        }
        reports += usize::from(line.contains("report"));
    }
    assert_eq!(reports, 2);
    for name in ["sharing", "zipf"] {
        let page = std::fs::read_to_string(home.path().join(format!("results/{name}/report.html"))).unwrap();
        assert!(page.contains("<h2>Regret against messages</h2>"), "{name}");
    }
}

#[test]
fn what_new_writes_is_in_order_and_nothing_is_overwritten() {
    let home = tempfile::tempdir().unwrap();
    let new = |what: &str, name: &str| posse(home.path(), &["new", what, name]);
    assert_eq!(new("federation", "shop").code, 0);
    let ran = posse(home.path(), &["serve", "--config", "shop.toml", "--check"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let again = new("experiment", "shop");
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("shop.toml is there already"), "{}", again.stderr);
    assert_eq!(new("experiment", "../shop").code, 2);
    assert_eq!(new("moon", "x").code, 2);
}

#[test]
fn the_doctor_says_what_there_is() {
    let home = tempfile::tempdir().unwrap();
    let looks = posse(home.path(), &["doctor", "--json"]).json();
    let names: Vec<&str> =
        looks.as_array().unwrap().iter().map(|look| look["what"].as_str().unwrap()).collect();
    for what in ["posse", "machine", "speed", "directory", "loopback", "prepared data"] {
        assert!(names.contains(&what), "{what}");
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "it leaves nothing behind");
}
