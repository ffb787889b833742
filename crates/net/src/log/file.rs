//! A log in a directory: append-only segments, saved states, and a note of what was durable.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::record::{HEADER, header, list, mark, path, read_with, snapshot_file, write_batch};
use super::{Log, LogError, Replay};

/// A segment that is longer is followed by a new one.
const SEGMENT_BYTES: u64 = 64 << 20;
/// How many saved states are kept: should the newest be unreadable, the one before it is used.
const KEPT_SNAPSHOTS: usize = 2;

/// A log in a directory, for one process at a time.
#[derive(Debug)]
pub struct FileLog {
    directory: PathBuf,
    file: Arc<File>,
    path: PathBuf,
    mark: File,
    /// Bytes in the open segment, and how many of them are certainly on the disk.
    length: u64,
    synced: u64,
    next: u64,
    since_snapshot: u64,
    earlier_bytes: u64,
    segment_bytes: u64,
    replay: Option<Replay>,
    buffer: Vec<u8>,
    /// Held as long as the log is open.
    lock: File,
}

impl Drop for FileLog {
    fn drop(&mut self) {
        // Not left to closing the file: a process that is just being started may still hold a copy of it.
        let _ = self.lock.unlock();
    }
}

impl FileLog {
    /// Opens the log in `directory`, which is made if it is not there. A write that was cut short is cut
    /// off; other damage is an error.
    pub fn open(directory: &Path) -> Result<Self, LogError> {
        Self::with(directory, SEGMENT_BYTES, true)
    }

    /// The same for a log that is not synced after each append: after a power failure any part of what was
    /// not synced may be missing, so everything from the first damage on is cut off.
    pub fn open_journal(directory: &Path) -> Result<Self, LogError> {
        // Raw observations and the secret of privacy noise are nobody else's business.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(LogError::io(directory))?;
        Self::with(directory, SEGMENT_BYTES, false)
    }

    /// A log with shorter files.
    pub fn with_segments_of(directory: &Path, segment_bytes: u64) -> Result<Self, LogError> {
        Self::with(directory, segment_bytes, true)
    }

    fn with(directory: &Path, segment_bytes: u64, strict: bool) -> Result<Self, LogError> {
        fs::create_dir_all(directory).map_err(LogError::io(directory))?;
        let lock = lock(directory)?;
        let contents = read_with(directory, strict)?;
        let (marked, epoch) = contents.mark.unwrap_or((0, 0));
        let next = contents.first + contents.entries.len() as u64;
        // A log without its mark is one that was put back from a copy: agents may know more than it does.
        let unmarked = u64::from(strict && contents.mark.is_none() && next > 0);
        let mut replay = Replay {
            state: contents.state.map(|(_, state)| state),
            lost_entries: marked.saturating_sub(next).max(unmarked),
            torn_bytes: contents.damage.as_ref().map_or(0, |damage| damage.bytes),
            epoch,
            entries: Vec::new(),
        };
        let since_snapshot = contents.entries.iter().map(|entry| entry.len() as u64).sum();
        replay.entries = contents.entries;
        let mut segments = contents.segments;
        if contents.damage.is_some() {
            // Files after the damage, which only a journal is forgiven.
            let last = segments.last().map_or(0, |segment| segment.first);
            for (_, stray) in list(directory, "log")?.into_iter().filter(|(first, _)| *first > last) {
                fs::remove_file(&stray).map_err(LogError::io(stray))?;
            }
        }
        let last = segments.pop_if(|segment| segment.bytes >= HEADER as u64 && next >= segment.first);
        let earlier_bytes = segments.iter().map(|segment| segment.bytes).sum();
        let (file, file_path, length) = match last {
            Some(segment) => {
                let file = OpenOptions::new().read(true).write(true).open(&segment.path);
                let file = file.map_err(LogError::io(&segment.path))?;
                if contents.damage.is_some() {
                    file.set_len(segment.bytes).map_err(LogError::io(&segment.path))?;
                    file.sync_all().map_err(LogError::io(&segment.path))?;
                }
                (file, segment.path, segment.bytes)
            }
            None => create_segment(directory, next)?,
        };
        let mark_path = directory.join("mark");
        let mark = OpenOptions::new().create(true).truncate(false).write(true).open(&mark_path);
        let mut log = Self {
            directory: directory.into(),
            file: Arc::new(file),
            path: file_path,
            mark: mark.map_err(LogError::io(mark_path))?,
            length,
            synced: length,
            next,
            since_snapshot,
            earlier_bytes,
            segment_bytes,
            replay: Some(replay),
            buffer: Vec::new(),
            lock,
        };
        log.seek_to_end()?;
        Ok(log)
    }

    /// The open file and how many entries are in it and before it, to be synced by somebody who does not
    /// hold the log.
    pub(crate) fn handle(&self) -> (Arc<File>, u64) {
        (Arc::clone(&self.file), self.next)
    }

    /// Notes that this many entries are certainly on the disk.
    pub(crate) fn note_synced(&self, entries: u64) {
        let _ = self.mark.write_all_at(&mark(entries, 0), 0);
    }

