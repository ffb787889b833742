//! FedUCB (Dubey and Pentland, 2020): rounds over all agents, in which each shares its sums with the noise of a binary tree. These
//! are its settings; its agent and its coordinator are those of every private algorithm.

use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::privacy::{Mechanism, PrivacyConfig};
use crate::settings::Described;
use crate::time_span::TimeSpan;
use crate::width::ModelConfig;

/// Settings of `fed-ucb`: private rounds over all agents with noise of a binary tree, as published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct FedUcb {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// ε > 0: what is promised for one interaction over the whole run. Default 1.
    pub epsilon: f64,
    /// δ in (0, 1): the probability with which ε may fail. Default 1e-5.
    pub delta: f64,
    /// X̄ > 0: the longest features; longer ones are scaled to it. Default 1.
    pub feature_bound: f64,
    /// Ȳ > 0: the largest |reward|; larger ones are cut to it. Default 1.
    pub reward_bound: f64,
    /// in [1, 512]: in how many rounds an agent takes part; then it falls silent. Default 16.
    pub max_releases: u64,
    /// ≥ 1: observations of an agent before its first round. Default 100.
    pub first_release: u64,
    /// in (1, ∞): an agent calls a round when its observations have grown by this factor since the last. Default 1.5.
    pub release_growth: f64,
    /// How long a round waits for all agents; afterwards it goes on without the missing. Not set: it waits for all agents.
    pub round_deadline: Option<TimeSpan>,
}

impl Default for FedUcb {
    fn default() -> Self {
        Self {
            model: ModelConfig::default(),
            epsilon: 1.0,
            delta: 1e-5,
            feature_bound: 1.0,
            reward_bound: 1.0,
            max_releases: 16,
            first_release: 100,
            release_growth: 1.5,
            round_deadline: None,
        }
    }
}

impl FedUcb {
    /// The promise as this algorithm keeps it: a binary tree whose noise is the same in every number, and choices that use an
    /// agent's own raw observations.
    pub(crate) fn privacy(&self) -> PrivacyConfig {
        PrivacyConfig {
            epsilon: self.epsilon,
            delta: self.delta,
            mechanism: Mechanism::Tree,
            max_releases: self.max_releases,
            feature_bound: self.feature_bound,
            reward_bound: self.reward_bound,
            // In print the noise is the same in all numbers of [x; y][x; y]ᵀ.
            vector_noise: self.feature_bound / self.reward_bound,
            first_release: self.first_release,
            release_growth: self.release_growth,
            private_width: 1.0,
            raw_buffer: true,
            ..PrivacyConfig::default()
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.privacy().check()
    }
}
