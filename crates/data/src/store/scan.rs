//! Reading a prepared directory, piece by piece, and believing nothing.

use std::fs::File;
use std::path::Path;

use super::column::{Column, TableHash};
use super::manifest::{Manifest, StoredTable};
use crate::error::{DataError, Problem};
use crate::parquet_file::{Reader, Values};

/// Rows handed over at a time.
const BATCH_ROWS: usize = 1 << 14;

/// Reads a table and hands its columns to `visit`, some rows at a time. An error after the last if its content
/// is not what the manifest says.
pub fn scan(
    directory: &Path,
    table: &StoredTable,
    mut visit: impl FnMut(&[Column]) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let path = directory.join(&table.file);
    let refuse = |reason: String| Problem::NotPrepared(reason).of(&path);
    let file = File::open(&path).map_err(|error| Problem::from_io(&error).of(&path))?;
    let mut reader = Reader::new(file).map_err(|error| refuse(error.to_string()))?;
    let others = || refuse("its columns are others".into());
    let places = places(&reader, table).ok_or_else(others)?;
    let mut hash = TableHash::new(table.columns.len());
    while let Some(rows) = reader.next_rows(BATCH_ROWS).map_err(|error| refuse(error.to_string()))? {
        let columns = columns(rows, &places, table).ok_or_else(others)?;
        hash.add(&columns);
        visit(&columns)?;
    }
    if hash.rows() != table.rows {
        return Err(refuse(format!("it has {} rows, not {}", hash.rows(), table.rows)));
    }
    let got = hash.finish(&table.columns);
    if got != table.hash {
        return Err(Problem::Hash { expected: table.hash.clone(), got }.of(&path));
    }
    Ok(())
}

/// Where the columns that the manifest promises are in the file; `None` if one is missing.
fn places(reader: &Reader, table: &StoredTable) -> Option<Vec<usize>> {
    let place = |name: &String| (0..reader.width()).find(|column| reader.name(*column) == name);
    table.columns.iter().map(|(name, _)| place(name)).collect()
}

/// The columns that the manifest promises; `None` if one misses a value or has another type.
fn columns(mut rows: Vec<Option<Values>>, places: &[usize], table: &StoredTable) -> Option<Vec<Column>> {
    let mut read =
        |(place, (_, kind)): (&usize, &(String, _))| Column::from_values(*kind, rows[*place].take()?);
    places.iter().zip(&table.columns).map(&mut read).collect()
}

/// Reads everything in a prepared directory and compares it with its manifest.
pub fn verify(directory: &Path) -> Result<Manifest, DataError> {
    let manifest = Manifest::read(directory)?;
    for table in &manifest.tables {
        scan(directory, table, |_| Ok(()))?;
    }
    check_hash(&manifest, directory)?;
    Ok(manifest)
}

/// Whether the content hash of a manifest is that of the tables it lists.
pub(crate) fn check_hash(manifest: &Manifest, directory: &Path) -> Result<(), DataError> {
    let got = manifest.content_hash();
    if got == manifest.hash {
        return Ok(());
    }
    Err(Problem::Hash { expected: manifest.hash.clone(), got }.of(directory))
}
