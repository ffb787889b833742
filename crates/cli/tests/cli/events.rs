//! Events of one's own, and the health of what is prepared.

use std::fs;
use std::path::Path;

use crate::command::{Ran, posse};

/// What a song is called: ids are words, also those of 39 digits.
fn song(place: usize) -> String {
    format!("{place:039}")
}

/// Twelve users who take songs of their own kind, the latest first, with what else was on offer.
fn plays(separator: &str) -> String {
    let mut text = ["who", "song", "when", "offered"].join(separator) + "\n";
    for play in 0..240usize {
        let taken = 2 * ((play * 7) % 10) + play % 2;
        let pool: Vec<String> = [taken, (taken + 1) % 20, (taken + 3) % 20].map(song).to_vec();
        let line = [format!("u{}", play % 12), song(taken), (1000 - play).to_string(), pool.join("|")];
        text.push_str(&(line.join(separator) + "\n"));
    }
    text
}

fn songs() -> String {
    let line =
        |place: usize| format!("{},{},{}\n", song(place), place as f64 / 20.0, ["folk", "rock"][place % 2]);
    format!("song,loud,kind\n{}", (0..20).map(line).collect::<String>())
}

fn prepare(home: &Path, more: &[&str]) -> Ran {
    let own = [
        "data",
        "prepare",
        "events",
        "--raw",
        "plays.csv",
        "--out",
        "plays",
        "--user",
        "who",
        "--item",
        "song",
    ];
    posse(home, &[&own[..], more].concat())
}

fn home(separator: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("plays.csv"), plays(separator)).unwrap();
    fs::write(home.path().join("songs.csv"), songs()).unwrap();
    home
}

/// Runs an experiment on what was prepared; returns rewards as multiples of choosing at random.
fn learn(home: &Path, prepared: &Ran) -> f64 {
    let environment = &prepared.stdout[prepared.stdout.find("[environment]").unwrap()..];
    let text = format!(
        "horizon = 240\nagents = 12\n{environment}arms = 3\n[[algorithm]]\nname = \"async-lin-ucb\"\nthreshold = 1.1\n"
    );
    fs::write(home.join("x.toml"), text).unwrap();
    let ran = posse(home, &["run", "x.toml", "--json", "-q"]);
    ran.json()["rows"][0]["normalised_reward"].as_f64().unwrap()
}

