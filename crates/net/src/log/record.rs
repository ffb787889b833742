//! The bytes of a log's files, and reading them with suspicion.
//!
//! A segment begins with a header and holds batches: a magic word, the length, the number of the first entry,
//! how many entries there are, a CRC-32C over all of it, and the entries, each with its length. A batch is
//! written at once and synced before the next one is written. So a batch that is cut short or wrong at the
//! very end was a write that never finished, and counts for nothing. One with a valid batch after it is
//! damage, and is refused with its place.
//!
//! Segments and saved states carry the version of their format, which is that of what is in them too: entries of a
//! coordinator's log, events of an agent's journal, and the states of both. A newer version than [`VERSION`] is
//! refused by name. An older one is read, and goes on in a new file: every file is of one version.

use std::fs;
use std::path::{Path, PathBuf};

use super::LogError;

const SEGMENT_MAGIC: &[u8; 8] = b"posselog";
const SNAPSHOT_MAGIC: &[u8; 8] = b"possesnp";
const BATCH_MAGIC: [u8; 4] = [0xC5, 0x9E, 0x0B, 0x51];
/// The format that is written. Version 2 has entries that retract what an agent shared, version 3 entries of deadlines that name
/// the agents that were away.
pub(super) const VERSION: u32 = 3;
/// The oldest format that is read.
const OLDEST: u32 = 1;
pub(super) const HEADER: usize = 24;
const BATCH_HEADER: usize = 24;

/// Everything in a log's directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The newest saved state that can be read, with the number of the first entry after it.
    pub state: Option<(u64, Vec<u8>)>,
    /// The number of the first entry in `entries`.
    pub first: u64,
    /// Entries after the saved state, in order.
    pub entries: Vec<Vec<u8>>,
    /// The files that hold the entries, in order.
    pub segments: Vec<SegmentInfo>,
    /// What is wrong at the end, if anything is.
    pub damage: Option<Damage>,
    /// How many entries were durable, and the epoch then, as noted beside the log.
    pub mark: Option<(u64, u64)>,
}

/// A file of entries, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The path of the file.
    pub path: PathBuf,
    /// The number of its first entry.
    pub first: u64,
    /// How many entries it has.
    pub entries: u64,
    /// Bytes up to the end of the last valid entry.
    pub bytes: u64,
    /// The version of the file's format.
    pub version: u32,
}

/// A write at the end of a file that was cut short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file that ends in the middle of a write.
    pub path: PathBuf,
    /// The offset in bytes at which the last valid entry ends.
    pub offset: u64,
    /// How many bytes follow the last valid entry.
    pub bytes: u64,
}

/// Reads a log without changing anything.
pub fn read(directory: &Path) -> Result<Contents, LogError> {
    read_with(directory, true)
}

/// The same; if not `strict`, everything from the first damage on is left out instead of refused.
pub(super) fn read_with(directory: &Path, strict: bool) -> Result<Contents, LogError> {
    let mut contents = Contents { mark: read_mark(directory), ..Contents::default() };
    let snapshots = list(directory, "snap")?;
    for (first, path) in snapshots.iter().rev() {
        let bytes = fs::read(path).map_err(LogError::io(path))?;
        if let Some(state) = snapshot_of(path, &bytes, *first)? {
            contents.state = Some((*first, state));
            break;
        }
    }
    let segments = list(directory, "log")?;
    let start = contents.state.as_ref().map_or(0, |(first, _)| *first);
    contents.first = start;
    let oldest = segments.first().map_or(start, |(first, _)| *first);
    if let (None, Some((_, path))) = (&contents.state, snapshots.last())
        && oldest > 0
    {
        return Err(LogError::Snapshot { path: path.clone() });
    }
    if oldest > start {
        return Err(LogError::Missing { path: directory.into(), from: start, to: oldest - 1 });
    }
    let mut expected = None;
    for (index, (first, path)) in segments.iter().enumerate() {
        let next_starts = segments.get(index + 1).map(|(first, _)| *first);
        if next_starts.is_some_and(|next| next <= start) {
            continue;
        }
        if let Some(expected) = expected.filter(|expected| expected < first) {
            return Err(LogError::Missing { path: directory.into(), from: expected, to: first - 1 });
        }
        let bytes = fs::read(path).map_err(LogError::io(path))?;
        let lenient = !strict || next_starts.is_none();
        let (info, damage) = read_segment(path, *first, &bytes, (lenient, strict), |number, payload| {
            if number >= start {
                contents.entries.push(payload.to_vec());
            }
        })?;
        expected = Some(info.first + info.entries);
        contents.segments.push(info);
        contents.damage = damage;
        if contents.damage.is_some() {
            break;
        }
    }
    Ok(contents)
}

