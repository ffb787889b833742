//! Reading a prepared directory, piece by piece, and believing nothing.

use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::column::{Column, TableHash};
use super::manifest::{Manifest, StoredTable};
use crate::error::{DataError, Problem};

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
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
        .map_err(|error| refuse(error.to_string()))?;
    let mut hash = TableHash::new(table.columns.len());
    for batch in reader {
        let batch = batch.map_err(|error| refuse(error.to_string()))?;
        let columns = columns(&batch, table).ok_or_else(|| refuse("its columns are others".into()))?;
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

/// The columns that the manifest promises.
fn columns(batch: &RecordBatch, table: &StoredTable) -> Option<Vec<Column>> {
    let read = |(name, kind): &(String, _)| Column::from_array(*kind, batch.column_by_name(name)?);
    table.columns.iter().map(read).collect()
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
