//! The durable log: every accepted event, kept before any agent is answered.
//!
//! A [`Log`] is small on purpose: append, make durable, read back, put a saved state in place of what came
//! before it. [`FileLog`] keeps it in a directory, for one process. The module `postgres` keeps it in a database that several
//! processes share: one of them leads, the others follow it.

mod copy;
mod file;
#[cfg(feature = "postgres")]
pub mod postgres;
mod record;
mod storage;
mod verify;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thiserror::Error;

pub use copy::{backup, restore};
pub use file::FileLog;
#[cfg(feature = "agent")]
pub(crate) use file::Saving;
#[cfg(feature = "coordinator")]
pub(crate) use file::replace_private;
pub(crate) use file::{private_directory, replace};
pub use record::{Contents, Damage, SegmentInfo, read};
pub use storage::{StorageConfig, StorageKind};
pub use verify::{Verified, verify};

/// The document beside a log with the number of its history.
pub(crate) const HISTORY_FILE: &str = "history";
/// The document beside a relay's log that says who the relay is at its parent.
pub(crate) const RELAY_IDENTITY: &str = "parent.json";

/// Where a coordinator keeps what it accepted. Entries are numbered from 0.
pub trait Log: Send {
    /// Writes entries at the end. They are kept for certain only after [`sync`](Self::sync). After an error
    /// nothing of them is there, and the log must be opened again before it takes more.
    fn append(&mut self, entries: &[Vec<u8>]) -> Result<(), LogError>;

    /// Returns when everything appended is on the disk. `epoch` is remembered beside it, so that an epoch
    /// is never used twice even if the end of the log is lost.
    fn sync(&mut self, epoch: u64) -> Result<(), LogError>;

    /// The newest saved state, and every entry after it. May be called once, before anything is appended.
    fn replay(&mut self) -> Result<Replay, LogError>;

    /// Keeps a state that all entries so far lead to.
    fn snapshot(&mut self, state: &[u8]) -> Result<(), LogError>;

    /// Drops entries that saved states have made superfluous, unless `keep_entries`, and old saved states.
    fn truncate(&mut self, keep_entries: bool) -> Result<(), LogError>;

    /// Every entry from the first on; `None` if some were dropped.
    fn history(&mut self) -> Result<Option<Vec<Vec<u8>>>, LogError>;

    /// `Ok` if so many bytes could be appended and made durable now; nothing of them stays. Called before a log that
    /// failed is used again.
    fn probe(&mut self, bytes: u64) -> Result<(), LogError>;

    /// The number of the next entry.
    fn next(&self) -> u64;

    /// Bytes of entries since the newest saved state.
    fn bytes_since_snapshot(&self) -> u64;

    /// Returns how many bytes of entries the log has on the disk.
    fn bytes(&self) -> u64;

    /// Keeps a small document beside the log, in place of an earlier one of this name.
    fn keep_beside(&mut self, name: &str, bytes: &[u8]) -> Result<(), LogError>;

    /// The document that was last kept under this name.
    fn beside(&mut self, name: &str) -> Result<Option<Vec<u8>>, LogError>;

    /// Becomes the one process that may append, if no other is. A log for one process is led by whoever has it open.
    /// Between this and the first append, [`follow`](Self::follow) must be called: it returns what another process has
    /// appended since the log was read.
    fn lead(&mut self) -> Result<Leadership, LogError> {
        Ok(Leadership::Ours)
    }

    /// Until when this process leads for certain without asking again. `None` for a log that no other process can lead.
    fn leads_until(&self) -> Option<Instant> {
        None
    }

    /// Whether this process leads for certain, so that it may answer what no entry stands for.
    fn leads(&self) -> bool {
        self.leads_until().is_none_or(|until| Instant::now() < until)
    }

    /// Renews the lease of the process that leads if it is time; returns when to call this again. An error means that
    /// the log must be opened again, like that of an append.
    fn tend(&mut self) -> Result<Option<Duration>, LogError> {
        Ok(None)
    }

    /// Lets another process lead at once, instead of when the lease is over.
    fn resign(&mut self) {}

    /// Entries that were appended since [`replay`](Self::replay), or since this was last called. `None` if what was read
    /// before is not in the log any more: then it must be replayed again.
    fn follow(&mut self) -> Result<Option<Vec<Vec<u8>>>, LogError> {
        Ok(Some(Vec::new()))
    }

