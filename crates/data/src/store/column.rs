//! Columns: some values of one type, and the hash of all of them.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::parquet_file::{Kind, Values};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// The column holds finite numbers.
    Number,
    /// The column holds whole numbers that fit into an `i64`.
    Whole,
    /// The column holds UTF-8 text.
    Text,
}

/// Values of one column, of some or all rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Values of a column of finite numbers.
    Number(Vec<f64>),
    /// Values of a column of whole numbers.
    Whole(Vec<i64>),
    /// Values of a column of text.
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

    /// Moves all values out of the column, in the form in which a Parquet file takes them.
    pub(super) fn take(&mut self) -> Values {
        match self {
            Self::Number(values) => Values::Number(values.drain(..).map(Some).collect()),
            Self::Whole(values) => Values::Whole(values.drain(..).map(Some).collect()),
            Self::Text(values) => Values::Text(values.drain(..).map(Some).collect()),
        }
    }

    /// The values that a Parquet file had; `None` if some are missing or of another type.
    pub(super) fn from_values(kind: ColumnKind, values: Values) -> Option<Self> {
        Some(match (kind, values) {
            (ColumnKind::Number, Values::Number(values)) => {
                Self::Number(values.into_iter().collect::<Option<_>>()?)
            }
            (ColumnKind::Whole, Values::Whole(values)) => {
                Self::Whole(values.into_iter().collect::<Option<_>>()?)
            }
            (ColumnKind::Text, Values::Text(values)) => {
                Self::Text(values.into_iter().collect::<Option<_>>()?)
            }
            _ => return None,
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
    pub(super) const fn in_file(self) -> Kind {
        match self {
            Self::Number => Kind::Number,
            Self::Whole => Kind::Whole,
            Self::Text => Kind::Text,
        }
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
