//! A log in a directory: append-only segments, saved states, and a note of what was durable.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::record::{Draft, HEADER, VERSION, header, list, mark, path, read_with, snapshot_file};
use super::{Log, LogError, Replay, SegmentInfo};

/// A segment that is longer is followed by a new one.
const SEGMENT_BYTES: u64 = 64 << 20;
/// How many saved states are kept: should the newest be unreadable, the one before it is used.
const KEPT_SNAPSHOTS: usize = 2;

/// Bytes that a probe writes at most.
const LONGEST_PROBE: usize = 16 << 20;

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
    /// Entries that are written with the next append.
    draft: Draft,
    /// Every batch is synced before the next one is written. Otherwise the owner syncs, by [`take_unsynced`](Self::take_unsynced).
    strict: bool,
    /// Earlier files, and the directory, that were not synced when a new file was begun.
    unsynced: Vec<Arc<File>>,
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
    ///
    /// Files are about `segment_bytes` long.
    pub fn open_journal(directory: &Path, segment_bytes: u64) -> Result<Self, LogError> {
        Self::with(directory, segment_bytes, false)
    }

    /// A log with shorter files.
    pub fn with_segments_of(directory: &Path, segment_bytes: u64) -> Result<Self, LogError> {
        Self::with(directory, segment_bytes, true)
    }

    fn with(directory: &Path, segment_bytes: u64, strict: bool) -> Result<Self, LogError> {
        private_directory(directory)?;
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
        let is_usable = |segment: &mut SegmentInfo| segment.bytes >= HEADER as u64 && next >= segment.first;
        let last = segments.pop_if(is_usable);
        let mut earlier_bytes = segments.iter().map(|segment| segment.bytes).sum();
        let last = match last {
            Some(segment) => {
                let file = OpenOptions::new().read(true).write(true).open(&segment.path);
                let file = file.map_err(LogError::io(&segment.path))?;
                if contents.damage.is_some() {
                    file.set_len(segment.bytes).map_err(LogError::io(&segment.path))?;
                    file.sync_all().map_err(LogError::io(&segment.path))?;
                }
                let is_current = segment.version == VERSION;
                if !is_current && segment.first < next {
                    earlier_bytes += segment.bytes;
                }
                is_current.then_some((file, segment.path, segment.bytes))
            }
            None => None,
        };
        // A file of an older version is not written on: whoever reads it must understand all of it.
        let (file, file_path, length) = last.map_or_else(|| create_segment(directory, next, true), Ok)?;
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
            draft: Draft::default(),
            strict,
            unsynced: Vec::new(),
            lock,
        };
        log.seek_to_end()?;
        Ok(log)
    }

    /// Begins to keep a state that all entries so far lead to: the caller writes it, and then calls `finish_snapshot` if
    /// entries may have been appended meanwhile.
    pub(crate) fn begin_snapshot(&self) -> Saving {
        let path = path(&self.directory, self.next, "snap");
        Saving {
            path,
            first: self.next,
            #[cfg(feature = "agent")]
            bytes: self.since_snapshot,
        }
    }

    /// Saved states beyond those that are kept, and the first entry that the oldest kept one needs. With one saved
    /// state there is nothing to fall back to: every entry is needed.
    fn old_states(&self) -> Result<(Vec<PathBuf>, u64), LogError> {
        let mut snapshots = list(&self.directory, "snap")?;
        let kept = snapshots.split_off(snapshots.len().saturating_sub(KEPT_SNAPSHOTS));
        let needed = kept.first().filter(|_| kept.len() >= KEPT_SNAPSHOTS).map_or(0, |(first, _)| *first);
        Ok((snapshots.into_iter().map(|(_, path)| path).collect(), needed))
    }

    /// Saved states beyond those that are kept, and files of entries that even the oldest kept one does not need.
    fn superfluous(&mut self) -> Result<Vec<PathBuf>, LogError> {
        let (mut superfluous, needed) = self.old_states()?;
        for pair in list(&self.directory, "log")?.windows(2).filter(|pair| pair[1].0 <= needed) {
            let bytes = fs::metadata(&pair[0].1).map_or(0, |file| file.len());
            self.earlier_bytes = self.earlier_bytes.saturating_sub(bytes);
            superfluous.push(pair[0].1.clone());
        }
        Ok(superfluous)
    }

    fn seek_to_end(&mut self) -> Result<(), LogError> {
        (&*self.file).seek(SeekFrom::Start(self.length)).map_err(LogError::io(&self.path))?;
        Ok(())
    }

    /// Takes back a write that failed, and in a strict log whatever was not synced: after a failed sync it is
    /// not known what is on the disk.
    fn retreat(&mut self) {
        if self.strict {
            self.length = self.synced;
        }
        let _ = self.file.set_len(self.length);
        let _ = self.seek_to_end();
    }

    /// Writes the drafted entries as one batch. If that fails, they are gone.
    fn write_draft(&mut self) -> Result<(), LogError> {
        let written = self.try_to_write_draft();
        self.draft.clear();
        written
    }

    fn try_to_write_draft(&mut self) -> Result<(), LogError> {
        if self.length >= self.segment_bytes {
            self.roll()?;
        }
        let batch = self.draft.seal(self.next);
        let bytes = batch.len() as u64;
        if let Err(error) = (&*self.file).write_all(batch) {
            self.retreat();
            return Err(LogError::io(&self.path)(error));
        }
        self.length += bytes;
        self.since_snapshot += bytes;
        self.next += u64::from(self.draft.entries());
        Ok(())
    }

    /// Goes on in a new file.
    fn roll(&mut self) -> Result<(), LogError> {
        if self.strict {
            self.file.sync_data().map_err(LogError::io(&self.path))?;
        }
        let (file, path, length) = create_segment(&self.directory, self.next, self.strict)?;
        let earlier = std::mem::replace(&mut self.file, Arc::new(file));
        if !self.strict {
            let directory = File::open(&self.directory).map_err(LogError::io(&self.directory))?;
            self.unsynced.extend([earlier, Arc::new(directory)]);
        }
        self.earlier_bytes += self.length;
        self.path = path;
        (self.length, self.synced) = (length, length);
        Ok(())
    }
}

