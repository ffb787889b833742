//! The publishers' own files: their counts are those that were published.
//!
//! They are not part of this repository. Set POSSE_DATA to a directory that holds a folder for each data set
//! by its name; without it these tests say so and do nothing.

use std::path::{Path, PathBuf};

use posse_data::catalogue;
use posse_data::labelled::{TableSettings, prepare_table};
use posse_data::recommender::{RecommenderSettings, prepare};

/// The folder of a data set, if it is here.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn raw(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("POSSE_DATA").map(|home| Path::new(&home).join(name));
    let found = folder.filter(|folder| folder.exists());
    if found.is_none() {
        eprintln!("skipped: {name} is not here; set POSSE_DATA to where it is");
    }
    found
}

#[test]
fn tables_have_the_published_rows_features_and_classes() {
    let classes: [(&str, &[(&str, u64)]); 4] = [
        (
            "shuttle",
            &[("1", 45_586), ("2", 50), ("3", 171), ("4", 8_903), ("5", 3_267), ("6", 10), ("7", 13)],
        ),
        ("magic", &[("g", 12_332), ("h", 6_688)]),
        ("mushroom", &[("e", 4_208), ("p", 3_916)]),
        ("covertype", &[("1", 211_840), ("2", 283_301), ("3", 35_754), ("4", 2_747)]),
    ];
    for (name, classes) in classes {
        let Some(raw) = raw(name) else { continue };
        let home = tempfile::tempdir().unwrap();
        let set = catalogue::find(name).unwrap();
        let files = set.labelled(&raw).unwrap().unwrap();
        let out = home.path().join("out");
        let manifest = prepare_table(&files, &TableSettings::default(), &out, false, &mut |_| {}).unwrap();
        for (what, expected) in set.counts {
            assert_eq!(manifest.counts[*what], *expected, "{name} {what}");
        }
        for (class, rows) in classes {
            assert_eq!(manifest.counts[&format!("class {class}")], *rows, "{name} {class}");
        }
        for file in set.files {
            let source = manifest.sources.iter().find(|source| source.file == file.name).unwrap();
            assert_eq!(Some(source.sha256.as_str()), file.sha256, "{name} {}", file.name);
        }
    }
}

#[test]
fn movie_lens_has_the_published_users_items_and_events() {
    let Some(raw) = raw("ml-latest-small") else { return };
    let home = tempfile::tempdir().unwrap();
    let set = catalogue::find("ml-latest-small").unwrap();
    let files = set.recommender(&raw).unwrap().unwrap();
    let settings = RecommenderSettings::default();
    let manifest = prepare(&files, &settings, &home.path().join("out"), false, &mut |_| {}).unwrap();
    for (what, expected) in set.counts {
        assert_eq!(manifest.counts[*what], *expected, "{what}");
    }
}
