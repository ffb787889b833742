//! Whether a file is still the one that was read.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// When a file was written, which one it is, and how long: a file that was put in its place anew is another one.
pub(super) type FileId = (SystemTime, u64, u64);

/// The identity of the file at `path`; nothing if there is none.
pub(super) fn file_id(path: &Path) -> Option<FileId> {
    let file = fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.ino(), file.len()))
}
