//! What goes wrong with machines: agents crash, the coordinator restarts.

use posse_core::settings::Described;
use posse_core::{ConfigError, TimeSpan};
use serde::{Deserialize, Serialize};

use super::check_span;

/// The `[faults]` table of an experiment. Rates are per interaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct FaultConfig {
    /// in [0, 1]: the probability that some agent crashes. Default 0.
    pub agent_crash: f64,
    /// in [0, 1]: the share of crashes after which an agent comes back without what it knew. Default 0.
    pub volatile: f64,
    /// How long a crashed agent is away, unless it is needed before. Default 0.
    pub downtime: TimeSpan,
    /// in [0, 1]: the probability that the coordinator restarts from its log. Default 0.
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
        check_span("downtime", self.downtime)
    }
}
