//! What a run adds up to.

use posse_core::{Cost, PrivacyReport};
use serde::{Deserialize, Serialize};

use crate::gauge::Clustering;
use crate::observer::{Direction, Sent};

/// What was sent over the links of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelCost {
    /// What the messages from relays to their parents cost.
    pub up: Cost,
    /// What the messages from parents to their relays cost.
    pub down: Cost,
}

/// Regret, reward and the cost of communication in both directions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// How many agents it is about, whether they have acted or not.
    #[serde(default)]
    pub agents: u64,
    /// How many interactions there were so far.
    pub interactions: u64,
    /// Σ over interactions of the best arm's mean minus the chosen arm's.
    pub regret: f64,
    /// The regret of the agents that do not lie, in runs where some do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub honest_regret: Option<f64>,
    /// How many agents the coordinator does not believe: looked at now and then, and in the end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub set_aside: u64,
    /// Σ of the rewards that agents received.
    pub reward: f64,
    /// What choosing at random would have received on average.
    #[serde(default)]
    pub random_reward: f64,
    /// What the messages from agents to the coordinator cost.
    pub up: Cost,
    /// What the messages from the coordinator to agents cost.
    pub down: Cost,
    /// What the messages of relays and their parents cost, by level, those of the root first. Empty without relays;
    /// `up` and `down` are over the links of agents only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<LevelCost>,
    /// How many synchronous rounds were begun.
    pub rounds: u64,
    /// How many agents acted at least once.
    pub agents_seen: u64,
    /// Observations that agents had not sent when they crashed without their state or left for good.
    pub lost_observations: u64,
    /// How well users are sorted, where they are: looked at now and then, and in the end.
    #[serde(default)]
    pub clustering: Option<Clustering>,
    /// Sums with noise that had to be made positive definite.
    #[serde(default)]
    pub repairs: u64,
    /// Trainings of networks that led nowhere and were undone, over the agents that are there: looked at now and
    /// then, and in the end.
    #[serde(default)]
    pub failed_trainings: u64,
    /// What may be claimed about privacy, where it is promised.
    #[serde(default)]
    pub privacy: Option<Box<PrivacyReport>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Tally {
    /// Messages with statistics, both ways: the communication cost of the linear papers.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.up.messages + self.down.messages
    }

    /// Messages with statistics, both ways, over the links of the coordinator itself: those of agents, or of the
    /// relays below it.
    #[must_use]
    pub fn messages_at_root(&self) -> u64 {
        self.above.first().map_or(self.messages(), |root| root.up.messages + root.down.messages)
    }

    /// Bytes of all messages, up and down, over the same links.
    #[must_use]
    pub fn bytes_at_root(&self) -> (u64, u64) {
        self.above.first().map_or((self.up.bytes, self.down.bytes), |root| (root.up.bytes, root.down.bytes))
    }

    /// Regret divided by the number of agents, an axis in some papers; 0 if the tally covers no agent.
    #[must_use]
    pub fn regret_each(&self) -> f64 {
        if self.agents == 0 { 0.0 } else { self.regret / self.agents as f64 }
    }

    /// Reward as a multiple of what choosing at random would have received; zero if that is nothing.
    #[must_use]
    pub fn normalised_reward(&self) -> f64 {
        if self.random_reward == 0.0 { 0.0 } else { self.reward / self.random_reward }
    }

    pub(crate) fn chose(&mut self, regret: f64, average_mean: f64) {
        self.interactions += 1;
        self.regret += regret;
        self.random_reward += average_mean;
    }

    /// Adds the cost of a message over the links of a level above the agents', one of `levels`.
    pub(crate) fn sent_above(&mut self, level: usize, levels: usize, sent: &Sent) {
        self.above.resize(levels, LevelCost::default());
        match sent.direction {
            Direction::Up => self.above[level].up.add(sent.cost),
            Direction::Down => self.above[level].down.add(sent.cost),
        }
    }

    /// Adds the cost of a message that was sent over the link of an agent.
    pub(crate) fn sent(&mut self, sent: &Sent) {
        match sent.direction {
            Direction::Up => self.up.add(sent.cost),
            Direction::Down => self.down.add(sent.cost),
        }
    }
}
