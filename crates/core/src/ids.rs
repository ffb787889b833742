//! Names of things: small integer types, so that a version is never mistaken for an agent.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time_span::TimeSpan;

/// One learner in the federation: it serves its own users and never sees another agent's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(pub u64);

/// Where an agent is in a federation with relays. Two relays may each have a child of the same number; their paths differ.
///
/// Paths are ordered by the agents' own numbers first. Where no two agents of a federation have the same number, that is
/// the order of agents without relays, whatever tree they are in.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AgentPath {
    /// The number of the agent at the machine that it speaks to: the last of the relays, or the coordinator.
    pub agent: AgentId,
    /// The relays on the way down to the agent, the highest first. Empty for an agent without relays above it.
    pub relays: Vec<AgentId>,
}

/// A person whom an agent serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UserId(pub u64);

/// How many changes the coordinator's evidence has seen: the name of one of its states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

/// A synchronous round, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RoundId(pub u64);

/// A cluster of users, as its agent numbers them; another one whenever its users change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub u64);

/// A phase of a clustered federation, counted from 1: clusters change when one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PhaseId(pub u64);

/// The coordinator's history. It grows when a restart has lost part of that history; what a coordinator
/// of a newer epoch says replaces what an agent believed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// One life of an agent. It grows when an agent has lost its state; messages of an earlier life are
/// not accepted any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// Virtual time in microseconds. Machines compare ticks that they are given; they never read a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tick(pub u64);

impl Version {
    /// The version after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Tick {
    /// The tick that is `span` later, or the end of time.
    #[must_use]
    pub const fn after(self, span: TimeSpan) -> Self {
        Self(self.0.saturating_add(span.as_micros()))
    }

    /// Whole milliseconds: what machines that estimate a pace compare, so that microseconds of delivery do not
    /// matter.
    pub(crate) const fn milliseconds(self) -> u64 {
        self.0 / 1000
    }
}

impl AgentPath {
    /// The same agent as the parent of relay `relay` sees it.
    #[must_use]
    pub fn below(&self, relay: AgentId) -> Self {
        let relays = std::iter::once(relay).chain(self.relays.iter().copied()).collect();
        Self { agent: self.agent, relays }
    }
}

impl From<AgentId> for AgentPath {
    fn from(agent: AgentId) -> Self {
        Self { agent, relays: Vec::new() }
    }
}

/// The numbers from the top down, such as `3/17` for agent 17 of relay 3.
impl fmt::Display for AgentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.relays.iter().try_for_each(|relay| write!(f, "{}/", relay.0))?;
        write!(f, "{}", self.agent.0)
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent {}", self.0)
    }
}