/// What an agent's journal does besides: it is synced and saved by threads that do not hold it.
#[cfg(feature = "agent")]
impl FileLog {
    /// Adds the entry that `encode` appends to the next batch, which [`write_drafted`](Self::write_drafted) writes. Returns how
    /// long the batch is now, in bytes.
    pub(crate) fn draft(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> usize {
        self.draft.push(encode);
        self.draft.len()
    }

    /// Writes what was drafted, if anything was, as one batch. If that fails, it is gone.
    pub(crate) fn write_drafted(&mut self) -> Result<(), LogError> {
        if self.draft.entries() == 0 {
            return Ok(());
        }
        self.write_draft()
    }

    /// Forgets what was drafted.
    pub(crate) fn forget_drafted(&mut self) {
        self.draft.clear();
    }

    /// Everything that must be synced for all entries so far to be durable, and how many entries those are: for an
    /// owner that does not want to hold the log meanwhile.
    pub(crate) fn take_unsynced(&mut self) -> (Vec<Arc<File>>, u64) {
        let mut files = std::mem::take(&mut self.unsynced);
        files.push(Arc::clone(&self.file));
        (files, self.next)
    }

    /// The state is on the disk. Returns the files that it has made superfluous; removing them is left to the caller.
    pub(crate) fn finish_snapshot(&mut self, saving: &Saving) -> Result<Vec<PathBuf>, LogError> {
        self.since_snapshot = self.since_snapshot.saturating_sub(saving.bytes);
        if self.length > self.segment_bytes / 2 {
            self.roll()?;
        }
        self.superfluous()
    }

    /// Begins a new file and removes what is not needed any more. A file in which an entry is missing must not be
    /// written on: whatever followed would be cut off at the next start.
    pub(crate) fn begin_anew(&mut self) -> Result<(), LogError> {
        if self.length > HEADER as u64 {
            self.roll()?;
        }
        let (files, entries) = self.take_unsynced();
        for file in files {
            file.sync_all().map_err(LogError::io(&self.path))?;
        }
        self.note_synced(entries);
        for path in self.superfluous()? {
            fs::remove_file(&path).map_err(LogError::io(path))?;
        }
        Ok(())
    }

    /// Notes that this many entries are certainly on the disk.
    pub(crate) fn note_synced(&self, entries: u64) {
        let _ = self.mark.write_all_at(&mark(entries, 0), 0);
    }
}

/// A state that is being written.
#[derive(Debug)]
pub(crate) struct Saving {
    path: PathBuf,
    /// The number of the first entry after it.
    first: u64,
    /// Bytes of entries that it makes superfluous.
    #[cfg(feature = "agent")]
    bytes: u64,
}

impl Saving {
    /// Writes the state and returns when it is on the disk.
    pub(crate) fn write(&self, state: &[u8]) -> Result<(), LogError> {
        replace(&self.path, &snapshot_file(self.first, state))
    }
}

impl Log for FileLog {
    fn append(&mut self, entries: &[Vec<u8>]) -> Result<(), LogError> {
        for entry in entries {
            self.draft.push(|bytes| bytes.extend_from_slice(entry));
        }
        self.write_draft()
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
        self.begin_snapshot().write(state)?;
        self.since_snapshot = 0;
        Ok(())
    }

