//! What an agent insists on, whatever a coordinator offers.

use crate::settings::Described;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::federation::Placement;
use crate::privacy::budget::Budget;
use crate::privacy::config::Unit;
use crate::recipe::Sharing;
use crate::width::{POSITIVE, UNIT};

/// The privacy that an agent requires. It is the agent's own: the coordinator, which a promise is meant to hold
/// against, has no say in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default, deny_unknown_fields)]
pub struct PrivacyPolicy {
    /// The largest ε over the whole run. Default 1.
    pub max_epsilon: f64,
    /// The largest δ that the agent accepts. Default 1e-5.
    pub max_delta: f64,
    /// What must be protected at least; a promise for users protects interactions as well. Default interaction.
    pub unit: Unit,
    /// Accept promises that hold for fixed sequences of interactions only (`raw_buffer`). Default false.
    pub allow_raw_buffer: bool,
    /// Accept that the agent adds a part of the noise only and others add the rest (`secure_aggregation`). The promise then holds
    /// against a coordinator that invents no agents. Default false.
    pub allow_secure_aggregation: bool,
}

impl Default for PrivacyPolicy {
    fn default() -> Self {
        Self {
            max_epsilon: 1.0,
            max_delta: 1e-5,
            unit: Unit::Interaction,
            allow_raw_buffer: false,
            allow_secure_aggregation: false,
        }
    }
}

/// Why a federation is not private enough for an agent.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum PolicyBreach {
    /// The algorithm sends what it learned as it is.
    #[error("`{0}` promises no privacy, and this agent requires it")]
    NotPrivate(&'static str),
    /// The federation's ε is larger than the policy allows.
    #[error("the federation promises ε = {offered:?}, and this agent requires {allowed:?} or less")]
    Epsilon {
        /// The ε that the federation promises.
        offered: f64,
        /// The largest ε that the agent's policy allows.
        allowed: f64,
    },
    /// The federation's δ is larger than the policy allows.
    #[error("the federation promises δ = {offered:e}, and this agent requires {allowed:e} or less")]
    Delta {
        /// The δ that the federation promises.
        offered: f64,
        /// The largest δ that the agent's policy allows.
        allowed: f64,
    },
    /// The federation protects a smaller unit than the policy requires.
    #[error("the federation protects one {offered}, and this agent requires one {required}")]
    Unit {
        /// The unit that the federation protects.
        offered: &'static str,
        /// The unit that the agent's policy requires.
        required: &'static str,
    },
    /// The promise holds for fixed sequences only.
    #[error("the federation chooses with raw observations (`raw_buffer`), and this agent does not allow it")]
    RawBuffer,
    /// The promise is kept by many agents together.
    #[error(
        "the federation divides its noise over agents (`secure_aggregation`), and this agent does not allow it"
    )]
    SecureAggregation,
    /// A privacy setting of the federation is out of its range.
    #[error("the federation's privacy settings are impossible: {0}")]
    Settings(ConfigError),
}

impl PrivacyPolicy {
    /// `Ok` if every setting is in its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let epsilon = self.max_epsilon;
        ConfigError::require(epsilon > 0.0 && epsilon.is_finite(), "max_epsilon", epsilon, POSITIVE)?;
        let delta = self.max_delta;
        ConfigError::require(delta > 0.0 && delta < 1.0, "max_delta", delta, UNIT)
    }

    /// `Ok` if an agent with this policy may take part in `algorithm`. Algorithms whose agents learn alone send nothing
    /// and are always allowed.
    pub fn admits(&self, algorithm: &Algorithm) -> Result<(), PolicyBreach> {
        let Some(privacy) = algorithm.privacy() else {
            let alone =
                algorithm.sharing() == Sharing::Nothing && algorithm.placement() == Placement::PerAgent;
            return if alone { Ok(()) } else { Err(PolicyBreach::NotPrivate(algorithm.name())) };
        };
        privacy.check().map_err(PolicyBreach::Settings)?;
        // Written so that a number that is none is refused.
        let within = |offered: f64, allowed: f64| offered <= allowed;
        if !within(privacy.epsilon, self.max_epsilon) {
            return Err(PolicyBreach::Epsilon { offered: privacy.epsilon, allowed: self.max_epsilon });
        }
        if !within(privacy.delta, self.max_delta) {
            return Err(PolicyBreach::Delta { offered: privacy.delta, allowed: self.max_delta });
        }
        if privacy.unit < self.unit {
            let (offered, required) = (privacy.unit.name(), self.unit.name());
            return Err(PolicyBreach::Unit { offered, required });
        }
        if privacy.raw_buffer && !self.allow_raw_buffer {
            return Err(PolicyBreach::RawBuffer);
        }
        if algorithm.secure_aggregation().is_some() && !self.allow_secure_aggregation {
            return Err(PolicyBreach::SecureAggregation);
        }
        Ok(())
    }
}

impl Algorithm {
    /// How it divides the budget of its promise over arms with so many features, if it promises anything.
    #[must_use]
    pub fn privacy_budget(&self, dimension: usize) -> Option<Budget> {
        let splits = match self {
            Self::CdpFclubDc(config) => config.clusters.may_split(),
            Self::FnUcb(config) => return config.update_budget(dimension),
            _ => false,
        };
        self.privacy().map(|privacy| Budget::new(&privacy, dimension, splits))
    }

