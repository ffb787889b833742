//! Recipes of the generalized linear family.

use crate::agent::{Agent, Shape};
use crate::algorithm::Algorithm;
use crate::clustered::config::ClusterPlan;
use crate::clustered::fclub::ClusteredAgent;
use crate::clustered::groups::Groups;
use crate::clustered::release_relay::ReleaseRelay;
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::exchange::JoinPolicy;
use crate::federation::{Federation, Placement};
use crate::glm::{FedGlbUcb, FedGlbUcb3, LinkFunction, OnsGlm, PrivateGlmUcb, ScheduledGlbUcb, UcbGlm};
use crate::ids::AgentId;
use crate::privacy::PrivacyConfig;
use crate::recipe::{Recipe, Sharing};
use crate::relay::{LinkThresholds, Relay, Relaying, UpperLink};
use crate::trigger::Threshold;
use crate::width::ModelConfig;

impl Recipe for FedGlbUcb {
    fn name(&self) -> &'static str {
        "fed-glb-ucb"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        20.0
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
        Sharing::MinimisedRounds
    }

    fn join_policy(&self) -> JoinPolicy {
        self.rounds.join
    }

    fn link_function(&self) -> Option<LinkFunction> {
        Some(self.model.link)
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::ByRounds
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        Some(Box::new(self.relay(shape.dimension(), above)))
    }
}

/// Rounds on a schedule, with nothing between them.
#[derive(Debug)]
pub(super) struct Scheduled1<'c>(pub(super) &'c ScheduledGlbUcb);

impl Recipe for Scheduled1<'_> {
    fn name(&self) -> &'static str {
        "fed-glb-ucb-1"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        20.0
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.0.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.0.agent(self.name(), false, shape.dimension(), federation))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(self.0.coordinator(self.name(), shape.dimension()))
    }

    fn sharing(&self) -> Sharing {
        Sharing::MinimisedRounds
    }

    fn join_policy(&self) -> JoinPolicy {
        self.0.rounds.join
    }

    fn link_function(&self) -> Option<LinkFunction> {
        Some(self.0.model.link)
    }

    fn chooses_with_unsent(&self) -> bool {
        false
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::ByRounds
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        Some(Box::new(self.0.relay(self.name(), shape.dimension(), above)))
    }
}

/// Rounds on a schedule, with online Newton steps between them.
#[derive(Debug)]
pub(super) struct Scheduled2<'c>(pub(super) &'c ScheduledGlbUcb);

impl Recipe for Scheduled2<'_> {
    fn name(&self) -> &'static str {
        "fed-glb-ucb-2"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        20.0
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.0.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.0.agent(self.name(), true, shape.dimension(), federation))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(self.0.coordinator(self.name(), shape.dimension()))
    }

    fn sharing(&self) -> Sharing {
        Sharing::MinimisedRounds
    }

    fn join_policy(&self) -> JoinPolicy {
        self.0.rounds.join
    }

    fn link_function(&self) -> Option<LinkFunction> {
        Some(self.0.model.link)
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::ByRounds
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        Some(Box::new(self.0.relay(self.name(), shape.dimension(), above)))
    }
}

impl Recipe for FedGlbUcb3 {
    fn name(&self) -> &'static str {
        "fed-glb-ucb-3"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        20.0
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
        Sharing::OnlineRounds
    }

    fn join_policy(&self) -> JoinPolicy {
        self.rounds.join
    }

    fn link_function(&self) -> Option<LinkFunction> {
        Some(self.model.link)
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::ByRounds
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        Some(Box::new(self.relay(shape.dimension(), above)))
    }
}

/// One learner that sees all raw data.
#[derive(Debug)]
pub(super) struct OneUcbGlm<'c>(pub(super) &'c UcbGlm);

impl Recipe for OneUcbGlm<'_> {
    fn name(&self) -> &'static str {
        "one-ucb-glm"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        20.0
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.0.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.0.agent(self.name(), shape.dimension(), federation.horizon))
    }

    fn placement(&self) -> Placement {
        Placement::Central
    }

    fn link_function(&self) -> Option<LinkFunction> {
        Some(self.0.model.link)
    }
}

/// UCB-GLM with a learner for each agent.
#[derive(Debug)]
pub(super) struct NUcbGlm<'c>(pub(super) &'c UcbGlm);

impl Recipe for NUcbGlm<'_> {
    fn name(&self) -> &'static str {
        "n-ucb-glm"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        20.0
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.0.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        let horizon = federation.horizon / federation.agents.max(1);
        Box::new(self.0.agent(self.name(), shape.dimension(), horizon))
    }

    fn link_function(&self) -> Option<LinkFunction> {
        Some(self.0.model.link)
    }
}

impl Recipe for OnsGlm {
    fn name(&self) -> &'static str {
        "n-ons-glm"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        20.0
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, _federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(shape.dimension()))
    }

    fn link_function(&self) -> Option<LinkFunction> {
        Some(self.model.link)
    }
}

/// A private generalized linear algorithm, with its model and its promise in terms of what rewards count as.
#[derive(Debug)]
pub(super) struct PrivateGlm<'c> {
    settings: &'c PrivateGlmUcb,
    model: ModelConfig,
    privacy: PrivacyConfig,
}

impl<'c> PrivateGlm<'c> {
    pub(super) fn new(settings: &'c PrivateGlmUcb) -> Self {
        let (model, privacy) = settings.made();
        Self { settings, model, privacy }
    }

    fn plan(&self) -> ClusterPlan<'_> {
        let download = self.settings.download_threshold;
        let plan = ClusterPlan::of_one_group(self.name(), &self.model, download, &self.privacy);
        ClusterPlan { response: self.settings.response(), ..plan }
    }
}

impl Recipe for PrivateGlm<'_> {
    fn name(&self) -> &'static str {
        "private-glm-ucb"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.settings.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(ClusteredAgent::new(&self.plan(), id, shape.dimension(), federation))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        Box::new(Groups::new(&self.plan(), shape.dimension()))
    }

    fn sharing(&self) -> Sharing {
        Sharing::Clusters
    }

    fn chooses_with_unsent(&self) -> bool {
        self.privacy.raw_buffer
    }

    fn link_function(&self) -> Option<LinkFunction> {
        Some(self.settings.link)
    }

    fn privacy(&self) -> Option<&PrivacyConfig> {
        Some(&self.privacy)
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        // Agents release by the number of their observations, and relays pass on what is released.
        let upload = Threshold(1.0);
        Relaying::ByThresholds(LinkThresholds { upload, download: self.settings.download_threshold })
    }

    fn on_level(&self, thresholds: LinkThresholds, _agents: bool) -> Option<Algorithm> {
        let download_threshold = thresholds.download;
        Some(Algorithm::PrivateGlmUcb(PrivateGlmUcb { download_threshold, ..self.settings.clone() }))
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        Some(Box::new(ReleaseRelay::new(&self.plan(), shape.dimension(), above)))
    }
}
