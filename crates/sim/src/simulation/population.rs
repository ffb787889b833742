//! Agents, built when they are first needed.

use posse_core::{Agent, AgentId, Algorithm, ConfigError, Federation, Placement, Shape};

/// A recipe for agents.
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

    /// Who learns when `agent` acts: itself, or the one learner for everybody.
    pub(super) fn learner(&self, agent: AgentId) -> AgentId {
        match self.algorithm.placement() {
            Placement::PerAgent => agent,
            Placement::Central => AgentId(0),
        }
    }
}
