//! What a prepared directory says about itself.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::column::ColumnKind;
use super::hexadecimal;
use crate::error::{DataError, Problem};
use crate::records::RawFile;

/// The name of the manifest in its directory.
pub const MANIFEST: &str = "manifest.json";
/// The version of this format.
const FORMAT: u32 = 1;

/// What a prepared directory says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format.
    pub format: u32,
    /// Which data set it is.
    pub name: String,
    /// What was made of it: `table`, `clusters`, `recommender`, `users` or `log`.
    pub kind: String,
    /// SHA-256 of the content: of all values in all tables, whatever their encoding.
    pub hash: String,
    /// The publisher's terms of use.
    pub licence: String,
    /// The settings that it was prepared with, by name.
    pub settings: BTreeMap<String, String>,
    /// Rows, users, items and so on.
    pub counts: BTreeMap<String, u64>,
    /// Names that the numbers in the tables stand for, such as classes.
    pub names: BTreeMap<String, Vec<String>>,
    /// The files it was made from.
    pub sources: Vec<RawFile>,
    /// The files it consists of.
    pub tables: Vec<StoredTable>,
    /// The version of posse that made it.
    pub posse: String,
}

/// A Parquet file of a prepared directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredTable {
    /// Its name in the directory.
    pub file: String,
    /// How many rows it has.
    pub rows: u64,
    /// The name and the type of each column, in order.
    pub columns: Vec<(String, ColumnKind)>,
    /// The SHA-256 hash of all values, whatever their encoding.
    pub hash: String,
}

impl Manifest {
    /// A manifest without hash, settings, counts and tables, to be filled in while preparing.
    #[must_use]
    pub fn new(name: &str, kind: &str, licence: &str) -> Self {
        Self {
            format: FORMAT,
            name: name.into(),
            kind: kind.into(),
            hash: String::new(),
            licence: licence.into(),
            settings: BTreeMap::new(),
            counts: BTreeMap::new(),
            names: BTreeMap::new(),
            sources: Vec::new(),
            tables: Vec::new(),
            posse: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// Notes how it was prepared.
    #[allow(clippy::needless_pass_by_value, reason = "values are small, and literals read better")]
    pub fn set(&mut self, key: &str, value: impl ToString) {
        self.settings.insert(key.into(), value.to_string());
    }

    /// Notes how many there are.
    pub fn count(&mut self, key: &str, count: usize) {
        self.counts.insert(key.into(), count as u64);
    }

    /// The hash over kind, names and tables: everything a world is made of.
    pub(super) fn content_hash(&self) -> String {
        let mut whole = Sha256::new();
        whole.update(format!("posse prepared data {FORMAT}\0{}\0", self.kind));
        for (key, names) in &self.names {
            whole.update(format!("{key}\0{}\0", names.len()));
            names.iter().for_each(|name| whole.update(format!("{}\0{name}", name.len())));
        }
        for table in &self.tables {
            whole.update(format!("{}\0{}\0{}\0", table.file, table.rows, table.hash));
        }
        hexadecimal(&whole.finalize())
    }

    /// Reads the manifest of a prepared directory.
    pub fn read(directory: &Path) -> Result<Self, DataError> {
        let path = directory.join(MANIFEST);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound if directory.exists() => format!("it has no {MANIFEST}"),
                std::io::ErrorKind::NotFound => "there is no such directory".into(),
                _ => error.to_string(),
            };
            Problem::NotPrepared(reason).of(directory)
        })?;
        // The version first: another one may have other keys.
        let version = serde_json::from_str::<serde_json::Value>(&text).ok();
        let version =
            version.as_ref().and_then(|value| value.get("format")).and_then(serde_json::Value::as_u64);
        if version.is_some_and(|version| version != u64::from(FORMAT)) {
            let reason = format!("its format is not {FORMAT}; prepare it again");
            return Err(Problem::NotPrepared(reason).of(&path));
        }
        let manifest: Self =
            serde_json::from_str(&text).map_err(|error| Problem::NotPrepared(error.to_string()).of(&path))?;
        let proper = |table: &StoredTable| {
            !table.file.is_empty() && Path::new(&table.file).file_name() == Some(table.file.as_ref())
        };
        if !manifest.tables.iter().all(proper) {
            return Err(Problem::NotPrepared("a table lies outside it".into()).of(&path));
        }
        Ok(manifest)
    }

    /// The table of this name.
    pub fn table(&self, file: &str, directory: &Path) -> Result<&StoredTable, DataError> {
        self.tables
            .iter()
            .find(|table| table.file == file)
            .ok_or_else(|| Problem::NotPrepared(format!("it has no {file}")).of(directory))
    }
}
