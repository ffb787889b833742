//! What agents and the coordinator say to each other: two closed enums of plain data, named by what the
//! numbers are and shared by all algorithms.

use std::sync::Arc;

pub use crate::clustered::message::{ClusterList, ClusterUpload, GroupSnapshot};
use crate::evidence::Evidence;
use crate::ids::{AgentId, AgentPath, ClusterId, PhaseId, RoundId, Version};
pub use crate::neural::{
    NetworkEvidence, NetworkModel, NetworkPart, NetworkState, NetworkSum, Weights, WidthSum,
};
use crate::parcel::Parcel;
pub use crate::privacy::{
    OpenedShare, PublicKeys, SealedShares, SecureDownlink, SecureOutcome, SecureUplink,
};
use crate::rounded::Rounded;

/// The messages that an agent sends to the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub enum Uplink {
    /// What the agent has learned since its last upload.
    Evidence(EvidenceUpload),
    /// A question before a choice: what is there to hear?
    Pull(Pull),
    /// Asks the coordinator to start a round, at once or when its schedule says so.
    RoundRequest {
        /// How many observations of the agent no model contains yet, where rounds follow a schedule and the
        /// coordinator counts them. Zero asks for a round at once.
        observations: u64,
    },
    /// The agent's part of a round.
    RoundEvidence {
        /// The number of the round that this answers.
        round: RoundId,
        /// What the agent learned since the last round that included it.
        evidence: Parcel,
    },
    /// From a relay: the parts of all agents below it, where the root holds agents against each other.
    RoundParts {
        /// The number of the round that this answers.
        round: RoundId,
        /// The parts in which there is something, in the order of their paths and one for each agent.
        parts: Vec<AgentPart>,
    },
    /// From a relay: observations that its parent counts on in a round are gone, because the agent that had them left or
    /// lost its data, or agents do not answer. The round cannot end as it was begun.
    RoundLoss {
        /// The newest round that the relay was asked for a part of.
        round: RoundId,
        /// Whether some of the observations are in the shared model, so that everything has to be collected anew.
        shared: bool,
    },
    /// The agent's part of a round of secure aggregation.
    Secure(SecureUplink),
    /// Everything that one cluster of users has contributed.
    Cluster(ClusterUpload),
    /// All clusters of the agent.
    Clusters(ClusterList),
    /// The slope of the agent's loss at a point.
    Gradient(Gradient),
    /// Asks the coordinator to start a round of networks.
    NetworkRequest {
        /// How many observations the agent has that no round has. In lockstep, every agent answers with as many.
        observations: u64,
    },
    /// The agent's part of a round of networks.
    NetworkPart(NetworkPart),
    /// The agent's network, trained on from an average.
    Weights(Weights),
    /// A message of an algorithm from outside of posse.
    Extension(Extension),
}

/// The part of one agent in the message of a relay.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentPart {
    /// Whose part it is, as the relay that sends it sees the agent.
    pub agent: AgentPath,
    /// What the agent learned since the last round that included it, as the agent sent it.
    pub evidence: Parcel,
}

/// A message of an algorithm from outside of posse, in bytes that only that algorithm understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The name of the algorithm.
    pub algorithm: String,
    /// The version of its messages.
    pub version: u64,
    /// How many numbers the bytes hold, as costs count them. A message without any counts as control.
    pub scalars: u64,
    /// The message itself, as the algorithm encodes it.
    pub bytes: Vec<u8>,
}

/// The slope of an agent's loss at a point, summed over its observations in a round.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// The round it belongs to.
    pub round: RoundId,
    /// Which request of the round it answers.
    pub step: u64,
    /// Σ x(μ(xᵀθ) − y), one number for each feature.
    pub gradient: Vec<f64>,
    /// Σ μ'(xᵀθ)xxᵀ, packed, if it was asked for.
    pub curvature: Option<Vec<f64>>,
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
    /// The sums over what the agent learned since its last upload.
    pub evidence: Parcel,
}

/// A question before a choice: what is there to hear?
#[derive(Clone, Debug, PartialEq)]
pub struct Pull {
    /// The newest state of the coordinator in the agent's view.
    pub based_on: Version,
    /// The loss that the agent expects from a choice, times the observations it knows: averaged over recent
    /// choices. Zero or more.
    pub doubt: f64,
    /// What the agent has learned since its last upload, if that is worth a message.
    pub upload: Option<EvidenceUpload>,
}

