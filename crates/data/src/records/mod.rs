//! Text files of records, read as a stream: separators, quotes, headers, encodings, compression.

mod source;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{DataError, Place, Problem};
use source::Source;

/// How a text file is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// What separates fields, such as `,` or `::`. Several spaces count as one.
    pub separator: String,
    /// Whether fields may stand in double quotes. Only with a separator of one byte.
    pub quotes: bool,
    /// Whether the first line names the columns.
    pub header: bool,
    /// Whether bytes are Latin-1; otherwise they are UTF-8.
    pub latin1: bool,
    /// Whether separators after the last column belong to it: free text at the end of a line.
    pub open_end: bool,
}

impl Format {
    /// Comma-separated, with quotes and a header.
    #[must_use]
    pub fn csv() -> Self {
        Self { separator: ",".into(), quotes: true, header: true, latin1: false, open_end: false }
    }

    /// Plain fields with this separator: no quotes, no header.
    #[must_use]
    pub fn plain(separator: &str) -> Self {
        Self { separator: separator.into(), quotes: false, header: false, latin1: false, open_end: false }
    }
}

/// A raw file that was read to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFile {
    /// The name of the file, without its directory.
    pub file: String,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The SHA-256 hash of the file's bytes, in hexadecimal digits.
    pub sha256: String,
}

/// Called now and then while files are read, with the bytes read since the last time.
pub type Watch<'w> = &'w mut dyn FnMut(u64);

/// A text file that is read row by row.
#[derive(Debug)]
pub struct Records {
    path: PathBuf,
    format: Format,
    source: Source,
    engine: Engine,
    columns: Vec<String>,
    /// Fields of a row; `None` before the first.
    width: Option<usize>,
    line: u64,
    rows: u64,
    reported: u64,
}

enum Engine {
    Csv { reader: Box<csv::Reader<Box<dyn Read>>>, record: csv::ByteRecord },
    Lines { reader: Box<dyn BufRead>, buffer: Vec<u8>, ends: Vec<(usize, usize)>, next: u64 },
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Csv { .. }) { "Csv" } else { "Lines" })
    }
}

/// How many rows pass between two reports.
const REPORT_ROWS: u64 = 1 << 14;

impl Records {
    /// Opens a file, decompressing it if its first bytes say gzip, and reads its header if it has one.
    pub fn open(path: &Path, format: &Format) -> Result<Self, DataError> {
        let source = Source::open(path).map_err(|error| Problem::from_io(&error).of(path))?;
        let input = source.reader().map_err(|error| Problem::from_io(&error).of(path))?;
        match first_bytes(path)[..] {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return Err(Problem::Utf16.of(path)),
            [b'P', b'A', b'R', b'1', ..] => return Err(Problem::ParquetForText.of(path)),
            _ => {}
        }
        let engine = if format.quotes {
            let separator = *format.separator.as_bytes().first().unwrap_or(&b',');
            let mut builder = csv::ReaderBuilder::new();
            // A carriage return before it is taken off below: the crate's own treatment miscounts lines.
            let end = csv::Terminator::Any(b'\n');
            builder.has_headers(false).flexible(true).delimiter(separator).terminator(end);
            let reader = builder.from_reader(input);
            Engine::Csv { reader: Box::new(reader), record: csv::ByteRecord::new() }
        } else {
            let reader = Box::new(BufReader::with_capacity(1 << 16, input));
            Engine::Lines { reader, buffer: Vec::new(), ends: Vec::new(), next: 1 }
        };
        let path = path.to_owned();
        let (format, columns) = (format.clone(), Vec::new());
        let mut records =
            Self { path, format, source, engine, columns, width: None, line: 0, rows: 0, reported: 0 };
        if records.format.header {
            records.read_header()?;
        }
        Ok(records)
    }

