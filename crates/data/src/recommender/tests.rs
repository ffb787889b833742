//! Small files in the exact published shapes, with their quirks.

use std::path::PathBuf;

use posse_core::Seed;
use posse_sim::world::{Data, Interactions};

use super::*;
use crate::error::DataError;
use crate::store::Manifest;

struct Raw {
    home: tempfile::TempDir,
    shape: Shape,
}

impl Raw {
    fn new(shape: Shape, files: &[(&str, &[u8])]) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("raw")).unwrap();
        for (name, content) in files {
            std::fs::write(home.path().join("raw").join(name), content).unwrap();
        }
        Self { home, shape }
    }

    fn out(&self) -> PathBuf {
        self.home.path().join("out")
    }

    fn prepare(&self, settings: &RecommenderSettings) -> Result<Manifest, DataError> {
        let files = RecommenderFiles {
            name: "made-up".into(),
            licence: "none".into(),
            raw: self.home.path().join("raw"),
            shape: self.shape,
        };
        prepare(&files, settings, &self.out(), true, &mut |_| {}, &mut |_| {})
    }

    fn load(&self, settings: &RecommenderSettings) -> (Manifest, Interactions) {
        let manifest = self.prepare(settings).unwrap();
        match crate::load(&self.out(), &manifest.hash).unwrap().0 {
            Data::Interactions(data) => (manifest, Interactions::clone(&data)),
            other => panic!("{}", other.kind()),
        }
    }

    fn refusal(&self) -> String {
        let error = self.prepare(&small()).unwrap_err().to_string();
        assert_eq!(std::fs::read_dir(self.home.path()).unwrap().count(), 1, "nothing is half-written");
        error.replace(&format!("{}/", self.home.path().join("raw").display()), "")
    }
}

fn small() -> RecommenderSettings {
    RecommenderSettings { dimension: 2, groups: 2, ..RecommenderSettings::default() }
}

fn counts(manifest: &Manifest) -> (u64, u64, u64, u64) {
    let count = |what: &str| manifest.counts[what];
    (count("users"), count("items"), count("events"), count("words"))
}

#[test]
fn last_fm_has_tabs_latin1_and_carriage_returns() {
    let raw = Raw::new(
        Shape::LastFm,
        &[
            ("user_artists.dat", b"userID\tartistID\tweight\r\n2\t51\t13883\r\n2\t52\t11690\r\n4\t51\t7\r\n4\t60\t3"),
            ("user_taggedartists.dat", b"userID\tartistID\ttagID\tday\tmonth\tyear\r\n2\t51\t1\t1\t4\t2009\r\n2\t52\t2\t1\t4\t2009\r\n4\t52\t3\t1\t4\t2009\r\n"),
            ("tags.dat", b"tagID\ttagValue\r\n1\tm\xfasica latina\r\n2\t\"black\tmetal\r\n3\tmetal\r\n"),
        ],
    );
    let (manifest, data) = raw.load(&small());
    // música, latina, black, metal.
    assert_eq!(counts(&manifest), (2, 3, 4, 4));
    assert_eq!(manifest.counts["items with words"], 2);
    assert_eq!((data.users(), data.items(), data.events()), (2, 3, 4));
}

#[test]
fn last_fm_tagging_counts_an_artist_once_whatever_its_tags_with_the_time_of_the_first() {
    let listened: (&str, &[u8]) = ("user_artists.dat", b"userID\tartistID\tweight\r\n2\t60\t13883\r\n");
    let tagged: (&str, &[u8]) = (
        "user_taggedartists.dat",
        b"userID\tartistID\ttagID\tday\tmonth\tyear\r\n2\t52\t1\t1\t4\t2009\r\n2\t52\t2\t1\t5\t2009\r\n4\t51\t2\t1\t4\t2009\r\n4\t52\t3\t1\t4\t2009\r\n",
    );
    let tags: (&str, &[u8]) = ("tags.dat", b"tagID\ttagValue\r\n1\tjazz\r\n2\tsoul\r\n3\tmetal\r\n");
    // The second tag of user 2 for artist 52 is no event of its own.
    let plain = Raw::new(Shape::LastFmTagging, &[listened, tagged, tags]);
    assert_eq!(counts(&plain.prepare(&small()).unwrap()), (2, 2, 3, 3));
    let stamped: (&str, &[u8]) = (
        "user_taggedartists-timestamps.dat",
        b"userID\tartistID\ttagID\ttimestamp\r\n2\t52\t1\t900\r\n2\t52\t2\t950\r\n4\t51\t2\t400\r\n4\t52\t3\t500\r\n",
    );
    let raw = Raw::new(Shape::LastFmTagging, &[listened, tagged, stamped, tags]);
    assert_eq!(counts(&raw.prepare(&small()).unwrap()), (2, 2, 3, 3));
    let files = RecommenderFiles {
        name: "made-up".into(),
        licence: "none".into(),
        raw: raw.home.path().join("raw"),
        shape: raw.shape,
    };
    let mut events = Vec::new();
    files
        .events(&mut |_| {}, |event| {
            events.push((event.user, event.item, event.time));
            Ok(())
        })
        .unwrap();
    assert_eq!(events, [(2, 52, 900), (4, 51, 400), (4, 52, 500)]);
}

