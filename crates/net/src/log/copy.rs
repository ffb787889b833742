//! Copying a log while a coordinator writes to it, and putting a copy back.
//!
//! Files of entries only grow, and saved states appear whole. So a copy that takes the saved states first and
//! the entries after them holds everything that was durable when it began; a write that it catches in the
//! middle is cut off like one that a crash left. What it must not hold is `mark`: without it the coordinator
//! knows that agents may have been told more than the copy remembers, and begins a new epoch.

use std::fs;
use std::io;
use std::path::Path;

use super::file::{private_directory, replace_private};
use super::record::{list, read};
use super::{HISTORY_FILE, LogError, RELAY_IDENTITY, Verified, verify};

/// How often a copy begins anew because the log was shortened under it.
const ATTEMPTS: usize = 5;

/// Copies the log in `from`, which may be in use, to `to`, which must be empty or not there. Returns what the copy
/// holds; every byte of it was looked at.
pub fn backup(from: &Path, to: &Path) -> Result<Verified, LogError> {
    read(from)?;
    refuse_what_is_there(to)?;
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        // The coordinator may remove a file between our looking and our copying, or between two files.
        let copied = copy(from, to).and_then(|()| read(to)).and_then(|_| verify(to, |_, _| Ok(())));
        match copied {
            Ok(seen) => return Ok(seen),
            Err(error) => failed = Some(error),
        }
        fs::remove_dir_all(to).map_err(LogError::io(to))?;
    }
    Err(failed.expect("there was at least one attempt"))
}

/// Puts a copy of [`backup`] at `to`, which must be empty or not there. The coordinator that opens it begins a new
/// epoch. Fails and copies nothing if the copy is damaged.
pub fn restore(from: &Path, to: &Path) -> Result<Verified, LogError> {
    read(from)?;
    let seen = verify::<LogError>(from, |_, _| Ok(()))?;
    refuse_what_is_there(to)?;
    copy(from, to)?;
    Ok(seen)
}

fn refuse_what_is_there(to: &Path) -> Result<(), LogError> {
    private_directory(to)?;
    let is_empty = fs::read_dir(to).map_err(LogError::io(to))?.next().is_none();
    let there = || LogError::io(to)(io::Error::from(io::ErrorKind::DirectoryNotEmpty));
    if is_empty { Ok(()) } else { Err(there()) }
}

fn copy(from: &Path, to: &Path) -> Result<(), LogError> {
    private_directory(to)?;
    // Without the number of its history, agents would take the copy for another coordinator; without who it is at its
    // parent, a relay would say everything again in a new life.
    let beside = ["federation.json", HISTORY_FILE, RELAY_IDENTITY].map(|name| from.join(name));
    let states = list(from, "snap")?.into_iter().map(|(_, path)| path);
    for path in beside.into_iter().filter(|path| path.exists()).chain(states) {
        copy_file(&path, to)?;
    }
    // Listed only now: a file of entries that was begun meanwhile belongs to the copy.
    for (_, path) in list(from, "log")? {
        copy_file(&path, to)?;
    }
    Ok(())
}

fn copy_file(path: &Path, to: &Path) -> Result<(), LogError> {
    let bytes = fs::read(path).map_err(LogError::io(path))?;
    let name = path.file_name().expect("it was listed by its name");
    replace_private(&to.join(name), &bytes)
}
