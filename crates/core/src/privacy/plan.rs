//! What a privacy budget will cost, before anything runs.

use serde::Serialize;

use crate::error::ConfigError;
use crate::privacy::budget::{Budget, Calibration};
use crate::privacy::config::PrivacyConfig;
use crate::privacy::masking::SecureAggregation;

/// What is known before a private run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanRequest {
    /// The promise and the bounds on observations, as a federation would be configured.
    #[serde(flatten)]
    pub privacy: PrivacyConfig,
    /// Whether clusters may split, which takes a share of the budget.
    pub splits: bool,
    /// Whether agents keep the promise together. Noise is then what one agent adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_aggregation: Option<SecureAggregation>,
    /// Features of an arm (d).
    pub dimension: usize,
    /// How many agents the run has.
    pub agents: u64,
    /// Interactions of the whole run, over all agents.
    pub interactions: u64,
    /// λ_x: the smallest eigenvalue of the mean of xxᵀ; how much one observation tells, in the direction it
    /// tells least.
    pub least_eigenvalue: f64,
}

/// What to expect of a private run: its noise, and how many observations it takes to rise above that.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The noise: the numbers that the statement of a run with these settings has.
    pub calibration: Calibration,
    /// Observations an agent needs before its data reach above its noise: 2√d·σ/λ_x, with σ that of the worst release.
    pub observations_to_match: f64,
    /// Observations an agent needs before its data outweigh the bound on its noise.
    pub observations_to_outweigh: f64,
    /// Observations that each agent will have.
    pub observations_of_an_agent: f64,
    /// λ_x times those over the bound on the noise: above 1, data decide more than noise.
    pub signal_to_noise: f64,
    /// Observations of an agent that its releases reach, if it is one stream: afterwards it is silent.
    pub released_until: f64,
    /// Releases that an agent will need for all its observations.
    pub releases_needed: u64,
    /// The first release that is worth its noise: a sixth of `observations_to_match`, as a round number.
    pub suggested_first_release: u64,
    /// Releases from there to the end at the same growth.
    pub suggested_max_releases: u64,
}

/// A change of settings and what it would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The name of the setting to change.
    pub setting: &'static str,
    /// The value to try for that setting.
    pub value: f64,
    /// The signal over the noise with it.
    pub signal_to_noise: f64,
}

impl PlanRequest {
    /// The plan, or the setting that is impossible.
    pub fn plan(&self) -> Result<Plan, ConfigError> {
        self.privacy.check_for_sums()?;
        self.secure_aggregation.as_ref().map_or(Ok(()), SecureAggregation::check)?;
        if self.dimension == 0 || self.dimension > 10_000 {
            return Err(ConfigError::new("dimension", self.dimension, "it must be 1 to 10000"));
        }
        if self.agents == 0 {
            return Err(ConfigError::new("agents", 0, "it must be at least 1"));
        }
        if self.interactions == 0 {
            return Err(ConfigError::new("interactions", 0, "it must be at least 1"));
        }
        let least = self.least_eigenvalue;
        ConfigError::require(least > 0.0 && least <= 1.0, "least_eigenvalue", least, "above 0, at most 1")?;
        Ok(self.made())
    }

    fn made(&self) -> Plan {
        let budget = Budget::new(&self.privacy, self.dimension, self.splits)
            .divided(self.secure_aggregation.map_or(1, |secure| secure.honest()));
        let calibration = budget.calibration();
        let bound = calibration.matrix_bound;
        let noise = calibration.cluster_noise;
        let each = self.interactions as f64 / self.agents as f64;
        let match_at = budget.noise_edge(noise * noise) / self.least_eigenvalue;
        // Measured on fclub-fig2a: releases before that are wasted, later ones leave choices to chance for longer.
        let suggested_first_release = rounded(match_at / 6.0).max(10);
        Plan {
            calibration,
            observations_to_match: match_at,
            observations_to_outweigh: bound / self.least_eigenvalue,
            observations_of_an_agent: each,
            signal_to_noise: self.least_eigenvalue * each / bound,
            released_until: self.privacy.released_until(),
            releases_needed: self.privacy.releases_until(self.privacy.first_release, each),
            suggested_first_release,
            suggested_max_releases: self.privacy.releases_until(suggested_first_release, each).max(1),
        }
    }

    /// Single changes of settings that help, best first.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        let now = self.made().signal_to_noise;
        let with = |setting, value: f64, change: &dyn Fn(&mut Self)| {
            let mut other = self.clone();
            change(&mut other);
            Advice { setting, value, signal_to_noise: other.made().signal_to_noise }
        };
        let fewer = (self.privacy.max_releases / 4).max(1);
        let agents = (self.agents / 4).max(1);
        let longer = self.interactions.saturating_mul(10);
        let epsilon = 2.0 * self.privacy.epsilon;
        let half = 0.5 * self.privacy.reward_bound;
        let mut all = vec![
            with("interactions", longer as f64, &|plan| plan.interactions = longer),
            with("agents", agents as f64, &|plan| plan.agents = agents),
            with("epsilon", epsilon, &|plan| plan.privacy.epsilon = epsilon),
            with("reward_bound", half, &|plan| plan.privacy.reward_bound = half),
            with("edge_scale", f64::INFINITY, &|plan| plan.splits = false),
            with("max_releases", fewer as f64, &|plan| plan.privacy.max_releases = fewer),
        ];
        all.retain(|advice| advice.signal_to_noise > 1.05 * now);
        all.sort_by(|a, b| b.signal_to_noise.total_cmp(&a.signal_to_noise));
        all
    }
}

