//! First the log, then the answers; and what happens when the log fails.

use std::sync::PoisonError;
use std::time::{Instant, SystemTime};

use posse_core::{AgentId, Epoch};
use tracing::{error, info, warn};

use super::{Outcome, Owner, State};
use crate::federation::last_words::LastWords;
use crate::federation::{FederationError, RETRY, Reason, Refusal, config};
use crate::log::LogError;
use crate::trace::Way;

impl Owner {
    /// Writes and syncs the log, and only then sends the answers and frames.
    pub(super) fn keep_and_answer(&mut self, outcome: Outcome) {
        if !outcome.entries.is_empty()
            && let Some(state) = &mut self.state
        {
            let epoch = state.hub.epoch().0;
            let (began, since) = (Instant::now(), SystemTime::now());
            let kept = state.log.append(&outcome.entries).and_then(|()| state.log.sync(epoch));
            if let Err(error) = kept {
                self.lose(&error, outcome);
                return;
            }
            self.metrics.synced(&self.config.name, began.elapsed(), state.log.bytes());
            if let Some(tracer) = &self.tracer {
                outcome.traced.iter().for_each(|upload| tracer.tell(upload, Way::Log, since));
            }
        }
        self.metrics.uploads(&self.config.name, outcome.uploads);
        for (agent, frame) in outcome.frames {
            self.deliver(agent, frame);
        }
        if let Some(parent) = &self.parent {
            // A link that is full is a lossy link: the session says it again.
            outcome.up.into_iter().for_each(|frame| drop(parent.try_send(frame)));
        }
        for reply in outcome.heard {
            let _ = reply.send(Ok(()));
        }
        if let Some(tracer) = &self.tracer {
            outcome.traced.iter().for_each(|upload| tracer.tell(upload, Way::Receive, upload.since));
        }
        for (agent, reply) in outcome.exchanges {
            let mail = self.mailboxes.get_mut(&agent).map(std::mem::take).unwrap_or_default();
            let _ = reply.send(Ok(mail.into()));
        }
        for reply in outcome.left {
            let _ = reply.send(Ok(()));
        }
        for (reply, done) in outcome.evicted {
            let _ = reply.send(Ok(done));
        }
        let limit = self.config.snapshot_megabytes.saturating_mul(1 << 20);
        if self.state.as_ref().is_some_and(|state| state.log.bytes_since_snapshot() >= limit) {
            self.save();
        }
    }

    /// The log failed: what the hub did since the last sync never happened.
    pub(super) fn lose(&mut self, cause: &LogError, outcome: Outcome) {
        let bytes = outcome.entries.iter().map(|entry| entry.len() as u64).sum();
        self.failed = Some((bytes, Instant::now() + self.retry));
        error!(federation = self.config.name, %cause, "the log cannot be written");
        self.metrics.refused(&self.config.name, Reason::Unavailable);
        self.trouble(Some(cause.to_string()));
        self.state = None;
        // The relay that is brought back says hello to its parent over a new link.
        self.parent = None;
        self.stopwatch.stop();
        let refusal = Refusal::unavailable(&self.why());
        for (_, reply) in outcome.exchanges {
            let _ = reply.send(Err(refusal.clone()));
        }
        for reply in outcome.left.into_iter().chain(outcome.heard) {
            let _ = reply.send(Err(refusal.clone()));
        }
        for (reply, _) in outcome.evicted {
            let _ = reply.send(Err(refusal.clone()));
        }
        // Links stay: what was not answered is sent again.
    }

    /// Opens a log that failed again, later and later.
    pub(super) fn try_again(&mut self) {
        match self.bring_back() {
            Ok(()) => self.retry = RETRY.0,
            Err(error) => {
                self.trouble(Some(error.to_string()));
                let bytes = self.failed.map_or(0, |(bytes, _)| bytes);
                self.failed = Some((bytes, Instant::now() + self.retry));
                self.retry = (2 * self.retry).min(RETRY.1);
            }
        }
    }

    /// Opens the log and goes on where it ends. After a failure it must first take as much as it could not keep: a
    /// full disk can be read, and saying that all is well until the next upload would be a lie.
    pub(super) fn bring_back(&mut self) -> Result<(), FederationError> {
        let mut log = (self.open)()?;
        if let Some((bytes, _)) = self.failed {
            log.probe(bytes)?;
        }
        let mut replay = log.replay()?;
        if replay.state.is_some() && config::retractions(&replay.entries)?.is_some() {
            // It was stopped between the retraction and the saved state without the agent: what it had shared before
            // the older saved state can only be left out from the beginning.
            replay.state = None;
            replay.entries = log.history()?.ok_or(FederationError::HistoryGone)?;
        }
        let name = &self.config.name;
        let (lost, torn, epoch) = (replay.lost_entries, replay.torn_bytes, replay.epoch);
        let entries = replay.entries.len();
        let mut last_words = LastWords::read(&self.directory);
        let mut hub = self.config.replay_with(&replay, |entry| last_words.note(entry))?;
        self.last_words = last_words;
        self.time.go_on_from(hub.latest());
        if torn > 0 {
            warn!(
                federation = name,
                bytes = torn,
                "a write at the end of the log was cut short and is dropped"
            );
        }
        if lost > 0 {
            let epoch = Epoch(epoch.max(hub.epoch().0) + 1);
            error!(
                federation = name,
                entries = lost,
                epoch = epoch.0,
                "the end of the log is lost: a new epoch begins"
            );
            let now = self.time.now();
            let step = hub.begin_epoch(now, epoch);
            let entries: Vec<Vec<u8>> = step.log.iter().map(|entry| entry.encode()).collect();
            log.append(&entries)?;
            log.sync(epoch.0)?;
        }
        info!(
            federation = self.config.name,
            entries,
            observations = hub.coordinator().inspect().observations,
            "the log is open"
        );
        self.metrics.log_bytes(&self.config.name, log.bytes());
        let living: Vec<AgentId> = hub.agents().filter(|agent| hub.incarnation(*agent).is_some()).collect();
        self.state = Some(State { hub, log });
        self.lease_to_all(living);
        self.failed = None;
        self.trouble(None);
        Ok(())
    }

    /// Keeps the whole state, so that the log before it can go.
    pub(super) fn save(&mut self) {
        let Some(state) = &mut self.state else { return };
        let keep = self.config.keep_history;
        let saved = state.log.snapshot(&state.hub.save()).and_then(|()| state.log.truncate(keep));
        match saved {
            Ok(()) => {
                self.metrics.log_bytes(&self.config.name, state.log.bytes());
                self.last_words.keep(&self.directory);
            }
            // The log still has everything.
            Err(cause) => warn!(federation = self.config.name, %cause, "the state cannot be saved"),
        }
    }

    pub(super) fn why(&self) -> String {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.trouble.clone().unwrap_or_else(|| "its log is closed".into())
    }

    pub(super) fn trouble(&self, trouble: Option<String>) {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).trouble = trouble;
    }
}