    fn read_header(&mut self) -> Result<(), DataError> {
        if !self.advance()? {
            return Err(Problem::Empty.of(&self.path));
        }
        let mut columns: Vec<String> = Vec::with_capacity(self.len());
        for field in 0..self.len() {
            let name = self.text(field)?.trim().trim_start_matches('\u{feff}').to_owned();
            columns.push(name);
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = columns.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(Problem::DuplicateColumn(twice.clone()).at(&self.path, self.line));
        }
        self.width = Some(columns.len());
        self.columns = columns;
        self.rows = 0;
        Ok(())
    }

    /// The names of the columns; empty without a header.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The position of a column.
    pub fn column(&self, name: &str) -> Result<usize, DataError> {
        self.columns.iter().position(|column| column == name).ok_or_else(|| {
            let known = if self.columns.is_empty() {
                format!("1 to {}", self.len())
            } else {
                self.columns.join(", ")
            };
            Problem::NoColumn { name: name.into(), known }.at(&self.path, 1)
        })
    }

    /// How many fields the current row has.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.engine {
            Engine::Csv { record, .. } => record.len(),
            Engine::Lines { ends, .. } => ends.len(),
        }
    }

    /// Whether the current row has no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows were read so far.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Goes to the next row; `false` after the last. Empty lines are passed over. Tells `watch` how far it
    /// has come.
    pub fn next(&mut self, watch: Watch<'_>) -> Result<bool, DataError> {
        if !self.advance()? {
            if self.rows == 0 {
                return Err(Problem::Empty.of(&self.path));
            }
            watch(self.source.count() - self.reported);
            self.reported = self.source.count();
            return Ok(false);
        }
        let expected = *self.width.get_or_insert(self.len());
        if self.len() != expected {
            return Err(Problem::Fields { expected, got: self.len() }.at(&self.path, self.line));
        }
        self.rows += 1;
        if self.rows.is_multiple_of(REPORT_ROWS) {
            watch(self.source.count() - self.reported);
            self.reported = self.source.count();
        }
        Ok(true)
    }

    fn advance(&mut self) -> Result<bool, DataError> {
        match &mut self.engine {
            Engine::Csv { reader, record } => loop {
                let more = reader.read_byte_record(record).map_err(|error| {
                    let line = reader.position().line();
                    match error.into_kind() {
                        csv::ErrorKind::Io(error) => self.source.problem(&error).at(&self.path, line),
                        _ => Problem::Encoding.at(&self.path, line),
                    }
                })?;
                self.line = record.position().map_or(self.line, csv::Position::line);
                if !more || record.len() > 1 || !matches!(record.get(0), Some(b"" | b"\r") | None) {
                    return Ok(more);
                }
            },
            Engine::Lines { reader, buffer, ends, next } => loop {
                buffer.clear();
                let length = reader
                    .read_until(b'\n', buffer)
                    .map_err(|error| self.source.problem(&error).at(&self.path, *next))?;
                if length == 0 {
                    return Ok(false);
                }
                self.line = *next;
                *next += 1;
                while buffer.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                    buffer.pop();
                }
                if buffer.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                divide(buffer, &self.format, self.width, ends);
                return Ok(true);
            },
        }
    }

    /// The bytes of a field of the current row.
    fn bytes(&self, field: usize) -> &[u8] {
        match &self.engine {
            Engine::Csv { record, .. } => {
                let bytes = &record[field];
                let last = field + 1 == record.len();
                if last { bytes.strip_suffix(b"\r").unwrap_or(bytes) } else { bytes }
            }
            Engine::Lines { buffer, ends, .. } => &buffer[ends[field].0..ends[field].1],
        }
    }

    /// A field of the current row as text.
    ///
    /// # Panics
    /// If the row has no such field.
    pub fn text(&self, field: usize) -> Result<Cow<'_, str>, DataError> {
        let bytes = self.bytes(field);
        if self.format.latin1 && !bytes.is_ascii() {
            return Ok(bytes.iter().map(|&byte| char::from(byte)).collect());
        }
        let text = std::str::from_utf8(bytes).map_err(|_| self.error(field, Problem::Encoding))?;
        Ok(Cow::Borrowed(text))
    }

    /// A field of the current row as a finite number.
    ///
    /// # Panics
    /// If the row has no such field.
    pub fn number(&self, field: usize) -> Result<f64, DataError> {
        let text = self.text(field)?;
        match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(self.refuse(field, "a finite number")),
        }
    }

    /// A field of the current row as a whole number, zero or more.
    ///
    /// # Panics
    /// If the row has no such field.
    pub fn whole(&self, field: usize) -> Result<u64, DataError> {
        let text = self.text(field)?;
        text.trim().parse().map_err(|_| self.refuse(field, "a whole number, zero or more"))
    }

    /// The complaint that a field of the current row is not what it should be.
    #[must_use]
    pub fn refuse(&self, field: usize, expected: &'static str) -> DataError {
        let value = String::from_utf8_lossy(self.bytes(field)).into_owned();
        self.error(field, Problem::Value { value, expected })
    }

    /// A problem with a field of the current row.
    #[must_use]
    pub fn error(&self, field: usize, problem: Problem) -> DataError {
        let number = (field + 1).to_string();
        let column = self.columns.get(field).map_or(number.clone(), |name| format!("{number} ({name})"));
        let place = Place { path: self.path.clone(), line: Some(self.line), column: Some(column) };
        DataError { place: Box::new(place), problem }
    }

    /// After the last row: what file it was.
    pub fn finish(self) -> Result<RawFile, DataError> {
        let path = self.path;
        self.source.finish(&path).map_err(|error| Problem::from_io(&error).of(&path))
    }
}

