//! The journal and the saved state of a life, and what happens when they cannot be written.

use std::path::PathBuf;

use bytes::Bytes;
use prost::Message;

use super::super::journal::Journal;
use super::super::policy;
use super::Life;
use crate::log::{LogError, Saving};
use crate::v1::journal_entry::Event;
use crate::v1::{self, RuntimeState};

impl Life {
    /// The files of [`collect`](Self::collect) are synced, or could not be.
    pub(in crate::agent) fn synced(&mut self, entries: u64, done: &Result<(), LogError>) {
        let Some(journal) = &mut self.journal else { return };
        match done {
            Ok(()) => journal.note_synced(entries),
            Err(cause) => journal.fail(cause),
        }
    }

    /// Syncs everything before it returns.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.commit();
        let (files, entries) = journal.take_unsynced();
        files.iter().try_for_each(|file| file.sync_all()).map_err(LogError::io("the agent's journal"))?;
        journal.note_synced(entries);
        Ok(())
    }

    /// Returns whether the state should be saved, without the lock on this life: the journal is long, or has
    /// a gap.
    pub(in crate::agent) fn wants_save(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::wants_save)
    }

    /// Returns the state of this moment, for a thread that writes it without the lock on this life.
    pub(in crate::agent) fn begin_save(&mut self) -> Option<(Saving, Vec<u8>)> {
        let state = self.state();
        Some((self.journal.as_mut()?.begin_save(), state))
    }

    /// That state is written, or could not be. Returns files to remove.
    pub(in crate::agent) fn finish_save(
        &mut self,
        saving: &Saving,
        written: Result<(), LogError>,
    ) -> Vec<PathBuf> {
        self.journal.as_mut().map_or_else(Vec::new, |journal| journal.finish_save(saving, written))
    }

    /// Saves everything, to begin a new journal.
    pub(in crate::agent) fn close(&mut self) -> Result<(), LogError> {
        let saved = self.save();
        self.forget_journal();
        saved
    }

    pub(in crate::agent) fn forget_journal(&mut self) {
        (self.journal, self.closed) = (None, true);
    }

    fn state(&self) -> Vec<u8> {
        let pending = self.pending.iter().map(|(id, pending)| v1::Chosen {
            id: Some((*id).into()),
            user: pending.user.0,
            expires: pending.expires.0,
            arm: pending.arm.clone(),
        });
        let state = RuntimeState {
            endpoint: self.endpoint.save(),
            choices: self.choices,
            pending: pending.collect(),
            rules: serde_json::to_vec(&self.rules).expect("settings have string keys"),
            secret: self.secret.as_ref().map_or_else(Vec::new, |secret| secret.0.to_vec()),
            policy: policy::to_bytes(self.policy.as_ref()),
            instances: self.instances.clone(),
        };
        state.encode_to_vec()
    }

    /// Saves everything before it returns.
    pub(super) fn save(&mut self) -> Result<(), LogError> {
        let state = self.state();
        self.journal.as_mut().map_or(Ok(()), |journal| journal.save(&state))
    }

    pub(super) fn note(&mut self, event: Event) {
        self.write(|journal| journal.note(event));
    }

    /// Notes a choice.
    pub(super) fn note_chosen(&mut self, chosen: &v1::Chosen) {
        self.write(|journal| journal.note_chosen(chosen));
    }

    /// Notes a frame that came as these bytes.
    pub(super) fn note_received(&mut self, frame: &Bytes) {
        self.write(|journal| journal.note_received(frame));
    }

    fn write(&mut self, entry: impl FnOnce(&mut Journal)) {
        let Some(journal) = &mut self.journal else { return };
        entry(journal);
        if !self.in_batch {
            journal.commit();
        }
        if journal.overflows() && !self.has_gap() {
            self.mend();
        }
        if let Some(trouble) = self.journal.as_ref().and_then(Journal::trouble) {
            self.status.trouble = Some(trouble.to_owned());
        }
    }

    /// Does `work`. If it is part of a batch, what it notes is not written before [`commit`](Self::commit) or the next event
    /// outside of a batch.
    pub(in crate::agent) fn noting<T>(&mut self, in_batch: bool, work: impl FnOnce(&mut Self) -> T) -> T {
        self.in_batch = in_batch;
        let done = work(self);
        self.in_batch = false;
        done
    }

    /// Writes everything that was noted.
    pub(in crate::agent) fn commit(&mut self) {
        self.write(|_| {});
    }

    pub(super) fn has_gap(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.trouble().is_some())
    }

    /// Tries to close a gap in the journal, if there is one.
    pub(in crate::agent) fn mend_if_needed(&mut self) {
        if self.has_gap() {
            self.mend();
        }
    }

    /// Saves the whole state, after which the journal has no gap. Says whether that worked.
    pub(super) fn mend(&mut self) -> bool {
        match self.save() {
            Ok(()) => {
                self.status.trouble = None;
                true
            }
            Err(cause) => {
                if let Some(journal) = &mut self.journal {
                    journal.fail(&cause);
                }
                self.status.trouble = Some(cause.to_string());
                false
            }
        }
    }
}
