//! The agent's journal on the disk: written when something happens, saved as a whole now and then.
//!
//! Entries are written at once and not synced, which outlives a crash of the process. Those of a batch of choices and rewards
//! are written together at its end. Before a frame leaves, everything is written and synced, which outlives a crash of the machine. Neither a sync nor the writing of a saved
//! state happens under the lock that choosing needs: [`Journal::take_unsynced`] and [`Journal::begin_save`] hand out what
//! there is to do, and the task that does it reports afterwards how it went.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tracing::error;

use crate::log::{FileLog, Log, LogError, Replay, Saving};
use crate::v1::journal_entry::Event;
use crate::v1::{Chosen, JournalEntry};

/// Bytes of journal after which the state is saved. Also the length of its files: what is not needed any more is
/// removed file by file, so that an agent that is offline for weeks keeps a few of them.
const SAVE_EVERY: u64 = 4 << 20;
/// Bytes that a batch of choices and rewards may hold before they are written.
const LONGEST_BATCH: usize = 64 << 10;
/// Fields of `JournalEntry` in journal.proto.
const CHOSEN: u32 = 2;
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

    /// Adds an event to what [`commit`](Self::commit) writes.
    pub(super) fn note(&mut self, event: Event) {
        let entry = JournalEntry { event: Some(event) };
        self.draft(|bytes| entry.encode(bytes).expect("a vector grows"));
    }

    /// Adds a choice. Encoded in place: every choice comes through here.
    pub(super) fn note_chosen(&mut self, chosen: &Chosen) {
        self.draft(|bytes| prost::encoding::message::encode(CHOSEN, chosen, bytes));
    }

    /// Adds that a frame was received. `frame` is what it was decoded from, which is copied and not made again.
    pub(super) fn note_received(&mut self, frame: &Bytes) {
        self.draft(|bytes| prost::encoding::bytes::encode(RECEIVED, frame, bytes));
    }

    fn draft(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        // After a gap, nothing is written until a whole state is.
        if self.trouble.is_none() && self.log.draft(encode) > LONGEST_BATCH {
            self.commit();
        }
    }

    /// Writes everything that was noted, unless there is a gap before it.
    pub(super) fn commit(&mut self) {
        if self.trouble.is_some() {
            self.log.forget_drafted();
        } else if let Err(cause) = self.log.write_drafted() {
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

    /// The files to sync before anything is sent, and the number of entries that are durable then: those that were
    /// committed.
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
        // The state has what was noted: written after it, it would count twice.
        self.commit();
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
        self.commit();
        self.log.snapshot(state)?;
        self.log.begin_anew()?;
        self.trouble = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::ChoiceId;

    fn entries(directory: &Path) -> Vec<JournalEntry> {
        let contents = crate::log::read(directory).unwrap();
        contents.entries.iter().map(|entry| JournalEntry::decode(&entry[..]).unwrap()).collect()
    }

    #[test]
    fn what_was_noted_is_in_the_file_when_it_was_committed_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(directory.path()).unwrap();
        let chosen =
            Chosen { id: Some(ChoiceId { life: 1, number: 2 }), user: 3, expires: 4, arm: vec![0.5, -0.25] };
        let frame = posse_core::wire::v1::DownFrame { sequence: 7, ..Default::default() };
        journal.note_chosen(&chosen);
        journal.note(Event::Started(5));
        journal.note_received(&frame.encode_to_vec().into());
        assert_eq!(entries(directory.path()), []);
        journal.commit();
        let noted = [Event::Chosen(chosen), Event::Started(5), Event::Received(frame)];
        let noted = noted.map(|event| JournalEntry { event: Some(event) });
        assert_eq!(entries(directory.path()), noted);
        // Nothing is written twice.
        journal.commit();
        assert_eq!(entries(directory.path()), noted);
    }

    #[test]
    fn a_batch_is_written_before_it_grows_without_end() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(directory.path()).unwrap();
        let secret = vec![7; 1000];
        (0..100).for_each(|_| journal.note(Event::Secret(secret.clone())));
        let written = entries(directory.path()).len();
        assert!((60..100).contains(&written), "{written}");
        journal.commit();
        assert_eq!(entries(directory.path()).len(), 100);
    }

    #[test]
    fn a_saved_state_takes_the_place_of_what_was_noted_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(directory.path()).unwrap();
        journal.note(Event::Started(1));
        journal.save(b"with 1").unwrap();
        journal.note(Event::Started(2));
        let saving = journal.begin_save();
        journal.note(Event::Started(3));
        saving.write(b"with 2").unwrap();
        journal.finish_save(&saving, Ok(()));
        journal.commit();
        drop(journal);
        let (_, replay) = Journal::open(directory.path()).unwrap();
        assert_eq!(replay.state.as_deref(), Some(&b"with 2"[..]));
        let last = JournalEntry { event: Some(Event::Started(3)) };
        assert_eq!(replay.entries, [last.encode_to_vec()]);
    }
}
