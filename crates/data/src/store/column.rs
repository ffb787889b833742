//! Columns: some values of one type, and the hash of all of them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, StringArray};
use arrow_schema::{DataType, Field};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// Finite numbers.
    Number,
    /// Whole numbers.
    Whole,
    /// Text.
    Text,
}

/// Values of one column, of some or all rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Finite numbers.
    Number(Vec<f64>),
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Text.
    Text(Vec<String>),
}

impl Column {
    pub(super) const fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Number => Self::Number(Vec::new()),
            ColumnKind::Whole => Self::Whole(Vec::new()),
            ColumnKind::Text => Self::Text(Vec::new()),
        }
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Number(values) => values.len(),
            Self::Whole(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers in it; none if it has others.
    #[must_use]
    pub fn numbers(&self) -> &[f64] {
        if let Self::Number(values) = self { values } else { &[] }
    }

    /// The whole numbers in it; none if it has others.
    #[must_use]
    pub fn wholes(&self) -> &[i64] {
        if let Self::Whole(values) = self { values } else { &[] }
    }

    /// The texts in it; none if it has others.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        if let Self::Text(values) = self { values } else { &[] }
    }

    /// Hands the values over to Arrow and keeps none.
    pub(super) fn take(&mut self) -> ArrayRef {
        match self {
            Self::Number(values) => Arc::new(Float64Array::from(std::mem::take(values))),
            Self::Whole(values) => Arc::new(Int64Array::from(std::mem::take(values))),
            Self::Text(values) => Arc::new(StringArray::from_iter_values(std::mem::take(values))),
        }
    }

    /// The values of an array; `None` if some are missing or of another type.
    pub(super) fn from_array(kind: ColumnKind, array: &ArrayRef) -> Option<Self> {
        if array.null_count() > 0 {
            return None;
        }
        Some(match kind {
            ColumnKind::Number => Self::Number(array.as_primitive_opt::<Float64Type>()?.values().to_vec()),
            ColumnKind::Whole => Self::Whole(array.as_primitive_opt::<Int64Type>()?.values().to_vec()),
            ColumnKind::Text => {
                let texts = array.as_string_opt::<i32>()?;
                Self::Text(texts.iter().flatten().map(str::to_owned).collect())
            }
        })
    }

    /// Adds all values to a hash: numbers as eight bytes, lowest first, texts after their length.
    pub(super) fn hash_into(&self, hasher: &mut Sha256) {
        let mut bytes = Vec::with_capacity(8 * self.len());
        match self {
            Self::Number(values) => values.iter().for_each(|x| bytes.extend(x.to_bits().to_le_bytes())),
            Self::Whole(values) => values.iter().for_each(|x| bytes.extend(x.to_le_bytes())),
            Self::Text(values) => values.iter().for_each(|text| {
                bytes.extend((text.len() as u64).to_le_bytes());
                bytes.extend(text.as_bytes());
            }),
        }
        hasher.update(&bytes);
    }
}

impl ColumnKind {
    pub(super) fn field(self, name: &str) -> Field {
        let kind = match self {
            Self::Number => DataType::Float64,
            Self::Whole => DataType::Int64,
            Self::Text => DataType::Utf8,
        };
        Field::new(name, kind, false)
    }

    /// Its word in hashes; never changes.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Whole => "whole",
            Self::Text => "text",
        }
    }
}

/// The hashes of all columns of a table while it passes by, whatever the sizes of its pieces.
#[derive(Debug)]
pub(super) struct TableHash {
    columns: Vec<Sha256>,
    rows: u64,
}

impl TableHash {
    pub(super) fn new(columns: usize) -> Self {
        Self { columns: vec![Sha256::new(); columns], rows: 0 }
    }

    pub(super) fn add(&mut self, columns: &[Column]) {
        self.rows += columns.first().map_or(0, Column::len) as u64;
        self.columns.iter_mut().zip(columns).for_each(|(hasher, column)| column.hash_into(hasher));
    }

    pub(super) const fn rows(&self) -> u64 {
        self.rows
    }

    /// SHA-256 over names, types and the hash of each column.
    pub(super) fn finish(self, names: &[(String, ColumnKind)]) -> String {
        let mut whole = Sha256::new();
        for ((name, kind), column) in names.iter().zip(self.columns) {
            whole.update(format!("{name}\0{}\0", kind.word()));
            whole.update(column.finalize());
        }
        super::hexadecimal(&whole.finalize())
    }
}
