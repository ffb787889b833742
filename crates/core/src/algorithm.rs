//! The one list of algorithms: it names them, checks their settings, and builds agents and coordinators.

use serde::{Deserialize, Serialize};

use crate::agent::{Agent, Shape};
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::ids::AgentId;
use crate::linear::silent::Silent;
use crate::linear::{
    AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, FedLinUcb, JoinPolicy, LinUcb, SyncLinUcb,
};
use crate::random::Seed;

/// An algorithm with its settings. In configuration files, `name` says which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Algorithm {
    /// LinUCB, an independent learner per agent.
    LinUcb(LinUcb),
    /// LinUCB, one learner for everybody: the reference that moves all raw data.
    CentralLinUcb(LinUcb),
    /// Asynchronous exchange of evidence, upper confidence bounds (Li and Wang, 2022).
    AsyncLinUcb(AsyncLinUcb),
    /// The same exchange with Thompson sampling.
    AsyncLinTs(AsyncLinTs),
    /// The same exchange with perturbed history.
    AsyncLinPhe(AsyncLinPhe),
    /// Synchronous rounds, also known as DisLinUCB (Wang et al., 2020).
    SyncLinUcb(SyncLinUcb),
    /// Push and pull in one exchange (He et al., 2022).
    FedLinUcb(FedLinUcb),
    /// Asynchronous exchange between agents that differ in some features (Li and Wang, 2022).
    AsyncLinUcbAm(AsyncLinUcbAm),
}

/// What every member of a federation is told when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Federation {
    /// How many agents there are, or are expected.
    pub agents: u64,
    /// How many interactions are expected in all; some widths grow with its logarithm.
    pub horizon: u64,
    /// Where randomised rules draw from.
    pub seed: Seed,
}

/// Where an algorithm's learners live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One with each agent.
    PerAgent,
    /// One for all of them.
    Central,
}