/// Every entry from the first on, or nothing if the files that held the first ones are gone.
pub(super) fn read_entries(directory: &Path) -> Result<Option<Vec<Vec<u8>>>, LogError> {
    let segments = list(directory, "log")?;
    if segments.first().is_none_or(|(first, _)| *first > 0) {
        return Ok(None);
    }
    let mut entries = Vec::new();
    for (index, (first, path)) in segments.iter().enumerate() {
        if entries.len() as u64 != *first {
            let (from, to) = (entries.len() as u64, first.saturating_sub(1));
            return Err(LogError::Missing { path: directory.into(), from, to });
        }
        let bytes = fs::read(path).map_err(LogError::io(path))?;
        let is_last = index + 1 == segments.len();
        read_segment(path, *first, &bytes, (is_last, true), |_, entry| entries.push(entry.to_vec()))?;
    }
    Ok(Some(entries))
}

/// Reads one segment; where it is `lenient`, damage is allowed at its end, or, if not `strict`, anywhere.
pub(super) fn read_segment(
    path: &Path,
    first: u64,
    bytes: &[u8],
    (lenient, strict): (bool, bool),
    mut visit: impl FnMut(u64, &[u8]),
) -> Result<(SegmentInfo, Option<Damage>), LogError> {
    let mut info = SegmentInfo { path: path.into(), first, entries: 0, bytes: 0, version: VERSION };
    let mut offset = 0;
    let version = version_of(bytes).filter(|version| bytes.starts_with(&header(first, *version)));
    let mut sound = version.is_some();
    if let Some(version) = version {
        readable(path, version)?;
        info.version = version;
        offset = HEADER;
        while let Some(batch) = batch_at(bytes, offset).filter(|batch| batch.first == first + info.entries) {
            for entry in batch.entries {
                visit(first + info.entries, entry);
                info.entries += 1;
            }
            offset = batch.end;
        }
        sound = offset == bytes.len();
    }
    info.bytes = offset as u64;
    if sound {
        return Ok((info, None));
    }
    if !lenient || (strict && has_batch_after(bytes, offset)) {
        return Err(LogError::Corrupt {
            path: path.into(),
            offset: offset as u64,
            entry: first + info.entries,
        });
    }
    let damage = Damage { path: path.into(), offset: info.bytes, bytes: (bytes.len() - offset) as u64 };
    Ok((info, Some(damage)))
}

/// Entries that were written at once.
struct WrittenBatch<'b> {
    first: u64,
    entries: Vec<&'b [u8]>,
    /// The offset in the file at which the batch ends.
    end: usize,
}

/// The batch at `offset`, if it is there and whole.
fn batch_at(bytes: &[u8], offset: usize) -> Option<WrittenBatch<'_>> {
    let head = bytes.get(offset..offset + BATCH_HEADER)?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    if head[..4] != BATCH_MAGIC {
        return None;
    }
    let end = offset + BATCH_HEADER + word(4) as usize;
    let body = bytes.get(offset + BATCH_HEADER..end)?;
    if checksum(&head[4..20], body) != word(20) {
        return None;
    }
    let first = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
    split(body, word(16).into()).map(|entries| WrittenBatch { first, entries, end })
}

/// The `count` entries that a batch holds, or nothing if that is not what the bytes are.
pub(super) fn split(body: &[u8], count: u64) -> Option<Vec<&[u8]>> {
    let (mut entries, mut rest) = (Vec::new(), body);
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (entry, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        entries.push(entry);
        rest = after;
    }
    rest.is_empty().then_some(entries)
}

/// Whether anything that was written whole follows the damage at `offset`.
fn has_batch_after(bytes: &[u8], offset: usize) -> bool {
    let starts = (offset + 1..bytes.len().saturating_sub(BATCH_HEADER - 1))
        .filter(|&at| bytes[at..at + 4] == BATCH_MAGIC);
    starts.into_iter().any(|at| batch_at(bytes, at).is_some())
}

/// The version in the header of a file, whatever kind of file it is.
fn version_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?))
}

/// `Ok` if files of this version are read here.
fn readable(path: &Path, version: u32) -> Result<(), LogError> {
    if (OLDEST..=VERSION).contains(&version) {
        return Ok(());
    }
    Err(LogError::Version { path: path.into(), version, newest: VERSION })
}

