//! Recipes of the linear family.

use crate::agent::{Agent, Shape};
use crate::clustered::config::Plan;
use crate::clustered::fclub::ClusteredAgent;
use crate::clustered::groups::Groups;
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::exchange::JoinPolicy;
use crate::federation::{Federation, Placement};
use crate::ids::AgentId;
use crate::linear::{
    AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, ExchangeLinIgw, ExchangeLinTs, ExchangeLinUcb,
    FedLinUcb, LinTs, LinUcb, SyncLinUcb,
};
use crate::privacy::PrivacyConfig;
use crate::recipe::{Recipe, Sharing};
use crate::trigger::Threshold;

impl Recipe for LinUcb {
    fn name(&self) -> &'static str {
        "lin-ucb"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, _federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(self.name(), shape.dimension()))
    }

    fn takes_local_features(&self) -> bool {
        true
    }
}

/// LinUCB with one learner for all agents.
#[derive(Debug)]
pub(super) struct CentralLinUcb<'c>(pub(super) &'c LinUcb);

impl Recipe for CentralLinUcb<'_> {
    fn name(&self) -> &'static str {
        "central-lin-ucb"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.0.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, _federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.0.agent(self.name(), shape.dimension()))
    }

    fn placement(&self) -> Placement {
        Placement::Central
    }
}

impl Recipe for LinTs {
    fn name(&self) -> &'static str {
        "lin-ts"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(id, shape.dimension(), federation.seed))
    }

    fn takes_local_features(&self) -> bool {
        true
    }
}

/// With privacy, the asynchronous exchange is that of one cluster of users per agent, all in one group: releases
/// with noise replace each other, as clusters' uploads do, where plain uploads add up.
fn private_plan(config: &AsyncLinUcb) -> Option<Plan<'_>> {
    Some(Plan {
        name: config.name(),
        model: &config.model,
        clusters: None,
        upload: Threshold::NEVER,
        download: config.protocol.download_threshold,
        privacy: Some(config.privacy.as_ref()?),
    })
}

impl Recipe for AsyncLinUcb {
    fn name(&self) -> &'static str {
        "async-lin-ucb"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        match private_plan(self) {
            Some(plan) => Box::new(ClusteredAgent::new(&plan, id, shape.dimension(), federation)),
            None => Box::new(self.agent(id, shape.dimension())),
        }
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        match private_plan(self) {
            Some(plan) => Box::new(Groups::new(&plan, shape.dimension())),
            None => Box::new(self.protocol.coordinator(self.name(), &self.model, shape.dimension())),
        }
    }

    fn sharing(&self) -> Sharing {
        if self.privacy.is_some() { Sharing::Clusters } else { Sharing::Uploads }
    }

    fn join_policy(&self) -> JoinPolicy {
        self.protocol.join
    }

    fn chooses_with_unsent(&self) -> bool {
        self.privacy.as_ref().is_none_or(|privacy| privacy.raw_buffer)
    }

    fn privacy(&self) -> Option<&PrivacyConfig> {
        self.privacy.as_ref()
    }
}

impl Recipe for AsyncLinTs {
    fn name(&self) -> &'static str {
        "async-lin-ts"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(id, shape.dimension(), federation.seed))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(self.protocol.coordinator(self.name(), &self.model, shape.dimension()))
    }

    fn sharing(&self) -> Sharing {
        Sharing::Uploads
    }

    fn join_policy(&self) -> JoinPolicy {
        self.protocol.join
    }
}

impl Recipe for AsyncLinPhe {
    fn name(&self) -> &'static str {
        "async-lin-phe"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(id, shape.dimension(), federation.seed))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(self.protocol.coordinator(self.name(), &self.model, shape.dimension()))
    }

    fn sharing(&self) -> Sharing {
        Sharing::Uploads
    }

    fn join_policy(&self) -> JoinPolicy {
        self.protocol.join
    }
}

impl Recipe for SyncLinUcb {
    fn name(&self) -> &'static str {
        "sync-lin-ucb"
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
        Sharing::Rounds
    }

    fn join_policy(&self) -> JoinPolicy {
        self.join
    }
}

impl Recipe for FedLinUcb {
    fn name(&self) -> &'static str {
        "fed-lin-ucb"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(shape.dimension(), federation))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(self.coordinator(shape.dimension()))
    }

    fn sharing(&self) -> Sharing {
        Sharing::Uploads
    }

    fn chooses_with_unsent(&self) -> bool {
        false
    }
}

impl Recipe for AsyncLinUcbAm {
    fn name(&self) -> &'static str {
        "async-lin-ucb-am"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, _federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(id, shape))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(self.coordinator(shape))
    }

    fn sharing(&self) -> Sharing {
        Sharing::Uploads
    }

    fn join_policy(&self) -> JoinPolicy {
        self.protocol.join
    }

    fn takes_local_features(&self) -> bool {
        !self.duplicated
    }
}

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
}
