//! What goes wrong with machines: agents crash, the coordinator restarts.

use posse_core::ConfigError;
use serde::{Deserialize, Serialize};

/// The `[faults]` table of an experiment. Rates are per interaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultConfig {
    /// The probability that some agent crashes. Default 0.
    pub agent_crash: f64,
    /// The share of crashes after which an agent comes back without what it knew. Default 0.
    pub volatile: f64,
    /// How long a crashed agent is away, in milliseconds, unless it is needed before. Default 0.
    pub downtime: f64,
    /// The probability that the coordinator restarts from its log. Default 0.
    pub coordinator_restart: f64,
    /// How many entries at the end of its log are lost in a restart. Default 0.
    pub lost_entries: u64,
}

impl FaultConfig {
    /// Whether no agent ever crashes and the coordinator never restarts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.agent_crash == 0.0 && self.coordinator_restart == 0.0
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        const SHARE: &str = "it must lie between 0 and 1";
        let shares = [
            ("agent_crash", self.agent_crash),
            ("volatile", self.volatile),
            ("coordinator_restart", self.coordinator_restart),
        ];
        for (name, value) in shares {
            ConfigError::require((0.0..=1.0).contains(&value), name, value, SHARE)?;
        }
        let time = self.downtime >= 0.0 && self.downtime <= 1e9;
        let allowed = "it must be a time in milliseconds, zero or more";
        ConfigError::require(time, "downtime", self.downtime, allowed)
    }
}
