//! Writing a prepared directory: under another name until it is complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::column::{Column, ColumnKind, TableHash};
use super::manifest::{MANIFEST, Manifest, StoredTable};
use crate::error::{DataError, Problem};
use crate::parquet_file::Writer;

/// The most rows that a Parquet row group has.
const GROUP_ROWS: usize = 1 << 17;
/// The most values that a row group has. The writer holds a whole group in memory, so that wide tables, such as
/// logs with a number for each item, get groups of fewer rows.
const GROUP_VALUES: usize = 1 << 22;

/// A directory in the making. Dropped before [`finish`](Self::finish), it leaves nothing behind.
#[derive(Debug)]
pub struct Draft {
    target: PathBuf,
    partial: PathBuf,
    tables: Vec<StoredTable>,
}

impl Draft {
    /// Begins to make `target`. Prepared data that is already there is replaced if `force`, and nothing else
    /// ever is.
    pub fn begin(target: &Path, force: bool) -> Result<Self, DataError> {
        let refuse = |error: &std::io::Error| Problem::from_io(error).of(target);
        if target.exists() {
            let is_empty =
                target.is_dir() && fs::read_dir(target).map_err(|error| refuse(&error))?.next().is_none();
            let replaceable = force && target.join(MANIFEST).exists();
            if !is_empty && !replaceable {
                return Err(Problem::Occupied.of(target));
            }
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let partial = target.with_file_name(format!(".{name}.{}.partial", std::process::id()));
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(|error| refuse(&error))?;
        }
        fs::create_dir_all(&partial).map_err(|error| refuse(&error))?;
        Ok(Self { target: target.to_owned(), partial, tables: Vec::new() })
    }

    /// Begins a table with these columns.
    pub fn table(&self, file: &str, columns: Vec<(String, ColumnKind)>) -> Result<TableWriter, DataError> {
        let path = self.partial.join(file);
        let fields: Vec<_> = columns.iter().map(|(name, kind)| (name.clone(), kind.in_file())).collect();
        let writer = File::create(&path)
            .and_then(|output| Writer::new(output, &fields, false))
            .map_err(|error| Problem::from_io(&error).of(&path))?;
        let buffers: Vec<Column> = columns.iter().map(|(_, kind)| Column::new(*kind)).collect();
        let group_rows = (GROUP_VALUES / columns.len().max(1)).clamp(1, GROUP_ROWS);
        let hash = TableHash::new(columns.len());
        Ok(TableWriter { file: file.into(), path, columns, group_rows, buffers, writer, hash })
    }

    /// Adds a table that is complete.
    pub fn add(&mut self, table: TableWriter) -> Result<(), DataError> {
        self.tables.push(table.close()?);
        Ok(())
    }

    /// Writes the manifest, with the content hash, and gives the directory its name.
    pub fn finish(mut self, mut manifest: Manifest) -> Result<Manifest, DataError> {
        manifest.tables = std::mem::take(&mut self.tables);
        manifest.hash = manifest.content_hash();
        let refuse = |error: &std::io::Error| Problem::from_io(error).of(&self.target);
        let text = serde_json::to_string_pretty(&manifest).expect("manifests have string keys") + "\n";
        fs::write(self.partial.join(MANIFEST), text).map_err(|error| refuse(&error))?;
        if self.target.exists() {
            fs::remove_dir_all(&self.target).map_err(|error| refuse(&error))?;
        }
        fs::rename(&self.partial, &self.target).map_err(|error| refuse(&error))?;
        Ok(manifest)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After it was finished there is nothing of that name.
        let _ = fs::remove_dir_all(&self.partial);
    }
}

/// A table in the making: values are pushed column by column, then the row is ended.
#[derive(Debug)]
pub struct TableWriter {
    file: String,
    path: PathBuf,
    columns: Vec<(String, ColumnKind)>,
    group_rows: usize,
    buffers: Vec<Column>,
    writer: Writer<File>,
    hash: TableHash,
}

impl TableWriter {
    /// A number for a column of the current row.
    ///
    /// # Panics
    /// If the column has another type.
    pub fn number(&mut self, column: usize, value: f64) {
        match &mut self.buffers[column] {
            // Zero has one sign, so that equal tables have equal hashes.
            Column::Number(values) => values.push(value + 0.0),
            other => panic!("column {column} is {other:?}, no number goes there"),
        }
    }

    /// A whole number for a column of the current row.
    ///
    /// # Panics
    /// If the column has another type.
    pub fn whole(&mut self, column: usize, value: i64) {
        match &mut self.buffers[column] {
            Column::Whole(values) => values.push(value),
            other => panic!("column {column} is {other:?}, no whole number goes there"),
        }
    }

    /// A text for a column of the current row.
    ///
    /// # Panics
    /// If the column has another type.
    pub fn text(&mut self, column: usize, value: impl Into<String>) {
        match &mut self.buffers[column] {
            Column::Text(values) => values.push(value.into()),
            other => panic!("column {column} is {other:?}, no text goes there"),
        }
    }

    /// Ends the current row. Writes a group of rows to the file when enough are gathered, and fails if that
    /// fails.
    pub fn end_row(&mut self) -> Result<(), DataError> {
        if self.buffers[0].len() < self.group_rows { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), DataError> {
        self.hash.add(&self.buffers);
        let values: Vec<_> = self.buffers.iter_mut().map(Column::take).collect();
        self.writer.write(&values).map_err(|error| Problem::from_io(&error).of(&self.path))
    }

    fn close(mut self) -> Result<StoredTable, DataError> {
        self.flush()?;
        let Self { file, path, columns, writer, hash, .. } = self;
        let synced = writer.close().and_then(|output| output.sync_all());
        synced.map_err(|error| Problem::from_io(&error).of(&path))?;
        let rows = hash.rows();
        Ok(StoredTable { file, rows, hash: hash.finish(&columns), columns })
    }
}