#[test]
fn events_with_pools_and_features_become_a_world() {
    for separator in [",", "\t", ";"] {
        let home = home(separator);
        // The items' file has commas, whatever the events have.
        let more = ["--time", "when", "--pool", "offered", "--items", "songs.csv"];
        let said = prepare(home.path(), &[&more[..], &["--separator", separator]].concat());
        assert_eq!(said.code, 0, "{}", said.stderr);
        let ran = prepare(home.path(), &[&more[..], &["--force"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.contains("240 events") && ran.stdout.contains("20 items"), "{}", ran.stdout);
        assert!(ran.stderr.contains("239 events were earlier than the one before"), "{}", ran.stderr);
        assert_eq!(ran.stderr.contains("by the look of the first line"), separator != ",");
        assert_eq!(said.stdout, ran.stdout, "it was found as it was said");
        assert!(learn(home.path(), &ran) > 0.9);
    }
}

/// Every second user takes what is loud, the others what is not: who knows the user knows which.
#[test]
fn features_of_users_tell_what_each_of_them_wants() {
    let home = tempfile::tempdir().unwrap();
    let mut events = String::from("who;song\n");
    for play in 0..600usize {
        let song = (play * 7) % 10 + 10 * (play % 2);
        events.push_str(&format!("é{};{song}\n", play % 30));
    }
    let latin: Vec<u8> = events.chars().map(|letter| letter as u8).collect();
    fs::write(home.path().join("plays.csv"), latin).unwrap();
    let songs: String = (0..20).map(|song| format!("{song},{}\n", if song < 10 { 1 } else { -1 })).collect();
    fs::write(home.path().join("songs.csv"), format!("song,loud\n{songs}")).unwrap();
    let mut users: Vec<u8> = b"name\tlikes\n".to_vec();
    for user in 0..29 {
        users.push(0xe9);
        users.extend(format!("{user}\t{}\n", 1 - 2 * (user % 2)).into_bytes());
    }
    fs::write(home.path().join("users.tsv"), users).unwrap();
    let without = prepare(home.path(), &["--items", "songs.csv", "--latin1"]);
    assert_eq!(without.code, 0, "{}", without.stderr);
    let alike = learn(home.path(), &without);
    let more = ["--items", "songs.csv", "--latin1", "--users", "users.tsv", "--user-id", "name", "--force"];
    let with = prepare(home.path(), &more);
    assert_eq!(with.code, 0, "{}", with.stderr);
    assert!(with.stderr.contains("1 of 30 users have no features"), "{}", with.stderr);
    assert!(with.stdout.contains("2 features of users"), "{}", with.stdout);
    let told_apart = learn(home.path(), &with);
    assert!(told_apart > 1.2 * alike, "{told_apart} with features of users, {alike} without");
    fs::write(home.path().join("users.tsv"), "name\tlikes\nnobody\t1\n").unwrap();
    let refused = prepare(home.path(), &more);
    assert!(refused.stderr.contains("are the ids the same in both files?"), "{}", refused.stderr);
}

#[test]
fn without_features_events_make_their_own_and_the_health_report_says_so() {
    let home = home(",");
    let ran = prepare(home.path(), &["--time", "when"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("which knows the future"), "{}", ran.stderr);
    assert!(learn(home.path(), &ran) > 1.0);
    let health = posse(home.path(), &["data", "health", "plays", "--html", "health.html"]);
    assert!(health.stdout.contains("features were made from all events"), "{}", health.stdout);
    assert!(
        health.stdout.contains("good     the events of every user are in the order of time"),
        "{}",
        health.stdout
    );
    assert!(health.stdout.contains("users by number of events"));
    let page = fs::read_to_string(home.path().join("health.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("features were made from all events"));
    let document = posse(home.path(), &["data", "health", "plays", "--json"]);
    assert!(document.stdout.contains("\"level\": \"notice\""));
}

#[test]
fn words_of_items_become_features_and_empty_ones_are_a_problem() {
    let home = home(",");
    let words = ["--time", "when", "--items", "songs.csv", "--words", "kind"];
    let ran = prepare(home.path(), &words);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("2 features"), "two words, two features: {}", ran.stdout);
    let ran = prepare(home.path(), &[&words[..], &["--dimension", "5", "--force"]].concat());
    assert!(ran.stderr.contains("3 of 5 features are 0 for all items"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--dimension 2"), "{}", ran.stderr);
    assert_eq!(posse(home.path(), &["data", "health", "plays"]).code, 1, "a problem");
}

#[test]
fn agents_that_differ_share_although_features_are_empty() {
    let home = home(",");
    let words = ["--items", "songs.csv", "--words", "kind", "--dimension", "5"];
    let ran = prepare(home.path(), &words);
    let environment = &ran.stdout[ran.stdout.find("[environment]").unwrap()..];
    let text = format!(
        "horizon = 240\nagents = 12\n{environment}arms = 3\n[[algorithm]]\nname = \"async-lin-ucb-am\"\n\
         threshold = 1.1\nduplicated = true\n"
    );
    fs::write(home.path().join("x.toml"), text).unwrap();
    let ran = posse(home.path(), &["run", "x.toml", "--json", "-q"]);
    assert!(ran.json()["rows"][0]["messages"].as_u64().unwrap() > 0, "{}", ran.stdout);
}

#[test]
fn published_event_files_are_read_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    let events: String = (0..60)
        .map(|row| {
            format!(
                "{}\t{}\t[{}, {}, {}]\n",
                row % 4,
                1_290_000_000 + row,
                row % 6,
                (row + 1) % 6,
                (row + 2) % 6
            )
        })
        .collect();
    let vectors: String = (0..6)
        .map(|item| format!("{item}\t[{};{}]\n", f64::from(item), 1.0 / (1.0 + f64::from(item))))
        .collect();
    fs::write(home.path().join("events.dat"), events).unwrap();
    fs::write(home.path().join("vectors.dat"), vectors).unwrap();
    let command =
        ["data", "prepare", "banditlib", "--raw", "events.dat", "--items", "vectors.dat", "--out", "plays"];
    let ran = posse(home.path(), &command);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("60 events, 2 features") || ran.stdout.contains("60 events"),
        "{}",
        ran.stdout
    );
    let environment = &ran.stdout[ran.stdout.find("[environment]").unwrap()..];
    let text = format!("horizon = 60\nagents = 4\n{environment}[[algorithm]]\nname = \"lin-ucb\"\n");
    fs::write(home.path().join("x.toml"), text).unwrap();
    let row = &posse(home.path(), &["run", "x.toml", "--json", "-q"]).json()["rows"][0];
    // Three arms each: choosing at random would be right twenty times of sixty.
    assert_eq!(row["random_reward"].as_f64().unwrap().round(), 20.0);
    fs::write(home.path().join("events.dat"), "1\t2\t[3]\n").unwrap();
    let ran = posse(home.path(), &[&command[..], &["--force"]].concat());
    assert!(ran.stderr.contains("a pool of two or more items"), "{}", ran.stderr);
}

#[test]
fn files_of_other_encodings_are_explained() {
    let home = home(",");
    let latin = plays(",").replace("u3,", "u\u{e9},").chars().map(|letter| letter as u8).collect::<Vec<u8>>();
    fs::write(home.path().join("plays.csv"), latin).unwrap();
    let ran = prepare(home.path(), &[]);
    assert!(ran.stderr.contains("give --latin1"), "{}", ran.stderr);
    assert_eq!(prepare(home.path(), &["--latin1"]).code, 0);
    fs::write(home.path().join("plays.csv"), [0xff, 0xfe, b'w', 0]).unwrap();
    assert!(prepare(home.path(), &["--force"]).stderr.contains("this is UTF-16 text"));
    fs::write(home.path().join("plays.csv"), b"PAR1\x15\x04").unwrap();
    assert!(prepare(home.path(), &["--force"]).stderr.contains("this is a Parquet file"));
    let marked = format!("\u{feff}{}", plays(","));
    fs::write(home.path().join("plays.csv"), marked).unwrap();
    assert_eq!(prepare(home.path(), &["--force"]).code, 0, "a byte-order mark is passed over");
}

#[test]
fn a_log_that_is_not_in_the_order_of_time_is_refused() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("log.csv"), "t,a,r\n2024-01-02,x,1\n2024-01-03,y,0\n2024-01-01,x,1\n")
        .unwrap();
    let log = [
        "data", "prepare", "log", "--raw", "log.csv", "--out", "log", "--action", "a", "--reward", "r",
        "--time", "t",
    ];
    let ran = posse(home.path(), &log);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("log.csv, line 4, column 1 (t)") && ran.stderr.contains("sort the log by time"),
        "{}",
        ran.stderr
    );
}
