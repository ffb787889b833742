//! The settings of secure aggregation.

use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::settings::Described;

/// The most agents that take part in one round. Every agent sends a sealed box to every other one, so that a round of so
/// many agents moves a million boxes.
pub const MOST_PARTICIPANTS: u64 = 1000;

/// How many agents must be in a sum, and how many of them may be against the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct SecureAggregation {
    /// t in [2, 1000]: the fewest agents whose sum is opened; a round with fewer survivors gives nothing. More than half of those
    /// that take part, and of the colluders, must survive in any case. Default 10.
    pub survivors: u64,
    /// c in [0, t − 1]: so many agents may tell the coordinator everything they know, and the promise still holds. Every agent
    /// adds 1/(t − c) of the variance that the promise needs. Default 1.
    pub colluders: u64,
}

impl Default for SecureAggregation {
    fn default() -> Self {
        Self { survivors: 10, colluders: 1 }
    }
}

impl SecureAggregation {
    /// `Ok` if every setting is in its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(2..=MOST_PARTICIPANTS).contains(&self.survivors) {
            return Err(ConfigError::new("survivors", self.survivors, "it must be at least 2, at most 1000"));
        }
        if self.colluders >= self.survivors {
            return Err(ConfigError::new("colluders", self.colluders, "it must be below survivors"));
        }
        Ok(())
    }

    /// t − c: the fewest agents in a sum whose noise the coordinator does not know.
    #[must_use]
    pub const fn honest(&self) -> u64 {
        self.survivors - self.colluders
    }

    /// How many shares give a secret, and how many agents must survive, in a round of `participants`.
    ///
    /// A coordinator that tells one half of the agents that an agent survived, and the other half that it dropped out,
    /// would need so many shares from each half. Honest agents open once, colluders twice: 2k − c shares are more than there
    /// are agents.
    #[must_use]
    pub fn threshold(&self, participants: usize) -> usize {
        let majority = (participants + self.colluders as usize) / 2 + 1;
        majority.max(self.survivors as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_halves_of_the_agents_never_reach_the_threshold_with_all_colluders_in_both() {
        for survivors in 2..12 {
            for colluders in 0..survivors {
                let secure = SecureAggregation { survivors, colluders };
                assert_eq!(secure.check(), Ok(()));
                for n in survivors as usize..40 {
                    let threshold = secure.threshold(n);
                    assert!(threshold <= n, "{secure:?}: {n} agents can never reach {threshold}");
                    assert!(2 * threshold - colluders as usize > n, "{secure:?} with {n}");
                }
            }
        }
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused =
            |survivors, colluders| SecureAggregation { survivors, colluders }.check().unwrap_err().name;
        assert_eq!((refused(1, 0), refused(1001, 0), refused(5, 5)), ("survivors", "survivors", "colluders"));
        assert_eq!(SecureAggregation::default().check(), Ok(()));
    }
}
