//! Files of logged decisions: text or Parquet, columns by name.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{DataError, Place, Problem};
use crate::parquet_file::{Reader, Values};
use crate::records::{Format, RawFile, Records, Watch};

/// Which files there are, and which columns say what.
#[derive(Clone, Debug)]
pub struct LogFiles {
    /// The name of the prepared log.
    pub name: String,
    /// The publisher's terms of use.
    pub licence: String,
    /// The log: text with a header, perhaps compressed, or Parquet.
    pub log: PathBuf,
    /// What separates the fields of a text.
    pub separator: String,
    /// The names of the columns to read.
    pub columns: GenericLog,
    /// The items that can be chosen, as text with a header; without them, all actions in the log.
    pub items: Option<PathBuf>,
}

/// The names of the columns of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenericLog {
    /// The column with the action that was taken.
    pub action: String,
    /// The column with the reward of the action.
    pub reward: String,
    /// The column with the probability of the action under the logging policy; without it, all actions are
    /// taken as equally likely.
    pub propensity: Option<String>,
    /// The columns whose values together tell users apart; without them, all rows are about one user.
    pub user: Vec<String>,
    /// The column that tells agents apart, such as a region.
    pub agent: Option<String>,
    /// The column with the time of the decision, which must not fall from one row to the next.
    pub time: Option<String>,
    /// The columns with numbers that were known before the decision; a name that ends with `*` stands for all
    /// columns that begin so.
    pub context: Vec<String>,
    /// Whether `context` has one number for each item.
    pub per_item: bool,
    /// The column of the items' file with what actions call them.
    pub item: String,
}

/// Rows of a Parquet file that are held in memory.
const BATCH_ROWS: usize = 1 << 10;

/// A table being read row by row, whatever its format.
pub(crate) enum Rows {
    Text(Box<Records>),
    Parquet(Box<ParquetRows>),
}

pub(crate) struct ParquetRows {
    path: PathBuf,
    reader: Reader,
    columns: Vec<String>,
    /// Some rows of all columns; `None` for a column of a type that is not read.
    batch: Vec<Option<Values>>,
    batch_rows: usize,
    /// The current row, counted in the batch from 0 and in the file from 1.
    at: usize,
    row: u64,
}

impl Rows {
    pub(crate) fn open(path: &Path, separator: &str) -> Result<Self, DataError> {
        Self::open_as(path, separator, false)
    }

    /// The same; a text may be in Latin-1.
    pub(crate) fn open_as(path: &Path, separator: &str, latin1: bool) -> Result<Self, DataError> {
        if path.extension().is_none_or(|extension| extension != "parquet") {
            let quotes = separator.len() == 1 && separator != " ";
            let format = Format { separator: separator.into(), quotes, latin1, ..Format::csv() };
            return Ok(Self::Text(Box::new(Records::open(path, &format)?)));
        }
        let refuse = |error: &std::io::Error| Problem::System(error.to_string()).of(path);
        let file = File::open(path).map_err(|error| Problem::from_io(&error).of(path))?;
        let reader = Reader::new(file).map_err(|error| refuse(&error))?;
        Ok(Self::Parquet(Box::new(ParquetRows {
            path: path.into(),
            columns: (0..reader.width()).map(|column| reader.name(column).to_owned()).collect(),
            reader,
            batch: Vec::new(),
            batch_rows: 0,
            at: 0,
            row: 0,
        })))
    }

    pub(crate) fn columns(&self) -> &[String] {
        match self {
            Self::Text(records) => records.columns(),
            Self::Parquet(rows) => &rows.columns,
        }
    }

    pub(crate) fn column(&self, name: &str) -> Result<usize, DataError> {
        match self {
            Self::Text(records) => records.column(name),
            Self::Parquet(rows) => rows.columns.iter().position(|column| column == name).ok_or_else(|| {
                Problem::NoColumn { name: name.into(), known: rows.columns.join(", ") }.of(&rows.path)
            }),
        }
    }

    pub(crate) fn next(&mut self, watch: Watch<'_>) -> Result<bool, DataError> {
        match self {
            Self::Text(records) => records.next(watch),
            Self::Parquet(rows) => rows.next(),
        }
    }

    pub(crate) fn text(&self, field: usize) -> Result<String, DataError> {
        match self {
            Self::Text(records) => Ok(records.text(field)?.trim().to_owned()),
            Self::Parquet(rows) => rows.text(field),
        }
    }

    pub(crate) fn number(&self, field: usize) -> Result<f64, DataError> {
        match self {
            Self::Text(records) => records.number(field),
            Self::Parquet(rows) => {
                let text = rows.text(field)?;
                let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
                number.ok_or_else(|| self.refuse(field, "a finite number"))
            }
        }
    }

    pub(crate) fn refuse(&self, field: usize, expected: &'static str) -> DataError {
        let value = self.text(field).unwrap_or_default();
        self.error(field, Problem::Value { value, expected })
    }

    pub(crate) fn error(&self, field: usize, problem: Problem) -> DataError {
        match self {
            Self::Text(records) => records.error(field, problem),
            Self::Parquet(rows) => rows.error(field, problem),
        }
    }

    /// What file it was. A Parquet file is not hashed: its parts are read in any order.
    pub(crate) fn finish(self) -> Result<Option<RawFile>, DataError> {
        match self {
            Self::Text(records) => records.finish().map(Some),
            Self::Parquet(_) => Ok(None),
        }
    }
}

impl ParquetRows {
    fn next(&mut self) -> Result<bool, DataError> {
        self.at += 1;
        if self.at >= self.batch_rows {
            let read = self.reader.next_rows(BATCH_ROWS);
            let read = read.map_err(|error| Problem::System(error.to_string()).of(&self.path))?;
            let Some(batch) = read else {
                return if self.row == 0 { Err(Problem::Empty.of(&self.path)) } else { Ok(false) };
            };
            // Without a single column that is read there is no value to ask for, however many rows there are.
            self.batch_rows = batch.iter().flatten().map(Values::len).next().unwrap_or(0);
            self.batch = batch;
            self.at = 0;
        }
        self.row += 1;
        Ok(true)
    }

    /// A value as text; rows of a Parquet file are counted like lines.
    fn text(&self, field: usize) -> Result<String, DataError> {
        let wrong = |expected| self.error(field, Problem::Value { value: String::new(), expected });
        let text = match &self.batch[field] {
            Some(Values::Number(values)) => values[self.at].map(|value| value.to_string()),
            Some(Values::Whole(values)) => values[self.at].map(|value| value.to_string()),
            Some(Values::Switch(values)) => values[self.at].map(|value| u8::from(value).to_string()),
            Some(Values::Text(values)) => values[self.at].clone(),
            None => return Err(wrong("a number, a switch or a text")),
        };
        text.ok_or_else(|| wrong("there: it is missing"))
    }

    fn error(&self, field: usize, problem: Problem) -> DataError {
        let column = Some(format!("{} ({})", field + 1, self.columns[field]));
        let place = Place { path: self.path.clone(), line: Some(self.row), column };
        DataError { place: Box::new(place), problem }
    }
}
