//! Columns as Parquet files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::durable;
use super::frame::{Column, Frame};

/// Writes a frame, whole or not at all.
pub(super) fn write(path: &Path, frame: &Frame) -> anyhow::Result<()> {
    durable::replace(path, |file| write_to(file, frame))
}

fn write_to(file: &File, frame: &Frame) -> anyhow::Result<()> {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) =
        frame.columns.iter().map(|(name, column)| array(name, column)).unzip();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

/// A column with its name and type. All may be empty, so that files of different experiments fit together.
fn array(name: &str, column: &Column) -> (Field, ArrayRef) {
    let (kind, array): (DataType, ArrayRef) = match column {
        Column::Text(values) => (DataType::Utf8, Arc::new(StringArray::from_iter(values))),
        Column::Whole(values) => (DataType::Int64, Arc::new(Int64Array::from(values.clone()))),
        Column::Number(values) => (DataType::Float64, Arc::new(Float64Array::from(values.clone()))),
        Column::Switch(values) => (DataType::Boolean, Arc::new(BooleanArray::from(values.clone()))),
    };
    (Field::new(name, kind, true), array)
}
