//! Recipes of the linear family.

use crate::agent::{Agent, Shape};
use crate::algorithm::Algorithm;
use crate::clustered::config::ClusterPlan;
use crate::clustered::fclub::ClusteredAgent;
use crate::clustered::groups::Groups;
use crate::clustered::release_relay::ReleaseRelay;
use crate::clustered::secure_agent::{SecureAgent, SecurePlan};
use crate::clustered::secure_rounds::SecureRounds;
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::evidence::packed;
use crate::exchange::JoinPolicy;
use crate::federation::{Federation, Placement};
use crate::ids::AgentId;
use crate::linear::{
    AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, FedLinUcb, FedUcb, LinTs, LinUcb, Robust, SyncLinUcb,
};
use crate::privacy::{MOST_PARTICIPANTS, PrivacyConfig, SecureAggregation};
use crate::recipe::{Payload, Recipe, Sharing};
use crate::relay::{LinkThresholds, Relay, Relaying, UpperLink};
use crate::trigger::Threshold;

/// Why secure aggregation has no relays.
const MASKED: &str = "masks of secure aggregation cancel only in one sum over all agents, and a relay sums over its own: leave out \
     secure_aggregation or relays";

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

/// Settings of a linear algorithm that may promise privacy: its plan if it does.
///
/// Private agents are those with clusters, of which each has one here, and their coordinator is that of one group.
trait MayBePrivate: Recipe {
    /// The promise and what is done to keep it, if there is one.
    fn private_plan(&self) -> Option<ClusterPlan<'_>>;

    /// The agent that keeps the promise, if there is one.
    fn private_agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Option<Box<dyn Agent>> {
        let plan = self.private_plan()?;
        Some(Box::new(ClusteredAgent::new(&plan, id, shape.dimension(), federation)))
    }

    fn private_coordinator(&self, shape: Shape) -> Option<Box<dyn Coordinator>> {
        let plan = self.private_plan()?;
        Some(Box::new(Groups::new(&plan, shape.dimension())))
    }

    /// The relay of releases, if there is a promise.
    fn private_relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        let plan = self.private_plan()?;
        Some(Box::new(ReleaseRelay::new(&plan, shape.dimension(), above)))
    }

    fn private_sharing(&self) -> Option<Sharing> {
        self.private_plan().map(|_| Sharing::Clusters)
    }

    /// Private agents choose with what was released, unless they are told to look at raw observations.
    fn private_choice(&self) -> Option<bool> {
        Some(self.privacy()?.raw_buffer)
    }
}

impl MayBePrivate for AsyncLinUcb {
    fn private_plan(&self) -> Option<ClusterPlan<'_>> {
        let download = self.protocol.download_threshold;
        Some(ClusterPlan::of_one_group(self.name(), &self.model, download, self.privacy.as_ref()?))
    }
}

impl MayBePrivate for AsyncLinTs {
    fn private_plan(&self) -> Option<ClusterPlan<'_>> {
        let download = self.protocol.download_threshold;
        let plan = ClusterPlan::of_one_group(self.name(), &self.model, download, self.privacy.as_ref()?);
        Some(ClusterPlan { sampling: Some(self.sampling_scale), ..plan })
    }
}

// An agent hears of others when it uploads, and at no other time.
impl MayBePrivate for FedLinUcb {
    fn private_plan(&self) -> Option<ClusterPlan<'_>> {
        Some(ClusterPlan::of_one_group(self.name(), &self.model, Threshold::NEVER, self.privacy.as_ref()?))
    }
}

impl MayBePrivate for SyncLinUcb {
    fn private_plan(&self) -> Option<ClusterPlan<'_>> {
        let plan =
            ClusterPlan::of_one_group(self.name(), &self.model, Threshold::NEVER, self.privacy.as_ref()?);
        Some(ClusterPlan { rounds: Some(self.round_deadline), ..plan })
    }
}

/// FedUCB with the promise that its settings make.
#[derive(Debug)]
pub(super) struct PrivateRounds<'c> {
    settings: &'c FedUcb,
    privacy: PrivacyConfig,
}

impl<'c> PrivateRounds<'c> {
    pub(super) fn new(settings: &'c FedUcb) -> Self {
        Self { settings, privacy: settings.privacy() }
    }

