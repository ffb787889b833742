//! `posse compare`.

use std::fs;

use crate::command::{directory_with, posse};

const ONE: &str = "horizon = 300\nagents = 5\nrepetitions = 5\n[[algorithm]]\nname = \"async-lin-ucb\"\nthreshold = [1.5, 4]\n";

#[test]
fn equal_results_do_not_differ_and_others_are_refused() {
    let directory = directory_with(ONE);
    let run = |arguments: &[&str]| posse(directory.path(), arguments);
    for out in ["a", "b"] {
        assert_eq!(run(&["run", "x.toml", "--out", out, "-q"]).code, 0);
    }
    let same = run(&["compare", "a", "b"]);
    assert_eq!(same.code, 0, "{}", same.stderr);
    assert!(same.stdout.contains("async-lin-ucb/threshold=1.5  "), "{}", same.stdout);
    assert!(same.stdout.ends_with("0 of 4 lines differ, 0 significantly (p < 0.01)\n"), "{}", same.stdout);

    fs::write(directory.path().join("x.toml"), ONE.replace("agents = 5", "agents = 6")).unwrap();
    assert_eq!(run(&["run", "x.toml", "--out", "c", "-q"]).code, 0);
    let unlike = run(&["compare", "a", "c"]);
    assert_eq!((unlike.code, unlike.stdout.as_str()), (2, ""));
    let expected = "error: c and a are not of the same experiment:\n  - `agents` is 6, not 5\n";
    assert_eq!(unlike.stderr, expected);
    assert_eq!(
        run(&["compare", "a", "nowhere"]).stderr,
        "error: nowhere holds no results: there is no manifest.json in it\n"
    );
}

#[test]
fn a_change_of_numbers_is_seen_in_pairs() {
    let directory = directory_with(ONE);
    let run = |arguments: &[&str]| posse(directory.path(), arguments);
    for out in ["a", "b"] {
        assert_eq!(run(&["run", "x.toml", "--out", out, "-q"]).code, 0);
    }
    // As another build would have made it: every regret of the first group one higher.
    for index in 0..5 {
        let path = directory.path().join(format!("b/cells/{index:06}.json"));
        let text = fs::read_to_string(&path).unwrap();
        let mut stored: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let regret = stored["record"]["tally"]["regret"].as_f64().unwrap();
        stored["record"]["tally"]["regret"] = (regret + 1.0 + f64::from(index) / 100.0).into();
        let text = stored.to_string();
        let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        fs::write(&path, format!("{text}\n{sum:016x}\n")).unwrap();
    }
    let lines = run(&["compare", "a", "b", "--json"]).json();
    assert_eq!(
        (&lines[0]["group"], &lines[0]["metric"]),
        (&"async-lin-ucb/threshold=1.5".into(), &"regret".into())
    );
    assert!((lines[0]["difference"].as_f64().unwrap() - 1.02).abs() < 1e-9);
    assert!(lines[0]["p"].as_f64().unwrap() < 1e-6);
    assert_eq!(lines[1]["p"], 1.0);
    let text = run(&["compare", "a", "b"]).stdout;
    assert!(
        text.contains("+1.02 *") && text.ends_with("1 of 4 lines differ, 1 significantly (p < 0.01)\n"),
        "{text}"
    );
}
