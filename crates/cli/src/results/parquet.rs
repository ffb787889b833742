//! Writes frames as Parquet files.

use std::fs::File;
use std::path::Path;

use anyhow::bail;
use posse_data::parquet_file::{Reader, Values, Writer};

use super::durable;
use super::frame::Frame;

/// Rows that are read at a time.
const BATCH_ROWS: usize = 1 << 14;

/// Writes a frame, whole or not at all. Every column may miss values, so that files of different experiments
/// can be joined.
pub(super) fn write(path: &Path, frame: &Frame) -> anyhow::Result<()> {
    let columns: Vec<_> = frame.columns.iter().map(|(name, values)| (name.clone(), values.kind())).collect();
    let values: Vec<Values> = frame.columns.iter().map(|(_, values)| values.clone()).collect();
    durable::replace(path, |file| {
        let mut writer = Writer::new(file, &columns, true)?;
        writer.write(&values)?;
        writer.close()?;
        Ok(())
    })
}

/// Reads a frame; `None` if there is no file.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<Frame>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut reader = Reader::new(file)?;
    let mut frame = Frame::default();
    for column in 0..reader.width() {
        let name = reader.name(column).to_owned();
        let Some(kind) = reader.kind(column) else {
            bail!("column {name} is of a type that posse never writes")
        };
        frame.columns.push((name, Values::new(kind)));
    }
    while let Some(rows) = reader.next_rows(BATCH_ROWS)? {
        for ((_, all), more) in frame.columns.iter_mut().zip(rows.into_iter().flatten()) {
            all.extend(more);
        }
    }
    Ok(Some(frame))
}
