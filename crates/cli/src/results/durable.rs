//! Files that are there whole or not at all, whatever happens to the process or the power.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;

/// How names of files that are being written end.
pub(super) const PARTIAL: &str = ".partial";

/// Puts what `write` writes in the place of the file at `path` at once. On any failure the old file stays
/// as it was and nothing is left behind.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let partial = partial(path);
    let attempt = || -> anyhow::Result<()> {
        let mut file = File::create(&partial)?;
        write(&mut file)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        Ok(sync_directory(path.parent())?)
    };
    attempt().with_context(|| format!("cannot write {}", path.display())).inspect_err(|_| {
        let _ = fs::remove_file(&partial);
    })
}

/// The same with a text.
pub(crate) fn replace_text(path: &Path, text: &str) -> anyhow::Result<()> {
    replace(path, |file| Ok(file.write_all(text.as_bytes())?))
}

/// Makes the new name of a file durable. Only some systems can, and elsewhere the rename has to do.
fn sync_directory(directory: Option<&Path>) -> io::Result<()> {
    match directory {
        Some(directory) if cfg!(unix) => {
            let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            File::open(directory)?.sync_all()
        }
        _ => Ok(()),
    }
}

/// A name that nothing else has, in the same directory, so that it can be renamed.
fn partial(path: &Path) -> PathBuf {
    // Two threads may write the same file: cells with the same settings have the same name.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.{}-{count}{PARTIAL}", std::process::id()))
}

/// Removes what interrupted processes left half-written in `directory`.
pub(super) fn sweep(directory: &Path) -> io::Result<()> {
    for file in fs::read_dir(directory)? {
        let file = file?;
        if is_partial(&file.file_name().to_string_lossy()) {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

/// Whether a file of this name was being written.
pub(super) fn is_partial(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(PARTIAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_write_the_same_file_all_succeed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cell.json");
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..50).try_for_each(|_| replace_text(&path, "whole"))))
                .collect();
            for writer in writers {
                writer.join().unwrap().unwrap();
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
    }
}
