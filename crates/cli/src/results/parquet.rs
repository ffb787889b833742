//! Columns as Parquet files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, new_empty_array,
};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::durable;
use super::frame::{Column, Frame};

/// Writes a frame, whole or not at all.
pub(super) fn write(path: &Path, frame: &Frame) -> anyhow::Result<()> {
    durable::replace(path, |file| write_to(file, frame))
}

/// Reads a frame; `None` if there is no file.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<Frame>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let mut frame = Frame::default();
    for field in builder.schema().fields() {
        frame.columns.push((field.name().clone(), column(&new_empty_array(field.data_type()))?));
    }
    for batch in builder.build()? {
        for ((_, all), more) in frame.columns.iter_mut().zip(batch?.columns()) {
            all.extend(column(more)?)?;
        }
    }
    Ok(Some(frame))
}

/// The values of an array.
fn column(array: &ArrayRef) -> anyhow::Result<Column> {
    Ok(match array.data_type() {
        DataType::Utf8 => {
            Column::Text(array.as_string::<i32>().iter().map(|value| value.map(String::from)).collect())
        }
        DataType::Int64 => Column::Whole(array.as_primitive::<Int64Type>().iter().collect()),
        DataType::Float64 => Column::Number(array.as_primitive::<Float64Type>().iter().collect()),
        DataType::Boolean => Column::Switch(array.as_boolean().iter().collect()),
        other => bail!("a column has the type {other}"),
    })
}

impl Column {
    /// Adds the values of another column of the same type.
    fn extend(&mut self, more: Self) -> anyhow::Result<()> {
        match (self, more) {
            (Self::Text(values), Self::Text(more)) => values.extend(more),
            (Self::Whole(values), Self::Whole(more)) => values.extend(more),
            (Self::Number(values), Self::Number(more)) => values.extend(more),
            (Self::Switch(values), Self::Switch(more)) => values.extend(more),
            _ => bail!("a column changes its type"),
        }
        Ok(())
    }
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
