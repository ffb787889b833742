//! Private generalized linear bandits: the settings. Agents and coordinator are those of every private algorithm; rewards enter the
//! sums through a line around what was released (`privacy::response`).

use serde::{Deserialize, Serialize};

use super::link::LinkFunction;
use crate::error::ConfigError;
use crate::privacy::PrivacyConfig;
use crate::privacy::response::Response;
use crate::settings::Described;
use crate::trigger::Threshold;
use crate::width::ModelConfig;

/// Settings of `private-glm-ucb`: a generalized linear model over private sums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct PrivateGlmUcb {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// μ: how the expected reward follows from xᵀθ. Default logistic.
    pub link: LinkFunction,
    /// D in [1, ∞]: an agent is sent the sums of all when det V(λ) of them exceeds that of its own view by more. Default 1.25.
    pub download_threshold: Threshold,
    /// The privacy that the federation promises, and the bounds on observations that it rests on. With a logistic or probit link
    /// rewards lie between 0 and 1, and the bounds on rewards have no meaning.
    #[serde(flatten)]
    pub privacy: PrivacyConfig,
}

impl Default for PrivateGlmUcb {
    fn default() -> Self {
        Self {
            model: ModelConfig::default(),
            link: LinkFunction::default(),
            download_threshold: Threshold(1.25),
            privacy: PrivacyConfig::default(),
        }
    }
}

impl PrivateGlmUcb {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.privacy.check_for_sums()?;
        self.download_threshold.check_ratio("download_threshold")?;
        // As in other generalized linear algorithms: where the link is flat, rewards tell nothing.
        let reach = self.model.norm_bound * self.privacy.feature_bound;
        let flat = self.link.smallest_slope(reach) < 1e-7;
        let range = "times `feature_bound` it must leave the link a slope";
        ConfigError::require(!flat, "norm_bound", self.model.norm_bound, range)?;
        let [low, high] = self.rewards();
        let range = "with `reward_centre` it must leave room for rewards that the link can have";
        ConfigError::require(low < high, "reward_bound", self.privacy.reward_bound, range)?;
        self.made().1.check()
    }

    /// How rewards enter the sums; as they are where the link is the identity.
    pub(crate) fn response(&self) -> Option<Response> {
        let mean: fn(f64) -> f64 = match self.link {
            LinkFunction::Identity => return None,
            LinkFunction::Logistic => |z| LinkFunction::Logistic.mean(z),
            LinkFunction::Poisson => |z| LinkFunction::Poisson.mean(z),
            LinkFunction::Probit => |z| LinkFunction::Probit.mean(z),
        };
        let reach = self.model.norm_bound * self.privacy.feature_bound;
        Some(Response { mean, slope: self.link.largest_slope(reach), reach, rewards: self.rewards() })
    }

    /// The smallest and the largest reward that is learned from as it is: clicks are 0 or 1, and no count is below 0.
    fn rewards(&self) -> [f64; 2] {
        let PrivacyConfig { reward_centre, reward_bound, .. } = self.privacy;
        let (low, high) = (reward_centre - reward_bound, reward_centre + reward_bound);
        match self.link {
            LinkFunction::Logistic | LinkFunction::Probit => [0.0, 1.0],
            LinkFunction::Poisson => [low.max(0.0), high],
            LinkFunction::Identity => [low, high],
        }
    }

    /// The model and the promise in terms of what rewards count as.
    pub(crate) fn made(&self) -> (ModelConfig, PrivacyConfig) {
        let (mut model, mut privacy) = (self.model.clone(), self.privacy.clone());
        if let Some(response) = self.response() {
            model.noise /= response.slope;
            privacy.reward_bound = response.largest();
            privacy.reward_centre = 0.0;
        }
        (model, privacy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_reward_counts_as_is_beyond_the_bound_that_noise_is_made_for() {
        for link in LinkFunction::all() {
            for norm_bound in [0.5, 1.0, 3.0] {
                let mut config = PrivateGlmUcb { link, ..Default::default() };
                config.model.norm_bound = norm_bound;
                (config.privacy.reward_centre, config.privacy.reward_bound) = (2.0, 2.0);
                let Some(response) = config.response() else { continue };
                let bound = config.made().1.reward_bound;
                let most = if link == LinkFunction::Poisson { 4.0 } else { 1.0 };
                let mut largest = 0.0f64;
                for step in -200..=200 {
                    let u = f64::from(step) / 40.0;
                    for reward in [0.0, 0.3 * most, most] {
                        largest = largest.max(response.of(u, reward).abs());
                    }
                }
                assert!(largest <= bound * (1.0 + 1e-12), "{link:?} {norm_bound}: {largest} {bound}");
                assert!(largest > 0.99 * bound, "{link:?} {norm_bound}: {largest} {bound}");
            }
        }
    }

    /// Regressions around one estimate after the other end where the likelihood has its maximum: at the parameter of the world.
    #[test]
    fn lines_around_estimates_lead_to_the_parameter_of_the_curve() {
        for link in [LinkFunction::Logistic, LinkFunction::Probit, LinkFunction::Poisson] {
            let response = PrivateGlmUcb { link, ..Default::default() }.response().unwrap();
            let truth = 0.8;
            let mut estimate = 0.0;
            for _ in 0..60 {
                // One feature, equally often ½ and 1, and rewards as expected.
                let (mut gram, mut moment) = (0.0, 0.0);
                for x in [0.5, 1.0] {
                    gram += x * x;
                    moment += x * response.of(x * estimate, link.mean(x * truth));
                }
                estimate = moment / gram;
            }
            assert!((estimate - truth).abs() < 1e-6, "{link:?}: {estimate}");
        }
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |config: PrivateGlmUcb| config.check().unwrap_err().name;
        assert_eq!(PrivateGlmUcb::default().check(), Ok(()));
        let model = ModelConfig { norm_bound: 1000.0, ..Default::default() };
        assert_eq!(refused(PrivateGlmUcb { model, ..Default::default() }), "norm_bound");
        let download_threshold = Threshold(0.5);
        assert_eq!(refused(PrivateGlmUcb { download_threshold, ..Default::default() }), "download_threshold");
        let privacy = PrivacyConfig { delta: 2.0, ..Default::default() };
        assert_eq!(refused(PrivateGlmUcb { privacy, ..Default::default() }), "delta");
        let privacy = PrivacyConfig { reward_centre: -3.0, ..Default::default() };
        let counts = PrivateGlmUcb { link: LinkFunction::Poisson, privacy, ..Default::default() };
        assert_eq!(refused(counts.clone()), "reward_bound", "no count is between -4 and -2");
        assert_eq!(PrivateGlmUcb { link: LinkFunction::Identity, ..counts }.check(), Ok(()));
    }
}
