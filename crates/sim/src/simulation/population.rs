//! Agents, built when they are first needed.

use crate::adversary::AdversaryConfig;
use crate::tally::Tally;
use posse_core::{Agent, AgentId, Algorithm, ConfigError, Federation, Placement, Shape};

/// Builds agents of one algorithm, each when it is first needed.
pub(super) struct Population {
    algorithm: Algorithm,
    federation: Federation,
    adversaries: AdversaryConfig,
    /// For each agent, whether it lies.
    liars: Vec<bool>,
}

impl Population {
    pub(super) fn new(algorithm: Algorithm, federation: Federation, adversaries: &AdversaryConfig) -> Self {
        let liars = adversaries.who_lies(federation.agents, federation.seed);
        Self { algorithm, federation, adversaries: adversaries.clone(), liars }
    }

    /// Whether an agent lies. Regret of liars is their own business.
    pub(super) fn lies(&self, agent: AgentId) -> bool {
        self.liars[agent.0 as usize]
    }

    /// Adds what an honest agent lost to `tally`, in runs with liars.
    pub(super) fn count_honest(&self, tally: &mut Tally, agent: AgentId, regret: f64) {
        if !self.adversaries.is_empty() {
            *tally.honest_regret.get_or_insert(0.0) += if self.lies(agent) { 0.0 } else { regret };
        }
    }

    /// A new agent at the beginning of a life.
    pub(super) fn agent(&self, id: AgentId, shape: Shape) -> Result<Box<dyn Agent>, ConfigError> {
        let agent = self.algorithm.agent(id, shape, &self.federation)?;
        if !self.lies(id) {
            return Ok(agent);
        }
        Ok(self.adversaries.corrupt(agent, shape.dimension(), self.federation.seed))
    }

    /// The agent that learns when `agent` acts: `agent` itself, or agent 0 where one central learner serves
    /// all.
    pub(super) fn learner(&self, agent: AgentId) -> AgentId {
        match self.algorithm.placement() {
            Placement::PerAgent => agent,
            Placement::Central => AgentId(0),
        }
    }
}
