//! Recipes of the clustered family.

use crate::agent::{Agent, Shape};
use crate::clustered::fclub::ClusteredAgent;
use crate::clustered::groups::Groups;
use crate::clustered::{CdpFclubDc, Club, Fclub, FclubDc, Homo, HomoDc, Sclub, UserLinUcb};
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::evidence::packed;
use crate::exchange::JoinPolicy;
use crate::federation::Federation;
use crate::ids::AgentId;
use crate::privacy::PrivacyConfig;
use crate::recipe::{Payload, Recipe, Sharing};

/// Clusters that one message may hold: an agent answers the beginning of a phase with all of them.
const CLUSTERS: u64 = 256;

/// What an agent says at the beginning of a phase: the sums of every cluster.
const fn sums_of_clusters(dimension: u64) -> Payload {
    Payload { parts: CLUSTERS, vector: dimension, matrix: packed(dimension as usize) as u64 }
}

impl Recipe for Fclub {
    fn name(&self) -> &'static str {
        "fclub"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        3.0
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.plan().check()
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

    // Users are with their agents before the first of them is served.
    fn join_policy(&self) -> JoinPolicy {
        JoinPolicy::Eager
    }

    fn largest_upload(&self, dimension: u64) -> Payload {
        sums_of_clusters(dimension)
    }
}

impl Recipe for FclubDc {
    fn name(&self) -> &'static str {
        "fclub-dc"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        3.0
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.plan().check()
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

    // Users are with their agents before the first of them is served.
    fn join_policy(&self) -> JoinPolicy {
        JoinPolicy::Eager
    }

    fn largest_upload(&self, dimension: u64) -> Payload {
        sums_of_clusters(dimension)
    }
}

impl Recipe for CdpFclubDc {
    fn name(&self) -> &'static str {
        "cdp-fclub-dc"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        3.0
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.plan().check()
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

    // Users are with their agents before the first of them is served.
    fn join_policy(&self) -> JoinPolicy {
        JoinPolicy::Eager
    }

    fn largest_upload(&self, dimension: u64) -> Payload {
        sums_of_clusters(dimension)
    }

    fn chooses_with_unsent(&self) -> bool {
        self.privacy.raw_buffer
    }

    fn privacy(&self) -> Option<&PrivacyConfig> {
        Some(&self.privacy)
    }
}

impl Recipe for Homo {
    fn name(&self) -> &'static str {
        "homo"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.plan().check()
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

    // Users are with their agents before the first of them is served.
    fn join_policy(&self) -> JoinPolicy {
        JoinPolicy::Eager
    }
}

impl Recipe for HomoDc {
    fn name(&self) -> &'static str {
        "homo-dc"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.plan().check()
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

    // Users are with their agents before the first of them is served.
    fn join_policy(&self) -> JoinPolicy {
        JoinPolicy::Eager
    }
}

impl Recipe for Club {
    fn name(&self) -> &'static str {
        "club"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        3.0
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, _federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(shape.dimension()))
    }
}

impl Recipe for Sclub {
    fn name(&self) -> &'static str {
        "sclub"
    }

    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        3.0
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, _federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(shape.dimension()))
    }
}

impl Recipe for UserLinUcb {
    fn name(&self) -> &'static str {
        "user-lin-ucb"
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, _federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.agent(shape.dimension()))
    }
}