/// How much there is to hear, which rides on every [`Answer`].
#[derive(Clone, Debug, PartialEq)]
pub struct News {
    /// The version of the coordinator's state.
    pub version: Version,
    /// How many observations the coordinator's evidence is over.
    pub count: u64,
    /// [Information](crate::Ridge) of the coordinator's evidence.
    pub information: f64,
    /// How many agents have joined.
    pub agents: u64,
    /// How fast observations come in lately, a millisecond.
    pub rate: f64,
    /// The mean of what agents reported as [`Pull::doubt`]; 0 before the first report.
    pub doubt: f64,
    /// How many observations the coordinator has taken in and forgotten since, because they are too old.
    pub forgotten: u64,
}

impl News {
    /// How many observations the coordinator has ever taken in.
    pub(crate) const fn total(&self) -> u64 {
        self.count.saturating_add(self.forgotten)
    }
}

/// The answer to an upload or a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether it answers a [`Pull`].
    pub pulled: bool,
    /// The newest upload of the receiving agent in the coordinator's evidence.
    pub number: u64,
    /// The version the agent is now at, if it is up to date.
    pub version: Option<Version>,
    /// How much the agent does not know yet.
    pub news: News,
    /// All the coordinator knows, if the agent asked and is behind.
    pub snapshot: Option<Snapshot>,
    /// How the evidence of the snapshot travels, if not with all its bits. Unpacked, it is that evidence.
    pub rounded: Option<Arc<Rounded>>,
}

/// The messages that the coordinator sends to an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Downlink {
    /// All the coordinator knows, sent when the agent's view is too far behind.
    Snapshot(Snapshot),
    /// The answer to an upload or a question.
    Answer(Answer),
    /// Confirms that an upload is in the coordinator's evidence.
    Receipt {
        /// The number of the receiving agent's upload that was added.
        number: u64,
        /// The version the agent is now at, if the upload found it up to date.
        version: Option<Version>,
    },
    /// Says that a round has begun and asks the agent for its part.
    Collect {
        /// The number of the round to answer.
        round: RoundId,
        /// Whether the agent sends everything, not only what no earlier round has. The coordinator asks for
        /// that when the data of an agent are gone and the sum has to be made anew.
        whole: bool,
    },
    /// Says that a round is over, with its result.
    Commit {
        /// The round that is over.
        round: RoundId,
        /// Whether the receiving agent's part is in it; if not, it joins a later round.
        included: bool,
        /// The version of the coordinator's state after the round.
        version: Version,
        /// The sums over everything the coordinator knows.
        evidence: Arc<Evidence>,
    },
    /// What the coordinator says in a round of secure aggregation, and what came of it.
    Secure(SecureDownlink),
    /// All that a group of clusters knows, for one of them.
    Group(GroupSnapshot),
    /// An upload of a cluster was taken in.
    ClusterReceipt {
        /// The cluster of the receiving agent that was uploaded.
        cluster: ClusterId,
        /// The number of the cluster's upload that was taken in.
        number: u64,
        /// The version the cluster is now at, if the upload found it up to date.
        version: Option<Version>,
    },
    /// Says that a phase begins: the agent sorts its users again and answers with its clusters.
    Regroup {
        /// The number of the phase to answer.
        phase: PhaseId,
        /// Whether the coordinator lost part of its history, so that the agent says everything again.
        anew: bool,
    },
    /// Asks for the slope of the agent's loss at a point.
    GradientRequest {
        /// The round it belongs to.
        round: RoundId,
        /// The number of the request in its round, from 0.
        step: u64,
        /// The parameters θ at which the slope is asked for.
        point: Arc<Vec<f64>>,
        /// Whether the second derivative is asked for as well.
        curvature: bool,
    },
    /// Says that a round of networks has begun and asks the agent for its part, once it has learned enough.
    NetworkCollect {
        /// The number of the round to answer.
        round: RoundId,
        /// How many observations that no round has are enough.
        observations: u64,
    },
    /// The average of all networks in the middle of a round. The agent trains on from it.
    Average(Weights),
    /// All the coordinator knows of networks.
    Network(NetworkModel),
    /// The model that all evidence gives.
    Model(Model),
    /// Says that a round ended without a result. Every agent keeps its part.
    Abort {
        /// The round that is over.
        round: RoundId,
    },
    /// A message of an algorithm from outside of posse.
    Extension(Extension),
}

