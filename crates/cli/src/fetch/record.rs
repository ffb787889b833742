//! What was fetched into a directory, and under which terms: hashes that are recorded once are checked ever after.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use posse_data::catalogue::{KnownFile, KnownSet};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const NAME: &str = "posse-fetch.json";

/// The record of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The name of the data set.
    pub(super) set: String,
    /// Its terms as they were accepted; empty if they were not.
    pub(super) licence: String,
    /// Hashes by name of file.
    pub(super) files: std::collections::BTreeMap<String, Entry>,
}

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The SHA-256 hash of the file's content, in hexadecimal digits.
    pub(super) sha256: String,
    /// The address or path that the file came from.
    pub(super) from: String,
}

impl Record {
    /// The record of a directory; an empty one if it has none.
    pub(super) fn read(directory: &Path, set: &KnownSet) -> anyhow::Result<Self> {
        let path = directory.join(NAME);
        let record = match std::fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?
            }
            Err(_) => Self { set: set.name.into(), ..Self::default() },
        };
        if record.set != set.name {
            bail!("{} has {} in it: choose another directory", directory.display(), record.set);
        }
        Ok(record)
    }

    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let path = directory.join(NAME);
        let whole = serde_json::to_string_pretty(self)? + "\n";
        let draft = directory.join(format!("{NAME}.new"));
        std::fs::write(&draft, whole)?;
        std::fs::rename(&draft, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// What a file's hash has to be, if that is known: pinned in this program, or recorded at first use.
    pub(super) fn expected(&self, file: &KnownFile) -> Option<&str> {
        file.sha256.or_else(|| self.files.get(file.name).map(|entry| entry.sha256.as_str()))
    }

    /// Records a file that was fetched. Fails if its hash differs from the known one.
    pub(super) fn admit(&mut self, file: &KnownFile, path: &Path, from: &str) -> anyhow::Result<()> {
        let got = hash(path)?;
        if let Some(expected) = self.expected(file)
            && expected != got
        {
            let whose =
                if file.sha256.is_some() { "the one we know" } else { "the one recorded at first use" };
            bail!(
                "{} from {from} is another file than {whose}: its sha256 is {got}, expected {expected}. \
                 It was not kept. If its publisher changed it, get it by hand and prepare it with `posse data prepare`",
                file.name
            );
        }
        self.files.insert(file.name.into(), Entry { sha256: got, from: from.into() });
        Ok(())
    }

    /// Whether a file is there already, with the hash that it has to have.
    pub(super) fn holds(&self, file: &KnownFile, directory: &Path) -> anyhow::Result<bool> {
        let path = directory.join(file.name);
        match self.expected(file) {
            Some(expected) if path.exists() => Ok(hash(&path)? == expected),
            _ => Ok(false),
        }
    }
}

/// SHA-256 of a file's content, in hexadecimal digits.
pub(super) fn hash(path: &Path) -> anyhow::Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        digest.update(&buffer[..count]);
    }
}
