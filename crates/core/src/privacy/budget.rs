//! From settings to noise: the one function that plans, agents, coordinators and statements use.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::evidence::packed;
use crate::privacy::config::{PrivacyConfig, Unit};
use crate::privacy::conversion;
use crate::privacy::factorisation::Factors;
use crate::privacy::fixed::LATTICE;

/// How a promise is divided and what noise keeps it.
///
/// One interaction is in one stream of its cluster and, where clusters may split, in one stream of its user: a part
/// of a cluster that split begins a stream of its own with later interactions, and takes what was before from the released
/// sums of its users. So the losses of the two add up, as squares, to that of the promise.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// μ of everything that may be released.
    pub mu: f64,
    /// What the stream of a cluster may release.
    pub cluster: Share,
    /// The releases of a user, where clusters may split.
    pub user: Option<Share>,
    /// Streams and releases that bounds hold for at once, over the probability with which they fail.
    odds: f64,
    dimension: usize,
}

/// The part of the budget that one stream may spend.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// μ of all releases of a stream.
    pub mu: f64,
    /// σ: standard deviation of the noise of one measurement, off the diagonal.
    pub sigma: f64,
    /// The linear combinations of sums that are measured, and how releases are made of them.
    pub factors: Arc<Factors>,
}

/// A budget in numbers, for plans and statements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// μ of everything that may be released.
    pub mu: f64,
    /// μ of the releases of a cluster.
    pub cluster_mu: f64,
    /// Standard deviation of the noise in a release of a cluster: the largest over all its releases, off the diagonal.
    pub cluster_noise: f64,
    /// μ of the releases of a user; 0 where clusters never split.
    pub user_mu: f64,
    /// Standard deviation of the noise in a release of a user; 0 where clusters never split.
    pub user_noise: f64,
    /// What the matrix in a release of a cluster is off by at most, in operator norm.
    pub matrix_bound: f64,
    /// What the vector in a release of a cluster is off by at most, in norm.
    pub vector_bound: f64,
}

impl Budget {
    /// The budget of a federation with so many features, in which clusters may split or not.
    #[must_use]
    pub fn new(config: &PrivacyConfig, dimension: usize, splits: bool) -> Self {
        let mu = conversion::gaussian_mu(config.epsilon, config.delta);
        let user_part = if splits { config.edge_share } else { 0.0 };
        let share = |part: f64, releases: u64| {
            Share::new(config, dimension, mu * part.sqrt(), Factors::new(config.mechanism, releases))
        };
        let cluster = share(1.0 - user_part, config.max_releases);
        let user = splits.then(|| share(user_part, config.edge_releases));
        let user_mu = user.as_ref().map_or(0.0, |share| share.mu);
        Self {
            mu: (cluster.mu * cluster.mu + user_mu * user_mu).sqrt(),
            cluster,
            user,
            odds: config.streams as f64 * config.max_releases as f64 / config.noise_failure,
            dimension,
        }
    }

    /// The bound on the operator norm of a symmetric matrix of noise with this variance off the diagonal and twice
    /// that on it: √variance·(2√d + 2√ln(2·odds)).
    #[must_use]
    pub fn matrix_bound(&self, variance: f64) -> f64 {
        variance.sqrt() * (2.0 * (self.dimension as f64).sqrt() + 2.0 * libm::log(2.0 * self.odds).sqrt())
    }

    /// The bound on the norm of a vector of noise with this variance: √variance·(√d + √(2 ln odds)).
    #[must_use]
    pub fn vector_bound(&self, variance: f64) -> f64 {
        variance.sqrt() * ((self.dimension as f64).sqrt() + (2.0 * libm::log(self.odds)).sqrt())
    }

    /// The least eigenvalue that sums with noise of this variance are believed to have: 2√(d·variance), where the
    /// eigenvalues of noise alone end. What is below is noise, whatever the sign.
    #[must_use]
    pub fn floor(&self, variance: f64) -> f64 {
        2.0 * (self.dimension as f64 * variance).sqrt()
    }

    /// Returns the budget in numbers, as plans and statements print it.
    #[must_use]
    pub fn calibration(&self) -> Calibration {
        let noise = |share: &Share| share.sigma * share.factors.worst_variance().sqrt();
        let worst = noise(&self.cluster);
        Calibration {
            mu: self.mu,
            cluster_mu: self.cluster.mu,
            cluster_noise: worst,
            user_mu: self.user.as_ref().map_or(0.0, |share| share.mu),
            user_noise: self.user.as_ref().map_or(0.0, noise),
            matrix_bound: self.matrix_bound(worst * worst),
            vector_bound: self.vector_bound(worst * worst),
        }
    }
}