    /// How often a process that does not lead should look.
    fn patience(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Keeps the lives that were given out, before the agents hear of them. A log for one process does not: see
    /// decision 0050 for what agents do after a restart.
    fn keep_lives(&mut self, _lives: &[KeptLife]) -> Result<(), LogError> {
        Ok(())
    }

    /// The lives that were kept; `None` if this log does not keep them.
    fn lives(&mut self) -> Result<Option<Vec<KeptLife>>, LogError> {
        Ok(None)
    }
}

/// Which process may append to a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// This one.
    Ours,
    /// Another one, which agents reach at this address; the address is empty if it is not known.
    Other(String),
}

/// A life of an agent that was given out, and the process that asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptLife {
    /// The number of the agent.
    pub agent: u64,
    /// The number of the newest life that was given out.
    pub life: u64,
    /// The number that the process drew at its start; 0 if it drew none.
    pub instance: u64,
}

/// What a log has to say when it is opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// The newest saved state, if there is one.
    pub state: Option<Vec<u8>>,
    /// Every entry after it, in order.
    pub entries: Vec<Vec<u8>>,
    /// Bytes of a write that was cut short and counts for nothing.
    pub torn_bytes: u64,
    /// Entries that were durable once and are gone: the log was cut, or an old copy was put back.
    pub lost_entries: u64,
    /// The newest epoch that is known to have been used.
    pub epoch: u64,
}

/// A log that cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused to read or write a file.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or directory that was refused.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Bytes in the middle are not what was written.
    #[error(
        "{} is damaged at byte {offset} (entry {entry}), and valid entries follow: restore the file from a copy, \
         or remove the directory and begin anew", path.display()
    )]
    Corrupt {
        /// The damaged file of entries.
        path: PathBuf,
        /// The offset in bytes at which the damaged entry begins.
        offset: u64,
        /// The number of the damaged entry.
        entry: u64,
    },
    /// A file between others is missing.
    #[error("{}: entries {from} to {to} are missing: restore the file that held them", path.display())]
    Missing {
        /// The directory of the log.
        path: PathBuf,
        /// The number of the first missing entry.
        from: u64,
        /// The number of the last missing entry.
        to: u64,
    },
    /// No saved state can be read, and the entries before it are gone.
    #[error("{} is damaged and nothing older is left: restore the file from a copy", path.display())]
    Snapshot {
        /// The file of the newest saved state.
        path: PathBuf,
    },
    /// A saved state is damaged; an older one, or the entries, may still be sound.
    #[error(
        "{} is a saved state and damaged: the coordinator would start from an older one; restore the file from a \
         copy, or remove it", path.display()
    )]
    SavedState {
        /// The damaged file of a saved state.
        path: PathBuf,
    },
    /// A file is of a version that this build does not read.
    #[error(
        "{} is of format {version}, and this version of posse reads formats up to {newest}: it was written by a newer \
         one; start that one, or restore a backup from before the upgrade", path.display()
    )]
    Version {
        /// The file that was written by another version.
        path: PathBuf,
        /// The version of its format.
        version: u32,
        /// The newest version that is read.
        newest: u32,
    },
    /// A database cannot be reached, or refused a statement.
    #[error("{server}: {why}")]
    Database {
        /// The address of the server.
        server: String,
        /// What it said, or what happened instead of an answer.
        why: String,
    },
    /// A database said something about a commit, so that it may not be replicated. It counts as failed.
    #[error("{server} did not confirm a commit: {why}")]
    Unconfirmed {
        /// The address of the server.
        server: String,
        /// What the server said.
        why: String,
    },
    /// A database would confirm what could still be lost.
    #[error(
        "{server} does not replicate: {why}. Set up synchronous standbys (docs/guides/fail-over.md), or say \
         --allow-unreplicated"
    )]
    Unreplicated {
        /// The address of the server.
        server: String,
        /// The setting that is too weak.
        why: String,
    },
    /// Rows of a database are not what was written.
    #[error(
        "the rows of federation \"{federation}\" are damaged or missing from entry {entry} on: restore the database \
         from a copy"
    )]
    Rows {
        /// The name of the federation.
        federation: String,
        /// The number of the first entry that cannot be read.
        entry: u64,
    },
    /// Another process leads the federation.
    #[error("another coordinator leads this federation{}", at(leader))]
    Deposed {
        /// Where agents reach it; empty if that is not known.
        leader: String,
    },
    /// Another process has the log open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The directory of the log.
        path: PathBuf,
    },
}

fn at(leader: &str) -> String {
    if leader.is_empty() { String::new() } else { format!(": it is at {leader}") }
}

impl LogError {
    /// Whether another process leads now, so that nothing is wrong with the log itself.
    #[cfg(feature = "coordinator")]
    pub(crate) const fn is_deposed(&self) -> bool {
        matches!(self, Self::Deposed { .. })
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { path, error }
    }
}
