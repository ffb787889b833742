//! First the log, then the answers; and what happens when the log fails.

use std::sync::PoisonError;
use std::task::Waker;
use std::time::{Instant, SystemTime};

use tracing::{error, warn};

use super::{Outcome, Owner};
use crate::federation::{Reason, Refusal};
use crate::log::LogError;
use crate::trace::Way;

/// So many tasks are woken one by one.
const FEW: usize = 8;

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
        if let Err(error) = self.may_answer(&outcome) {
            self.lose(&error, outcome);
            return;
        }
        self.metrics.uploads(&self.config.name, outcome.uploads);
        for (reply, joined) in outcome.joined {
            let _ = reply.send(Ok(joined));
        }
        let mut sleepers = Vec::new();
        for (agent, frame) in outcome.frames {
            self.deliver(agent, frame, &mut sleepers);
        }
        self.wake(sleepers);
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

    /// Wakes the tasks that have something to send now.
    fn wake(&self, sleepers: Vec<Waker>) {
        if sleepers.len() < FEW {
            sleepers.into_iter().for_each(Waker::wake);
            return;
        }
        // Each task that is woken from a thread outside of the runtime goes through a queue that all threads share, with a lock
        // and often a call of the system to wake one of them. A task of the runtime puts them into the queue of its own thread.
        self.runtime.spawn(async move { sleepers.into_iter().for_each(Waker::wake) });
    }

    /// The log failed: what the hub did since the last sync never happened.
    pub(super) fn lose(&mut self, cause: &LogError, outcome: Outcome) {
        let bytes = outcome.entries.iter().map(|entry| entry.len() as u64).sum();
        self.tend = None;
        if cause.is_deposed() {
            // Nothing is wrong with the log: it is read again at once, to follow the process that leads now.
            self.failed = None;
            warn!(federation = self.config.name, %cause, "this coordinator does not lead any more");
        } else {
            self.failed = Some((bytes, Instant::now() + self.retry));
            error!(federation = self.config.name, %cause, "the log cannot be written");
        }
        self.metrics.refused(&self.config.name, Reason::Unavailable);
        self.state = None;
        self.trouble(Some(cause.to_string()));
        // The relay that is brought back says hello to its parent over a new link.
        self.parent = None;
        self.stopwatch.stop();
        let refusal = self.unavailable();
        for (_, reply) in outcome.exchanges {
            let _ = reply.send(Err(refusal.clone()));
        }
        for reply in outcome.left.into_iter().chain(outcome.heard) {
            let _ = reply.send(Err(refusal.clone()));
        }
        for (reply, _) in outcome.evicted {
            let _ = reply.send(Err(refusal.clone()));
        }
        for (reply, _) in outcome.joined {
            let _ = reply.send(Err(refusal.clone()));
        }
        // Links stay: what was not answered is sent again.
    }

    /// Keeps the whole state, so that the log before it can go.
    pub(super) fn save(&mut self) {
        let Some(state) = &mut self.state else { return };
        let keep = self.config.keep_history;
        let log = &mut *state.log;
        let saved = self.last_words.keep(log).and_then(|()| log.snapshot(&state.hub.save()));
        match saved.and_then(|()| log.truncate(keep)) {
            Ok(()) => self.metrics.log_bytes(&self.config.name, log.bytes()),
            // The log still has everything.
            Err(cause) => warn!(federation = self.config.name, %cause, "the state cannot be saved"),
        }
    }

    pub(super) fn why(&self) -> String {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.trouble.clone().unwrap_or_else(|| "its log is closed".into())
    }

    /// Why nothing is taken here now.
    pub(super) fn unavailable(&self) -> Refusal {
        match &self.standby {
            Some(standby) => Refusal::standby(&standby.leader),
            None => Refusal::unavailable(&self.why()),
        }
    }

    pub(super) fn trouble(&self, trouble: Option<String>) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        (standing.trouble, standing.leads) = (trouble, self.state.is_some());
        self.metrics.leads(&self.config.name, standing.leads);
    }
}