/// The first bytes of a file, decompressed if need be. Empty if it cannot be read: the error then comes from opening it.
fn first_bytes(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(reader) = Source::open(path).and_then(|source| source.reader()) {
        let _ = reader.take(1 << 16).read_to_end(&mut bytes);
    }
    bytes
}

/// What most likely separates the fields of a text file with a header: the candidate that its first line has most of.
/// A comma if there is none of them.
#[must_use]
pub fn detect_separator(path: &Path) -> &'static str {
    let bytes = first_bytes(path);
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let count =
        |separator: &str| line.windows(separator.len()).filter(|w| *w == separator.as_bytes()).count();
    let candidates = [",", "\t", ";", "|", "::"];
    // Of equals the first, so that a comma wins.
    candidates.into_iter().rev().max_by_key(|separator| count(separator)).unwrap_or(",")
}

/// The separator that is expected if the first line of the file has it, or else the one that it has most of.
#[must_use]
pub fn separator_or(path: &Path, expected: &str) -> String {
    let bytes = first_bytes(path);
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let has = line.windows(expected.len().max(1)).any(|window| window == expected.as_bytes());
    if has { expected.into() } else { detect_separator(path).into() }
}

/// Finds the fields of a line.
fn divide(line: &[u8], format: &Format, width: Option<usize>, ends: &mut Vec<(usize, usize)>) {
    ends.clear();
    let separator = format.separator.as_bytes();
    let most = if format.open_end { width.unwrap_or(usize::MAX) } else { usize::MAX };
    let (mut start, mut at) = (0, 0);
    if separator == b" " {
        // Fixed-width tables are padded.
        while at < line.len() {
            while line.get(at) == Some(&b' ') {
                at += 1;
            }
            start = at;
            while at < line.len() && line[at] != b' ' {
                at += 1;
            }
            if at > start {
                ends.push((start, at));
            }
        }
        return;
    }
    while at < line.len() {
        if ends.len() + 1 < most && line[at..].starts_with(separator) {
            ends.push((start, at));
            at += separator.len();
            start = at;
        } else {
            at += 1;
        }
    }
    ends.push((start, line.len()));
}

#[cfg(test)]
mod tests;
