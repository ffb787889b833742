//! What is written is read back, and what is damaged is refused.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use super::*;

fn columns() -> Vec<(String, Kind)> {
    let kinds = [("t", Kind::Text), ("w", Kind::Whole), ("n", Kind::Number), ("s", Kind::Switch)];
    kinds.map(|(name, kind)| (name.to_owned(), kind)).to_vec()
}

/// Rows `from..to` of a table with missing values in each column.
fn rows(from: i64, to: i64) -> Vec<Values> {
    let present = |row: &i64, column: i64| (row + column) % 3 != 0;
    vec![
        Values::Text((from..to).map(|row| present(&row, 0).then(|| format!("é{}", row % 7))).collect()),
        Values::Whole((from..to).map(|row| present(&row, 1).then_some(i64::MIN.wrapping_add(row))).collect()),
        Values::Number((from..to).map(|row| present(&row, 2).then_some(1.0 / row as f64)).collect()),
        Values::Switch((from..to).map(|row| present(&row, 0).then_some(row % 2 == 0)).collect()),
    ]
}

fn write(path: &Path, groups: &[Vec<Values>]) {
    let mut writer = Writer::new(File::create(path).unwrap(), &columns(), true).unwrap();
    groups.iter().for_each(|group| writer.write(group).unwrap());
    writer.close().unwrap();
}

/// Everything in a file, read in pieces.
fn read(path: &Path, most: usize) -> std::io::Result<Vec<Values>> {
    let mut reader = Reader::new(File::open(path)?)?;
    let mut all: Vec<Values> =
        (0..reader.width()).map(|column| Values::new(reader.kind(column).unwrap())).collect();
    while let Some(rows) = reader.next_rows(most)? {
        assert!(rows.iter().flatten().all(|values| (1..=most).contains(&values.len())));
        all.iter_mut().zip(rows).for_each(|(all, more)| all.extend(more.unwrap()));
    }
    Ok(all)
}

#[test]
fn values_come_back_whatever_the_row_groups_and_the_pieces() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x.parquet");
    // Zero is among the rows, and with it infinity.
    write(&path, &[rows(-5, 100), rows(100, 100), rows(100, 3000)]);
    for most in [1, 64, 1 << 14] {
        assert_eq!(read(&path, most).unwrap(), rows(-5, 3000), "{most} rows at a time");
    }
    write(&path, &[]);
    assert_eq!(read(&path, 10).unwrap(), rows(0, 0));
}

#[test]
fn a_file_that_was_cut_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x.parquet");
    write(&path, &[rows(0, 500)]);
    let whole = std::fs::read(&path).unwrap();
    for length in [0, 3, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(read(&path, 64).unwrap_err().kind(), ErrorKind::InvalidData, "{length} bytes");
    }
}

#[test]
#[should_panic = "a column without missing values"]
fn a_column_that_may_not_miss_values_takes_no_missing_one() {
    let mut writer = Writer::new(Vec::new(), &columns(), false).unwrap();
    let _ = writer.write(&rows(0, 10));
}
