//! Columns to a Parquet file.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::{Kind, Values};

/// A Parquet file in the making, compressed with Snappy.
///
/// Nothing on the disk is readable before [`close`](Self::close) has written the footer.
pub struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
    kinds: Vec<Kind>,
    optional: bool,
}

impl<W: Write + Send> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("kinds", &self.kinds).field("optional", &self.optional).finish()
    }
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file with these columns. With `optional`, every column may miss values; without it, none may.
    pub fn new(output: W, columns: &[(String, Kind)], optional: bool) -> io::Result<Self> {
        let repetition = if optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let fields: Result<Vec<TypePtr>, ParquetError> =
            columns.iter().map(|(name, kind)| field(name, *kind, repetition)).collect();
        // Arrow's writers call the root so, and some readers show the name.
        let root = Type::group_type_builder("arrow_schema");
        let root = root.with_fields(fields.map_err(io::Error::other)?).build().map_err(io::Error::other)?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = SerializedFileWriter::new(output, Arc::new(root), Arc::new(properties))
            .map_err(io::Error::other)?;
        Ok(Self { file, kinds: columns.iter().map(|(_, kind)| *kind).collect(), optional })
    }

    /// Writes rows as one row group; does nothing if there are no rows.
    ///
    /// # Panics
    /// If the columns are not those of the file, differ in length, or miss a value that they may not miss.
    pub fn write(&mut self, columns: &[Values]) -> io::Result<()> {
        let rows = columns.first().map_or(0, Values::len);
        assert!(columns.iter().map(Values::kind).eq(self.kinds.iter().copied()), "columns of the file");
        assert!(columns.iter().all(|column| column.len() == rows), "columns of one length");
        if rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group().map_err(io::Error::other)?;
        for column in columns {
            let written = match column {
                Values::Text(values) => {
                    let bytes = |text: &String| ByteArray::from(text.as_str());
                    put::<ByteArrayType, _, W>(&mut group, values, self.optional, bytes)
                }
                Values::Whole(values) => put::<Int64Type, _, W>(&mut group, values, self.optional, |x| *x),
                Values::Number(values) => put::<DoubleType, _, W>(&mut group, values, self.optional, |x| *x),
                Values::Switch(values) => put::<BoolType, _, W>(&mut group, values, self.optional, |x| *x),
            };
            written.map_err(io::Error::other)?;
        }
        group.close().map_err(io::Error::other)?;
        Ok(())
    }

    /// Writes the footer and returns the output, which the caller may have to synchronise.
    pub fn close(self) -> io::Result<W> {
        self.file.into_inner().map_err(io::Error::other)
    }
}

fn field(name: &str, kind: Kind, repetition: Repetition) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Whole => (Physical::INT64, None),
        Kind::Number => (Physical::DOUBLE, None),
        Kind::Switch => (Physical::BOOLEAN, None),
    };
    let field = Type::primitive_type_builder(name, physical);
    field.with_repetition(repetition).with_logical_type(logical).build().map(Arc::new)
}

/// Writes the next column of a row group: the present values, and one level for each row that says whether
/// its value is present.
fn put<T: DataType, V, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[Option<V>],
    optional: bool,
    convert: impl Fn(&V) -> T::T,
) -> Result<(), ParquetError> {
    let present: Vec<T::T> = values.iter().flatten().map(convert).collect();
    assert!(optional || present.len() == values.len(), "a column without missing values");
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let mut column = group.next_column()?.expect("as many columns as the file has");
    column.typed::<T>().write_batch(&present, optional.then_some(&levels), None)?;
    column.close()
}
