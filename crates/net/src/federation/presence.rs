//! Who is there: agents have leases, and one that was away for longer than its lease is not waited for.
//!
//! An agent with an open link is there, because both ends ping it. One without a link is there for the length of its
//! lease after its link ended, or after its last call. Being away costs an agent nothing but the wait: its life goes
//! on, and it is there again with its next frame. See decision 0057.

use std::collections::{BTreeMap, BTreeSet};

use posse_core::{AgentId, Tick, TimeSpan};

/// Which agents are there, and until when.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// When the lease of an agent without a link ends.
    until: BTreeMap<AgentId, Tick>,
    expiries: BTreeSet<(Tick, AgentId)>,
    away: BTreeSet<AgentId>,
}

impl Presence {
    /// The agent has a link: it is there as long as that is open. Says whether it had been away.
    pub(super) fn linked(&mut self, agent: AgentId) -> bool {
        self.end_lease(agent);
        self.away.remove(&agent)
    }

    /// The agent spoke without a link, its link ended, or it is known from the log: its lease begins. Says whether it had
    /// been away.
    pub(super) fn lease(&mut self, agent: AgentId, now: Tick, lease: TimeSpan) -> bool {
        self.end_lease(agent);
        let end = now.after(lease);
        self.until.insert(agent, end);
        self.expiries.insert((end, agent));
        self.away.remove(&agent)
    }

    /// The agent left for good, and is neither there nor away.
    pub(super) fn forget(&mut self, agent: AgentId) {
        self.end_lease(agent);
        self.away.remove(&agent);
    }

    /// Returns the agents whose leases have ended by `now`, each once.
    pub(super) fn expire(&mut self, now: Tick) -> Vec<AgentId> {
        let mut lost = Vec::new();
        while let Some(&(end, agent)) = self.expiries.first().filter(|(end, _)| *end <= now) {
            self.expiries.remove(&(end, agent));
            self.until.remove(&agent);
            self.away.insert(agent);
            lost.push(agent);
        }
        lost
    }

    /// When the next lease ends.
    pub(super) fn next(&self) -> Option<Tick> {
        self.expiries.first().map(|(end, _)| *end)
    }

    pub(super) fn is_away(&self, agent: AgentId) -> bool {
        self.away.contains(&agent)
    }

    /// Whether every one of `agents` is away; `false` if there are none.
    pub(super) fn are_all_away(&self, agents: &BTreeSet<AgentId>) -> bool {
        !agents.is_empty() && agents.len() <= self.away.len() && agents.is_subset(&self.away)
    }

    /// How many agents are away.
    pub(super) fn count_away(&self) -> usize {
        self.away.len()
    }

    fn end_lease(&mut self, agent: AgentId) {
        if let Some(end) = self.until.remove(&agent) {
            self.expiries.remove(&(end, agent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_away_when_its_lease_has_ended_and_there_again_when_it_speaks() {
        let (mut presence, lease) = (Presence::default(), TimeSpan::from_secs(60));
        let (first, second) = (AgentId(1), AgentId(2));
        let at = |seconds: u64| Tick(1_000_000_000 + seconds * 1_000_000);
        assert!(!presence.lease(first, at(0), lease) && !presence.linked(second));
        assert_eq!(presence.next(), Some(at(60)));
        assert!(presence.expire(at(59)).is_empty());
        // A call begins the lease anew.
        presence.lease(first, at(50), lease);
        assert!(presence.expire(at(60)).is_empty());
        assert_eq!(presence.expire(at(110)), [first]);
        assert!(presence.is_away(first) && presence.next().is_none());
        let both = BTreeSet::from([first, second]);
        assert!(presence.are_all_away(&BTreeSet::from([first])) && !presence.are_all_away(&both));
        assert!(!presence.are_all_away(&BTreeSet::new()));
        assert!(presence.linked(first) && !presence.is_away(first));
        presence.lease(first, at(200), lease);
        presence.forget(first);
        assert!(presence.expire(at(900)).is_empty() && presence.count_away() == 0);
    }
}
