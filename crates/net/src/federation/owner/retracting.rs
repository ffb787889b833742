//! Taking out what an agent has shared, by replaying the log without it.

use posse_core::session::{LogEntry, LogEvent};
use posse_core::{AgentId, Epoch, Tick};
use serde_json::json;
use tonic::Status;
use tracing::warn;

use super::{Outcome, Owner};
use crate::federation::{FederationError, Reason, Refusal, Retraction};
use crate::log::{LogError, Replay};

impl Owner {
    /// Takes out what an agent has shared, ends its life and begins a new epoch. An error means that nothing has
    /// changed, unless the log cannot be written any more.
    pub(super) fn retract(&mut self, agent: AgentId, now: Tick) -> Result<Option<Retraction>, Refusal> {
        let Some(state) = &mut self.state else { return Err(self.unavailable()) };
        if state.hub.last_incarnation(agent).is_none() {
            return Ok(None);
        }
        if state.hub.as_relay().is_some() {
            let why = format!(
                "{agent} cannot be retracted here: this is a relay, and what it has sent to its parent stays there"
            );
            return Err(Refusal::new(Reason::Unexpected, why));
        }
        let before = state.hub.coordinator().inspect().observations;
        let epoch = Epoch(state.hub.epoch().0 + 1);
        let now = now.max(state.hub.latest());
        let retracted = LogEntry { tick: now, event: LogEvent::Retracted(agent) }.encode();
        let impossible = |error: &dyn std::fmt::Display| {
            Refusal::new(Reason::Unexpected, format!("{agent} cannot be retracted: {error}"))
        };
        let mut entries = match state.log.history() {
            Ok(Some(entries)) => entries,
            Ok(None) => return Err(impossible(&FederationError::HistoryGone)),
            Err(error) => return Err(impossible(&error)),
        };
        entries.push(retracted.clone());
        let replay = Replay { entries, ..Replay::default() };
        let mut hub = self.config.replay(&replay).map_err(|error| impossible(&error))?;
        drop(replay);
        let step = hub.begin_epoch(now, epoch);
        let entries: Vec<Vec<u8>> =
            std::iter::once(retracted).chain(step.log.iter().map(LogEntry::encode)).collect();
        let kept = state.log.append(&entries).and_then(|()| state.log.sync(epoch.0));
        if let Err(error) = kept {
            return Err(self.fail_to_keep(&error, entries));
        }
        state.hub = hub;
        let after = state.hub.coordinator().inspect().observations;
        // Otherwise the next start would replay everything from the beginning once more.
        self.save();
        let why = Refusal::new(Reason::Superseded, format!("the operator retracted what {agent} had shared"));
        self.let_go(agent, why.into_status());
        self.presence.forget(agent);
        // Whoever greets again hears of the new epoch; those that are silent would not for long.
        let others: Vec<AgentId> = self.links.keys().copied().collect();
        for other in others {
            self.let_go(other, Status::unavailable("a new epoch begins"));
        }
        self.mailboxes.clear();
        self.stopwatch.stop();
        warn!(federation = self.config.name, agent = agent.0, before, after, epoch = epoch.0, "retracted");
        self.audit.note(
            "retracted",
            json!({ "agent": agent.0, "before": before, "after": after, "epoch": epoch.0 }),
        );
        Ok(Some(Retraction { before, after, epoch: epoch.0 }))
    }

    fn fail_to_keep(&mut self, error: &LogError, entries: Vec<Vec<u8>>) -> Refusal {
        self.lose(error, Outcome { entries, ..Outcome::default() });
        self.unavailable()
    }
}
