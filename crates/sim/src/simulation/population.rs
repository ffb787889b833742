//! Agents, built when they are first needed.

use posse_core::{Agent, AgentId, Algorithm, ConfigError, Federation, Placement, Shape};

/// Builds agents of one algorithm, each when it is first needed.
pub(super) struct Population {
    algorithm: Algorithm,
    federation: Federation,
}

impl Population {
    pub(super) fn new(algorithm: Algorithm, federation: Federation) -> Self {
        Self { algorithm, federation }
    }

    /// A new agent at the beginning of a life.
    pub(super) fn agent(&self, id: AgentId, shape: Shape) -> Result<Box<dyn Agent>, ConfigError> {
        self.algorithm.agent(id, shape, &self.federation)
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
