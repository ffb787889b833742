//! Leases: who is there, and rounds that do not wait for those who are not.

use posse_core::{AgentId, Tick};
use serde_json::json;
use tracing::{info, warn};

use super::{Outcome, Owner};

/// How many agents a warning names.
const NAMED: usize = 10;
/// How often in a row a deadline may be passed early. Each time fewer agents take part, so that a few are enough.
const EARLY: usize = 8;

impl Owner {
    /// The agent has a link now.
    pub(super) fn note_link(&mut self, agent: AgentId) {
        if self.presence.linked(agent) {
            self.note_return(agent);
        }
    }

    /// The agent has no link any more, or called without one: its lease begins.
    pub(super) fn begin_lease(&mut self, agent: AgentId) {
        let is_alive = self.state.as_ref().is_some_and(|state| state.hub.incarnation(agent).is_some());
        if !is_alive {
            return;
        }
        let now = self.time.now();
        if self.presence.lease(agent, now, self.config.lease) {
            self.note_return(agent);
        }
    }

    /// The log was opened: agents in it that have no link have one lease to come back.
    pub(super) fn lease_to_all(&mut self, agents: Vec<AgentId>) {
        let now = self.time.now();
        for agent in agents {
            if !self.links.contains_key(&agent) && !self.presence.is_away(agent) {
                self.presence.lease(agent, now, self.config.lease);
            }
        }
    }

    fn note_return(&mut self, agent: AgentId) {
        info!(federation = self.config.name, agent = agent.0, "the agent is there again");
        self.audit.note("there again", json!({ "agent": agent.0 }));
    }

    /// Ends leases that are over.
    pub(super) fn end_leases(&mut self, now: Tick) {
        let lost = self.presence.expire(now);
        if !lost.is_empty() {
            let named: Vec<u64> = lost.iter().take(NAMED).map(|agent| agent.0).collect();
            let (federation, lease) = (&self.config.name, self.config.lease);
            warn!(federation, agents = lost.len(), first = ?named, %lease, "agents have lost contact");
            for agent in &lost {
                self.audit.note("lost contact", json!({ "agent": agent.0 }));
            }
        }
    }

    /// Ends rounds that wait only for agents without a lease.
    pub(super) fn stop_waiting_for_absent(&mut self, now: Tick, outcome: &mut Outcome) {
        for _ in 0..EARLY {
            let Some(state) = &mut self.state else { return };
            let waits = state.hub.coordinator().waits_for();
            if !waits.is_some_and(|agents| self.presence.are_all_away(agents)) {
                return;
            }
            let step = state.hub.pass_deadline(now);
            self.follow(step, outcome);
        }
    }
}
