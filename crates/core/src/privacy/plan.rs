//! What a privacy budget will cost, before anything runs.

use serde::Serialize;

use crate::error::ConfigError;
use crate::privacy::config::{Calibration, PrivacyConfig};

/// What is known before a private run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanRequest {
    /// What is promised.
    #[serde(flatten)]
    pub privacy: PrivacyConfig,
    /// Features of an arm (d).
    pub dimension: usize,
    /// Agents.
    pub agents: u64,
    /// Interactions of the whole run, over all agents.
    pub interactions: u64,
    /// λ_x: the smallest eigenvalue of the mean of xxᵀ; how much one observation tells, in the direction it
    /// tells least.
    pub least_eigenvalue: f64,
}

/// What a private run will meet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Noise and bounds.
    pub calibration: Calibration,
    /// 2ρ_s: what each agent's release adds to the diagonal of a sum.
    pub shift: f64,
    /// Observations an agent needs before its data outweigh the bound on its noise: ρ_s/λ_x.
    pub observations_to_match: f64,
    /// The same for the whole shift.
    pub observations_to_outweigh: f64,
    /// Observations that each agent will have.
    pub observations_of_an_agent: f64,
    /// λ_x times those over the shift: above 1, data decide more than noise.
    pub signal_to_shift: f64,
    /// Observations of an agent that its releases reach, if it is one stream: afterwards it is silent.
    pub released_until: f64,
}

/// A change of settings and what it would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The setting.
    pub setting: &'static str,
    /// The value to try.
    pub value: f64,
    /// The signal over the shift with it.
    pub signal_to_shift: f64,
}

impl PlanRequest {
    /// The plan, or the setting that is impossible.
    pub fn plan(&self) -> Result<Plan, ConfigError> {
        self.privacy.check()?;
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
        let calibration = self.privacy.calibration(self.dimension);
        let (bound, shift) = (calibration.bounds.matrix, calibration.bounds.shift());
        let each = self.interactions as f64 / self.agents as f64;
        let PrivacyConfig { first_release, release_growth, max_releases, .. } = self.privacy;
        let last = libm::log(release_growth) * (max_releases - 1) as f64;
        Plan {
            calibration,
            shift,
            observations_to_match: bound / self.least_eigenvalue,
            observations_to_outweigh: shift / self.least_eigenvalue,
            observations_of_an_agent: each,
            signal_to_shift: self.least_eigenvalue * each / shift,
            released_until: first_release as f64 * libm::exp(last.min(700.0)),
        }
    }

    /// Single changes of settings that help, best first.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        let now = self.made().signal_to_shift;
        let with = |setting, value: f64, change: &dyn Fn(&mut Self)| {
            let mut other = self.clone();
            change(&mut other);
            Advice { setting, value, signal_to_shift: other.made().signal_to_shift }
        };
        let fewer = (self.privacy.max_releases / 4).max(1);
        let agents = (self.agents / 4).max(1);
        let longer = self.interactions.saturating_mul(10);
        let epsilon = 2.0 * self.privacy.epsilon;
        let mut all = vec![
            with("interactions", longer as f64, &|plan| plan.interactions = longer),
            with("agents", agents as f64, &|plan| plan.agents = agents),
            with("epsilon", epsilon, &|plan| plan.privacy.epsilon = epsilon),
            with("max_trees", 1.0, &|plan| plan.privacy.max_trees = 1),
            with("max_releases", fewer as f64, &|plan| plan.privacy.max_releases = fewer),
        ];
        all.retain(|advice| advice.signal_to_shift > 1.05 * now);
        all.sort_by(|a, b| b.signal_to_shift.total_cmp(&a.signal_to_shift));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::conversion;

    fn request() -> PlanRequest {
        let privacy = PrivacyConfig { max_trees: 1, streams: 20, ..Default::default() };
        let least_eigenvalue = 1.0 / 18.0;
        PlanRequest { privacy, dimension: 10, agents: 5, interactions: 1_000_000, least_eigenvalue }
    }

    /// ε = 1, δ = 1e-5, d = 10, 16 releases, one tree: ρ_s ≈ 615 with the simple conversion, and 11 000
    /// observations to match it. The tight conversion needs a sixth less noise.
    #[test]
    fn the_rule_of_thumb_holds() {
        let plan = request().plan().unwrap();
        let slack = (plan.calibration.rho_total / conversion::simple_rho(1.0, 1e-5)).sqrt();
        assert!((1.1..1.3).contains(&slack), "{slack}");
        assert!((plan.calibration.bounds.matrix * slack - 615.0).abs() < 1.0, "{plan:?}");
        assert!((plan.observations_to_match * slack - 11_070.0).abs() < 20.0, "{plan:?}");
        assert!((plan.observations_to_outweigh - 2.0 * plan.observations_to_match).abs() < 1e-6);
        assert!(plan.signal_to_shift > 1.0);
    }

    #[test]
    fn advice_helps_and_names_real_settings() {
        let advice = request().advice();
        assert!(advice.len() >= 3);
        let now = request().plan().unwrap().signal_to_shift;
        assert!(advice.iter().all(|a| a.signal_to_shift > now));
        assert!(advice.iter().all(|a| a.setting != "max_trees"), "there is only one already");
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
