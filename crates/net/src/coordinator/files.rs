//! Files of a coordinator: whether one is still the one that was read, and to whom it belongs.

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

/// Gives a file to the user who owns its directory. An operator runs `posse token` as root, and the service, which runs as
/// another user, must be able to use what is written. Where that is not allowed, the file stays as it is.
pub(crate) fn give_to_owner_of_directory(path: &Path) {
    if let Some(owner) = path.parent().and_then(|parent| fs::metadata(parent).ok()) {
        let _ = std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid()));
    }
}
