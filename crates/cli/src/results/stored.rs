//! Finished cells on disk: `cells/000007.json`, the place of the cell in the plan in the name.
//!
//! Two lines: a JSON document, and its checksum. A file that is not exactly that counts as not there.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::durable;
use super::manifest::short;
use crate::experiment::Cell;
use crate::row::Record;
use crate::runner::Outcome;

/// The directory, within the results, with one file for each finished cell.
pub(super) const CELLS: &str = "cells";

/// The content of the file of one cell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    id: String,
    /// The content hash of the data that the cell read, if it read any. Files of format 2 do not say it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<Record>,
}

/// What was found where a finished cell would be.
#[derive(Debug)]
pub(super) enum Found {
    /// There is no file: the cell has not finished.
    Nothing,
    /// What came of the cell.
    Outcome(Box<Outcome>),
    /// A file that cannot be used, and why.
    Broken(String),
}

/// Keeps what came of a cell. When this returns it is on the disk.
pub(super) fn write(directory: &Path, cell: &Cell, outcome: &Outcome) -> anyhow::Result<()> {
    let (record, error) = match outcome {
        Ok(record) => (Some(record.clone()), None),
        Err(error) => (None, Some(error.clone())),
    };
    let text = serde_json::to_string(&Stored { id: cell.id.clone(), data: read_by(cell), error, record })?;
    durable::replace_text(&path(directory, cell), &format!("{text}\n{:016x}\n", checksum(&text)))
}

/// Reads what came of a cell. `kept` is the name that the manifest has for it: some cells were named otherwise by
/// earlier builds.
pub(super) fn read(directory: &Path, cell: &Cell, kept: Option<&str>) -> anyhow::Result<Found> {
    let path = path(directory, cell);
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let broken = |why: &str| Ok(Found::Broken(format!("{} {why}", path.display())));
    let Ok(text) = String::from_utf8(bytes) else { return broken("is not text") };
    let lines: Vec<&str> = text.split_terminator('\n').collect();
    let [document, sum] = lines[..] else { return broken("does not have two lines") };
    if sum != format!("{:016x}", checksum(document)) {
        return broken("does not match its checksum");
    }
    match serde_json::from_str::<Stored>(document) {
        Ok(stored) if stored.id != cell.id && Some(stored.id.as_str()) != kept => {
            broken(&format!("is of the cell {}", stored.id))
        }
        Ok(Stored { data: Some(data), .. }) if read_by(cell).is_some_and(|expected| expected != data) => {
            broken(&format!(
                "was made from other data, with the hash {}, not {}",
                short(&data),
                short(&read_by(cell).unwrap_or_default())
            ))
        }
        Ok(Stored { record: Some(mut record), error: None, .. }) => {
            // Older builds did not say it.
            for tally in std::iter::once(&mut record.tally).chain(&mut record.curve) {
                tally.agents = cell.config.agents;
            }
            Ok(Found::Outcome(Box::new(Ok(record))))
        }
        Ok(Stored { record: None, error: Some(error), .. }) => Ok(Found::Outcome(Box::new(Err(error)))),
        Ok(_) => broken("says neither what came of the cell nor why nothing did"),
        Err(error) => broken(&format!("cannot be understood: {error}")),
    }
}

/// The content hash of the data that a cell reads.
fn read_by(cell: &Cell) -> Option<String> {
    cell.config.world.data().map(|name| name.hash.to_owned())
}

/// Where a cell is kept.
fn path(directory: &Path, cell: &Cell) -> PathBuf {
    directory.join(CELLS).join(format!("{:06}.json", cell.index))
}

/// FNV-1a: notices accidents, not attacks.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn a_cell_is_read_under_the_name_that_its_manifest_has() {
        let text = "horizon = 10\nagents = 1\n[[algorithm]]\nname = \"lin-ucb\"\n";
        let experiment = Experiment::from_text(Path::new("x.toml"), text.into(), false).unwrap();
        let cell = experiment.cells().remove(0);
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(CELLS)).unwrap();
        let former = Cell { id: "lin-ucb/noise=1/seed=0".into(), ..cell.clone() };
        write(directory.path(), &former, &Err("no memory".into())).unwrap();
        let found = |kept| read(directory.path(), &cell, kept).unwrap();
        assert!(matches!(found(Some(former.id.as_str())), Found::Outcome(_)));
        assert!(matches!(found(None), Found::Broken(why) if why.contains("is of the cell")));
        assert!(matches!(found(Some("lin-ucb/seed=1")), Found::Broken(_)));
    }
}
