//! How agents behave: who was refused how often, and who is not heard for a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use posse_core::AgentId;
use tracing::warn;

use super::{FederationConfig, Reason};

/// What agents were refused, as long as it matters.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    /// How many messages of each agent were refused in a row.
    refused: BTreeMap<AgentId, u64>,
    /// Until when an agent is not heard.
    quarantined: BTreeMap<AgentId, Instant>,
}

impl Conduct {
    /// Something of an agent was refused. Too often in a row, and it is not heard for a while: then `true`.
    pub(super) fn refused(&mut self, config: &FederationConfig, agent: AgentId, reason: Reason) -> bool {
        if !reason.counts_against_agent() {
            return false;
        }
        let count = self.refused.entry(agent).or_default();
        *count += 1;
        let (federation, in_a_row) = (&config.name, *count);
        warn!(federation, agent = agent.0, reason = reason.word(), in_a_row, "refused");
        let too_often = in_a_row >= config.quarantine_after;
        if too_often {
            self.refused.remove(&agent);
            self.quarantined.insert(agent, Instant::now() + Duration::from(config.quarantine));
            warn!(federation, agent = agent.0, time = %config.quarantine, "quarantined");
        }
        too_often
    }

    /// A message of an agent was taken: whatever was wrong before is over.
    pub(super) fn accepted(&mut self, agent: AgentId) {
        self.refused.remove(&agent);
    }

    pub(super) fn is_quarantined(&self, agent: AgentId) -> bool {
        self.quarantined.get(&agent).is_some_and(|until| *until > Instant::now())
    }

    /// Seconds that an agent's quarantine still lasts.
    pub(super) fn quarantined_for(&self, agent: AgentId) -> Option<u64> {
        let left = self.quarantined.get(&agent)?.checked_duration_since(Instant::now())?;
        Some(left.as_secs() + 1)
    }

    /// Ends an agent's quarantine and forgets its refusals. Says whether it was in one.
    pub(super) fn pardon(&mut self, agent: AgentId) -> bool {
        self.refused.remove(&agent);
        self.quarantined.remove(&agent).is_some_and(|until| until > Instant::now())
    }

    /// Who is in quarantine now, in order.
    pub(super) fn quarantined(&mut self) -> impl ExactSizeIterator<Item = &AgentId> {
        self.quarantined.retain(|_, until| *until > Instant::now());
        self.quarantined.keys()
    }
}
