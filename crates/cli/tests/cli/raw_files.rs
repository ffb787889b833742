//! Files as their publishers write them, down to line ends and bytes that are no UTF-8, all the way to a report. The real ones may
//! not be passed on; these are made up.

use std::fmt::Write as _;
use std::path::Path;

use crate::command::posse;

const GUIDE: &str = include_str!("../../../../docs/guides/bring-your-own-data.md");
const USERS: usize = 60;

/// What a user takes for the `n`-th time: mostly what the others of its group take, each item once.
fn taken(user: usize, n: usize, items: usize) -> usize {
    (user % 3 * (items / 3) + n * 7 + user / 3) % items
}

/// Writes a file of Latin-1: every character is one byte.
fn write(directory: &Path, name: &str, text: &str) {
    let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(c).unwrap()).collect();
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join(name), bytes).unwrap();
}

/// LastFM's files as in hetrec2011-lastfm-2k: tabs, names of columns, lines that end with a carriage return.
fn last_fm(directory: &Path) {
    let (artists, events) = (200, 50);
    let (mut listened, mut tagged) = (
        "userID\tartistID\tweight\r\n".to_owned(),
        "userID\tartistID\ttagID\tday\tmonth\tyear\r\n".to_owned(),
    );
    for user in 0..USERS {
        for n in 0..events {
            let artist = taken(user, n, artists);
            write!(listened, "{}\t{}\t{}\r\n", user + 2, artist + 1, 13883 - n).unwrap();
            if n.is_multiple_of(2) {
                write!(tagged, "{}\t{}\t{}\t1\t4\t2009\r\n", user + 2, artist + 1, artist % 40 + 1).unwrap();
            }
        }
    }
    let tags = (1..=40).fold("tagID\ttagValue\r\n".to_owned(), |text, tag| {
        let name = if tag % 5 == 0 { "électro".to_owned() } else { format!("rock {tag}") };
        format!("{text}{tag}\t{name}\r\n")
    });
    write(directory, "user_artists.dat", &listened);
    write(directory, "user_taggedartists.dat", &tagged);
    write(directory, "tags.dat", &tags);
}

#[test]
fn last_fm_goes_from_its_own_files_to_a_report_as_the_guide_says() {
    let home = tempfile::tempdir().unwrap();
    last_fm(&home.path().join("hetrec2011-lastfm-2k"));
    let block = GUIDE.split("```sh\n").find(|block| block.starts_with("posse data prepare lastfm")).unwrap();
    let lines: Vec<&str> = block.split("```").next().unwrap().lines().collect();
    let mut printed = Vec::new();
    for line in &lines {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let ran = posse(home.path(), &words);
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
        printed.push(ran);
    }
    let [prepared, reproduced, _] = &printed[..] else { panic!("three commands: {lines:?}") };
    assert!(prepared.stdout.contains("lastfm (recommender): 3000 events"), "{}", prepared.stdout);
    assert!(prepared.stderr.contains("warning: 60 users, published are 1892"), "{}", prepared.stderr);
    assert!(
        reproduced.stdout.contains("INCONCLUSIVE  learning alone is rewarded more"),
        "{}",
        reproduced.stdout
    );
    let page = std::fs::read_to_string(home.path().join("results/lastfm/report.html")).unwrap();
    assert!(page.contains("<h2>Reward against messages on LastFM, listening events</h2>"));
}

#[test]
fn movie_lens_is_read_as_it_was_published_in_1998_and_in_2003() {
    let (movies, ratings) = (90, 30);
    let genres = ["unknown", "Action", "Children's", "Film-Noir", "Sci-Fi"];
    let home = tempfile::tempdir().unwrap();
    let title = |movie: usize| {
        if movie.is_multiple_of(2) { "Misérables, Les (1995)" } else { "Cité: des enfants|perdus" }
    };
    let (mut tabs, mut colons) = (String::new(), String::new());
    for user in 0..USERS {
        for n in 0..ratings {
            let (movie, stars) = (taken(user, n, movies) + 1, n % 5 + 1);
            writeln!(tabs, "{}\t{movie}\t{stars}\t{}", user + 1, 881_250_949 + n).unwrap();
            writeln!(colons, "{}::{movie}::{stars}::{}", user + 1, 978_300_760 + n).unwrap();
        }
    }
    let (mut bars, mut dat) = (String::new(), String::new());
    for movie in 1..=movies {
        let flags: Vec<&str> = (0..19).map(|genre| if genre == movie % 4 + 1 { "1" } else { "0" }).collect();
        let short = title(movie).replace('|', " ");
        writeln!(bars, "{movie}|{short}|01-Jan-1995||http://us.imdb.com/M/{movie}|{}", flags.join("|"))
            .unwrap();
        writeln!(dat, "{movie}::{}::{}|Sci-Fi", title(movie), genres[movie % 3 + 1]).unwrap();
    }
    let names = (0..19).fold(String::new(), |text, genre| {
        format!(
            "{text}{}|{genre}\n",
            genres.get(genre).map_or_else(|| format!("Genre {genre}"), |name| (*name).into())
        )
    });
    let (old, new) = (home.path().join("ml-100k"), home.path().join("ml-1m"));
    write(&old, "u.data", &tabs);
    write(&old, "u.item", &bars);
    // The published file ends with an empty line.
    write(&old, "u.genre", &format!("{names}\n"));
    write(&new, "ratings.dat", &colons);
    write(&new, "movies.dat", &dat);
    for name in ["ml-100k", "ml-1m"] {
        let ran =
            posse(home.path(), &["data", "prepare", name, "--raw", name, "--out", &format!("data/{name}")]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        for count in ["1800 events", "90 items with words", "60 users"] {
            assert!(ran.stdout.contains(count), "{name}: {count}: {}", ran.stdout);
        }
        let fewer = "features instead of 25: the words of the items have no more independent directions";
        assert!(ran.stderr.contains(fewer), "{name}: {}", ran.stderr);
    }
}
