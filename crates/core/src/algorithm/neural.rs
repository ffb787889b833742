//! Recipes of the neural family.

use crate::agent::{Agent, Shape};
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::evidence::packed;
use crate::exchange::{JoinPolicy, Silent};
use crate::federation::{Federation, Placement};
use crate::ids::AgentId;
use crate::neural::update_rounds::UpdateRounds;
use crate::neural::{FnUcb, NeuralUcb, Precondition};
use crate::privacy::PrivacyConfig;
use crate::recipe::{Payload, Recipe, Sharing};
use crate::relay::Relaying;

impl Recipe for NeuralUcb {
    fn name(&self) -> &'static str {
        "neural-ucb"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        2_000.0
    }

    fn check(&self, shape: Shape) -> Result<(), ConfigError> {
        self.check(shape.dimension())
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(self.name(), false, id, shape.dimension(), federation.seed))
    }
}

/// A network for each agent, with Thompson sampling.
#[derive(Debug)]
pub(super) struct NeuralTs<'c>(pub(super) &'c NeuralUcb);

impl Recipe for NeuralTs<'_> {
    fn name(&self) -> &'static str {
        "neural-ts"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        2_000.0
    }

    fn check(&self, shape: Shape) -> Result<(), ConfigError> {
        self.0.check(shape.dimension())
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.0.agent(self.name(), true, id, shape.dimension(), federation.seed))
    }
}

impl Recipe for FnUcb {
    fn name(&self) -> &'static str {
        "fn-ucb"
    }

    fn effort(&self, agents: u64, _observations: u64) -> f64 {
        // Every agent trains in every round, and rounds follow the number of agents.
        2_000.0 * (agents as f64).min(10.0)
    }

    fn check(&self, shape: Shape) -> Result<(), ConfigError> {
        self.check(shape.dimension())
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        if self.is_pooled() {
            Box::new(self.pooled(shape.dimension(), federation))
        } else if let Some(private) = self.private_agent(shape.dimension(), id, federation) {
            Box::new(private)
        } else {
            Box::new(self.agent(shape.dimension(), federation))
        }
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        if self.is_pooled() {
            Box::new(Silent::new(self.name()))
        } else if self.privacy.is_some() {
            Box::new(UpdateRounds::new(self, shape.dimension()))
        } else {
            Box::new(self.coordinator(shape.dimension()))
        }
    }

    fn sharing(&self) -> Sharing {
        match self.privacy {
            _ if self.is_pooled() => Sharing::Nothing,
            Some(_) => Sharing::Other,
            None => Sharing::OnlineRounds,
        }
    }

    fn privacy(&self) -> Option<&PrivacyConfig> {
        self.privacy.as_ref()
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::No(if self.is_pooled() {
            "its agents never speak: there is nothing to relay"
        } else {
            "its widths are means over the matrices of single agents, which a sum hides"
        })
    }

    fn placement(&self) -> Placement {
        if self.is_pooled() { Placement::Central } else { Placement::PerAgent }
    }

    fn join_policy(&self) -> JoinPolicy {
        if self.is_pooled() { JoinPolicy::Lazy } else { self.rounds.join }
    }

    fn largest_upload(&self, dimension: u64) -> Payload {
        let p = self.neural.parameters(dimension as usize);
        if self.privacy.is_some() {
            return Payload { parts: 1, vector: p as u64, matrix: 0 };
        }
        let matrix = if self.neural.statistic == Precondition::Full { packed(p) } else { p };
        Payload { parts: 1, vector: p as u64, matrix: matrix as u64 }
    }

    /// The matrix of all, and the agents' own ones or their mean.
    fn largest_download(&self, dimension: u64, agents: u64) -> u64 {
        let widths = if self.less_communication { 1 } else { agents };
        self.largest_upload(dimension).matrix.saturating_mul(widths.saturating_add(1))
    }

    fn too_long(&self, _dimension: u64, _agents: u64) -> ConfigError {
        if self.less_communication {
            let allowed = "its matrices make messages of more than 1 GB: use a diagonal";
            return ConfigError::new("statistic", "full", allowed);
        }
        let allowed = "every agent is sent the matrices of all `agents`, more than 1 GB at once: set it to true, or \
                       use fewer `agents` or a diagonal statistic";
        ConfigError::new("less_communication", "false", allowed)
    }
}
