//! Parquet files of plain columns: text, whole numbers, numbers and switches.
//!
//! [`Writer`] writes one row group at a time and [`Reader`] reads some rows at a time. Both use the column
//! interface of the `parquet` crate and not Arrow's arrays, because Arrow's crates cost minutes of build time
//! and nothing here computes with its arrays (decision 0060).

mod read;
mod write;

pub use read::Reader;
pub use write::Writer;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The column holds UTF-8 text.
    Text,
    /// The column holds whole numbers that fit into an `i64`.
    Whole,
    /// The column holds numbers; infinite ones and NaN too.
    Number,
    /// The column holds true or false.
    Switch,
}

/// The values of one column, for some or all rows of a table. `None` is a missing value.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Values of a column of UTF-8 text.
    Text(Vec<Option<String>>),
    /// Values of a column of whole numbers.
    Whole(Vec<Option<i64>>),
    /// Values of a column of numbers; infinite ones and NaN too.
    Number(Vec<Option<f64>>),
    /// Values of a column of true or false.
    Switch(Vec<Option<bool>>),
}

impl Values {
    /// Returns a column of type `kind` without values.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text(Vec::new()),
            Kind::Whole => Self::Whole(Vec::new()),
            Kind::Number => Self::Number(Vec::new()),
            Kind::Switch => Self::Switch(Vec::new()),
        }
    }

    /// The type of these values.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Whole(_) => Kind::Whole,
            Self::Number(_) => Kind::Number,
            Self::Switch(_) => Kind::Switch,
        }
    }

    /// The number of rows, missing values included.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Whole(values) => values.len(),
            Self::Number(values) => values.len(),
            Self::Switch(values) => values.len(),
        }
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the rows of `more`, which must have the same type.
    ///
    /// # Panics
    /// If `more` has another type.
    pub fn extend(&mut self, more: Self) {
        match (self, more) {
            (Self::Text(values), Self::Text(more)) => values.extend(more),
            (Self::Whole(values), Self::Whole(more)) => values.extend(more),
            (Self::Number(values), Self::Number(more)) => values.extend(more),
            (Self::Switch(values), Self::Switch(more)) => values.extend(more),
            (own, more) => panic!("a column of type {:?} takes no {:?}", own.kind(), more.kind()),
        }
    }
}

#[cfg(test)]
mod tests;
