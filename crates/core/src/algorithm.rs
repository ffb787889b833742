//! The one list of algorithms: it names them, checks their settings, and builds agents and coordinators.

use serde::{Deserialize, Serialize};

use crate::agent::{Agent, Shape};
use crate::clustered::fclub::ClusteredAgent;
use crate::clustered::groups::Groups;
use crate::clustered::{CdpFclubDc, Club, Fclub, FclubDc, Homo, HomoDc, Sclub, UserLinUcb};
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::glm::{FedGlbUcb, FedGlbUcb3, Link, OnsGlm, ScheduledGlbUcb, UcbGlm};
use crate::ids::AgentId;
use crate::kernel::KernelConfig;
use crate::linear::silent::Silent;
use crate::linear::{
    AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, ExchangeLinIgw, ExchangeLinTs, ExchangeLinUcb,
    FedLinUcb, JoinPolicy, LinTs, LinUcb, SyncLinUcb,
};
use crate::neural::{FnUcb, NeuralUcb};
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
    /// Push and pull when silence costs more than a message, upper confidence bounds.
    ExchangeLinUcb(ExchangeLinUcb),
    /// The same exchange with Thompson sampling.
    ExchangeLinTs(ExchangeLinTs),
    /// The same exchange with inverse-gap weighting.
    ExchangeLinIgw(ExchangeLinIgw),
    /// Asynchronous exchange between agents that differ in some features (Li and Wang, 2022).
    AsyncLinUcbAm(AsyncLinUcbAm),
    /// Rounds that minimise everybody's loss when due, online steps between (Li and Wang, 2022).
    FedGlbUcb(FedGlbUcb),
    /// The same rounds on a schedule, nothing between.
    #[serde(rename = "fed-glb-ucb-1")]
    FedGlbUcb1(ScheduledGlbUcb),
    /// The same rounds on a schedule, online steps between.
    #[serde(rename = "fed-glb-ucb-2")]
    FedGlbUcb2(ScheduledGlbUcb),
    /// Rounds of one online step on a schedule, online steps between.
    #[serde(rename = "fed-glb-ucb-3")]
    FedGlbUcb3(FedGlbUcb3),
    /// UCB-GLM, one learner for everybody: the reference that moves all raw data.
    OneUcbGlm(UcbGlm),
    /// UCB-GLM, an independent learner per agent.
    NUcbGlm(UcbGlm),
    /// Online Newton steps, an independent learner per agent.
    NOnsGlm(OnsGlm),
    /// Clusters of users that share every interaction (Liu et al., 2022).
    Fclub(Fclub),
    /// Clusters of users that share when it is worth a message (Liu et al., 2022).
    FclubDc(FclubDc),
    /// The same with differential privacy of what leaves an agent (Liu et al., 2022).
    CdpFclubDc(CdpFclubDc),
    /// One group for everybody, every interaction shared.
    Homo(Homo),
    /// One group for everybody, shared when it is worth a message.
    HomoDc(HomoDc),
    /// Clusters of users, each agent for itself (Gentile et al., 2014).
    Club(Club),
    /// Clusters that split and merge, each agent for itself (Li et al., 2019).
    Sclub(Sclub),
    /// LinUCB, an independent learner for each user.
    UserLinUcb(UserLinUcb),
    /// Linear Thompson sampling, an independent learner per agent.
    LinTs(LinTs),
    /// Kernel regression with upper confidence bounds, an independent learner per agent.
    KernelUcb(KernelConfig),
    /// Kernel regression with Thompson sampling, an independent learner per agent.
    KernelTs(KernelConfig),
    /// A network for each agent, upper confidence bounds (Zhou et al., 2020).
    NeuralUcb(NeuralUcb),
    /// A network for each agent, Thompson sampling (Zhang et al., 2021).
    NeuralTs(NeuralUcb),
    /// Rounds of statistics of gradients and of averaged networks (Dai et al., 2023).
    FnUcb(FnUcb),
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
            Self::ExchangeLinUcb(ExchangeLinUcb::default()),
            Self::ExchangeLinTs(ExchangeLinTs::default()),
            Self::ExchangeLinIgw(ExchangeLinIgw::default()),
            Self::AsyncLinUcbAm(AsyncLinUcbAm::default()),
            Self::FedGlbUcb(FedGlbUcb::default()),
            Self::FedGlbUcb1(ScheduledGlbUcb::default()),
            Self::FedGlbUcb2(ScheduledGlbUcb::default()),
            Self::FedGlbUcb3(FedGlbUcb3::default()),
            Self::OneUcbGlm(UcbGlm::default()),
            Self::NUcbGlm(UcbGlm::default()),
            Self::NOnsGlm(OnsGlm::default()),
            Self::Fclub(Fclub::default()),
            Self::FclubDc(FclubDc::default()),
            Self::CdpFclubDc(CdpFclubDc::default()),
            Self::Homo(Homo::default()),
            Self::HomoDc(HomoDc::default()),
            Self::Club(Club::default()),
            Self::Sclub(Sclub::default()),
            Self::UserLinUcb(UserLinUcb::default()),
            Self::LinTs(LinTs::default()),
            Self::KernelUcb(KernelConfig::default()),
            Self::KernelTs(KernelConfig::default()),
            Self::NeuralUcb(NeuralUcb::default()),
            Self::NeuralTs(NeuralUcb::default()),
            Self::FnUcb(FnUcb::default()),
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
            Self::ExchangeLinUcb(_) => ExchangeLinUcb::NAME,
            Self::ExchangeLinTs(_) => ExchangeLinTs::NAME,
            Self::ExchangeLinIgw(_) => ExchangeLinIgw::NAME,
            Self::AsyncLinUcbAm(_) => "async-lin-ucb-am",
            Self::FedGlbUcb(_) => "fed-glb-ucb",
            Self::FedGlbUcb1(_) => "fed-glb-ucb-1",
            Self::FedGlbUcb2(_) => "fed-glb-ucb-2",
            Self::FedGlbUcb3(_) => "fed-glb-ucb-3",
            Self::OneUcbGlm(_) => "one-ucb-glm",
            Self::NUcbGlm(_) => "n-ucb-glm",
            Self::NOnsGlm(_) => "n-ons-glm",
            Self::Fclub(_) => "fclub",
            Self::FclubDc(_) => "fclub-dc",
            Self::CdpFclubDc(_) => "cdp-fclub-dc",
            Self::Homo(_) => "homo",
            Self::HomoDc(_) => "homo-dc",
            Self::Club(_) => "club",
            Self::Sclub(_) => "sclub",
            Self::UserLinUcb(_) => "user-lin-ucb",
            Self::LinTs(_) => "lin-ts",
            Self::KernelUcb(_) => "kernel-ucb",
            Self::KernelTs(_) => "kernel-ts",
            Self::NeuralUcb(_) => "neural-ucb",
            Self::NeuralTs(_) => "neural-ts",
            Self::FnUcb(_) => "fn-ucb",
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
            Self::ExchangeLinUcb(_) => {
                "agents push and pull when silence costs more, upper confidence bounds"
            }
            Self::ExchangeLinTs(_) => "agents push and pull when silence costs more, Thompson sampling",
            Self::ExchangeLinIgw(_) => "agents push and pull when silence costs more, inverse-gap weighting",
            Self::AsyncLinUcbAm(_) => "shared and private features, alternating minimisation",
            Self::FedGlbUcb(_) => "rounds of minimisation when due, online Newton steps between",
            Self::FedGlbUcb1(_) => "scheduled rounds of minimisation, nothing between",
            Self::FedGlbUcb2(_) => "scheduled rounds of minimisation, online Newton steps between",
            Self::FedGlbUcb3(_) => "scheduled rounds of one online step, and steps between",
            Self::OneUcbGlm(_) => "one learner sees all raw data, generalized linear: the reference",
            Self::NUcbGlm(_) => "every agent learns alone, maximum likelihood",
            Self::NOnsGlm(_) => "every agent learns alone, online Newton steps",
            Self::Fclub(_) => "users in clusters, clusters in groups, every interaction shared",
            Self::FclubDc(_) => "users in clusters, clusters in groups, evidence shared when it grew enough",
            Self::CdpFclubDc(_) => "the same, with differential privacy of what leaves an agent",
            Self::Homo(_) => "everybody believed to be alike, every interaction shared",
            Self::HomoDc(_) => "everybody believed to be alike, evidence shared when it grew enough",
            Self::Club(_) => "users in clusters, each agent for itself",
            Self::Sclub(_) => "users in clusters that split and merge, each agent for itself",
            Self::UserLinUcb(_) => "a learner for each user",
            Self::LinTs(_) => "every agent learns alone, Thompson sampling",
            Self::KernelUcb(_) => "every agent learns alone by likeness of arms, upper confidence bounds",
            Self::KernelTs(_) => "every agent learns alone by likeness of arms, Thompson sampling",
            Self::NeuralUcb(_) => "every agent trains a network alone, upper confidence bounds",
            Self::NeuralTs(_) => "every agent trains a network alone, Thompson sampling",
            Self::FnUcb(_) => "rounds that share gradients' statistics and average networks",
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
            Self::ExchangeLinUcb(config) => config.check(),
            Self::ExchangeLinTs(config) => config.check(),
            Self::ExchangeLinIgw(config) => config.check(),
            Self::AsyncLinUcbAm(config) => config.check(),
            Self::FedGlbUcb(config) => config.check(),
            Self::FedGlbUcb1(config) | Self::FedGlbUcb2(config) => config.check(),
            Self::FedGlbUcb3(config) => config.check(),
            Self::OneUcbGlm(config) | Self::NUcbGlm(config) => config.check(),
            Self::NOnsGlm(config) => config.check(),
            Self::Fclub(config) => config.plan().check(),
            Self::FclubDc(config) => config.plan().check(),
            Self::CdpFclubDc(config) => config.plan().check(),
            Self::Homo(config) => config.plan().check(),
            Self::HomoDc(config) => config.plan().check(),
            Self::Club(config) => config.check(),
            Self::Sclub(config) => config.check(),
            Self::UserLinUcb(config) => config.check(),
            Self::LinTs(config) => config.check(),
            Self::KernelUcb(config) | Self::KernelTs(config) => config.check(),
            Self::NeuralUcb(config) | Self::NeuralTs(config) => config.check(shape.dimension()),
            Self::FnUcb(config) => config.check(shape.dimension()),
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
            Self::AsyncLinUcb(config) => match config.private() {
                Some(plan) => Box::new(ClusteredAgent::new(&plan, id, dimension, federation)),
                None => Box::new(config.agent(id, dimension)),
            },
            Self::AsyncLinTs(config) => Box::new(config.agent(id, dimension, federation.seed)),
            Self::AsyncLinPhe(config) => Box::new(config.agent(id, dimension, federation.seed)),
            Self::SyncLinUcb(config) => Box::new(config.agent(dimension)),
            Self::FedLinUcb(config) => Box::new(config.agent(dimension, federation)),
            Self::ExchangeLinUcb(config) => Box::new(config.agent(dimension)),
            Self::ExchangeLinTs(config) => Box::new(config.agent(id, dimension, federation.seed)),
            Self::ExchangeLinIgw(config) => Box::new(config.agent(id, dimension, federation.seed)),
            Self::AsyncLinUcbAm(config) => Box::new(config.agent(id, shape)),
            Self::FedGlbUcb(config) => Box::new(config.agent(dimension, federation)),
            Self::FedGlbUcb1(config) => Box::new(config.agent(self.name(), false, id, dimension, federation)),
            Self::FedGlbUcb2(config) => Box::new(config.agent(self.name(), true, id, dimension, federation)),
            Self::FedGlbUcb3(config) => Box::new(config.agent(id, dimension, federation)),
            Self::OneUcbGlm(config) => Box::new(config.agent(self.name(), dimension, federation.horizon)),
            Self::NUcbGlm(config) => {
                let horizon = federation.horizon / federation.agents.max(1);
                Box::new(config.agent(self.name(), dimension, horizon))
            }
            Self::NOnsGlm(config) => Box::new(config.agent(dimension)),
            Self::Fclub(config) => Box::new(ClusteredAgent::new(&config.plan(), id, dimension, federation)),
            Self::FclubDc(config) => Box::new(ClusteredAgent::new(&config.plan(), id, dimension, federation)),
            Self::CdpFclubDc(config) => {
                Box::new(ClusteredAgent::new(&config.plan(), id, dimension, federation))
            }
            Self::Homo(config) => Box::new(ClusteredAgent::new(&config.plan(), id, dimension, federation)),
            Self::HomoDc(config) => Box::new(ClusteredAgent::new(&config.plan(), id, dimension, federation)),
            Self::Club(config) => Box::new(config.agent(dimension)),
            Self::Sclub(config) => Box::new(config.agent(dimension)),
            Self::UserLinUcb(config) => Box::new(config.agent(dimension)),
            Self::LinTs(config) => Box::new(config.agent(id, dimension, federation.seed)),
            Self::KernelUcb(config) => Box::new(config.ucb(dimension)),
            Self::KernelTs(config) => Box::new(config.ts(id, federation.seed, dimension)),
            Self::NeuralUcb(config) => {
                Box::new(config.agent(self.name(), false, id, dimension, federation.seed))
            }
            Self::NeuralTs(config) => {
                Box::new(config.agent(self.name(), true, id, dimension, federation.seed))
            }
            Self::FnUcb(config) if config.is_pooled() => Box::new(config.pooled(dimension, federation)),
            Self::FnUcb(config) => Box::new(config.agent(dimension, federation)),
        })
    }

    /// A new coordinator for agents whose arms have this `shape`; only the shared part need be the same
    /// for all of them.
    pub fn coordinator(&self, shape: Shape) -> Result<Box<dyn Coordinator>, ConfigError> {
        self.check(shape)?;
        let dimension = shape.dimension();
        let name = self.name();
        Ok(match self {
            Self::LinUcb(_)
            | Self::CentralLinUcb(_)
            | Self::OneUcbGlm(_)
            | Self::NUcbGlm(_)
            | Self::NOnsGlm(_)
            | Self::Club(_)
            | Self::Sclub(_)
            | Self::UserLinUcb(_)
            | Self::LinTs(_)
            | Self::KernelUcb(_)
            | Self::KernelTs(_)
            | Self::NeuralUcb(_)
            | Self::NeuralTs(_) => Box::new(Silent::new(name)),
            Self::FnUcb(config) if config.is_pooled() => Box::new(Silent::new(name)),
            Self::FnUcb(config) => Box::new(config.coordinator(dimension)),
            Self::AsyncLinUcb(config) => match config.private() {
                Some(plan) => Box::new(Groups::new(&plan, dimension)),
                None => Box::new(config.protocol.coordinator(name, &config.model, dimension)),
            },
            Self::AsyncLinTs(config) => Box::new(config.protocol.coordinator(name, &config.model, dimension)),
            Self::AsyncLinPhe(config) => {
                Box::new(config.protocol.coordinator(name, &config.model, dimension))
            }
            Self::SyncLinUcb(config) => Box::new(config.coordinator(dimension)),
            Self::FedLinUcb(config) => Box::new(config.coordinator(dimension)),
            Self::ExchangeLinUcb(config) => Box::new(config.coordinator(dimension)),
            Self::ExchangeLinTs(config) => Box::new(config.coordinator(dimension)),
            Self::ExchangeLinIgw(config) => Box::new(config.coordinator(dimension)),
            Self::AsyncLinUcbAm(config) => Box::new(config.coordinator(shape)),
            Self::FedGlbUcb(config) => Box::new(config.coordinator(dimension)),
            Self::FedGlbUcb1(config) | Self::FedGlbUcb2(config) => {
                Box::new(config.coordinator(name, dimension))
            }
            Self::FedGlbUcb3(config) => Box::new(config.coordinator(dimension)),
            Self::Fclub(config) => Box::new(Groups::new(&config.plan(), dimension)),
            Self::FclubDc(config) => Box::new(Groups::new(&config.plan(), dimension)),
            Self::CdpFclubDc(config) => Box::new(Groups::new(&config.plan(), dimension)),
            Self::Homo(config) => Box::new(Groups::new(&config.plan(), dimension)),
            Self::HomoDc(config) => Box::new(Groups::new(&config.plan(), dimension)),
        })
    }

    /// When agents become known to the coordinator.
    #[must_use]
    pub const fn join_policy(&self) -> JoinPolicy {
        match self {
            Self::LinUcb(_)
            | Self::CentralLinUcb(_)
            | Self::FedLinUcb(_)
            | Self::OneUcbGlm(_)
            | Self::NUcbGlm(_)
            | Self::NOnsGlm(_)
            | Self::Club(_)
            | Self::Sclub(_)
            | Self::UserLinUcb(_)
            | Self::LinTs(_)
            | Self::KernelUcb(_)
            | Self::KernelTs(_)
            | Self::NeuralUcb(_)
            | Self::NeuralTs(_) => JoinPolicy::Lazy,
            // Users are with their agents before the first of them is served.
            Self::Fclub(_) | Self::FclubDc(_) | Self::CdpFclubDc(_) | Self::Homo(_) | Self::HomoDc(_) => {
                JoinPolicy::Eager
            }
            Self::ExchangeLinUcb(_) | Self::ExchangeLinTs(_) | Self::ExchangeLinIgw(_) => {
                JoinPolicy::PullOnJoin
            }
            Self::FedGlbUcb(config) => config.rounds.join,
            Self::FedGlbUcb1(config) | Self::FedGlbUcb2(config) => config.rounds.join,
            Self::FedGlbUcb3(config) => config.rounds.join,
            Self::FnUcb(config) if config.is_pooled() => JoinPolicy::Lazy,
            Self::FnUcb(config) => config.rounds.join,
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
            Self::CentralLinUcb(_) | Self::OneUcbGlm(_) => Placement::Central,
            Self::FnUcb(config) if config.is_pooled() => Placement::Central,
            _ => Placement::PerAgent,
        }
    }

    /// The link between features and rewards, for algorithms that have one: it says which rewards they
    /// take.
    #[must_use]
    pub const fn link(&self) -> Option<Link> {
        match self {
            Self::FedGlbUcb(config) => Some(config.model.link),
            Self::FedGlbUcb1(config) | Self::FedGlbUcb2(config) => Some(config.model.link),
            Self::FedGlbUcb3(config) => Some(config.model.link),
            Self::OneUcbGlm(config) | Self::NUcbGlm(config) => Some(config.model.link),
            Self::NOnsGlm(config) => Some(config.model.link),
            _ => None,
        }
    }

    /// Whether agents may have private features of different number.
    #[must_use]
    pub const fn takes_local_features(&self) -> bool {
        matches!(
            self,
            Self::LinUcb(_)
                | Self::LinTs(_)
                | Self::KernelUcb(_)
                | Self::KernelTs(_)
                | Self::AsyncLinUcbAm(AsyncLinUcbAm { duplicated: false, .. })
        )
    }
}
