//! The contract of a relay: a coordinator for those below it, an agent of the coordinator above it.

use std::collections::BTreeSet;

use crate::agent::AgentView;
use crate::coordinator::{AgentStanding, CoordinatorView, Entrance, KnownCluster};
use crate::error::{ConfigError, DecodeError, ProtocolError};
use crate::ids::{AgentId, Incarnation, Tick};
use crate::message::{Downlink, Outgoing, Uplink};
use crate::settings::Described;
use crate::time_span::TimeSpan;
use crate::trigger::Threshold;
use serde::{Deserialize, Serialize};

/// A machine between agents and their coordinator, so that the coordinator has few to speak to.
///
/// Its **children** are agents, or relays further down; its **parent** is the coordinator, which is then called
/// the root, or a relay further up. To its children it is a [`Coordinator`](crate::Coordinator), to its parent an
/// [`Agent`](crate::Agent), and neither can tell the difference.
///
/// # How to drive it
/// As a coordinator: [`join`](Self::join), [`leave`](Self::leave), [`receive`](Self::receive) and
/// [`tick`](Self::tick). And as an agent: bring it every message of its parent by [`hear`](Self::hear), once each
/// and in order. Every call returns the messages for both directions; deliver them in order. An `Err` means that
/// nothing has changed. The same calls in the same order give the same bits, so a log of accepted calls, those to
/// `hear` among them, is a backup.
pub trait Relay: Send {
    /// Takes note that a child joins at time `now`.
    fn join(&mut self, now: Tick, child: AgentId, entrance: Entrance) -> Passed;

    /// Takes note that a child leaves for good.
    fn leave(&mut self, now: Tick, child: AgentId) -> Passed;

    /// Takes in a message from a child.
    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Passed, ProtocolError>;

    /// Takes in a message from the parent.
    fn hear(&mut self, now: Tick, message: Downlink) -> Result<Passed, ProtocolError>;

    /// Does what is due at `now`, for example closes a round whose deadline has passed.
    fn tick(&mut self, _now: Tick) -> Passed {
        Passed::default()
    }

    /// The same where the host knows that `absent` are away, of the children that a round waits for. They do not count for the
    /// quorum of the round.
    fn tick_without(&mut self, now: Tick, absent: &BTreeSet<AgentId>) -> Passed {
        let _ = absent;
        self.tick(now)
    }

    /// When [`tick`](Self::tick) has something to do next, if ever.
    fn deadline(&self) -> Option<Tick> {
        None
    }

    /// The children that an open round waits for; `None` if none is open.
    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        None
    }

    /// Tells the relay that a new life of it begins at its parent.
    fn begin_life(&mut self, _life: Incarnation) {}

    /// What the relay shows its children: all that it knows.
    fn below(&self) -> CoordinatorView<'_>;

    /// What the relay shows its parent: what it took over from there, what is on its way there, and what is not
    /// sent yet.
    fn above(&self) -> AgentView<'_>;

    /// What the relay knows of a child that has joined.
    fn child(&self, child: AgentId) -> Option<AgentStanding>;

    /// Every cluster of users it knows, if users are clustered or sums carry noise.
    fn clusters(&self) -> Vec<KnownCluster> {
        Vec::new()
    }

    /// Encodes everything that a restored relay needs to go on with the same bits.
    fn save(&self) -> Vec<u8>;

    /// Goes on from a state that a relay of the same settings saved. On an error nothing has changed.
    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError>;
}

/// The messages that one call to a [`Relay`] sets off, in both directions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Passed {
    /// Messages to the parent, in order.
    pub up: Vec<Uplink>,
    /// Messages to children, in order.
    pub down: Vec<Outgoing>,
}

/// Whether and how an algorithm runs through relays.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Relaying {
    /// It does not. The reason is shown to whoever asks for relays.
    No(&'static str),
    /// Evidence adds up in relays, which speak by thresholds as agents and the coordinator do. These are the
    /// thresholds of a federation without relays.
    ByThresholds(LinkThresholds),
    /// Relays pass rounds on: requests and parts upwards, where parts are sums of parts, and results downwards.
    ByRounds,
    /// The same, where a relay's part is a list of the parts of all agents below it. Every machine must know whether its
    /// children are relays: an agent that was taken for one could speak for as many agents as it likes.
    ByParts,
}

/// When the two ends of a link speak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkThresholds {
    /// γ_U: the lower end uploads when what it has not sent multiplied its determinant by more.
    pub upload: Threshold,
    /// γ_D: the upper end sends a snapshot when the lower end is behind by more.
    pub download: Threshold,
}

/// The link of a relay to its parent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpperLink {
    /// How many links lie between the relay and the root: 1 for a child of the root.
    pub depth: usize,
    /// How many levels of links there are. The children of a relay are agents if its depth is one less.
    pub levels: usize,
    /// The thresholds of the link, where its ends speak by thresholds.
    pub thresholds: Option<LinkThresholds>,
}

impl UpperLink {
    /// How long a relay waits for its children in a round in which the root waits for `whole`: half as long as its parent, so
    /// that its own answer is there in time.
    #[must_use]
    pub fn patience(&self, whole: TimeSpan) -> TimeSpan {
        TimeSpan::from_micros(whole.as_micros() >> self.depth.min(63))
    }
}

/// Thresholds of one level of links in a federation with relays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct LevelConfig {
    /// γ_U in [1, ∞]: the lower end of these links uploads when what it has not sent multiplied det V(λ) by
    /// more. Not set: γ_U of the algorithm to the power of one divided by the number of levels.
    pub upload_threshold: Option<Threshold>,
    /// γ_D in [1, ∞]: the lower end of these links is sent a snapshot when it is behind by more. Not set: γ_D
    /// of the algorithm to the power of one divided by the number of levels.
    pub download_threshold: Option<Threshold>,
}

impl LevelConfig {
    /// `Ok` if the thresholds that are set are ratios.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.upload_threshold.map_or(Ok(()), |t| t.check_ratio("upload_threshold"))?;
        self.download_threshold.map_or(Ok(()), |t| t.check_ratio("download_threshold"))
    }

    /// The thresholds of this level, one of `levels`, in a federation whose algorithm has `whole` without relays.
    ///
    /// What a view lacks multiplies from level to level. With the `levels`-th root at each, an agent lacks about
    /// as much at most as it would without relays.
    #[must_use]
    pub fn resolve(&self, whole: LinkThresholds, levels: usize) -> LinkThresholds {
        LinkThresholds {
            upload: self.upload_threshold.unwrap_or_else(|| whole.upload.root(levels)),
            download: self.download_threshold.unwrap_or_else(|| whole.download.root(levels)),
        }
    }
}
