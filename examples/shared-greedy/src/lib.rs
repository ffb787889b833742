//! An algorithm outside of posse: ε-greedy choices on a ridge model whose sums all agents share.
//!
//! Every `upload_every` observations an agent sends all its sums, and the coordinator answers with the sums of
//! all other agents. Both are absolute, so that a message that is lost or repeated does no harm.
#![forbid(unsafe_code)]

mod agent;
mod coordinator;
mod message;

use posse_core::settings::{Described, Setting};
use posse_core::{
    Agent, AgentId, Algorithm, ConfigError, Coordinator, Federation, Outside, Recipe, Registry, Shape,
    Sharing,
};

/// The name in results and over the network.
pub const NAME: &str = "shared-greedy";

/// Settings of `shared-greedy`: how often agents share what they learned.
#[derive(Clone, Debug, PartialEq, Described)]
pub struct SharedGreedy {
    /// in [0, 1]: the share of choices that explore. Default 0.05.
    pub exploration: f64,
    /// ≥ 1: observations between two uploads of an agent. Default 10.
    pub upload_every: u64,
    /// λ > 0: the weight of the belief that parameters are zero. Default 1.
    pub regularization: f64,
}

impl Default for SharedGreedy {
    fn default() -> Self {
        Self { exploration: 0.05, upload_every: 10, regularization: 1.0 }
    }
}

impl SharedGreedy {
    /// The algorithm, to be handed to the simulator or a coordinator.
    #[must_use]
    pub fn algorithm(self) -> Algorithm {
        Algorithm::Outside(Outside::new(self))
    }

    /// The settings that [`Recipe::settings`] wrote.
    fn parse(text: &str) -> Result<Outside, ConfigError> {
        let wrong =
            || ConfigError::new("settings", text, "expected `exploration upload_every regularization`");
        let mut words = text.split(' ');
        let mut next = || words.next().ok_or_else(wrong);
        let exploration = next()?.parse().map_err(|_| wrong())?;
        let upload_every = next()?.parse().map_err(|_| wrong())?;
        let regularization = next()?.parse().map_err(|_| wrong())?;
        Ok(Outside::new(Self { exploration, upload_every, regularization }))
    }
}

/// Makes the algorithm known to agents that join over a network.
pub fn register(registry: &mut Registry) -> Result<(), ConfigError> {
    registry.register(NAME, SharedGreedy::parse)
}

impl Recipe for SharedGreedy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        let share = (0.0..=1.0).contains(&self.exploration);
        ConfigError::require(share, "exploration", self.exploration, "it must lie between 0 and 1")?;
        if self.upload_every == 0 {
            return Err(ConfigError::new("upload_every", 0, "it must be at least 1"));
        }
        let positive = self.regularization > 0.0 && self.regularization.is_finite();
        ConfigError::require(positive, "regularization", self.regularization, "it must be positive")
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(agent::GreedyAgent::new(self, id, shape.dimension(), federation.seed))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(coordinator::Sums::new(shape.dimension(), self.regularization))
    }

    fn sharing(&self) -> Sharing {
        Sharing::Other
    }

    fn described(&self) -> Vec<Setting> {
        <Self as Described>::settings()
    }

    fn settings(&self) -> String {
        format!("{} {} {}", self.exploration, self.upload_every, self.regularization)
    }
}
