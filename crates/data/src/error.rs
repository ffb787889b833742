//! What can be wrong with data, and where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Data that cannot be used: what is wrong, and where.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{place}: {problem}")]
pub struct DataError {
    /// The file or directory, with line and column where they are known.
    pub place: Box<Place>,
    /// What is wrong there.
    pub problem: Problem,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path of the file or directory.
    pub path: PathBuf,
    /// The line, counted from 1, if one is to blame.
    pub line: Option<u64>,
    /// The column, by number from 1 and by name where there is a header.
    pub column: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        match &self.column {
            Some(column) => write!(f, ", column {column}"),
            None => Ok(()),
        }
    }
}

/// What is wrong with a file, a directory or a setting.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// The operating system refused to read or write; the text is its own message.
    #[error("{0}")]
    System(String),
    /// A compressed file that ends too early or is damaged.
    #[error("the compressed file is damaged or ends too early: get it again ({0})")]
    Compression(String),
    /// A file without a row.
    #[error("there is no row in it")]
    Empty,
    /// A row with more or fewer fields than the first line.
    #[error("expected {expected} fields, got {got}: is the separator right?")]
    Fields {
        /// How many fields the first line has.
        expected: usize,
        /// How many fields this row has.
        got: usize,
    },
    /// A column that is needed and not there.
    #[error("there is no column `{name}`; there are {known}")]
    NoColumn {
        /// The name of the column that is needed.
        name: String,
        /// The names of the columns that are there.
        known: String,
    },
    /// Two columns of one name.
    #[error("two columns are called `{0}`")]
    DuplicateColumn(String),
    /// A value of another type or out of range.
    #[error("{value:?} is not {expected}")]
    Value {
        /// The value as the file has it.
        value: String,
        /// What the value must be, for example "a number".
        expected: &'static str,
    },
    /// A reference to something that another file should have and has not.
    #[error("{what} {value:?} is not in {home}")]
    Unknown {
        /// The kind of thing that is referred to, for example "item".
        what: &'static str,
        /// The value as the file has it.
        value: String,
        /// The file, or the list of names, that should contain it.
        home: String,
    },
    /// Bytes that are not text.
    #[error(
        "this is not UTF-8 text; if it is Latin-1 (é, ü and ñ as one byte), give --latin1, or convert it: \
         iconv -f latin1 -t utf-8"
    )]
    Encoding,
    /// A file that begins as UTF-16 does.
    #[error("this is UTF-16 text, as spreadsheets save it: convert it, with iconv -f utf-16 -t utf-8")]
    Utf16,
    /// A Parquet file where text is read: a table with classes, ratings, or a file whose name does not end in `.parquet`.
    #[error(
        "this is a Parquet file: events and logs may be, if the name ends in .parquet; for other data write it as CSV"
    )]
    ParquetForText,
    /// A directory that has something in it.
    #[error("there is something already: choose another directory, or --force to replace prepared data")]
    Occupied,
    /// A directory that was not prepared, or by another version.
    #[error("this is no prepared data: {0}")]
    NotPrepared(String),
    /// Data of other content than promised.
    #[error("the content hash is {got}, expected {expected}")]
    Hash {
        /// The hash that the experiment names.
        expected: String,
        /// The hash of the data that was found.
        got: String,
    },
    /// A setting that does not make sense for this data.
    #[error("{0}")]
    Setting(String),
}

impl Problem {
    /// The problem with a whole file or directory.
    pub fn of(self, path: &Path) -> DataError {
        let place = Place { path: path.to_owned(), line: None, column: None };
        DataError { place: Box::new(place), problem: self }
    }

    /// The problem with a line of a file.
    pub fn at(self, path: &Path, line: u64) -> DataError {
        let place = Place { path: path.to_owned(), line: Some(line), column: None };
        DataError { place: Box::new(place), problem: self }
    }

    /// What the system says about a file.
    pub(crate) fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::System("no such file or directory".into()),
            io::ErrorKind::PermissionDenied => Self::System("permission denied".into()),
            _ => Self::System(error.to_string()),
        }
    }
}
