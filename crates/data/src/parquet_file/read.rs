//! A Parquet file to columns, some rows at a time.

use std::fs::File;
use std::io;

use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::{Kind, Values};

/// A Parquet file being read from its first row to its last.
///
/// It need not be written by [`Writer`](super::Writer): whole numbers of any width and 32-bit numbers are
/// widened. A column of any other type, such as dates or lists, is listed but has no [`kind`](Self::kind), and
/// is skipped.
pub struct Reader {
    file: SerializedFileReader<File>,
    columns: Vec<Outer>,
    /// The row group to open next.
    next_group: usize,
    /// Of the open row group: a reader for each column that has a kind, and the rows that are left.
    open: Vec<Option<ColumnReader>>,
    rows_left: usize,
}

/// A column as a user sees it: one field of the file's root.
#[derive(Debug)]
struct Outer {
    name: String,
    /// The type and the place among the leaves of the schema; `None` if we do not read it.
    leaf: Option<(Kind, usize)>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl Reader {
    /// Reads the footer. Fails with [`io::ErrorKind::InvalidData`] if `file` is no Parquet file.
    pub fn new(file: File) -> io::Result<Self> {
        let file = SerializedFileReader::new(file).map_err(invalid)?;
        let schema = file.metadata().file_metadata().schema_descr();
        let mut columns: Vec<Outer> = schema
            .root_schema()
            .get_fields()
            .iter()
            .map(|field| Outer { name: field.name().to_owned(), leaf: None })
            .collect();
        for (place, leaf) in schema.columns().iter().enumerate() {
            columns[schema.get_column_root_idx(place)].leaf = kind(leaf).map(|kind| (kind, place));
        }
        Ok(Self { file, columns, next_group: 0, open: Vec::new(), rows_left: 0 })
    }

    /// The number of columns, with those that have no kind.
    #[must_use]
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// The name of a column.
    ///
    /// # Panics
    /// If there is no such column.
    #[must_use]
    pub fn name(&self, column: usize) -> &str {
        &self.columns[column].name
    }

    /// The type of a column; `None` if its values are of a type that is not read.
    ///
    /// # Panics
    /// If there is no such column.
    #[must_use]
    pub fn kind(&self, column: usize) -> Option<Kind> {
        self.columns[column].leaf.map(|(kind, _)| kind)
    }

    /// Reads at most `most` rows of all columns; `None` after the last row. Columns without a kind are `None`.
    ///
    /// Fails with [`io::ErrorKind::InvalidData`] if the file is damaged.
    pub fn next_rows(&mut self, most: usize) -> io::Result<Option<Vec<Option<Values>>>> {
        while self.rows_left == 0 {
            if self.next_group == self.file.num_row_groups() {
                return Ok(None);
            }
            let group = self.file.get_row_group(self.next_group).map_err(invalid)?;
            let rows = group.metadata().num_rows();
            self.rows_left = usize::try_from(rows).map_err(|_| damaged("a negative number of rows"))?;
            let readers = self.columns.iter().map(|column| {
                column.leaf.map(|(_, place)| group.get_column_reader(place).map_err(invalid)).transpose()
            });
            self.open = readers.collect::<io::Result<_>>()?;
            self.next_group += 1;
        }
        let rows = self.rows_left.min(most);
        self.rows_left -= rows;
        let mut all = Vec::with_capacity(self.open.len());
        for (reader, column) in self.open.iter_mut().zip(&self.columns) {
            let values = match (reader, column.leaf) {
                (Some(reader), Some((kind, _))) => Some(values(reader, kind, rows)?),
                _ => None,
            };
            all.push(values);
        }
        Ok(Some(all))
    }
}

/// What we read a leaf column as, if at all.
fn kind(leaf: &ColumnDescriptor) -> Option<Kind> {
    let is_nested = leaf.path().parts().len() > 1 || leaf.max_rep_level() > 0;
    if is_nested {
        return None;
    }
    // Old files say what a column means by its converted type alone.
    let (logical, converted) = (leaf.logical_type_ref(), leaf.converted_type());
    match leaf.physical_type() {
        Physical::BOOLEAN => Some(Kind::Switch),
        Physical::FLOAT | Physical::DOUBLE => Some(Kind::Number),
        Physical::INT32 | Physical::INT64 => match logical {
            Some(LogicalType::Integer(integer)) => integer.is_signed.then_some(Kind::Whole),
            Some(_) => None,
            None if matches!(
                converted,
                ConvertedType::NONE
                    | ConvertedType::INT_8
                    | ConvertedType::INT_16
                    | ConvertedType::INT_32
                    | ConvertedType::INT_64
            ) =>
            {
                Some(Kind::Whole)
            }
            None => None,
        },
        Physical::BYTE_ARRAY => {
            let is_text = matches!(logical, Some(LogicalType::String | LogicalType::Json))
                || (logical.is_none() && converted == ConvertedType::UTF8);
            is_text.then_some(Kind::Text)
        }
        Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => None,
    }
}

/// The next `rows` values of a column.
fn values(reader: &mut ColumnReader, kind: Kind, rows: usize) -> io::Result<Values> {
    Ok(match (reader, kind) {
        (ColumnReader::BoolColumnReader(reader), Kind::Switch) => Values::Switch(take(reader, rows, Ok)?),
        (ColumnReader::Int32ColumnReader(reader), Kind::Whole) => {
            Values::Whole(take(reader, rows, |value| Ok(i64::from(value)))?)
        }
        (ColumnReader::Int64ColumnReader(reader), Kind::Whole) => Values::Whole(take(reader, rows, Ok)?),
        (ColumnReader::FloatColumnReader(reader), Kind::Number) => {
            Values::Number(take(reader, rows, |value| Ok(widen(value)))?)
        }
        (ColumnReader::DoubleColumnReader(reader), Kind::Number) => Values::Number(take(reader, rows, Ok)?),
        (ColumnReader::ByteArrayColumnReader(reader), Kind::Text) => {
            let text = |bytes: parquet::data_type::ByteArray| {
                Ok(std::str::from_utf8(bytes.data()).map_err(|_| damaged("text that is not UTF-8"))?.into())
            };
            Values::Text(take(reader, rows, text)?)
        }
        _ => unreachable!("`kind` chose the type by the physical type of the column"),
    })
}

/// The double whose shortest digits are those of the single: a file with 0.1 means 0.1.
fn widen(value: f32) -> f64 {
    value.to_string().parse().expect("digits of a number")
}

fn take<T: DataType, V>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    convert: impl Fn(T::T) -> io::Result<V>,
) -> io::Result<Vec<Option<V>>> {
    let (mut levels, mut present) = (Vec::new(), Vec::with_capacity(rows));
    let (read, ..) = reader.read_records(rows, Some(&mut levels), None, &mut present).map_err(invalid)?;
    if read != rows {
        return Err(damaged("a column that ends before the others"));
    }
    // A column that may not miss values has no levels.
    if levels.is_empty() {
        return present.into_iter().map(|value| convert(value).map(Some)).collect();
    }
    let mut present = present.into_iter();
    let one = |level: i16| match level {
        0 => Ok(None),
        _ => present.next().ok_or_else(|| damaged("fewer values than rows")).and_then(&convert).map(Some),
    };
    levels.into_iter().map(one).collect()
}

fn invalid(error: ParquetError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the Parquet file is damaged: it has {what}"))
}
