//! Wrong experiments. Each `errors/*.toml` has what `posse run` says about it in a `.txt` beside it;
//! `UPDATE=1` writes those anew.

use std::path::Path;

use crate::command::{directory_with, posse};

#[test]
fn every_error_is_shown_where_it_is() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/errors");
    let names =
        std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut cases: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned())).collect();
    cases.sort_unstable();
    assert!(cases.len() > 15);
    for case in cases {
        let ran = posse(&directory, &["run", &format!("{case}.toml")]);
        let path = directory.join(format!("{case}.txt"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &ran.stderr).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(ran.stderr, expected, "{case}: run with UPDATE=1 if this is meant");
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{case}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let ran = posse(directory.path(), &["run", "nowhere.toml"]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stderr, "error: cannot read nowhere.toml: No such file or directory (os error 2)\n");
}

#[test]
fn nothing_is_written_for_a_wrong_experiment() {
    let directory = directory_with("horizon = 10\n");
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "results"]).code, 2);
    assert!(!directory.path().join("results").exists());
}

#[test]
fn a_cell_that_fails_does_not_stop_the_others() {
    // Noise of this size passes every check and overflows at the first reward.
    let directory = directory_with(
        "horizon = 20\nagents = 3\n[environment]\nnoise = [1e308, 0.1]\n[[algorithm]]\nname = \"lin-ucb\"\n",
    );
    let ran = posse(directory.path(), &["run", "x.toml", "--json", "--quiet"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.starts_with("error: lin-ucb/noise="), "{}", ran.stderr);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["rows"].as_array().unwrap().len(), 1);
    assert_eq!(document["rows"][0]["id"], "lin-ucb/noise=0.1/seed=0");
    assert_eq!(document["failures"].as_array().unwrap().len(), 1);
    let failed = &document["failures"][0]["error"];
    assert!(ran.stderr.contains(failed.as_str().unwrap()));
}

#[test]
fn wrong_arguments_are_refused_with_exit_code_2() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in
        [&["rn"][..], &[], &["run"], &["run", "x.toml", "--jobs", "0"], &["run", "x.toml", "--force"]]
    {
        let ran = posse(directory.path(), arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(!ran.stderr.is_empty(), "{arguments:?}");
    }
}
