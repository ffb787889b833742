//! The durable log: every accepted event, kept before any agent is answered.
//!
//! A [`Log`] is small on purpose: append, make durable, read back, put a saved state in place of what came
//! before it. [`FileLog`] keeps it in a directory; a replicated log can take its place.

mod copy;
mod file;
mod record;
mod verify;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub use copy::{backup, restore};
pub use file::FileLog;
#[cfg(feature = "agent")]
pub(crate) use file::Saving;
#[cfg(feature = "coordinator")]
pub(crate) use file::replace_private;
pub(crate) use file::{private_directory, replace};
pub use record::{Contents, Damage, SegmentInfo, read};
pub use verify::{Verified, verify};

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
    /// Another process has the log open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The directory of the log.
        path: PathBuf,
    },
}

impl LogError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { path, error }
    }
}