#[test]
fn delicious_counts_a_bookmark_once_whatever_its_tags() {
    let raw = Raw::new(
        Shape::Delicious,
        &[
            ("user_taggedbookmarks.dat", b"userID\tbookmarkID\ttagID\tday\tmonth\tyear\thour\tminute\tsecond\n8\t1\t1\t8\t11\t2010\t23\t29\t22\n8\t1\t2\t8\t11\t2010\t23\t29\t22\n8\t7\t1\t8\t11\t2010\t23\t25\t59\n9\t1\t2\t8\t11\t2010\t23\t25\t59\n"),
            ("tags.dat", b"id\tvalue\n1\tcollection_development\n2\tlibraries\n"),
        ],
    );
    assert_eq!(counts(&raw.prepare(&small()).unwrap()), (2, 2, 3, 2));
}

const RATINGS: &[u8] = b"userId,movieId,rating,timestamp\n1,1,4.0,964982703\n1,3,0.5,964981247\n2,1,3.5,1445714835\n2,50,5.0,1445714836\n";
const MOVIES: &[u8] = b"movieId,title,genres\n1,Toy Story (1995),Animation|Comedy\n3,\"American President, The (1995)\",Romance\n50,\"Caf\xc3\xa9 \"\"X\"\"\",(no genres listed)\n99,Unseen,War\n";
const TAGS: &[u8] =
    b"userId,movieId,tag,timestamp\r\n2,50,\"funny, really\",1445714994\r\n2,1,pixar,1445714996\r\n";

#[test]
fn movie_lens_csv_has_quotes_and_films_that_nobody_saw() {
    let raw = Raw::new(
        Shape::MovieLensCsv,
        &[("ratings.csv", RATINGS), ("movies.csv", MOVIES), ("tags.csv", TAGS)],
    );
    let (manifest, _) = raw.load(&small());
    // animation, comedy, romance, pixar, funny, really.
    assert_eq!(counts(&manifest), (2, 3, 4, 6));
    let picky = RecommenderSettings { min_rating: 1.0, ..small() };
    assert_eq!(counts(&raw.prepare(&picky).unwrap()), (2, 2, 3, 5));
    let active = RecommenderSettings { min_rating: 1.0, more_events_than: 1, ..small() };
    assert_eq!(counts(&raw.prepare(&active).unwrap()), (1, 2, 2, 5));
}

#[test]
fn movie_lens_dat_has_two_colons_and_latin1() {
    let raw = Raw::new(
        Shape::MovieLensDat,
        &[
            ("ratings.dat", b"1::1193::5::978300760\n1::661::3::978302109\n2::1193::4::978298413"),
            ("movies.dat", b"661::James: the Giant Peach (1996)::Animation|Children's\n1193::Mis\xe9rables, Les (1995)::Drama\n"),
        ],
    );
    let (manifest, _) = raw.load(&small());
    assert_eq!(counts(&manifest), (2, 2, 3, 3));
}

#[test]
fn movie_lens_100k_has_a_switch_for_each_genre() {
    let raw = Raw::new(
        Shape::MovieLens100k,
        &[
            ("u.data", b"196\t242\t3\t881250949\n186\t302\t3\t891717742\n"),
            ("u.genre", b"unknown|0\nAction|1\nFilm-Noir|2\n\n"),
            ("u.item", b"242|Kolya (1996)|24-Jan-1997||http://us.imdb.com/M|0|1|0\n302|L.A. Confidential (1997)|01-Jan-1997||http://x|0|1|1\n"),
        ],
    );
    assert_eq!(counts(&raw.prepare(&small()).unwrap()), (2, 2, 2, 3));
}