    fn plan(&self) -> ClusterPlan<'_> {
        let (model, privacy) = (&self.settings.model, &self.privacy);
        let plan = ClusterPlan::of_one_group(self.name(), model, Threshold::NEVER, privacy);
        ClusterPlan { rounds: Some(self.settings.round_deadline), ..plan }
    }
}

impl Recipe for PrivateRounds<'_> {
    fn name(&self) -> &'static str {
        "fed-ucb"
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

    fn privacy(&self) -> Option<&PrivacyConfig> {
        Some(&self.privacy)
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::ByRounds
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        Some(Box::new(ReleaseRelay::new(&self.plan(), shape.dimension(), above)))
    }
}

impl Recipe for AsyncLinUcb {
    fn name(&self) -> &'static str {
        "async-lin-ucb"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        self.private_agent(id, shape, federation)
            .unwrap_or_else(|| Box::new(self.agent(id, shape.dimension())))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        self.private_coordinator(shape).unwrap_or_else(|| {
            Box::new(self.protocol.coordinator(self.name(), &self.model, shape.dimension()))
        })
    }

    fn sharing(&self) -> Sharing {
        self.private_sharing().unwrap_or(Sharing::Uploads)
    }

    fn join_policy(&self) -> JoinPolicy {
        self.protocol.join
    }

    fn chooses_with_unsent(&self) -> bool {
        self.private_choice().unwrap_or(true)
    }

    fn privacy(&self) -> Option<&PrivacyConfig> {
        self.privacy.as_ref()
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::ByThresholds(self.protocol.thresholds())
    }

    fn on_level(&self, thresholds: LinkThresholds, agents: bool) -> Option<Algorithm> {
        let protocol = self.protocol.on_level(thresholds, agents);
        Some(Algorithm::AsyncLinUcb(Self { protocol, ..self.clone() }))
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        if let Some(relay) = self.private_relay(shape, above) {
            return Some(relay);
        }
        let dimension = shape.dimension();
        Some(Box::new(self.protocol.relay(self.name(), &self.model, dimension, above.thresholds?)))
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
        self.private_agent(id, shape, federation)
            .unwrap_or_else(|| Box::new(self.agent(id, shape.dimension(), federation.seed)))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        self.private_coordinator(shape).unwrap_or_else(|| {
            Box::new(self.protocol.coordinator(self.name(), &self.model, shape.dimension()))
        })
    }

    fn sharing(&self) -> Sharing {
        self.private_sharing().unwrap_or(Sharing::Uploads)
    }

    fn join_policy(&self) -> JoinPolicy {
        self.protocol.join
    }

    fn chooses_with_unsent(&self) -> bool {
        self.private_choice().unwrap_or(true)
    }

    fn privacy(&self) -> Option<&PrivacyConfig> {
        self.privacy.as_ref()
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::ByThresholds(self.protocol.thresholds())
    }

    fn on_level(&self, thresholds: LinkThresholds, agents: bool) -> Option<Algorithm> {
        let protocol = self.protocol.on_level(thresholds, agents);
        Some(Algorithm::AsyncLinTs(Self { protocol, ..self.clone() }))
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        if let Some(relay) = self.private_relay(shape, above) {
            return Some(relay);
        }
        let dimension = shape.dimension();
        Some(Box::new(self.protocol.relay(self.name(), &self.model, dimension, above.thresholds?)))
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

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::ByThresholds(self.protocol.thresholds())
    }

    fn on_level(&self, thresholds: LinkThresholds, agents: bool) -> Option<Algorithm> {
        let protocol = self.protocol.on_level(thresholds, agents);
        Some(Algorithm::AsyncLinPhe(Self { protocol, ..self.clone() }))
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        let dimension = shape.dimension();
        Some(Box::new(self.protocol.relay(self.name(), &self.model, dimension, above.thresholds?)))
    }
}

impl SyncLinUcb {
    /// What agents and coordinator are made of under secure aggregation.
    fn secure_plan(&self) -> Option<SecurePlan<'_>> {
        let (privacy, secure) = (self.privacy.as_ref()?, self.secure_aggregation.as_ref()?);
        Some(SecurePlan { name: self.name(), model: &self.model, privacy, secure })
    }
}

