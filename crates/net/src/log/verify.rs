//! Looking at every byte of a log, also those that a restart would not read.

use std::fs;
use std::path::Path;

use super::LogError;
use super::record::{list, read_segment, snapshot_of};

/// What [`verify`] looked at and found sound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Saved states, every one of them sound.
    pub snapshots: u64,
    /// Files of entries, also those before the newest saved state.
    pub segments: u64,
    /// How many entries those files hold.
    pub entries: u64,
}

/// Reads every saved state and every file of entries, calling `visit` with each entry and its number.
///
/// A coordinator starts from the newest sound state and reads only what follows, so damage in older files goes
/// unnoticed until they are needed: this finds it. A write that was cut short at the very end is no damage. Fails
/// at the first damage, or with what `visit` returns.
pub fn verify<E: From<LogError>>(
    directory: &Path,
    mut visit: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<Verified, E> {
    let mut seen = Verified::default();
    for (first, path) in list(directory, "snap")? {
        let bytes = fs::read(&path).map_err(LogError::io(&path))?;
        if snapshot_of(&path, &bytes, first)?.is_none() {
            return Err(LogError::SavedState { path }.into());
        }
        seen.snapshots += 1;
    }
    let segments = list(directory, "log")?;
    let mut expected = None;
    for (index, (first, path)) in segments.iter().enumerate() {
        if let Some(expected) = expected.filter(|expected| expected < first) {
            return Err(LogError::Missing { path: directory.into(), from: expected, to: first - 1 }.into());
        }
        let bytes = fs::read(path).map_err(LogError::io(path))?;
        let is_last = index + 1 == segments.len();
        let mut visited = Ok(());
        let (info, _) = read_segment(path, *first, &bytes, (is_last, true), |number, entry| {
            if visited.is_ok() {
                visited = visit(number, entry);
            }
        })?;
        visited?;
        expected = Some(info.first + info.entries);
        seen.segments += 1;
        seen.entries += info.entries;
    }
    Ok(seen)
}