    fn truncate(&mut self, keep_entries: bool) -> Result<(), LogError> {
        if self.length > self.segment_bytes / 2 {
            self.roll()?;
        }
        let superfluous = if keep_entries { self.old_states()?.0 } else { self.superfluous()? };
        for path in superfluous {
            fs::remove_file(&path).map_err(LogError::io(path))?;
        }
        sync_directory(&self.directory)
    }

    fn history(&mut self) -> Result<Option<Vec<Vec<u8>>>, LogError> {
        super::record::read_entries(&self.directory)
    }

    fn probe(&mut self, bytes: u64) -> Result<(), LogError> {
        // In the open segment itself: limits on the length of a file count too. If the process ends before the
        // zeros are gone again, the next start takes them for a write that was cut short.
        let zeros = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(LONGEST_PROBE)];
        let written = (&*self.file).write_all(&zeros).and_then(|()| self.file.sync_data());
        let removed = self.file.set_len(self.length);
        self.seek_to_end()?;
        written.and(removed).map_err(LogError::io(&self.path))
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

    fn keep_beside(&mut self, name: &str, bytes: &[u8]) -> Result<(), LogError> {
        replace(&self.directory.join(name), bytes)
    }

    fn beside(&mut self, name: &str) -> Result<Option<Vec<u8>>, LogError> {
        let path = self.directory.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LogError::io(path)(error)),
        }
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

/// A new file for entries from `first` on; if not `durable`, syncing it and the directory is left to the caller.
fn create_segment(directory: &Path, first: u64, durable: bool) -> Result<(File, PathBuf, u64), LogError> {
    let path = path(directory, first, "log");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let mut file = file.map_err(LogError::io(&path))?;
    file.write_all(&header(first, VERSION)).map_err(LogError::io(&path))?;
    if durable {
        file.sync_all().map_err(LogError::io(&path))?;
        sync_directory(directory)?;
    }
    Ok((file, path, HEADER as u64))
}

/// Makes a directory that only its owner may look into, because it will hold raw observations and secrets. A
/// directory that is already there keeps its mode.
pub(crate) fn private_directory(directory: &Path) -> Result<(), LogError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory).map_err(LogError::io(directory))
}

/// Puts a file in its place whole, or not at all. Only its owner may read it.
pub(crate) fn replace_private(path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let draft = path.with_extension("draft");
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft);
    put_in_place(file, &draft, path, bytes)
}

/// Puts a file in its place whole, or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let draft = path.with_extension("draft");
    put_in_place(File::create(&draft), &draft, path, bytes)
}

fn put_in_place(file: io::Result<File>, draft: &Path, path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let mut file = file.map_err(LogError::io(draft))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(draft, path)) {
        let _ = fs::remove_file(draft);
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
