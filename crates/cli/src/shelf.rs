//! Cells that several experiments have in common: run once, kept by what determines them, taken from there by
//! the others.
//!
//! Figures of one paper often show the same runs from two sides. A cell is kept under a hash of its
//! configuration, of the curves that were asked for and of the build; an experiment that asks for the same
//! cell takes it from there, with the same bits.

use std::path::{Path, PathBuf};

use anyhow::Context;
use sha2::{Digest, Sha256};

use crate::experiment::{Cell, Curves};
use crate::results::{Build, durable};
use crate::row::Record;

/// A directory of cells by hash.
#[derive(Debug)]
pub(crate) struct Shelf {
    directory: PathBuf,
    curves: Curves,
}

impl Shelf {
    /// The shelf in a directory, for cells with these curves.
    pub(crate) fn open(directory: &Path, curves: Curves) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Self { directory: directory.to_owned(), curves })
    }

    /// What came of a cell when another experiment ran it. A file that cannot be read counts as not there.
    pub(crate) fn take(&self, cell: &Cell) -> Option<Record> {
        serde_json::from_slice(&std::fs::read(self.path(cell).ok()?).ok()?).ok()
    }

    /// Keeps what came of a cell for others.
    pub(crate) fn put(&self, cell: &Cell, record: &Record) -> anyhow::Result<()> {
        durable::replace_text(&self.path(cell)?, &serde_json::to_string(record)?)
    }

    fn path(&self, cell: &Cell) -> anyhow::Result<PathBuf> {
        let config = serde_json::to_string(&cell.config)?;
        let build = Build::this();
        let content = format!("{}\n{:?}\n{:?}\n{config}", build.version, build.commit, self.curves);
        let digest = Sha256::digest(content.as_bytes());
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(self.directory.join(format!("{name}.json")))
    }
}
