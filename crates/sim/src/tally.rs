//! What a run adds up to.

use posse_core::{Cost, Downlink, PrivacyReport, Uplink};
use serde::{Deserialize, Serialize};

use crate::gauge::Clustering;

/// Regret, reward and the cost of communication in both directions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Interactions so far.
    pub interactions: u64,
    /// Σ over interactions of the best arm's mean minus the chosen arm's.
    pub regret: f64,
    /// Σ of rewards received.
    pub reward: f64,
    /// From agents to the coordinator.
    pub up: Cost,
    /// From the coordinator to agents.
    pub down: Cost,
    /// Synchronous rounds begun.
    pub rounds: u64,
    /// Agents that acted at least once.
    pub agents_seen: u64,
    /// Observations that agents had not sent when they crashed without their state or left for good.
    pub lost_observations: u64,
    /// How well users are sorted, where they are: looked at now and then, and in the end.
    #[serde(default)]
    pub clustering: Option<Clustering>,
    /// Sums with noise that had to be made positive definite.
    #[serde(default)]
    pub repairs: u64,
    /// What may be claimed about privacy, where it is promised.
    #[serde(default)]
    pub privacy: Option<Box<PrivacyReport>>,
}

impl Tally {
    /// Messages with statistics, both ways: the communication cost of the linear papers.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.up.messages + self.down.messages
    }

    pub(crate) fn chose(&mut self, regret: f64) {
        self.interactions += 1;
        self.regret += regret;
    }

    pub(crate) fn sent_up(&mut self, message: &Uplink) {
        self.up.add(message.cost());
    }

    pub(crate) fn sent_down(&mut self, message: &Downlink) {
        self.down.add(message.cost());
    }
}
