//! What each agent has done since the coordinator started: for `posse agents`, and for nothing that decides anything.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use posse_core::{AgentAccount, AgentId, Suspicion};
use serde::{Deserialize, Serialize};

use super::Reason;

/// An agent as the coordinator sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentInfo {
    /// The number of the agent.
    pub agent: u64,
    /// The newest life that was heard of; 0 for an agent that was refused before it said hello.
    pub life: u64,
    /// The agent left, or was evicted: this life is over.
    pub gone: bool,
    /// The agent has a link at this moment.
    pub connected: bool,
    /// The agent was away for longer than its lease: rounds do not wait for it.
    pub away: bool,
    /// The agent's messages are not taken, for so many seconds more.
    pub quarantined_for: Option<u64>,
    /// When a frame of the agent last came, in seconds since 1970; nothing if none came since the start.
    pub last_seen: Option<u64>,
    /// Uploads of this life in the evidence.
    pub uploads: u64,
    /// Observations taken from the agent since the coordinator started; 0 if its uploads replace earlier ones, as those of users in
    /// clusters do.
    pub observations: u64,
    /// By how much information the agent is behind the coordinator.
    pub staleness: f64,
    /// What was refused to the agent since the coordinator started, by reason.
    pub refused: BTreeMap<String, u64>,
    /// What is kept of the agent by itself, where agents are held against each other: of a relay, of every agent that it ever
    /// spoke for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptInfo>,
}

/// What is kept of an agent by itself, where agents are held against each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeptInfo {
    /// The numbers of the relays from the root down to the agent, and its own, such as `3/17`.
    pub agent: String,
    /// How many observations of the agent were taken in, believed or not.
    pub observations: u64,
    /// Why the agent is not believed, if it is not.
    pub set_aside: Option<SuspicionInfo>,
}

/// Why an agent is not believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SuspicionInfo {
    /// How far the agent's rewards are from those that the others' model predicts, in variances of the noise.
    pub deviation: f64,
    /// The largest deviation that noise and uncertainty explain.
    pub limit: f64,
    /// How many observations of the agent were looked at.
    pub observations: u64,
}

impl From<&AgentAccount> for KeptInfo {
    fn from(account: &AgentAccount) -> Self {
        let why = |why: Suspicion| SuspicionInfo {
            deviation: why.deviation,
            limit: why.limit,
            observations: why.observations,
        };
        Self {
            agent: account.agent.to_string(),
            observations: account.observations,
            set_aside: account.suspicion.map(why),
        }
    }
}

/// The agent or relay of this coordinator that speaks for the agent of an account.
pub(super) fn speaker(account: &AgentAccount) -> AgentId {
    *account.agent.relays.first().unwrap_or(&account.agent.agent)
}

/// What is counted for an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) last_seen: Option<u64>,
    pub(super) observations: u64,
    pub(super) refused: BTreeMap<&'static str, u64>,
}

/// The accounts of all agents.
#[derive(Debug, Default)]
pub(super) struct Accounts(BTreeMap<AgentId, Account>);

impl Accounts {
    /// A frame of the agent came and was heard; it brought so many observations.
    pub(super) fn heard(&mut self, agent: AgentId, observations: u64) {
        let account = self.0.entry(agent).or_default();
        account.last_seen = Some(now());
        account.observations += observations;
    }

    /// Counts a refusal of something that the agent sent.
    pub(super) fn refused(&mut self, agent: AgentId, reason: Reason) {
        *self.0.entry(agent).or_default().refused.entry(reason.word()).or_default() += 1;
    }

    /// The account of an agent; empty if nothing is known of it.
    pub(super) fn of(&self, agent: AgentId) -> Account {
        self.0.get(&agent).cloned().unwrap_or_default()
    }

    /// Returns every agent that has an account, by rising number.
    pub(super) fn agents(&self) -> impl Iterator<Item = AgentId> {
        self.0.keys().copied()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
