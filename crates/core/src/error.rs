//! What can go wrong, sorted by whose fault it is.
//!
//! A caller's fault is an [`InputError`] or, at construction, a [`ConfigError`]; a peer's fault is a
//! [`ProtocolError`] or, for bytes, a [`DecodeError`]. In each case nothing has changed. Our own bugs are
//! panics with the reason why they cannot happen; no input causes one.

use thiserror::Error;

use crate::ids::{AgentId, ClusterId, RoundId};

/// The caller passed something no algorithm can use. Nothing has changed.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum InputError {
    /// The caller offered no arms.
    #[error("there are no arms to choose from: offer at least one")]
    NoArms,
    /// The features have the wrong length.
    #[error("expected {expected} features, got {got}")]
    Dimension {
        /// How many features the agent was built for.
        expected: usize,
        /// How many features the caller passed.
        got: usize,
    },
    /// A feature that is NaN or infinite.
    #[error("feature {index} is {value}: features must be finite")]
    Feature {
        /// The index in the feature vector, from 0.
        index: usize,
        /// The value that was refused.
        value: f64,
    },
    /// A reward that is NaN or infinite.
    #[error("the reward is {value}: rewards must be finite")]
    Reward {
        /// The value that was refused.
        value: f64,
    },
    /// A reward that the link of a generalized linear model cannot have.
    #[error("the reward is {value}: with a {link} link rewards must be {range}")]
    RewardRange {
        /// The value that was refused.
        value: f64,
        /// The name of the link that does not take this reward.
        link: &'static str,
        /// The rewards that the link allows, in words.
        range: &'static str,
    },
    /// Every arm scored NaN, which finite but enormous features can cause.
    #[error("no arm has a finite score: scale the features down")]
    NoFiniteScore,
    /// Features longer than a private federation promised.
    #[error(
        "the features have length {length}: at most {bound} is promised; raise feature_bound or scale them"
    )]
    FeatureBound {
        /// The Euclidean norm of the features.
        length: f64,
        /// The largest norm that the settings allow.
        bound: f64,
    },
    /// A reward larger than a private federation promised.
    #[error("the reward is {value}: at most {bound} either way is promised; raise reward_bound or scale it")]
    RewardBound {
        /// The value that was refused.
        value: f64,
        /// The largest reward that the settings allow.
        bound: f64,
    },
    /// The sums would overflow with this observation.
    #[error("the observation is too large to be added: scale the features or the reward down")]
    Overflow,
}

/// A peer broke the protocol. Nothing has changed.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A message from an agent that never joined.
    #[error("{0} has not joined")]
    UnknownAgent(AgentId),
    /// An upload that is not the next one of its agent: a repetition if lower, a gap if higher.
    #[error("expected upload {expected} of this agent, got {got}")]
    Sequence {
        /// The number the coordinator waits for.
        expected: u64,
        /// The number in the upload that came.
        got: u64,
    },
    /// The evidence is of another dimension than the federation.
    #[error("expected evidence of dimension {expected}, got {got}")]
    Dimension {
        /// The dimension of this federation.
        expected: usize,
        /// The dimension of the evidence that came.
        got: usize,
    },
    /// Numbers that no observations can have produced.
    #[error("impossible evidence: {0}")]
    Evidence(&'static str),
    /// A gradient that no observations can have given.
    #[error("impossible gradient: {0}")]
    Gradient(&'static str),
    /// The numbers of the model cannot come from observations.
    #[error("impossible model: {0}")]
    Model(&'static str),
    /// A cluster that its agent does not have any more, or never had.
    #[error("cluster {} is not one of this agent's", .0.0)]
    Cluster(ClusterId),
    /// The message belongs to a round that is not open.
    #[error("round {} is not open", .0.0)]
    Round(RoundId),
    /// A kind of message this algorithm does not take.
    #[error("{algorithm} does not take {message} messages")]
    Unexpected {
        /// The name of the algorithm, as in configuration files.
        algorithm: &'static str,
        /// The kind of message that it got.
        message: &'static str,
    },
    /// A frame that speaks of a history this coordinator has not had.
    #[error("the coordinator is in epoch {expected}, the frame names epoch {got}")]
    Epoch {
        /// The epoch of the coordinator that refused the frame.
        expected: u64,
        /// The epoch that the frame names.
        got: u64,
    },
    /// A frame from the future of a peer's own sequence.
    #[error("expected frame {expected}, got {got}")]
    FrameGap {
        /// The number of the frame that the session waits for.
        expected: u64,
        /// The number of the frame that came.
        got: u64,
    },
    /// A part of a round of secure aggregation that breaks its protocol.
    #[error("secure aggregation: {0}")]
    Aggregation(&'static str),
    /// An algorithm from outside of posse refused a message, for the reason that it gives.
    #[error("the algorithm refused the message: {0}")]
    Outside(String),
    /// What one agent shared cannot be taken out again, because messages of this kind carry traces of it.
    #[error("what one agent shared cannot be taken out of {0} messages of the others")]
    Inseparable(&'static str),
}

/// A setting is outside its range.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("`{name}` is {value}: {allowed}")]
pub struct ConfigError {
    /// The setting's name, as written in configuration files.
    pub name: &'static str,
    /// The value that the setting was given.
    pub value: String,
    /// The values that the setting may have, in words.
    pub allowed: &'static str,
}

impl ConfigError {
    /// Reports that `name` may not be `value`.
    #[allow(clippy::needless_pass_by_value, reason = "values are small, and literals read better")]
    pub fn new(name: &'static str, value: impl ToString, allowed: &'static str) -> Self {
        Self { name, value: value.to_string(), allowed }
    }

    /// Returns `Ok` if `holds`, otherwise an error that names the setting, its value and what is allowed.
    pub fn require(holds: bool, name: &'static str, value: f64, allowed: &'static str) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(name, value, allowed)) }
    }
}

/// Bytes that are not a message, a frame or a saved state of ours.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not protobuf, or not of the expected type.
    #[error("not a posse.v1 message: {0}")]
    Malformed(String),
    /// A required part is missing or contradicts another.
    #[error("invalid {part}: {reason}")]
    Invalid {
        /// The part of the message or state that is wrong, for example `evidence`.
        part: &'static str,
        /// What is wrong with the bytes, in words.
        reason: &'static str,
    },
    /// The message holds more than this build accepts.
    #[error("{part} is {got}, the limit is {limit}")]
    TooLarge {
        /// The part of the message or state that is wrong, for example `evidence`.
        part: &'static str,
        /// The size that the bytes name.
        got: u64,
        /// The largest size that this build decodes.
        limit: u64,
    },
}

impl DecodeError {
    /// Reports that a `part` of a state or message is not what it should be, for the given reason.
    #[must_use]
    pub const fn invalid(part: &'static str, reason: &'static str) -> Self {
        Self::Invalid { part, reason }
    }
}