impl Recipe for SyncLinUcb {
    fn name(&self) -> &'static str {
        "sync-lin-ucb"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        if let Some(plan) = self.secure_plan() {
            return Box::new(SecureAgent::new(&plan, id, shape.dimension(), federation));
        }
        self.private_agent(id, shape, federation).unwrap_or_else(|| Box::new(self.agent(shape.dimension())))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        if let Some(plan) = self.secure_plan() {
            return Box::new(SecureRounds::new(&plan, self.join, self.round_deadline, shape.dimension()));
        }
        self.private_coordinator(shape).unwrap_or_else(|| Box::new(self.coordinator(shape.dimension())))
    }

    fn root(&self, shape: Shape, levels: usize) -> Box<dyn Coordinator> {
        match self.robust {
            Robust::Off => Recipe::coordinator(self, shape),
            Robust::Trimmed => Box::new(self.root(shape.dimension(), levels)),
        }
    }

    fn sharing(&self) -> Sharing {
        if self.secure_aggregation.is_some() {
            return Sharing::Rounds;
        }
        self.private_sharing().unwrap_or(Sharing::Rounds)
    }

    fn join_policy(&self) -> JoinPolicy {
        self.join
    }

    fn chooses_with_unsent(&self) -> bool {
        self.private_choice().unwrap_or(true)
    }

    fn privacy(&self) -> Option<&PrivacyConfig> {
        self.privacy.as_ref()
    }

    fn secure_aggregation(&self) -> Option<&SecureAggregation> {
        self.secure_aggregation.as_ref()
    }

    fn largest_upload(&self, dimension: u64) -> Payload {
        let sums = Payload::sums(dimension);
        if self.secure_aggregation.is_none() {
            return sums;
        }
        // Sums under masks have numbers of sixteen bytes, and a box for each participant has less than 25 numbers of eight.
        let masked = (packed(dimension as usize) as u64).saturating_mul(2);
        Payload { matrix: masked.max(25 * MOST_PARTICIPANTS), ..sums }
    }

    fn largest_relayed(&self, dimension: u64) -> Payload {
        match self.robust {
            Robust::Off => self.largest_upload(dimension),
            Robust::Trimmed => Payload { parts: self.agents_per_relay, ..Payload::sums(dimension) },
        }
    }

    fn relaying(&self, _federation: &Federation) -> Relaying {
        match self.robust {
            _ if self.secure_aggregation.is_some() => Relaying::No(MASKED),
            Robust::Off => Relaying::ByRounds,
            Robust::Trimmed => Relaying::ByParts,
        }
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        let private = self.private_relay(shape, above);
        private.or_else(|| Some(Box::new(self.relay(shape.dimension(), above))))
    }
}

impl Recipe for FedLinUcb {
    fn name(&self) -> &'static str {
        "fed-lin-ucb"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        self.private_agent(id, shape, federation)
            .unwrap_or_else(|| Box::new(self.agent(shape.dimension(), federation)))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        self.private_coordinator(shape).unwrap_or_else(|| Box::new(self.coordinator(shape.dimension())))
    }

    fn sharing(&self) -> Sharing {
        self.private_sharing().unwrap_or(Sharing::Uploads)
    }

    fn chooses_with_unsent(&self) -> bool {
        self.private_choice().unwrap_or(false)
    }

    fn privacy(&self) -> Option<&PrivacyConfig> {
        self.privacy.as_ref()
    }

    fn relaying(&self, federation: &Federation) -> Relaying {
        let upload = self.threshold(federation);
        Relaying::ByThresholds(LinkThresholds { upload, download: Threshold::NEVER })
    }

    fn on_level(&self, thresholds: LinkThresholds, _agents: bool) -> Option<Algorithm> {
        Some(Algorithm::FedLinUcb(Self { upload_threshold: Some(thresholds.upload), ..self.clone() }))
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        let private = self.private_relay(shape, above);
        private.or_else(|| Some(Box::new(self.relay(shape.dimension(), above.thresholds?))))
    }
}

impl Recipe for AsyncLinUcbAm {
    fn name(&self) -> &'static str {
        "async-lin-ucb-am"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        4.0
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

    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::ByThresholds(self.protocol.thresholds())
    }

    fn on_level(&self, thresholds: LinkThresholds, agents: bool) -> Option<Algorithm> {
        let protocol = self.protocol.on_level(thresholds, agents);
        Some(Algorithm::AsyncLinUcbAm(Self { protocol, ..self.clone() }))
    }

    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        let dimension = self.shared_dimension(shape);
        Some(Box::new(self.protocol.relay(self.name(), &self.model, dimension, above.thresholds?)))
    }
}
