//! What an operator sees of a federation, and what an operator does to an agent.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use posse_core::{AgentId, Tick};
use serde_json::json;
use tracing::info;

use super::{Outcome, Owner, State};
use crate::federation::accounts::speaker;
use crate::federation::{AgentInfo, FederationView, KeptInfo, Reason, Refusal, Reply};

impl Owner {
    /// Ends an agent's life and tells it so; the answer waits until that is on the disk.
    pub(super) fn evict(&mut self, agent: AgentId, now: Tick, reply: Reply<bool>, outcome: &mut Outcome) {
        let Some(state) = &mut self.state else {
            let _ = reply.send(Err(self.unavailable()));
            return;
        };
        let step = state.hub.leave(now, agent);
        let done = !step.log.is_empty();
        self.follow(step, outcome);
        let why = Refusal::new(Reason::Superseded, format!("the operator evicted {agent}"));
        self.let_go(agent, why.into_status());
        self.mailboxes.remove(&agent);
        info!(federation = self.config.name, agent = agent.0, done, "evicted");
        self.audit.note("evicted", json!({ "agent": agent.0, "done": done }));
        outcome.evicted.push((reply, done));
    }

    /// What is known of every agent that has joined or was refused.
    pub(super) fn agents(&self) -> Vec<AgentInfo> {
        let Some(State { hub, .. }) = &self.state else { return Vec::new() };
        let all: BTreeSet<AgentId> = hub.agents().chain(self.accounts.agents()).collect();
        let information = hub.coordinator().inspect().information;
        let kept = hub.coordinator().accounts();
        let describe = |agent: AgentId| {
            let account = self.accounts.of(agent);
            let standing = hub.coordinator().agent(agent);
            let life = hub.last_incarnation(agent);
            AgentInfo {
                agent: agent.0,
                life: life.map_or(0, |life| life.0),
                gone: life.is_some() && hub.incarnation(agent).is_none(),
                connected: self.links.contains_key(&agent),
                away: self.presence.is_away(agent),
                quarantined_for: self.conduct.quarantined_for(agent),
                last_seen: account.last_seen,
                uploads: standing.map_or(0, |standing| standing.uploads),
                observations: account.observations,
                staleness: standing.map_or(0.0, |standing| information - standing.information),
                kept: kept.iter().filter(|kept| speaker(kept) == agent).map(KeptInfo::from).collect(),
                refused: account.refused.into_iter().map(|(why, count)| (why.to_owned(), count)).collect(),
            }
        };
        all.into_iter().map(describe).collect()
    }

    pub(super) fn view(&self) -> Option<FederationView> {
        let state = self.state.as_ref()?;
        let coordinator = state.hub.coordinator();
        let view = coordinator.inspect();
        let (staleness, _) = self.measure()?;
        Some(FederationView {
            epoch: state.hub.epoch(),
            version: view.version.0,
            observations: view.observations,
            information: view.information,
            agents: view.agents,
            staleness,
            next_entry: state.log.next(),
            unsent: state.hub.as_relay().map_or(0, |relay| relay.above().held()),
            state: coordinator.save(),
        })
    }

    /// By how much the connected agent furthest behind is behind, and how many observations there are.
    pub(super) fn measure(&self) -> Option<(f64, u64)> {
        let coordinator = self.state.as_ref()?.hub.coordinator();
        let view = coordinator.inspect();
        let behind = |agent| coordinator.agent(agent).map(|standing| view.information - standing.information);
        let staleness = self.links.keys().filter_map(|agent| behind(*agent)).fold(0.0, f64::max);
        Some((staleness, view.observations))
    }

    pub(super) fn report(&mut self) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.leads_until = self.state.as_ref().and_then(|state| state.log.leads_until());
        standing.connected = self.links.len();
        standing.away = self.presence.count_away();
        // Counted here, once a batch, and not at each frame.
        let sent = (self.up.bytes - standing.up.bytes, self.down.bytes - standing.down.bytes);
        self.metrics.sent(&self.config.name, sent, std::mem::take(&mut self.downloads));
        (standing.up, standing.down) = (self.up, self.down);
        let quarantined = self.conduct.quarantined();
        let set_aside = self.state.as_ref().map_or(0, |state| state.hub.coordinator().set_aside());
        let counts = [self.links.len(), quarantined.len(), standing.away, set_aside as usize];
        self.metrics.agents(&self.config.name, counts);
        standing.quarantined.clear();
        standing.quarantined.extend(quarantined);
    }
}
