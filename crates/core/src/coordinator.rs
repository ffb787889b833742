//! The contract of a coordinator.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::ids::{AgentId, AgentPath, ClusterId, Tick, Version};
use crate::message::{Outgoing, Uplink};
use crate::workers::Workers;

/// The place where agents' evidence comes together.
///
/// # How to drive it
/// Every method that may depend on time takes it as its first argument; a coordinator keeps no clock. Times
/// never go back. Tell it who [joins](Self::join) and [leaves](Self::leave), bring it every [`Uplink`] once and in order
/// per agent, and call [`tick`](Self::tick) as time passes if rounds have deadlines. Deliver what the
/// methods return, in order. An `Err` means that nothing has changed. The same calls in the same order
/// give the same answers and the same bits, so a log of accepted calls is a backup.
pub trait Coordinator: Send {
    /// Takes note that an agent joins at time `now`. Returns what to send it, if anything.
    fn join(&mut self, now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing>;

    /// Takes note that an agent leaves for good. Returns what to send now that it is not waited for.
    fn leave(&mut self, now: Tick, agent: AgentId) -> Vec<Outgoing>;

    /// Takes in a message from an agent. A round that it opens has its whole deadline from `now`.
    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError>;

    /// Does what is due at `now`, for example closes a round whose deadline has passed.
    fn tick(&mut self, now: Tick) -> Vec<Outgoing>;

    /// The same where the host knows that `absent` are away, of the agents that a round waits for. They do not count for the
    /// quorum of the round, so that those that are there can go on without them.
    fn tick_without(&mut self, now: Tick, absent: &BTreeSet<AgentId>) -> Vec<Outgoing> {
        let _ = absent;
        self.tick(now)
    }

    /// When [`tick`](Self::tick) has something to do next, if ever.
    fn deadline(&self) -> Option<Tick>;

    /// The agents that an open round or phase waits for; `None` if none is open. A host that knows all of them to be
    /// away may let the deadline pass early.
    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        None
    }

    /// Returns what the coordinator holds, without copying it.
    fn inspect(&self) -> CoordinatorView<'_>;

    /// Whether it would only take a note of whatever these different agents say next, each at most once, in any order:
    /// nothing would be sent to any agent. A host may then let others act before those have spoken. Agents of such a
    /// coordinator ask nothing before they choose. `false` is always right.
    fn only_notes(&self, _agents: &[AgentId]) -> bool {
        false
    }

    /// What the coordinator knows of an agent that has joined.
    fn agent(&self, agent: AgentId) -> Option<AgentStanding>;

    /// Why the coordinator does not believe an agent, if it keeps that agent's evidence apart.
    fn suspicion(&self, _agent: AgentId) -> Option<Suspicion> {
        None
    }

    /// What is kept of each agent by itself, where agents are held against each other: also of agents below relays, and of
    /// agents that left. In the order of their paths.
    fn accounts(&self) -> Vec<AgentAccount> {
        Vec::new()
    }

    /// How many of those agents are not believed.
    fn set_aside(&self) -> u64 {
        0
    }

    /// Every cluster of users it knows, with its group, if users are clustered.
    fn clusters(&self) -> Vec<KnownCluster> {
        Vec::new()
    }

    /// How often a sum with privacy noise was not positive definite and had to be repaired.
    fn repairs(&self) -> u64 {
        0
    }

    /// Makes the coordinator hand large work to `workers` from now on, which changes no bit of what it does. By default, and
    /// where work is never large, everything is done on the calling thread. Workers are no part of a saved state.
    fn use_workers(&mut self, _workers: Arc<dyn Workers>) {}

    /// Encodes everything that a restored coordinator needs to go on with the same bits.
    fn save(&self) -> Vec<u8>;

    /// Goes on from a state that a coordinator of the same settings saved. On an error nothing has changed.
    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError>;
}

/// The state with which an agent joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// Joins without state: a new agent, or one that lost its state.
    NewLife,
    /// Comes back with its state to a coordinator that lost part of its history. The coordinator sends it an
    /// authoritative snapshot of what is left.
    Returning,
}

/// What a coordinator holds: counts for every family, and sums for those that keep them.
#[derive(Clone, Copy, Debug)]
pub struct CoordinatorView<'a> {
    /// How many times what the coordinator shares has changed.
    pub version: Version,
    /// How many observations the shared state is over.
    pub observations: u64,
    /// Information of the shared state.
    pub information: f64,
    /// How many agents have joined.
    pub agents: usize,
    /// The sums over all observations, of coordinators that keep such sums.
    pub evidence: Option<&'a Evidence>,
}

impl<'a> CoordinatorView<'a> {
    /// The view of a coordinator that holds `evidence`.
    #[must_use]
    pub const fn of(version: Version, evidence: &'a Evidence, information: f64, agents: usize) -> Self {
        Self { version, observations: evidence.count(), information, agents, evidence: Some(evidence) }
    }
}

/// A cluster of users as the coordinator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCluster {
    /// The number of the agent that has the cluster.
    pub agent: AgentId,
    /// Whether the life of the agent that had it is over; its evidence stays.
    pub orphan: bool,
    /// The number that the agent gave the cluster.
    pub cluster: ClusterId,
    /// Clusters with the same group share their evidence.
    pub group: u64,
    /// The number of the newest upload that was taken in.
    pub uploads: u64,
    /// How many observations the cluster has contributed.
    pub count: u64,
}

/// What a coordinator knows of an agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AgentStanding {
    /// How many of its uploads are in the evidence.
    pub uploads: u64,
    /// The newest version it was sent, or is known to have.
    pub version: Version,
    /// Information of what it was sent and has sent.
    pub information: f64,
}

/// What a coordinator that holds agents against each other keeps of one of them.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentAccount {
    /// Where the agent is: below relays, if there are any.
    pub agent: AgentPath,
    /// How many observations of the agent were taken in, believed or not.
    pub observations: u64,
    /// Why the agent is not believed, if it is not.
    pub suspicion: Option<Suspicion>,
}

/// Why the evidence of an agent is kept apart: it deviates from the model of most agents by more than noise does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suspicion {
    /// How far the rewards that the agent reported are from those that the others' model predicts, in variances of
    /// the noise, over all directions of its arms.
    pub deviation: f64,
    /// The largest deviation that noise and the uncertainty of the others' model explain.
    pub limit: f64,
    /// How many observations of the agent were looked at.
    pub observations: u64,
}
