//! Golden runs: small seeded experiments whose numbers are committed. A change of numbers must be meant.

use std::path::Path;

use crate::command::posse;

const INSTRUCTIONS: &str = "the numbers of this experiment have changed. If that is meant, run the test with UPDATE=1, look \
                            at the difference, and add a line beginning with \"numbers\" to the changelog that says \
                            what changed them and why";

#[test]
fn the_numbers_of_small_experiments_stay_the_same() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut seen = 0;
    for file in std::fs::read_dir(&golden).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let ran =
            posse(directory.path(), &["run", path.to_str().unwrap(), "--out", "results", "--csv", "--quiet"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let summary = std::fs::read_to_string(directory.path().join("results/summary.csv")).unwrap();
        // The time is the last column.
        let timeless: String =
            summary.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned() + "\n").collect();
        let committed = path.with_extension("csv");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&committed, &timeless).unwrap();
        }
        let expected = std::fs::read_to_string(&committed).unwrap_or_default();
        for (now, before) in timeless.lines().zip(expected.lines()) {
            assert_eq!(now, before, "{}: {INSTRUCTIONS}", path.display());
        }
        assert_eq!(timeless, expected, "{}: {INSTRUCTIONS}", path.display());
        seen += 1;
    }
    assert!(seen >= 2);
}
