//! Experiments on data that its publishers do not let us pass on: they run on made files in the publishers' shapes.

use std::fmt::Write;
use std::path::Path;

use crate::command::posse;

const USERS: u32 = 60;
const ITEMS: u32 = 120;
const WORDS: u32 = 60;

/// The items of each user: about twenty, different for each user.
fn events() -> Vec<(u32, u32)> {
    let mut all: Vec<(u32, u32)> = (0..USERS)
        .flat_map(|user| (0..40).map(move |at| (user, (user * 7 + at * 11 + at * at) % ITEMS)))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A file: its head, and a line for each of `lines`.
fn file(path: &Path, head: &str, lines: impl Iterator<Item = String>) {
    let mut text = format!("{head}\n");
    lines.for_each(|line| writeln!(text, "{line}").unwrap());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Writes the files of all three publishers below `raw`, with two words for every item.
fn make(raw: &Path) {
    let words = |item: u32| (0..2).map(move |word| (item * 3 + word * 17) % WORDS);
    let tagged =
        || events().into_iter().flat_map(move |(user, item)| words(item).map(move |word| (user, item, word)));
    let tags = || (0..WORDS).map(|word| format!("{word}\tword{word}"));
    let lastfm = raw.join("lastfm");
    let listened = events().into_iter().map(|(user, item)| format!("{user}\t{item}\t{}", 100 + item));
    file(&lastfm.join("user_artists.dat"), "userID\tartistID\tweight", listened);
    let lines = tagged().map(|(user, item, word)| format!("{user}\t{item}\t{word}\t1\t4\t2009"));
    file(&lastfm.join("user_taggedartists.dat"), "userID\tartistID\ttagID\tday\tmonth\tyear", lines);
    file(&lastfm.join("tags.dat"), "tagID\ttagValue", tags());
    let delicious = raw.join("delicious");
    let lines = tagged().map(|(user, item, word)| format!("{user}\t{item}\t{word}\t8\t11\t2010\t23\t29\t22"));
    let head = "userID\tbookmarkID\ttagID\tday\tmonth\tyear\thour\tminute\tsecond";
    file(&delicious.join("user_taggedbookmarks.dat"), head, lines);
    file(&delicious.join("tags.dat"), "id\tvalue", tags());
    let films = raw.join("ml-20m");
    let lines = events().into_iter().enumerate().map(|(at, (user, item))| format!("{user},{item},4.0,{at}"));
    file(&films.join("ratings.csv"), "userId,movieId,rating,timestamp", lines);
    let genres = |item: u32| words(item).map(|word| format!("word{word}")).collect::<Vec<_>>().join("|");
    let lines = (0..ITEMS).map(|item| format!("{item},Film {item},{}", genres(item)));
    file(&films.join("movies.csv"), "movieId,title,genres", lines);
    file(&films.join("tags.csv"), "userId,movieId,tag,timestamp", std::iter::once("1,2,slow,0".to_owned()));
}

/// An experiment as it is, with as many agents and interactions as the made data has, and one seed.
fn scaled(text: &str) -> String {
    let line = |line: &str| match line.split(" = ").next() {
        Some("horizon") => format!("horizon = {}\n", events().len()),
        Some("agents") => format!("agents = {USERS}\n"),
        Some("repetitions") => "repetitions = 1\n".into(),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn experiments_whose_data_is_not_ours_run_on_made_files_of_the_same_shape() {
    let directory = tempfile::tempdir().unwrap();
    make(&directory.path().join("raw"));
    let of_films = ["async-fig4c", "fedglb-fig2b", "fedglb-fig3b"];
    for id in ["async-fig4a", "async-fig4a-tagging", "async-fig4b", "async-tab2"].into_iter().chain(of_films)
    {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../experiments/{id}.toml"));
        let text = std::fs::read_to_string(path).unwrap();
        let command = text.lines().find_map(|line| line.strip_prefix("prepare = \"posse ")).unwrap();
        let mut words: Vec<String> = command.trim_end_matches('"').split(' ').map(String::from).collect();
        // Busy users only, which in the published files rate thousands of films.
        if let Some(at) = words.iter().position(|word| word == "--more-events-than") {
            words[at + 1] = "5".into();
        }
        let raw = format!("raw/{}", words[2]);
        let words: Vec<&str> =
            words.iter().map(|word| if word == "RAW" { &raw } else { word.as_str() }).collect();
        let data = words[words.iter().position(|word| *word == "--out").unwrap() + 1];
        if !directory.path().join(data).exists() {
            let ran = posse(directory.path(), &words);
            assert_eq!(ran.code, 0, "{id}: {}", ran.stderr);
        }
        let file = format!("{id}.toml");
        std::fs::write(directory.path().join(&file), scaled(&text)).unwrap();
        let ran = posse(directory.path(), &["run", &file, "--json", "-q"]);
        assert!(ran.code < 2, "{id}: {}", ran.stderr);
        let ran = ran.json();
        assert_eq!(ran["failures"].as_array().unwrap().len(), 0, "{id}");
        let rows = ran["rows"].as_array().unwrap();
        assert!(rows.len() >= 3, "{id}: {} cells", rows.len());
        for row in rows {
            assert!(row["normalised_reward"].as_f64().unwrap() > 0.0, "{id}: {row}");
        }
        let checks = ran["checks"].as_array().unwrap();
        assert!(!checks.is_empty(), "{id} judges nothing");
    }
    let drawn = posse(directory.path(), &["reproduce", "async-fig5", "--out", "drawn"]);
    assert_eq!(drawn.code, 0, "{}", drawn.stderr);
    assert!(directory.path().join("drawn/async-fig5.svg").exists());
}