#[test]
fn scaling_does_what_its_name_says() {
    let raw = Raw::new(
        Shape::MovieLensCsv,
        &[("ratings.csv", RATINGS), ("movies.csv", MOVIES), ("tags.csv", TAGS)],
    );
    let features = |normalise, bias| {
        let settings = RecommenderSettings { normalise, bias, ..small() };
        let manifest = raw.prepare(&settings).unwrap();
        let mut columns = Vec::new();
        let table = manifest.table(ITEMS, &raw.out()).unwrap();
        crate::store::scan(&raw.out(), table, |read| {
            columns = read[1..].iter().map(|column| column.numbers().to_vec()).collect::<Vec<_>>();
            Ok(())
        })
        .unwrap();
        columns
    };
    let columns = features(Normalise::Columns, false);
    for column in &columns {
        assert!(column.iter().sum::<f64>().abs() < 1e-9);
        let squares: f64 = column.iter().map(|x| x * x).sum();
        assert!((squares - 3.0).abs() < 1e-9, "{squares}");
    }
    let rows = features(Normalise::Rows, true);
    assert_eq!(rows.len(), 3);
    assert!(rows[2].iter().all(|x| *x == 1.0));
    for (first, second) in rows[0].iter().zip(&rows[1]) {
        let length = first * first + second * second;
        assert!((length - 1.0).abs() < 1e-9 || length == 0.0, "{length}");
    }
}

#[test]
fn preparing_again_gives_the_same_hash_and_another_seed_may_not() {
    let raw = Raw::new(
        Shape::MovieLensCsv,
        &[("ratings.csv", RATINGS), ("movies.csv", MOVIES), ("tags.csv", TAGS)],
    );
    let hash =
        |dimension| raw.prepare(&RecommenderSettings { dimension, seed: Seed(5), ..small() }).unwrap().hash;
    assert_eq!(hash(2), hash(2));
    assert_ne!(hash(2), hash(1));
}

#[test]
fn bad_files_say_where_and_leave_nothing() {
    let csv = |ratings: &'static [u8]| {
        Raw::new(Shape::MovieLensCsv, &[("ratings.csv", ratings), ("movies.csv", MOVIES), ("tags.csv", TAGS)])
            .refusal()
    };
    assert_eq!(csv(b""), "ratings.csv: there is no row in it");
    assert_eq!(
        csv(b"userId;movieId;rating;timestamp\n1;1;4.0;9\n"),
        "ratings.csv, line 1: there is no column `userId`; there are userId;movieId;rating;timestamp"
    );
    assert_eq!(
        csv(b"userId,movieId,rating,timestamp\n1,1,NaN,9\n"),
        "ratings.csv, line 2, column 3 (rating): \"NaN\" is not a finite number"
    );
    assert_eq!(
        csv(b"userId,movieId,rating,timestamp\n1,x,4,9\n"),
        "ratings.csv, line 2, column 2 (movieId): \"x\" is not a whole number, zero or more"
    );
    assert_eq!(
        csv(b"userId,movieId,rating,rating\n1,1,4,9\n"),
        "ratings.csv, line 1: two columns are called `rating`"
    );
    let dat = Raw::new(Shape::MovieLensDat, &[("ratings.dat", b"1,1193,5,978300760\n"), ("movies.dat", b"")]);
    assert_eq!(dat.refusal(), "ratings.dat, line 1: expected 4 fields, got 1: is the separator right?");
    let unknown = Raw::new(
        Shape::LastFm,
        &[
            ("user_artists.dat", b"userID\tartistID\tweight\n2\t51\t3\n"),
            ("user_taggedartists.dat", b"userID\tartistID\ttagID\n2\t51\t7\n"),
            ("tags.dat", b"tagID\ttagValue\n1\trock\n"),
        ],
    );
    assert_eq!(
        unknown.refusal(),
        "user_taggedartists.dat, line 2, column 3 (tagID): tag \"7\" is not in tags.dat"
    );
    let absent = Raw::new(Shape::MovieLensCsv, &[("ratings.csv", RATINGS)]);
    assert_eq!(absent.refusal(), "movies.csv: no such file or directory");
}
