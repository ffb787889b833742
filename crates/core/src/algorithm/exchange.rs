//! Recipes of the exchange: linear algorithms whose agents ask before they choose.

use crate::agent::{Agent, Shape};
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::exchange::JoinPolicy;
use crate::federation::Federation;
use crate::ids::AgentId;
use crate::linear::{ExchangeLinIgw, ExchangeLinTs, ExchangeLinUcb};
use crate::recipe::{Recipe, Sharing};
use crate::relay::Relaying;

/// Why the algorithms that price their messages have no relays.
const ASKS: &str = "agents ask before they choose, and only the root knows the answer: use async-lin-ucb";

impl Recipe for ExchangeLinUcb {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, _federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(shape.dimension()))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(self.coordinator(shape.dimension()))
    }

    fn sharing(&self) -> Sharing {
        Sharing::Uploads
    }

    fn join_policy(&self) -> JoinPolicy {
        JoinPolicy::PullOnJoin
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::No(ASKS)
    }
}

impl Recipe for ExchangeLinTs {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(id, shape.dimension(), federation.seed))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(self.coordinator(shape.dimension()))
    }

    fn sharing(&self) -> Sharing {
        Sharing::Uploads
    }

    fn join_policy(&self) -> JoinPolicy {
        JoinPolicy::PullOnJoin
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::No(ASKS)
    }
}

impl Recipe for ExchangeLinIgw {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(id, shape.dimension(), federation.seed))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(self.coordinator(shape.dimension()))
    }

    fn sharing(&self) -> Sharing {
        Sharing::Uploads
    }

    fn join_policy(&self) -> JoinPolicy {
        JoinPolicy::PullOnJoin
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::No(ASKS)
    }
}