impl PrivacyConfig {
    /// How often a stream is due until it has `observations`, if the first release is at `first`.
    pub(super) fn releases_until(&self, first: u64, observations: f64) -> u64 {
        let (mut total, mut releases) = (first as f64, 0);
        while total <= observations && releases < 100_000 {
            releases += 1;
            total += libm::ceil((self.release_growth - 1.0) * total).max(1.0);
        }
        releases
    }

    /// How many observations a stream has at its last release.
    pub(super) fn released_until(&self) -> f64 {
        let last = libm::log(self.release_growth) * (self.max_releases - 1) as f64;
        self.first_release as f64 * libm::exp(last.min(700.0))
    }
}

/// A number of one digit and zeros, not above this one.
fn rounded(number: f64) -> u64 {
    let number = number.clamp(1.0, 1e15);
    let power = libm::exp(libm::floor(libm::log10(number)) * std::f64::consts::LN_10).max(1.0);
    (libm::floor(number / power) * power) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> PlanRequest {
        let privacy = PrivacyConfig { streams: 20, ..Default::default() };
        let least_eigenvalue = 1.0 / 18.0;
        PlanRequest {
            privacy,
            splits: false,
            secure_aggregation: None,
            dimension: 10,
            agents: 5,
            interactions: 1_000_000,
            least_eigenvalue,
        }
    }

    /// ε = 1, δ = 1e-5, d = 10, 24 releases: noise of about 11 in the worst release, whose eigenvalues end at 70.
    #[test]
    fn the_rule_of_thumb_holds() {
        let plan = request().plan().unwrap();
        let noise = plan.calibration.cluster_noise;
        assert!((10.0..11.5).contains(&noise), "{plan:?}");
        assert!((plan.observations_to_match - 18.0 * 2.0 * 10f64.sqrt() * noise).abs() < 1e-6, "{plan:?}");
        assert!(plan.observations_to_outweigh > plan.observations_to_match);
        assert!(plan.signal_to_noise > 1.0);
        assert_eq!(plan.suggested_first_release, 200);
        assert_eq!(plan.releases_needed, 32, "from 50 to 200 000 by three tenths");
    }

    #[test]
    fn agents_that_keep_a_promise_together_need_fewer_observations_each() {
        let alone = request().plan().unwrap();
        let secure = SecureAggregation { survivors: 5, colluders: 1 };
        let together = PlanRequest { secure_aggregation: Some(secure), ..request() }.plan().unwrap();
        let ratio = alone.calibration.cluster_noise / together.calibration.cluster_noise;
        assert!((ratio - 2.0).abs() < 1e-9, "a fourth of the variance is half of the deviation: {ratio}");
        assert!((alone.observations_to_match / together.observations_to_match - 2.0).abs() < 1e-9);
        assert_eq!(alone.calibration.mu, together.calibration.mu);
        let few = SecureAggregation { survivors: 1, colluders: 0 };
        let refused = PlanRequest { secure_aggregation: Some(few), ..request() }.plan().unwrap_err();
        assert_eq!(refused.name, "survivors");
    }

    #[test]
    fn advice_helps_and_names_real_settings() {
        let advice = request().advice();
        assert!(advice.len() >= 3);
        let now = request().plan().unwrap().signal_to_noise;
        assert!(advice.iter().all(|a| a.signal_to_noise > now));
        assert!(advice.iter().all(|a| a.setting != "edge_scale"), "nothing splits already");
        let splitting = PlanRequest { splits: true, ..request() }.advice();
        assert!(splitting.iter().any(|a| a.setting == "edge_scale"));
    }

    #[test]
    fn impossible_requests_are_refused_by_name() {
        let refused = |request: PlanRequest| request.plan().unwrap_err().name;
        assert_eq!(refused(PlanRequest { dimension: 0, ..request() }), "dimension");
        assert_eq!(refused(PlanRequest { agents: 0, ..request() }), "agents");
        assert_eq!(refused(PlanRequest { interactions: 0, ..request() }), "interactions");
        assert_eq!(refused(PlanRequest { least_eigenvalue: 0.0, ..request() }), "least_eigenvalue");
        let privacy = PrivacyConfig { epsilon: -1.0, ..Default::default() };
        assert_eq!(refused(PlanRequest { privacy, ..request() }), "epsilon");
    }
}
