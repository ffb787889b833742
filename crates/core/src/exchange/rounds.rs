//! Settings of rounds that wait for agents.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use super::join::JoinPolicy;
use crate::error::ConfigError;
use crate::time_span::TimeSpan;

/// How rounds run: who takes part, how long they wait, and how the global update is found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct RoundConfig {
    /// When newcomers become known: rounds go over those that are. Default eager.
    pub join: JoinPolicy,
    /// How long each exchange of a round waits for all agents; afterwards the round goes
    /// on without the missing. Not set: it waits for all agents.
    pub round_deadline: Option<TimeSpan>,
    /// in [0, 1]: the fraction of agents that must answer in time; with fewer the round ends
    /// without a result and nothing is lost. Agents that are known to be away do not count. Default 0.5.
    pub quorum: f64,
}

impl Default for RoundConfig {
    fn default() -> Self {
        Self { join: JoinPolicy::Eager, round_deadline: None, quorum: 0.5 }
    }
}

impl RoundConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let fraction = (0.0..=1.0).contains(&self.quorum);
        ConfigError::require(fraction, "quorum", self.quorum, "it must lie between 0 and 1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_beyond_everybody_is_refused_by_name() {
        assert_eq!(RoundConfig { quorum: 1.5, ..Default::default() }.check().unwrap_err().name, "quorum");
    }
}