impl Share {
    fn new(config: &PrivacyConfig, dimension: usize, mu: f64, factors: Factors) -> Self {
        // Replacing an interaction moves Σ[x; y][x; y]ᵀ without its last corner by √2·(X̄² + Ȳ²) at most in
        // Frobenius' norm, and noise is √2·σ in every direction of that norm. A user is that many interactions.
        let (x, y) = (config.feature_bound, config.reward_bound);
        let reach = (x * x + y * y) * if config.unit == Unit::User { config.user_cap as f64 } else { 1.0 };
        let releases = factors.releases();
        // Measurements are rounded to the lattice of the noise, which may move each number by one step more.
        let entries = (packed(dimension) + dimension) as f64;
        let rounding = (entries * releases as f64).sqrt() / LATTICE;
        // Only a promise of ε ≈ 0.001 over thousands of features leaves less than half: then more is lost than was
        // promised, and the statement says so.
        let left = (mu - rounding).max(0.5 * mu);
        let sigma = reach * factors.loss(releases).sqrt() / left;
        Self { mu: left + rounding, sigma, factors: Arc::new(factors) }
    }

    /// μ² of what one unit has lost after so many releases.
    #[must_use]
    pub fn loss(&self, releases: u64) -> f64 {
        let whole = self.factors.loss(self.factors.releases());
        self.mu * self.mu * self.factors.loss(releases) / whole
    }

    /// The variance of release `k`, off the diagonal.
    #[must_use]
    pub fn variance(&self, k: u64) -> f64 {
        self.sigma * self.sigma * self.factors.variance(k)
    }
}

impl PrivacyConfig {
    /// The budget in numbers, for so many features, where clusters may split or not.
    #[must_use]
    pub fn calibration(&self, dimension: usize, splits: bool) -> Calibration {
        Budget::new(self, dimension, splits).calibration()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::Mechanism;

    #[test]
    fn a_budget_spends_exactly_its_promise() {
        for mechanism in [Mechanism::Factorisation, Mechanism::Tree] {
            for (max_releases, splits) in [(1, false), (16, true), (100, true)] {
                let config = PrivacyConfig { max_releases, mechanism, ..Default::default() };
                let budget = Budget::new(&config, 10, splits);
                let user = budget.user.as_ref().map_or(0.0, |share| share.loss(config.edge_releases));
                let all = (budget.cluster.loss(max_releases) + user).sqrt();
                assert!((all / budget.mu - 1.0).abs() < 1e-12);
                let epsilon = conversion::gaussian_epsilon(all, config.delta);
                assert!((epsilon - config.epsilon).abs() < 1e-6, "{epsilon}");
                // The noise is that of the loss, up to the rounding that it has to hide as well.
                let share = &budget.cluster;
                let moved = share.factors.loss(max_releases).sqrt() * 2.0 / share.sigma;
                assert!(moved <= share.mu && moved > share.mu * 0.999, "{moved} {}", share.mu);
            }
        }
    }

    /// ε = 1, δ = 0.1, rewards around ½: a single release of ten features needs σ = 1.36.
    #[test]
    fn the_known_numbers_come_out() {
        let config = PrivacyConfig {
            delta: 0.1,
            max_releases: 1,
            reward_bound: 0.5,
            reward_centre: 0.5,
            ..Default::default()
        };
        let one = config.calibration(10, false);
        assert!((one.cluster_noise - 1.25 / one.mu).abs() < 1e-5, "{one:?}");
        assert!((1.3..1.4).contains(&one.cluster_noise), "{one:?}");
        let whole = PrivacyConfig { reward_bound: 1.0, ..config.clone() }.calibration(10, false);
        assert!((one.cluster_noise / whole.cluster_noise - 0.625).abs() < 1e-6);
        let split = config.calibration(10, true);
        assert!((split.cluster_noise / one.cluster_noise - 0.8f64.sqrt().recip()).abs() < 1e-5);
    }

    #[test]
    fn a_user_with_many_interactions_takes_as_many_times_the_noise() {
        let one = PrivacyConfig::default().calibration(5, false).cluster_noise;
        let config = PrivacyConfig { unit: Unit::User, user_cap: 30, ..Default::default() };
        assert!((config.calibration(5, false).cluster_noise / one - 30.0).abs() < 1e-9);
    }
}
