//! What is written is what is read, or it is noticed.

use std::fs;
use std::path::Path;

use super::*;
use crate::error::DataError;

fn write(target: &Path, rows: i64, force: bool) -> Result<Manifest, DataError> {
    let mut draft = Draft::begin(target, force)?;
    let columns = [("x", ColumnKind::Number), ("label", ColumnKind::Whole), ("name", ColumnKind::Text)];
    let columns = columns.map(|(name, kind)| (name.to_owned(), kind)).to_vec();
    let mut table = draft.table("rows.parquet", columns)?;
    for row in 0..rows {
        table.number(0, row as f64 / 7.0);
        table.whole(1, row % 3);
        table.text(2, format!("row {row}"));
        table.end_row()?;
    }
    draft.add(table)?;
    draft.finish(Manifest::new("made-up", "table", "none"))
}

fn directory() -> (tempfile::TempDir, std::path::PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("prepared");
    (home, target)
}

#[test]
fn what_is_written_is_read_in_order() {
    let (_home, target) = directory();
    let written = write(&target, 40_000, false).unwrap();
    assert_eq!(Manifest::read(&target).unwrap(), written);
    let mut at = 0;
    scan(&target, &written.tables[0], |columns| {
        for row in 0..columns[0].len() {
            assert_eq!(columns[0].numbers()[row], at as f64 / 7.0);
            assert_eq!(columns[1].wholes()[row], at % 3);
            assert_eq!(columns[2].texts()[row], format!("row {at}"));
            at += 1;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!((at, verify(&target).unwrap()), (40_000, written));
}

#[test]
fn the_hash_is_that_of_the_content() {
    let (home, target) = directory();
    let first = write(&target, 100, false).unwrap().hash;
    assert_eq!(write(&home.path().join("again"), 100, false).unwrap().hash, first);
    assert_ne!(write(&home.path().join("other"), 101, false).unwrap().hash, first);
}

#[test]
fn only_prepared_data_is_replaced_and_only_by_force() {
    let (home, target) = directory();
    write(&target, 10, false).unwrap();
    assert!(write(&target, 20, false).unwrap_err().to_string().contains("something already"));
    assert_eq!(write(&target, 20, true).unwrap().tables[0].rows, 20);
    let own = home.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("thesis.txt"), "years of work").unwrap();
    assert!(write(&own, 10, true).is_err());
    assert_eq!(fs::read_to_string(own.join("thesis.txt")).unwrap(), "years of work");
}

#[test]
fn an_unfinished_draft_leaves_nothing_behind() {
    let (home, target) = directory();
    let draft = Draft::begin(&target, false).unwrap();
    let _table = draft.table("rows.parquet", vec![("x".into(), ColumnKind::Number)]).unwrap();
    drop(draft);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn damage_is_noticed() {
    let (home, target) = directory();
    write(&target, 100, false).unwrap();
    let other = home.path().join("other");
    write(&other, 99, false).unwrap();
    fs::copy(other.join("rows.parquet"), target.join("rows.parquet")).unwrap();
    assert!(verify(&target).unwrap_err().to_string().contains("it has 99 rows, not 100"));
    let text = fs::read_to_string(other.join(MANIFEST)).unwrap();
    for (old, new, expected) in [
        ("\"format\": 1", "\"format\": 2", "its format is not 1"),
        ("\"hash\": \"", "\"hash\": \"0", "content hash"),
        ("\"made-up\"", "7", "invalid type"),
        ("rows.parquet", "../rows.parquet", "outside"),
        ("\"rows\": 99", "\"rows\": 98", "rows, not 98"),
    ] {
        fs::write(other.join(MANIFEST), text.replacen(old, new, 1)).unwrap();
        let error = verify(&other).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    fs::remove_file(other.join(MANIFEST)).unwrap();
    assert!(verify(&other).unwrap_err().to_string().contains("it has no manifest.json"));
    assert!(verify(&home.path().join("nowhere")).unwrap_err().to_string().contains("no such directory"));
}
