//! What agents and the coordinator say to each other in a round of secure aggregation.

use std::sync::Arc;

use super::keys::Bytes32;
use super::shamir::SecretShare;
use crate::evidence::Evidence;
use crate::ids::{AgentId, RoundId, Version};

/// An agent's answers in a round of secure aggregation, in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum SecureUplink {
    /// The agent takes part, with these keys.
    Keys {
        /// The round that this answers.
        round: RoundId,
        /// The first slot of the noise that the agent has not used yet.
        slot: u64,
        /// Its public keys for this round.
        keys: PublicKeys,
    },
    /// Shares of the agent's secrets, a box for each participant.
    Shares {
        /// The round that this answers.
        round: RoundId,
        /// One box for each participant, itself included, in the order of their numbers.
        boxes: Vec<SealedShares>,
    },
    /// The agent's numbers under all its masks.
    Masked {
        /// The round that this answers.
        round: RoundId,
        /// Its numbers modulo 2¹²⁸.
        sums: Vec<u128>,
    },
    /// Shares of what takes the masks out of the sum.
    Opened {
        /// The round that this answers.
        round: RoundId,
        /// Shares of seeds, of agents that survived.
        seeds: Vec<OpenedShare>,
        /// Shares of secret keys, of agents that dropped out.
        keys: Vec<OpenedShare>,
    },
}

/// What the coordinator says in a round of secure aggregation.
#[derive(Clone, Debug, PartialEq)]
pub enum SecureDownlink {
    /// A round begins: the agent answers with keys.
    Begin {
        /// The number of the round to answer.
        round: RoundId,
    },
    /// Who takes part: the agent answers with shares for each.
    Peers {
        /// The round that it belongs to.
        round: RoundId,
        /// The slot of the noise that the round uses, from 1.
        slot: u64,
        /// The keys of all participants, in the order of their numbers.
        peers: Arc<Vec<PublicKeys>>,
    },
    /// The boxes for the receiving agent: it answers with its numbers under masks of their senders.
    Boxes {
        /// The round that it belongs to.
        round: RoundId,
        /// One box from each participant that is still there, in the order of their numbers.
        boxes: Vec<SealedShares>,
    },
    /// Who survived: the agent opens its shares.
    Open {
        /// The round that it belongs to.
        round: RoundId,
        /// The agents whose numbers arrived, in order. The others that sent boxes have dropped out.
        survivors: Arc<Vec<AgentId>>,
    },
    /// The sums over all rounds, which replace what the agent had.
    Outcome(SecureOutcome),
}

/// What came of all rounds so far: absolute, like a [`Snapshot`](crate::Snapshot).
#[derive(Clone, Debug, PartialEq)]
pub struct SecureOutcome {
    /// The coordinator lost part of its history: this replaces what the agent believes, older or not.
    pub authoritative: bool,
    /// The round that is over. To an agent that joins or returns, the newest round with its part, or 0.
    pub round: RoundId,
    /// Whether the receiving agent's part of that round is in the sums.
    pub included: bool,
    /// The newest slot of the noise that was used.
    pub slot: u64,
    /// The version of the coordinator's state.
    pub version: Version,
    /// How many agents, of all their lives, are in the sums.
    pub members: u64,
    /// The variance of the noise in every number of Σxxᵀ off the diagonal; on it, twice that.
    pub variance: f64,
    /// The sums with noise, made positive definite.
    pub evidence: Arc<Evidence>,
}

/// The public keys of an agent in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKeys {
    /// The agent that has the secret keys.
    pub agent: AgentId,
    /// For boxes that the agent receives.
    pub sealing: Bytes32,
    /// For the masks that it has in common with others.
    pub masking: Bytes32,
    /// A hash of the seed of its own mask.
    pub seed: Bytes32,
}

/// A box with two shares, and hashes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedShares {
    /// From an agent, whom the box is for; from the coordinator, who sealed it.
    pub agent: AgentId,
    /// The two shares, for the receiver only.
    pub sealed: Vec<u8>,
    /// A hash of the share of the seed.
    pub seed: Bytes32,
    /// A hash of the share of the secret key.
    pub key: Bytes32,
}

/// A share that an agent opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedShare {
    /// The agent whose secret it is a share of.
    pub agent: AgentId,
    /// The share itself.
    pub share: SecretShare,
}

impl SecureUplink {
    /// The round that it answers.
    #[must_use]
    pub const fn round(&self) -> RoundId {
        match self {
            Self::Keys { round, .. }
            | Self::Shares { round, .. }
            | Self::Masked { round, .. }
            | Self::Opened { round, .. } => *round,
        }
    }

    /// The kind of message, in words for errors and logs.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Keys { .. } => "secure keys",
            Self::Shares { .. } => "secure shares",
            Self::Masked { .. } => "masked sums",
            Self::Opened { .. } => "opened shares",
        }
    }
}

impl SecureDownlink {
    /// The kind of message, in words for errors and logs.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Begin { .. } => "secure begin",
            Self::Peers { .. } => "secure peers",
            Self::Boxes { .. } => "secure boxes",
            Self::Open { .. } => "secure opening",
            Self::Outcome(_) => "secure outcome",
        }
    }
}