    fn seek_to_end(&mut self) -> Result<(), LogError> {
        (&*self.file).seek(SeekFrom::Start(self.length)).map_err(LogError::io(&self.path))?;
        Ok(())
    }

    /// Takes back what is not certainly on the disk: after a failed write or sync nobody knows what is.
    fn retreat(&mut self) {
        let _ = self.file.set_len(self.synced);
        self.length = self.synced;
    }

    fn roll(&mut self) -> Result<(), LogError> {
        self.file.sync_data().map_err(LogError::io(&self.path))?;
        let (file, path, length) = create_segment(&self.directory, self.next)?;
        self.earlier_bytes += self.length;
        (self.file, self.path) = (Arc::new(file), path);
        (self.length, self.synced) = (length, length);
        Ok(())
    }
}

impl Log for FileLog {
    fn append(&mut self, entries: &[Vec<u8>]) -> Result<(), LogError> {
        if self.length >= self.segment_bytes {
            self.roll()?;
        }
        write_batch(&mut self.buffer, self.next, entries);
        if let Err(error) = (&*self.file).write_all(&self.buffer) {
            self.retreat();
            return Err(LogError::io(&self.path)(error));
        }
        self.length += self.buffer.len() as u64;
        self.since_snapshot += self.buffer.len() as u64;
        self.next += entries.len() as u64;
        Ok(())
    }

    fn sync(&mut self, epoch: u64) -> Result<(), LogError> {
        if let Err(error) = self.file.sync_data() {
            self.retreat();
            return Err(LogError::io(&self.path)(error));
        }
        self.synced = self.length;
        // Not synced itself: it only has to outlive the process, to tell a log that was cut from one that
        // was not.
        let _ = self.mark.write_all_at(&mark(self.next, epoch), 0);
        Ok(())
    }

    fn replay(&mut self) -> Result<Replay, LogError> {
        Ok(self.replay.take().unwrap_or_default())
    }

    fn snapshot(&mut self, state: &[u8]) -> Result<(), LogError> {
        replace(&path(&self.directory, self.next, "snap"), &snapshot_file(self.next, state))?;
        self.since_snapshot = 0;
        Ok(())
    }

    fn truncate(&mut self) -> Result<(), LogError> {
        let snapshots = list(&self.directory, "snap")?;
        let kept = snapshots.len().saturating_sub(KEPT_SNAPSHOTS);
        for (_, path) in &snapshots[..kept] {
            fs::remove_file(path).map_err(LogError::io(path))?;
        }
        // With one saved state there is nothing to fall back to: everything stays.
        let Some((needed, _)) = snapshots.get(kept).filter(|_| snapshots.len() >= KEPT_SNAPSHOTS) else {
            return Ok(());
        };
        if self.length > self.segment_bytes / 2 {
            self.roll()?;
        }
        let segments = list(&self.directory, "log")?;
        for pair in segments.windows(2).filter(|pair| pair[1].0 <= *needed) {
            let bytes = fs::metadata(&pair[0].1).map_or(0, |file| file.len());
            fs::remove_file(&pair[0].1).map_err(LogError::io(&pair[0].1))?;
            self.earlier_bytes = self.earlier_bytes.saturating_sub(bytes);
        }
        sync_directory(&self.directory)
    }

    fn next(&self) -> u64 {
        self.next
    }

    fn bytes_since_snapshot(&self) -> u64 {
        self.since_snapshot
    }

    fn bytes(&self) -> u64 {
        self.earlier_bytes + self.length
    }
}

fn lock(directory: &Path) -> Result<File, LogError> {
    let lock_path = directory.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
    let file = file.map_err(LogError::io(&lock_path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LogError::InUse { path: directory.into() }),
        Err(TryLockError::Error(error)) => Err(LogError::io(lock_path)(error)),
    }
}

fn create_segment(directory: &Path, first: u64) -> Result<(File, PathBuf, u64), LogError> {
    let path = path(directory, first, "log");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let mut file = file.map_err(LogError::io(&path))?;
    file.write_all(&header(first)).and_then(|()| file.sync_all()).map_err(LogError::io(&path))?;
    sync_directory(directory)?;
    Ok((file, path, HEADER as u64))
}

/// Puts a file in its place whole, or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let draft = path.with_extension("draft");
    let mut file = File::create(&draft).map_err(LogError::io(&draft))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&draft, path)) {
        let _ = fs::remove_file(&draft);
        return Err(LogError::io(draft)(error));
    }
    path.parent().map_or(Ok(()), sync_directory)
}

fn sync_directory(directory: &Path) -> Result<(), LogError> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(LogError::io(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_log_is_free_also_while_a_process_is_being_started() {
        let directory = tempfile::tempdir().unwrap();
        let log = FileLog::open(directory.path()).unwrap();
        // What a process has between its beginning and its program.
        let _copy = log.lock.try_clone().unwrap();
        drop(log);
        assert!(FileLog::open(directory.path()).is_ok());
    }
}
