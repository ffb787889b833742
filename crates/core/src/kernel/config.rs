//! Settings of the kernel family.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use super::function::Kernel;
use super::learner::{KernelLearner, KernelRule};
use super::regression::KernelRegression;
use crate::arm_draws::ArmDraws;
use crate::error::ConfigError;
use crate::ids::AgentId;
use crate::random::Seed;
use crate::width::{NOT_NEGATIVE, POSITIVE};

/// Settings of `kernel-ucb` and `kernel-ts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default, deny_unknown_fields)]
pub struct KernelConfig {
    /// k: how similar two arms are. Default exponential.
    pub kernel: Kernel,
    /// ℓ > 0: features are divided by it before the kernel sees them; from 1e-100 to 1e100. Much shorter
    /// than the distances between arms, nothing is learned about one arm from another; much longer, all
    /// arms look alike. Default 1.
    pub length_scale: f64,
    /// λ > 0: the variance of the reward noise, if that of rewards between arms is 1. The smaller, the
    /// closer the means follow each reward. Default 1.
    pub regularization: f64,
    /// ν ≥ 0: how much the variance counts, in units of λ. 0 never explores. Default 0.1.
    pub exploration: f64,
    /// in [1, 20000]: the most observations that are kept; what comes later is counted and not learned from. Time for a
    /// choice and memory grow with its square: 1000 takes 4 MB an agent, 10 000 takes 400 MB. Default 1000.
    #[setting(max = 20_000)]
    pub max_history: usize,
}

impl Default for KernelConfig {
    fn default() -> Self {
        Self {
            kernel: Kernel::default(),
            length_scale: 1.0,
            regularization: 1.0,
            exploration: 0.1,
            max_history: 1000,
        }
    }
}

/// The largest history limit: 3.2 GB an agent.
const MAX_HISTORY: usize = 20_000;

impl KernelConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let require = ConfigError::require;
        let scale = self.length_scale;
        require(
            (1e-100..=1e100).contains(&scale),
            "length_scale",
            scale,
            "it must be a positive number, 1e-100 to 1e100",
        )?;
        let lambda = self.regularization;
        require(lambda > 0.0 && lambda.is_finite(), "regularization", lambda, POSITIVE)?;
        let nu = self.exploration;
        require(nu >= 0.0 && nu.is_finite(), "exploration", nu, NOT_NEGATIVE)?;
        if !(1..=MAX_HISTORY).contains(&self.max_history) {
            return Err(ConfigError::new("max_history", self.max_history, "it must be 1 to 20000"));
        }
        Ok(())
    }

    /// An agent that chooses by upper confidence bounds.
    pub(crate) fn ucb(&self, dimension: usize) -> KernelLearner {
        self.learner("kernel-ucb", KernelRule::Ucb, dimension)
    }

    /// An agent that chooses by Thompson sampling.
    pub(crate) fn ts(&self, agent: AgentId, seed: Seed, dimension: usize) -> KernelLearner {
        self.learner("kernel-ts", KernelRule::Thompson(ArmDraws::new(agent, seed)), dimension)
    }

    fn learner(&self, name: &'static str, rule: KernelRule, dimension: usize) -> KernelLearner {
        let regression =
            KernelRegression::new(self.kernel, self.length_scale, self.regularization, dimension);
        // λν of the formulas.
        let variance_scale = self.regularization * self.exploration;
        KernelLearner::new(name, rule, regression, variance_scale, self.max_history)
    }
}
