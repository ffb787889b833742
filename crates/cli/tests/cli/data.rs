//! `posse data`, and experiments with what it makes.

use std::path::Path;

use crate::command::{Ran, posse};

/// A made-up table: the class says on which side of 5 the first number lies.
fn table() -> String {
    let rows = (0..600).map(|row| {
        let (x, colour) = (row % 10, ["red", "green"][row % 2]);
        format!("{x},{colour},{}\r\n", if x < 5 { "low" } else { "high" })
    });
    format!("x,colour,side\r\n{}", rows.collect::<String>())
}

fn prepared() -> (tempfile::TempDir, Ran) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("own.csv"), table()).unwrap();
    let ran = prepare(directory.path(), &[]);
    (directory, ran)
}

fn prepare(directory: &Path, more: &[&str]) -> Ran {
    let mut arguments = vec!["data", "prepare", "table", "--raw", "own.csv", "--out", "own"];
    arguments.extend(["--label", "side", "--categorical", "colour"]);
    arguments.extend(more);
    posse(directory, &arguments)
}

/// What preparing printed to be put into an experiment.
fn environment(ran: &Ran) -> &str {
    &ran.stdout[ran.stdout.find("[environment]").unwrap()..]
}

fn run(directory: &Path, environment: &str) -> Ran {
    let text = format!("horizon = 500\nagents = 3\n{environment}[[algorithm]]\nname = \"async-lin-ucb\"\n");
    std::fs::write(directory.join("x.toml"), text).unwrap();
    posse(directory, &["run", "x.toml", "--json", "--quiet"])
}

#[test]
fn what_prepare_prints_is_an_environment_that_runs() {
    let (directory, ran) = prepared();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("own (table): 2 classes, 3 features, 600 rows\n"), "{}", ran.stdout);
    let ran = run(directory.path(), environment(&ran));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document = ran.json();
    let row = &document["rows"][0];
    assert_eq!(row["environment"]["data"], "own");
    // Guessing would be right about 250 times of 500.
    assert!(row["reward"].as_f64().unwrap() > 350.0, "{}", row["reward"]);
}

#[test]
fn clusters_are_arms() {
    let (directory, _) = prepared();
    let ran = prepare(directory.path(), &["--clusters", "4", "--target", "low", "--force"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ran = run(directory.path(), environment(&ran));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.json()["rows"][0]["reward"].as_f64().unwrap() > 300.0);
}

#[test]
fn prepared_data_can_be_inspected_and_verified() {
    let (directory, _) = prepared();
    let ran = posse(directory.path(), &["data", "inspect", "own"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("\nrows by class\n  high  300  ####"), "{}", ran.stdout);
    let document = posse(directory.path(), &["data", "inspect", "own", "--json"]).json();
    assert_eq!(document["manifest"]["counts"]["rows"], 600);
    assert_eq!(posse(directory.path(), &["data", "verify", "own"]).code, 0);
    std::fs::write(directory.path().join("own/rows.parquet"), "damage").unwrap();
    let ran = posse(directory.path(), &["data", "verify", "own"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.starts_with("BROKEN  own/rows.parquet: "), "{}", ran.stdout);
}

#[test]
fn prepared_data_is_not_overwritten_by_accident() {
    let (directory, _) = prepared();
    let ran = prepare(directory.path(), &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error: own: there is something already"), "{}", ran.stderr);
    assert_eq!(prepare(directory.path(), &["--force"]).code, 0);
}

#[test]
fn a_bad_file_is_shown_where_it_is_bad_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("own.csv"), table().replacen("\r\n7,", "\r\nseven,", 1)).unwrap();
    let ran = prepare(directory.path(), &[]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stderr, "error: own.csv, line 9, column 1 (x): \"seven\" is not a finite number\n");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn every_known_set_is_listed_with_its_terms() {
    let directory = tempfile::tempdir().unwrap();
    let sets = posse(directory.path(), &["data", "list", "--json"]).json();
    let list = posse(directory.path(), &["data", "list"]).stdout;
    for set in sets.as_array().unwrap() {
        let name = set["name"].as_str().unwrap();
        assert!(list.contains(&format!("  {name} ")), "{name}");
        let one = posse(directory.path(), &["data", "list", name]).stdout;
        for key in ["licence", "address"] {
            assert!(one.contains(set[key].as_str().unwrap()), "{name} {key}");
        }
        let ran = posse(directory.path(), &["data", "prepare", name, "--raw", ".", "--out", "x"]);
        assert_eq!(ran.code, 2, "{name}");
        assert!(ran.stderr.contains(&format!("{name} comes from https://")), "{}", ran.stderr);
    }
    let ran = posse(directory.path(), &["data", "list", "shutle"]);
    assert_eq!(ran.stderr, "error: unknown data set \"shutle\": did you mean `shuttle`?\n");
}

#[test]
fn an_experiment_without_its_data_says_what_is_missing() {
    let (directory, ran) = prepared();
    let good = environment(&ran);
    let hash = good.lines().find(|line| line.starts_with("hash")).unwrap();
    for (environment, expected) in [
        (
            good.replace("\"own\"", "\"nowhere\""),
            "nowhere: this is no prepared data: there is no such directory",
        ),
        (good.replace(hash, "hash = \"0123456789abcdef\""), "own: the content hash is "),
        (good.replace(hash, ""), "own: add hash = \""),
        (good.replace("classification", "clustered-arms"), "data that was prepared for this kind of world"),
        ("[environment]\nkind = \"classification\"\n".into(), "`data` is not set"),
    ] {
        let ran = run(directory.path(), &environment);
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
}
