//! Why something was not taken, in words for people, metrics and gRPC.

use posse_core::{DecodeError, ProtocolError};
use thiserror::Error;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::{LEADER, REASON};

/// Something that was not taken. Nothing has changed.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of refusal, which decides the gRPC status and the counter.
    pub reason: Reason,
    /// The explanation for the sender: what is wrong and what to do.
    pub message: String,
    /// Where the coordinator is that leads the federation, if this one does not and knows.
    pub leader: Option<String>,
}

/// Kinds of refusals, as metrics count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// No token, or not one of ours.
    Unauthenticated,
    /// The token is not valid for this federation.
    Forbidden,
    /// The coordinator has no federation of this name.
    UnknownFederation,
    /// The bytes are not a message.
    Malformed,
    /// The message has more bytes than the federation allows.
    TooLarge,
    /// The agent sends too many frames a second.
    Rate,
    /// The evidence is of another dimension than the federation.
    Dimension,
    /// The numbers cannot come from observations.
    Impossible,
    /// Out of order, from the future, or of another history.
    Sequence,
    /// A kind of message that the algorithm does not take.
    Unexpected,
    /// The agent is in quarantine after too many refusals.
    Quarantined,
    /// Another process speaks for this agent, or the life it names has ended.
    Superseded,
    /// The process that calls has not joined since the coordinator started, or another one has joined after it.
    NotJoined,
    /// The agent and the coordinator speak no common version of the protocol.
    Version,
    /// The coordinator cannot keep what it is sent.
    Unavailable,
    /// Another coordinator leads the federation.
    Standby,
    /// A connection that said nothing sensible in time.
    Silent,
    /// There are too many connections, in all or from this address.
    Crowded,
}

impl Reason {
    /// Returns the word by which metrics and replies name this reason.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::UnknownFederation => "unknown-federation",
            Self::Malformed => "malformed",
            Self::TooLarge => "too-large",
            Self::Rate => "rate",
            Self::Dimension => "dimension",
            Self::Impossible => "impossible",
            Self::Sequence => "sequence",
            Self::Unexpected => "unexpected",
            Self::Quarantined => "quarantined",
            Self::Superseded => "superseded",
            Self::NotJoined => "not-joined",
            Self::Version => "version",
            Self::Unavailable => "unavailable",
            Self::Standby => "standby",
            Self::Silent => "silent",
            Self::Crowded => "crowded",
        }
    }

    const fn code(self) -> Code {
        match self {
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Forbidden | Self::Quarantined => Code::PermissionDenied,
            Self::UnknownFederation => Code::NotFound,
            Self::Malformed | Self::Dimension | Self::Impossible | Self::Unexpected => Code::InvalidArgument,
            Self::TooLarge | Self::Rate => Code::ResourceExhausted,
            Self::Sequence | Self::Superseded | Self::Version => Code::FailedPrecondition,
            // The agent begins again with a join, which decides who is heard.
            Self::NotJoined => Code::Aborted,
            // Connections are closed, not answered.
            Self::Unavailable | Self::Standby | Self::Silent | Self::Crowded => Code::Unavailable,
        }
    }

    /// Whether it says something about the agent rather than about us.
    pub(crate) const fn counts_against_agent(self) -> bool {
        matches!(
            self,
            Self::Malformed | Self::Dimension | Self::Impossible | Self::Sequence | Self::Unexpected
        )
    }
}

impl Refusal {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), leader: None }
    }

    /// Another coordinator leads, at this address; the address is empty if it is not known.
    pub(crate) fn standby(leader: &str) -> Self {
        let message = if leader.is_empty() {
            "this coordinator does not lead the federation: ask the others".to_owned()
        } else {
            format!("this coordinator does not lead the federation: {leader} does")
        };
        let leader = (!leader.is_empty()).then(|| leader.to_owned());
        Self { reason: Reason::Standby, message, leader }
    }

    pub(crate) fn unavailable(why: &str) -> Self {
        Self::new(Reason::Unavailable, format!("the coordinator cannot keep messages: {why}"))
    }
}

impl From<ProtocolError> for Refusal {
    fn from(error: ProtocolError) -> Self {
        let reason = match error {
            ProtocolError::Dimension { .. } => Reason::Dimension,
            ProtocolError::Evidence(_) => Reason::Impossible,
            ProtocolError::Unexpected { .. } => Reason::Unexpected,
            _ => Reason::Sequence,
        };
        Self::new(reason, error.to_string())
    }
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        let reason = match error {
            DecodeError::TooLarge { .. } => Reason::TooLarge,
            DecodeError::Invalid { part: "evidence", .. } => Reason::Impossible,
            _ => Reason::Malformed,
        };
        Self::new(reason, error.to_string())
    }
}

impl Refusal {
    /// The gRPC status that the sender is answered with; its metadata name the reason.
    pub(crate) fn into_status(self) -> Status {
        let mut metadata = MetadataMap::new();
        metadata.insert(REASON, MetadataValue::from_static(self.reason.word()));
        if let Some(leader) = self.leader.and_then(|leader| MetadataValue::try_from(leader).ok()) {
            metadata.insert(LEADER, leader);
        }
        Status::with_metadata(self.reason.code(), self.message, metadata)
    }
}