/// The beginning of a segment.
pub(super) fn header(first: u64, version: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(SEGMENT_MAGIC);
    header[8..12].copy_from_slice(&version.to_le_bytes());
    header[12..20].copy_from_slice(&first.to_le_bytes());
    let crc = crc32c::crc32c(&header[..20]);
    header[20..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The bytes of a batch while entries are added to it.
#[derive(Debug, Default)]
pub(super) struct Draft {
    bytes: Vec<u8>,
    entries: u32,
}

impl Draft {
    /// Adds the entry that `encode` appends to the bytes.
    pub(super) fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.bytes.is_empty() {
            self.bytes.resize(BATCH_HEADER, 0);
        }
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let entry_at = self.bytes.len();
        encode(&mut self.bytes);
        let length = (self.bytes.len() - entry_at) as u32;
        self.bytes[length_at..entry_at].copy_from_slice(&length.to_le_bytes());
        self.entries += 1;
    }

    /// The bytes of the batch, whose first entry has the number `first`.
    pub(super) fn seal(&mut self, first: u64) -> &[u8] {
        if self.bytes.is_empty() {
            self.bytes.resize(BATCH_HEADER, 0);
        }
        let (head, body) = self.bytes.split_at_mut(BATCH_HEADER);
        head[..4].copy_from_slice(&BATCH_MAGIC);
        head[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[8..16].copy_from_slice(&first.to_le_bytes());
        head[16..20].copy_from_slice(&self.entries.to_le_bytes());
        let crc = checksum(&head[4..20], body);
        head[20..].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }

    /// Returns how many entries there are.
    pub(super) const fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns how many bytes there are.
    #[cfg(feature = "agent")]
    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets all entries and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.entries = 0;
    }
}

/// Appends entries to `bytes`, each after its length.
#[cfg(feature = "postgres")]
pub(super) fn join(bytes: &mut Vec<u8>, entries: &[Vec<u8>]) {
    for entry in entries {
        bytes.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        bytes.extend_from_slice(entry);
    }
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), body)
}

/// The bytes of a saved state.
pub(super) fn snapshot_file(first: u64, state: &[u8]) -> Vec<u8> {
    snapshot_of_version(first, state, VERSION)
}

fn snapshot_of_version(first: u64, state: &[u8], version: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(state.len() + 24);
    bytes.extend_from_slice(SNAPSHOT_MAGIC);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&first.to_le_bytes());
    bytes.extend_from_slice(&checksum(&first.to_le_bytes(), state).to_le_bytes());
    bytes.extend_from_slice(state);
    bytes
}

/// The state in a file of `path`, or nothing if the file is damaged. Fails if it is of a version that is not read.
pub(super) fn snapshot_of(path: &Path, bytes: &[u8], first: u64) -> Result<Option<Vec<u8>>, LogError> {
    let (Some(state), Some(version)) = (bytes.get(24..), version_of(bytes)) else { return Ok(None) };
    let same = bytes[..20] == snapshot_of_version(first, &[], version)[..20];
    if !same || bytes[20..24] != checksum(&first.to_le_bytes(), state).to_le_bytes() {
        return Ok(None);
    }
    readable(path, version)?;
    Ok(Some(state.to_vec()))
}

/// What is noted beside the log after each sync.
pub(super) fn mark(entries: u64, epoch: u64) -> [u8; 20] {
    let mut mark = [0; 20];
    mark[..8].copy_from_slice(&entries.to_le_bytes());
    mark[8..16].copy_from_slice(&epoch.to_le_bytes());
    let crc = crc32c::crc32c(&mark[..16]);
    mark[16..].copy_from_slice(&crc.to_le_bytes());
    mark
}

pub(super) fn read_mark(directory: &Path) -> Option<(u64, u64)> {
    let bytes = fs::read(directory.join("mark")).ok()?;
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (entries, epoch) = (number(0)?, number(8)?);
    (bytes == mark(entries, epoch)).then_some((entries, epoch))
}

/// Files whose name is a number, sorted by it.
pub(super) fn list(directory: &Path, extension: &str) -> Result<Vec<(u64, PathBuf)>, LogError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(LogError::io(directory))? {
        let path = entry.map_err(LogError::io(directory))?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if let (Some(number), true) = (number, path.extension().is_some_and(|own| own == extension)) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

/// The path of a file that begins with entry `first`.
pub(super) fn path(directory: &Path, first: u64, extension: &str) -> PathBuf {
    directory.join(format!("{first:020}.{extension}"))
}
