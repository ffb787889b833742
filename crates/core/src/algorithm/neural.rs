//! Recipes of the neural family.

use crate::agent::{Agent, Shape};
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::exchange::{JoinPolicy, Silent};
use crate::federation::{Federation, Placement};
use crate::ids::AgentId;
use crate::neural::network_relay::NetworkRelay;
use crate::neural::statistic::Statistic;
use crate::neural::update_rounds::UpdateRounds;
use crate::neural::{FnUcb, NeuralUcb};
use crate::privacy::PrivacyConfig;
use crate::recipe::{Payload, Recipe, Sharing};
use crate::relay::{Relay, Relaying, UpperLink};

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

impl FnUcb {
    /// Numbers of a matrix over so many parameters.
    const fn matrix(&self, parameters: usize) -> u64 {
        Statistic::scalars(self.neural.statistic, parameters) as u64
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
        if self.is_pooled() {
            return Relaying::No("its agents never speak: there is nothing to relay");
        }
        if !self.less_communication && self.privacy.is_none() {
            return Relaying::No(
                "with less_communication = false every agent is sent the matrix of every other, which relays add up: set it \
                 to true",
            );
        }
        Relaying::ByRounds
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        Some(Box::new(NetworkRelay::new(self, shape.dimension(), above)))
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
        // The second matrix is a relay's: the sum of the inverses of all agents below it. Without less communication there are no
        // relays.
        let matrices = if self.less_communication { 2 } else { 1 };
        Payload { parts: 1, vector: p as u64, matrix: matrices * self.matrix(p) }
    }

    /// The matrix of all, and the agents' own ones or their mean.
    fn largest_download(&self, dimension: u64, agents: u64) -> u64 {
        let widths = if self.less_communication { 1 } else { agents };
        let matrix = match self.privacy {
            Some(_) => 0,
            None => self.matrix(self.neural.parameters(dimension as usize)),
        };
        matrix.saturating_mul(widths.saturating_add(1))
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