    /// The same algorithm with this ε, if it promises privacy.
    #[must_use]
    pub fn with_epsilon(&self, epsilon: f64) -> Option<Self> {
        let mut changed = self.clone();
        let privacy = match &mut changed {
            Self::CdpFclubDc(config) => Some(&mut config.privacy),
            Self::PrivateGlmUcb(config) => Some(&mut config.privacy),
            Self::AsyncLinUcb(config) => config.privacy.as_mut(),
            Self::AsyncLinTs(config) => config.privacy.as_mut(),
            Self::SyncLinUcb(config) => config.privacy.as_mut(),
            Self::FedLinUcb(config) => config.privacy.as_mut(),
            Self::FnUcb(config) => config.privacy.as_mut(),
            Self::FedUcb(config) => {
                config.epsilon = epsilon;
                return Some(changed);
            }
            _ => None,
        };
        privacy?.epsilon = epsilon;
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clustered::CdpFclubDc;
    use crate::linear::AsyncLinUcb;
    use crate::privacy::PrivacyConfig;

    fn offer(privacy: PrivacyConfig) -> Algorithm {
        Algorithm::CdpFclubDc(CdpFclubDc { privacy, ..Default::default() })
    }

    #[test]
    fn promises_as_strict_as_the_policy_are_taken_and_looser_ones_refused() {
        let policy = PrivacyPolicy::default();
        assert_eq!(policy.admits(&offer(PrivacyConfig::default())), Ok(()));
        let stricter = PrivacyConfig { epsilon: 0.5, delta: 1e-9, unit: Unit::User, ..Default::default() };
        assert_eq!(policy.admits(&offer(stricter)), Ok(()));
        for epsilon in [1.000_001, 1e30, f64::NAN] {
            policy.admits(&offer(PrivacyConfig { epsilon, ..Default::default() })).unwrap_err();
        }
        let loose = offer(PrivacyConfig { delta: 0.1, ..Default::default() });
        assert_eq!(policy.admits(&loose), Err(PolicyBreach::Delta { offered: 0.1, allowed: 1e-5 }));
        let raw = offer(PrivacyConfig { raw_buffer: true, ..Default::default() });
        assert_eq!(policy.admits(&raw), Err(PolicyBreach::RawBuffer));
        assert_eq!(PrivacyPolicy { allow_raw_buffer: true, ..policy }.admits(&raw), Ok(()));
        let users = PrivacyPolicy { unit: Unit::User, ..policy };
        let breach = users.admits(&offer(PrivacyConfig::default())).unwrap_err();
        assert_eq!(
            breach.to_string(),
            "the federation protects one interaction, and this agent requires one user"
        );
    }

    #[test]
    fn an_agent_adds_a_part_of_the_noise_only_if_its_policy_says_so() {
        let shared = Algorithm::SyncLinUcb(crate::linear::SyncLinUcb {
            privacy: Some(PrivacyConfig::default()),
            secure_aggregation: Some(crate::privacy::SecureAggregation::default()),
            ..Default::default()
        });
        let policy = PrivacyPolicy::default();
        assert_eq!(policy.admits(&shared), Err(PolicyBreach::SecureAggregation));
        assert_eq!(PrivacyPolicy { allow_secure_aggregation: true, ..policy }.admits(&shared), Ok(()));
    }

    /// Every algorithm there is either promises privacy, or sends nothing, or is refused by name.
    #[test]
    fn algorithms_without_a_promise_are_refused_unless_they_send_nothing() {
        let policy = PrivacyPolicy::default();
        for algorithm in Algorithm::all() {
            let alone =
                algorithm.sharing() == Sharing::Nothing && algorithm.placement() == Placement::PerAgent;
            let private = alone || algorithm.privacy().is_some_and(|privacy| !privacy.raw_buffer);
            assert_eq!(policy.admits(&algorithm).is_ok(), private, "{}", algorithm.name());
        }
        let plain = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
        assert_eq!(policy.admits(&plain), Err(PolicyBreach::NotPrivate("async-lin-ucb")));
    }

    #[test]
    fn another_epsilon_is_the_only_thing_that_changes() {
        for private in [
            offer(PrivacyConfig { delta: 0.01, ..Default::default() }),
            Algorithm::AsyncLinUcb(AsyncLinUcb {
                privacy: Some(PrivacyConfig::default()),
                ..Default::default()
            }),
            Algorithm::FedUcb(crate::linear::FedUcb::default()),
        ] {
            let changed = private.with_epsilon(4.0).unwrap();
            let expected = PrivacyConfig { epsilon: 4.0, ..private.privacy().unwrap() };
            assert_eq!(changed.privacy(), Some(expected));
        }
        assert!(Algorithm::AsyncLinUcb(AsyncLinUcb::default()).with_epsilon(4.0).is_none());
    }

    #[test]
    fn impossible_policies_are_refused_by_name() {
        let name = |policy: PrivacyPolicy| policy.check().unwrap_err().name;
        assert_eq!(name(PrivacyPolicy { max_epsilon: 0.0, ..Default::default() }), "max_epsilon");
        assert_eq!(name(PrivacyPolicy { max_delta: 1.0, ..Default::default() }), "max_delta");
    }
}
