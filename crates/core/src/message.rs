//! What agents and the coordinator say to each other: two closed enums of plain data, named by what the
//! numbers are and shared by all algorithms.

use std::sync::Arc;

pub use crate::clustered::message::{ClusterList, ClusterUpload, GroupSnapshot};
use crate::evidence::Evidence;
use crate::ids::{AgentId, ClusterId, PhaseId, RoundId, Version};
use crate::parcel::Parcel;

/// From an agent to the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub enum Uplink {
    /// What the agent has learned since its last upload.
    Evidence(EvidenceUpload),
    /// Please start a round.
    RoundRequest,
    /// The agent's part of a round.
    RoundEvidence {
        /// The round it answers.
        round: RoundId,
        /// What the agent learned since the last round that included it.
        evidence: Parcel,
    },
    /// Everything that one cluster of users has contributed.
    Cluster(ClusterUpload),
    /// All clusters of the agent.
    Clusters(ClusterList),
}

/// What an agent has learned since its last upload.
#[derive(Clone, Debug, PartialEq)]
pub struct EvidenceUpload {
    /// 1 for the first upload of an agent's life, then 2, 3 …
    pub number: u64,
    /// The newest state of the coordinator in the agent's view.
    pub based_on: Version,
    /// [Information](crate::Ridge) of the agent's view, this upload included.
    pub information: f64,
    /// The evidence.
    pub evidence: Parcel,
}

/// From the coordinator to an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Downlink {
    /// All the coordinator knows.
    Snapshot(Snapshot),
    /// An upload was added.
    Receipt {
        /// Which upload of the receiving agent.
        number: u64,
        /// The version the agent is now at, if the upload found it up to date.
        version: Option<Version>,
    },
    /// Send what you have: a round has begun.
    Collect {
        /// The round to answer.
        round: RoundId,
    },
    /// A round is over: this is the result.
    Commit {
        /// The round that is over.
        round: RoundId,
        /// Whether the receiving agent's part is in it; if not, it joins a later round.
        included: bool,
        /// The coordinator's state after the round.
        version: Version,
        /// All the coordinator knows.
        evidence: Arc<Evidence>,
    },
    /// All that a group of clusters knows, for one of them.
    Group(GroupSnapshot),
    /// An upload of a cluster was taken in.
    ClusterReceipt {
        /// Which cluster of the receiving agent.
        cluster: ClusterId,
        /// Which of its uploads.
        number: u64,
        /// The version the cluster is now at, if the upload found it up to date.
        version: Option<Version>,
    },
    /// A phase begins: look at your clusters again and say which you have.
    Regroup {
        /// The phase to answer.
        phase: PhaseId,
        /// The coordinator lost part of its history: say everything again.
        anew: bool,
    },
}

/// All the coordinator knows: absolute, so that it replaces what an agent had, and a repetition changes
/// nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The coordinator lost part of its history: this replaces what the agent believes, older or not.
    pub authoritative: bool,
    /// The coordinator's state.
    pub version: Version,
    /// How many uploads of the receiving agent are in it; from a coordinator of rounds, the newest round
    /// with its part.
    pub contains: u64,
    /// [Information](crate::Ridge) of the evidence.
    pub information: f64,
    /// The evidence, shared by all recipients of a version.
    pub evidence: Arc<Evidence>,
}

/// A message on its way from the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// Who receives it.
    pub to: Recipient,
    /// What they receive.
    pub message: Downlink,
}

/// Who receives a message. A broadcast costs a message per recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// One agent.
    Agent(AgentId),
    /// Every agent that has joined.
    Everyone,
    /// Every agent that has joined, but one.
    EveryoneBut(AgentId),
}

impl Outgoing {
    /// A message to one agent.
    #[must_use]
    pub const fn to(agent: AgentId, message: Downlink) -> Self {
        Self { to: Recipient::Agent(agent), message }
    }

    /// A message to all that have joined.
    #[must_use]
    pub const fn to_everyone(message: Downlink) -> Self {
        Self { to: Recipient::Everyone, message }
    }
}

impl Recipient {
    /// Whether `agent`, which has joined, is among the recipients.
    #[must_use]
    pub fn includes(self, agent: AgentId) -> bool {
        match self {
            Self::Agent(one) => one == agent,
            Self::Everyone => true,
            Self::EveryoneBut(one) => one != agent,
        }
    }
}

impl Uplink {
    /// The kind of message, in words.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Evidence(_) => "evidence",
            Self::RoundRequest => "round request",
            Self::RoundEvidence { .. } => "round evidence",
            Self::Cluster(_) => "cluster",
            Self::Clusters(_) => "clusters",
        }
    }
}

impl Downlink {
    /// The kind of message, in words.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Snapshot(_) => "snapshot",
            Self::Receipt { .. } => "receipt",
            Self::Collect { .. } => "collect",
            Self::Commit { .. } => "commit",
            Self::Group(_) => "group",
            Self::ClusterReceipt { .. } => "cluster receipt",
            Self::Regroup { .. } => "regroup",
        }
    }

    /// Whether a newer message makes it pointless to deliver this one.
    #[must_use]
    pub fn is_superseded_by(&self, newer: &Self) -> bool {
        match (self, newer) {
            // What an authoritative snapshot takes back, an ordinary one does not.
            (Self::Snapshot(old), Self::Snapshot(new)) => new.authoritative || !old.authoritative,
            (Self::Group(old), Self::Group(new)) => old.cluster == new.cluster,
            _ => false,
        }
    }
}