/// The model that all evidence gives: absolute, like a [`Snapshot`].
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The coordinator lost part of its history: this replaces what the agent believes, older or not.
    pub authoritative: bool,
    /// The version of the coordinator's state that this is.
    pub version: Version,
    /// How many observations of the receiving agent are in it: the oldest ones of its life.
    pub contains: u64,
    /// The evidence, shared by all recipients of a version.
    pub evidence: Arc<Evidence>,
    /// The parameters θ that the round found.
    pub estimate: Arc<Vec<f64>>,
    /// The way in which the parameters were found.
    pub fit: Fit,
}

/// How the parameters of a [`Model`] were found.
#[derive(Clone, Debug, PartialEq)]
pub enum Fit {
    /// They minimise the loss over all observations. The moment of the evidence is its matrix times the
    /// estimate, and does not travel.
    Minimised {
        /// By how much the mean loss may exceed its minimum (ε).
        gap: f64,
        /// ln det(I + Σxxᵀ/r), r the regulariser of the federation's models.
        information: f64,
        /// ln det(I + Σxxᵀ), the information without the regulariser.
        unit_information: f64,
    },
    /// The coordinator took one online Newton step in each round.
    Online {
        /// The sum of the outer products of the steps' gradients, packed.
        curvature: Arc<Vec<f64>>,
        /// What the steps' regret may have added up to.
        potential: f64,
        /// The sum of the squared predictions of all steps.
        squares: f64,
    },
}

/// All the coordinator knows: absolute, so that it replaces what an agent had, and a repetition changes
/// nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The coordinator lost part of its history: this replaces what the agent believes, older or not.
    pub authoritative: bool,
    /// The version of the coordinator's state that this is.
    pub version: Version,
    /// How many uploads of the receiving agent are in it; from a coordinator of rounds, the newest round
    /// with its part.
    pub contains: u64,
    /// [Information](crate::Ridge) of the evidence, which the receiver need not compute again.
    pub information: f64,
    /// The evidence, shared by all recipients of a version.
    pub evidence: Arc<Evidence>,
}

/// A message on its way from the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// The agents that receive the message.
    pub to: Recipient,
    /// The message that each of them receives.
    pub message: Downlink,
}

/// Who receives a message. A broadcast costs a message per recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// One agent, by its number.
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
    /// Returns the kind of message, in words for errors and logs.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Evidence(_) => "evidence",
            Self::Pull(_) => "pull",
            Self::RoundRequest { .. } => "round request",
            Self::RoundEvidence { .. } => "round evidence",
            Self::RoundParts { .. } => "round parts",
            Self::RoundLoss { .. } => "round loss",
            Self::Secure(part) => part.kind(),
            Self::Gradient(_) => "gradient",
            Self::Cluster(_) => "cluster",
            Self::Clusters(_) => "clusters",
            Self::NetworkRequest { .. } => "network request",
            Self::NetworkPart(_) => "network part",
            Self::Weights(_) => "weights",
            Self::Extension(_) => "extension",
        }
    }
}

impl Downlink {
    /// Returns the kind of message, in words for errors and logs.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Snapshot(_) => "snapshot",
            Self::Answer(_) => "answer",
            Self::Receipt { .. } => "receipt",
            Self::Collect { .. } => "collect",
            Self::Commit { .. } => "commit",
            Self::Secure(call) => call.kind(),
            Self::GradientRequest { .. } => "gradient request",
            Self::Model(_) => "model",
            Self::Abort { .. } => "abort",
            Self::Group(_) => "group",
            Self::ClusterReceipt { .. } => "cluster receipt",
            Self::Regroup { .. } => "regroup",
            Self::NetworkCollect { .. } => "network collect",
            Self::Average(_) => "average",
            Self::Network(_) => "network",
            Self::Extension(_) => "extension",
        }
    }

    /// Whether a newer message makes it pointless to deliver this one.
    #[must_use]
    pub fn is_superseded_by(&self, newer: &Self) -> bool {
        match (self, newer) {
            // What an authoritative snapshot takes back, an ordinary one does not.
            (Self::Snapshot(old), Self::Snapshot(new)) => new.authoritative || !old.authoritative,
            // The older answer may be the one that a question waits for, or an authoritative one.
            (Self::Answer(old), Self::Answer(new)) => {
                let is_authoritative =
                    |answer: &Answer| answer.snapshot.as_ref().is_some_and(|snapshot| snapshot.authoritative);
                let replaces = !old.pulled && !is_authoritative(old) && new.snapshot.is_some();
                replaces || is_authoritative(new)
            }
            (Self::Group(old), Self::Group(new)) => old.cluster == new.cluster,
            _ => false,
        }
    }
}
