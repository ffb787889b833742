//! The agent's journal on the disk: written when something happens, saved as a whole now and then.
//!
//! Entries are written at once and not synced, which outlives a crash of the process. Before a frame leaves,
//! everything written is synced, which outlives a crash of the machine. Neither a sync nor the writing of a saved
//! state happens under the lock that choosing needs: [`Journal::take_unsynced`] and [`Journal::begin_save`] hand out what
//! there is to do, and the task that does it reports afterwards how it went.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tracing::error;

use crate::log::{FileLog, Log, LogError, Replay, Saving};
use crate::v1::JournalEntry;
use crate::v1::journal_entry::Event;

/// Bytes of journal after which the state is saved. Also the length of its files: what is not needed any more is
/// removed file by file, so that an agent that is offline for weeks keeps a few of them.
const SAVE_EVERY: u64 = 4 << 20;
/// The field `received` of `JournalEntry` in journal.proto.
const RECEIVED: u32 = 4;

/// The journal of one agent, in the directory of its state.
pub(super) struct Journal {
    log: FileLog,
    /// Why an entry could not be written: there is a gap that only a whole saved state can close.
    trouble: Option<String>,
    /// A saved state is being written.
    saving: bool,
}

impl Journal {
    /// Opens the journal in a directory, with what it has to say.
    pub(super) fn open(directory: &Path) -> Result<(Self, Replay), LogError> {
        let mut log = FileLog::open_journal(directory, SAVE_EVERY)?;
        let replay = log.replay()?;
        Ok((Self { log, trouble: None, saving: false }, replay))
    }

    /// Writes an event, unless there is a gap before it.
    pub(super) fn note(&mut self, event: Event) {
        self.append(JournalEntry { event: Some(event) }.encode_to_vec());
    }

    /// Writes that a frame was received, unless there is a gap before it. `frame` is what it was decoded from, which is copied
    /// and not made again.
    pub(super) fn note_received(&mut self, frame: &Bytes) {
        let mut entry = Vec::with_capacity(prost::encoding::bytes::encoded_len(RECEIVED, frame));
        prost::encoding::bytes::encode(RECEIVED, frame, &mut entry);
        self.append(entry);
    }

    fn append(&mut self, entry: Vec<u8>) {
        if self.trouble.is_none()
            && let Err(cause) = self.log.append(&[entry])
        {
            self.fail(&cause);
        }
    }

    /// Something that should be on the disk is not.
    pub(super) fn fail(&mut self, cause: &LogError) {
        error!(%cause, "the agent's state cannot be written: nothing is sent until it can");
        self.trouble = Some(cause.to_string());
    }

    /// Why nothing may be sent, if the journal has a gap.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The files to sync before anything is sent, and the number of entries that are durable then.
    pub(super) fn take_unsynced(&mut self) -> (Vec<Arc<File>>, u64) {
        self.log.take_unsynced()
    }

    /// So many entries are certainly on the disk.
    pub(super) fn note_synced(&self, entries: u64) {
        self.log.note_synced(entries);
    }

    /// Whether a saved state should be written now.
    pub(super) fn wants_save(&self) -> bool {
        !self.saving && self.log.bytes_since_snapshot() > SAVE_EVERY
    }

    /// Returns whether the journal grows faster than it is saved: the disk is slower than the agent.
    pub(super) fn overflows(&self) -> bool {
        self.log.bytes_since_snapshot() > 8 * SAVE_EVERY
    }

    /// Begins to save the state of this moment; the caller writes it with [`Saving::write`].
    pub(super) fn begin_save(&mut self) -> Saving {
        self.saving = true;
        self.log.begin_snapshot()
    }

    /// The saved state is on the disk, or could not be written. Returns files that are not needed any more.
    pub(super) fn finish_save(
        &mut self,
        saving: &Saving,
        written: Result<(), LogError>,
    ) -> Vec<std::path::PathBuf> {
        self.saving = false;
        match written.and_then(|()| self.log.finish_snapshot(saving)) {
            Ok(superfluous) => superfluous,
            // The journal still has everything.
            Err(cause) => {
                tracing::warn!(%cause, "the agent's state cannot be saved");
                Vec::new()
            }
        }
    }

    /// Saves the state of this moment before it returns, which also closes a gap.
    pub(super) fn save(&mut self, state: &[u8]) -> Result<(), LogError> {
        self.log.snapshot(state)?;
        self.log.begin_anew()?;
        self.trouble = None;
        Ok(())
    }
}
