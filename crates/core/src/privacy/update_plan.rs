//! What a privacy budget will cost where agents share updates of a network, before anything runs.

use serde::Serialize;

use crate::error::ConfigError;
use crate::privacy::budget::{Budget, Calibration};
use crate::privacy::config::{PrivacyConfig, Unit};

/// What is known before a private run in which agents share updates of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UpdatePlanRequest {
    /// The promise and the schedule of releases, as a federation would be configured.
    #[serde(flatten)]
    pub privacy: PrivacyConfig,
    /// C: the longest update of an agent.
    pub update_bound: f64,
    /// p: how many numbers an update has.
    pub parameters: usize,
    /// How many agents the run has.
    pub agents: u64,
    /// Interactions of the whole run, over all agents.
    pub interactions: u64,
}

/// What to expect of a private run in which agents share updates of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UpdatePlan {
    /// The noise: the numbers that the statement of a run with these settings has.
    pub calibration: Calibration,
    /// How long the noise in the mean of all agents' updates is, as a multiple of the longest update: √p·σ/(C·√N).
    pub noise_in_mean: f64,
    /// With how many agents the noise in the mean is as long as the longest update: p·σ²/C².
    pub agents_to_match: f64,
    /// Releases that an agent will need for all its interactions, by the schedule.
    pub releases_needed: u64,
    /// Interactions of an agent that its releases reach: afterwards it is silent.
    pub released_until: f64,
}

impl UpdatePlanRequest {
    /// The plan, or the setting that is impossible.
    pub fn plan(&self) -> Result<UpdatePlan, ConfigError> {
        self.privacy.check()?;
        if self.privacy.unit != Unit::Agent {
            let allowed = "updates of a network protect agents";
            return Err(ConfigError::new("unit", self.privacy.unit.name(), allowed));
        }
        for (name, value) in [("agents", self.agents), ("interactions", self.interactions)] {
            if value == 0 {
                return Err(ConfigError::new(name, 0, "it must be at least 1"));
            }
        }
        let calibration = Budget::of_updates(&self.privacy, self.parameters, self.update_bound).calibration();
        let ratio = calibration.cluster_noise / self.update_bound;
        let agents_to_match = self.parameters as f64 * ratio * ratio;
        let each = self.interactions as f64 / self.agents as f64;
        Ok(UpdatePlan {
            calibration,
            noise_in_mean: (agents_to_match / self.agents as f64).sqrt(),
            agents_to_match,
            releases_needed: self.privacy.releases_until(self.privacy.first_release, each),
            released_until: self.privacy.released_until(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> UpdatePlanRequest {
        UpdatePlanRequest {
            privacy: PrivacyConfig { unit: Unit::Agent, max_releases: 4, ..Default::default() },
            update_bound: 0.5,
            parameters: 241,
            agents: 100,
            interactions: 100_000,
        }
    }

    /// ε = 1, δ = 1e-5 and four releases of a network of 241 parameters: noise drowns a hundred agents, and 53 000 are needed.
    #[test]
    fn noise_in_the_mean_falls_with_the_root_of_agents() {
        let plan = request().plan().unwrap();
        let sigma = 2.0 * 0.5 * 2.0 / plan.calibration.mu;
        assert!((plan.calibration.cluster_noise / sigma - 1.0).abs() < 1e-4, "{plan:?}");
        assert!((plan.agents_to_match - 241.0 * sigma * sigma / 0.25).abs() < 10.0, "{plan:?}");
        assert!((50_000.0..60_000.0).contains(&plan.agents_to_match), "{plan:?}");
        let more = UpdatePlanRequest { agents: 400, ..request() }.plan().unwrap();
        assert!((plan.noise_in_mean / more.noise_in_mean - 2.0).abs() < 1e-9);
        let longer = UpdatePlanRequest { update_bound: 5.0, ..request() }.plan().unwrap();
        assert!((plan.noise_in_mean / longer.noise_in_mean - 1.0).abs() < 1e-9, "noise is in proportion");
    }

    #[test]
    fn impossible_requests_are_refused_by_name() {
        let refused = |request: UpdatePlanRequest| request.plan().unwrap_err().name;
        assert_eq!(refused(UpdatePlanRequest { privacy: PrivacyConfig::default(), ..request() }), "unit");
        assert_eq!(refused(UpdatePlanRequest { agents: 0, ..request() }), "agents");
        assert_eq!(refused(UpdatePlanRequest { interactions: 0, ..request() }), "interactions");
    }
}
