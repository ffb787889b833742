//! What agents and the coordinator say about clusters of users.

use crate::evidence::Evidence;
use crate::ids::{ClusterId, PhaseId, Version};
use crate::message::Snapshot;

/// Everything that a cluster of users has contributed so far. Absolute: it replaces what was said before.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterUpload {
    /// The agent's own number for the cluster; another one whenever its users change.
    pub cluster: ClusterId,
    /// 1 for the first upload of a cluster, then 2, 3 …
    pub number: u64,
    /// The newest state of its group in the agent's view.
    pub based_on: Version,
    /// [Information](crate::Ridge) of the agent's view, this upload included; 0 in private federations.
    pub information: f64,
    /// The sums over all observations of the cluster's users.
    pub evidence: Evidence,
    /// The sums carry noise: they need not be those of any observations.
    pub released: bool,
    /// The variance of that noise in every number off the diagonal; on it, twice that. 0 where sums are exact.
    pub variance: f64,
    /// Over how many agents the sums are: 1, but of a relay.
    pub members: u64,
}

/// All clusters of an agent: its answer to a regrouping.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterList {
    /// The number of the phase that this answers.
    pub phase: PhaseId,
    /// Clusters of which the coordinator already has everything.
    pub kept: Vec<ClusterId>,
    /// Clusters with news, and new ones.
    pub uploads: Vec<ClusterUpload>,
}

/// All that a group of clusters knows, for one of them.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSnapshot {
    /// The cluster of the receiving agent.
    pub cluster: ClusterId,
    /// How many clusters of the group have contributed.
    pub members: u64,
    /// What they contributed; `contains` counts uploads of the cluster.
    pub snapshot: Snapshot,
    /// The variance of the noise in those sums; 0 where they are exact.
    pub variance: f64,
}