impl Algorithm {
    /// Every algorithm, with default settings.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![
            Self::LinUcb(LinUcb::default()),
            Self::CentralLinUcb(LinUcb::default()),
            Self::AsyncLinUcb(AsyncLinUcb::default()),
            Self::AsyncLinTs(AsyncLinTs::default()),
            Self::AsyncLinPhe(AsyncLinPhe::default()),
            Self::SyncLinUcb(SyncLinUcb::default()),
            Self::FedLinUcb(FedLinUcb::default()),
            Self::AsyncLinUcbAm(AsyncLinUcbAm::default()),
        ]
    }

    /// The name in configuration files and results.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LinUcb(_) => "lin-ucb",
            Self::CentralLinUcb(_) => "central-lin-ucb",
            Self::AsyncLinUcb(_) => "async-lin-ucb",
            Self::AsyncLinTs(_) => "async-lin-ts",
            Self::AsyncLinPhe(_) => "async-lin-phe",
            Self::SyncLinUcb(_) => "sync-lin-ucb",
            Self::FedLinUcb(_) => "fed-lin-ucb",
            Self::AsyncLinUcbAm(_) => "async-lin-ucb-am",
        }
    }

    /// What it does, in a line.
    #[must_use]
    pub const fn summary(&self) -> &'static str {
        match self {
            Self::LinUcb(_) => "every agent learns alone, upper confidence bounds",
            Self::CentralLinUcb(_) => "one learner sees all raw data: the reference",
            Self::AsyncLinUcb(_) => "agents share evidence when it grew enough, upper confidence bounds",
            Self::AsyncLinTs(_) => "the same exchange, Thompson sampling",
            Self::AsyncLinPhe(_) => "the same exchange, perturbed history",
            Self::SyncLinUcb(_) => "everybody shares when one agent learned enough (DisLinUCB)",
            Self::FedLinUcb(_) => "an agent pushes and pulls in one exchange when due",
            Self::AsyncLinUcbAm(_) => "shared and private features, alternating minimisation",
        }
    }

    /// `Ok` if the settings make sense for arms of this `shape`.
    pub fn check(&self, shape: Shape) -> Result<(), ConfigError> {
        if shape.dimension() == 0 {
            return Err(ConfigError::new("dimension", 0, "an arm needs at least one feature"));
        }
        match self {
            Self::LinUcb(config) | Self::CentralLinUcb(config) => config.check(),
            Self::AsyncLinUcb(config) => config.check(),
            Self::AsyncLinTs(config) => config.check(),
            Self::AsyncLinPhe(config) => config.check(),
            Self::SyncLinUcb(config) => config.check(),
            Self::FedLinUcb(config) => config.check(),
            Self::AsyncLinUcbAm(config) => config.check(),
        }
    }

    /// A new agent for arms of this `shape`.
    pub fn agent(
        &self,
        id: AgentId,
        shape: Shape,
        federation: &Federation,
    ) -> Result<Box<dyn Agent>, ConfigError> {
        self.check(shape)?;
        let dimension = shape.dimension();
        Ok(match self {
            Self::LinUcb(config) | Self::CentralLinUcb(config) => {
                Box::new(config.agent(self.name(), dimension))
            }
            Self::AsyncLinUcb(config) => Box::new(config.agent(id, dimension)),
            Self::AsyncLinTs(config) => Box::new(config.agent(id, dimension, federation.seed)),
            Self::AsyncLinPhe(config) => Box::new(config.agent(id, dimension, federation.seed)),
            Self::SyncLinUcb(config) => Box::new(config.agent(dimension)),
            Self::FedLinUcb(config) => Box::new(config.agent(dimension, federation)),
            Self::AsyncLinUcbAm(config) => Box::new(config.agent(id, shape)),
        })
    }

    /// A new coordinator for agents whose arms have this `shape`; only the shared part need be the same
    /// for all of them.
    pub fn coordinator(&self, shape: Shape) -> Result<Box<dyn Coordinator>, ConfigError> {
        self.check(shape)?;
        let dimension = shape.dimension();
        let name = self.name();
        Ok(match self {
            Self::LinUcb(_) | Self::CentralLinUcb(_) => Box::new(Silent::new(name, dimension)),
            Self::AsyncLinUcb(config) => {
                Box::new(config.protocol.coordinator(name, &config.model, dimension))
            }
            Self::AsyncLinTs(config) => Box::new(config.protocol.coordinator(name, &config.model, dimension)),
            Self::AsyncLinPhe(config) => {
                Box::new(config.protocol.coordinator(name, &config.model, dimension))
            }
            Self::SyncLinUcb(config) => Box::new(config.coordinator(dimension)),
            Self::FedLinUcb(config) => Box::new(config.coordinator(dimension)),
            Self::AsyncLinUcbAm(config) => Box::new(config.coordinator(shape)),
        })
    }

    /// When agents become known to the coordinator.
    #[must_use]
    pub const fn join_policy(&self) -> JoinPolicy {
        match self {
            Self::LinUcb(_) | Self::CentralLinUcb(_) | Self::FedLinUcb(_) => JoinPolicy::Lazy,
            Self::AsyncLinUcb(config) => config.protocol.join,
            Self::AsyncLinTs(config) => config.protocol.join,
            Self::AsyncLinPhe(config) => config.protocol.join,
            Self::SyncLinUcb(config) => config.join,
            Self::AsyncLinUcbAm(config) => config.protocol.join,
        }
    }

    /// Where its learners live.
    #[must_use]
    pub const fn placement(&self) -> Placement {
        match self {
            Self::CentralLinUcb(_) => Placement::Central,
            _ => Placement::PerAgent,
        }
    }

    /// Whether agents may have private features of different number.
    #[must_use]
    pub const fn takes_local_features(&self) -> bool {
        matches!(self, Self::LinUcb(_) | Self::AsyncLinUcbAm(AsyncLinUcbAm { duplicated: false, .. }))
    }
}
