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
    /// Standard deviation of the noise in a number of Σxy, as a multiple of that in a number of Σxxᵀ off its diagonal.
    pub vector_ratio: f64,
    /// Streams and releases that bounds hold for at once, over the probability with which they fail.
    odds: f64,
    dimension: usize,
}

/// The part of the budget that one stream may spend.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// μ of all releases of a stream.
    pub mu: f64,
    /// σ: standard deviation of the noise of one measurement of Σxxᵀ, off its diagonal.
    pub sigma: f64,
    /// Standard deviation of the noise of one measurement of Σxy.
    pub vector_sigma: f64,
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
    /// Standard deviation of the noise in Σxxᵀ of a release of a cluster: the largest over all its releases, off the diagonal.
    pub cluster_noise: f64,
    /// Standard deviation of the noise in Σxy of a release of a cluster: the largest over all its releases.
    #[serde(default)]
    pub cluster_vector_noise: f64,
    /// μ of the releases of a user; 0 where clusters never split.
    pub user_mu: f64,
    /// Standard deviation of the noise in Σxxᵀ of a release of a user, off the diagonal; 0 where clusters never split.
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
            vector_ratio: config.vector_ratio(),
            odds: config.streams as f64 * config.max_releases as f64 / config.noise_failure,
            dimension,
        }
    }

    /// The budget of an agent that releases updates of `parameters` numbers, each update at most `bound` long. Whatever an agent
    /// saw moves one update by 2·`bound` at most, and it may be in every update: so ε is for everything that it saw.
    #[must_use]
    pub fn of_updates(config: &PrivacyConfig, parameters: usize, bound: f64) -> Self {
        let factors = Factors::of_repeats(config.max_releases);
        let mu = conversion::gaussian_mu(config.epsilon, config.delta);
        let cluster = Share::reaching(2.0 * bound, parameters, mu, factors);
        Self {
            mu: cluster.mu,
            cluster,
            user: None,
            vector_ratio: 1.0,
            odds: config.streams as f64 * config.max_releases as f64 / config.noise_failure,
            dimension: parameters,
        }
    }

    /// The same promise where `agents` add the noise together: each adds that part of the variance.
    #[must_use]
    pub fn divided(&self, agents: u64) -> Self {
        let root = (agents.max(1) as f64).sqrt();
        let part = |share: &Share| Share {
            sigma: share.sigma / root,
            vector_sigma: share.vector_sigma / root,
            ..share.clone()
        };
        Self { cluster: part(&self.cluster), user: self.user.as_ref().map(part), ..self.clone() }
    }

    /// The bound on the operator norm of a symmetric matrix of noise with this variance off the diagonal and twice
    /// that on it: √variance·(2√d + 2√ln(2·odds)).
    #[must_use]
    pub fn matrix_bound(&self, variance: f64) -> f64 {
        variance.sqrt() * (2.0 * (self.dimension as f64).sqrt() + 2.0 * libm::log(2.0 * self.odds).sqrt())
    }

    /// The bound on the norm of the noise in Σxy, where the noise in Σxxᵀ has this variance off the diagonal:
    /// κ·√variance·(√d + √(2 ln odds)), κ = [`vector_ratio`](Self::vector_ratio).
    #[must_use]
    pub fn vector_bound(&self, variance: f64) -> f64 {
        let odds = (2.0 * libm::log(self.odds)).sqrt();
        self.vector_ratio * variance.sqrt() * ((self.dimension as f64).sqrt() + odds)
    }

    /// How long the noise in Σxy − Σxxᵀ·θ usually is, for a fixed θ of this norm: √(d·variance·(κ² + ‖θ‖²)). A bound that
    /// holds for all streams at once is several times as long.
    #[must_use]
    pub fn typical_noise(&self, variance: f64, norm: f64) -> f64 {
        let each = self.vector_ratio * self.vector_ratio + norm * norm;
        (self.dimension as f64 * variance * each).sqrt()
    }

    /// Where the eigenvalues of noise of this variance end: at 2√(d·variance).
    #[must_use]
    pub fn noise_edge(&self, variance: f64) -> f64 {
        2.0 * (self.dimension as f64 * variance).sqrt()
    }

    /// The least eigenvalue that sums with noise of this variance are believed to have: twice where those of noise
    /// alone end. In directions in which data are not well above the noise, the estimate then shrinks instead of following it.
    #[must_use]
    pub fn floor(&self, variance: f64) -> f64 {
        2.0 * self.noise_edge(variance)
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
            cluster_vector_noise: self.vector_ratio * worst,
            user_mu: self.user.as_ref().map_or(0.0, |share| share.mu),
            user_noise: self.user.as_ref().map_or(0.0, noise),
            matrix_bound: self.matrix_bound(worst * worst),
            vector_bound: self.vector_bound(worst * worst),
        }
    }
}

impl Share {
    fn new(config: &PrivacyConfig, dimension: usize, mu: f64, factors: Factors) -> Self {
        let interactions = if config.unit == Unit::User { config.user_cap as f64 } else { 1.0 };
        let share = Self::reaching(config.reach() * interactions, packed(dimension) + dimension, mu, factors);
        Self { vector_sigma: share.sigma * config.vector_ratio(), ..share }
    }

    /// The share that keeps μ where one unit moves a measurement of `entries` numbers by `reach` at most.
    fn reaching(reach: f64, entries: usize, mu: f64, factors: Factors) -> Self {
        let releases = factors.releases();
        // Measurements are rounded to the lattice of the noise, which may move each number by one step more.
        let rounding = (entries as f64 * releases as f64).sqrt() / LATTICE;
        // Only a promise of ε ≈ 0.001 over thousands of features leaves less than half: then more is lost than was
        // promised, and the statement says so.
        let left = (mu - rounding).max(0.5 * mu);
        let sigma = reach * factors.loss(releases).sqrt() / left;
        Self { mu: left + rounding, sigma, vector_sigma: sigma, factors: Arc::new(factors) }
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
    /// κ: the standard deviation of the noise in a number of Σxy over that in a number of Σxxᵀ off its diagonal.
    fn vector_ratio(&self) -> f64 {
        self.vector_noise * self.reward_bound / self.feature_bound
    }

    /// How far replacing one interaction moves one measurement, in standard deviations of noise with σ = 1.
    ///
    /// With z = [x; y/κ], it moves Σzzᵀ by √2·(X̄² + Ȳ²/κ²) at most in the norm of Frobenius. The last corner is not measured, and
    /// noise is √2·σ in every other direction of that norm. Where Ȳ/κ ≤ X̄, two interactions reach this.
    fn reach(&self) -> f64 {
        let (x, y) = (self.feature_bound, self.reward_bound / self.vector_ratio());
        x * x + y * y
    }

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

    fn square(x: f64) -> f64 {
        x * x
    }

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
                // The noise is that of the loss, up to the rounding that it has to hide as well. Features and rewards have
                // bound 1, so that an interaction moves sums by 1 + 1/vector_noise².
                let share = &budget.cluster;
                let reach = 1.0 + 1.0 / square(config.vector_noise);
                let moved = share.factors.loss(max_releases).sqrt() * reach / share.sigma;
                assert!(moved <= share.mu && moved > share.mu * 0.999, "{moved} {}", share.mu);
            }
        }
    }

    /// ε = 1, δ = 0.1, one release of ten features. With the same noise in all numbers and rewards around ½, σ = 1.36.
    #[test]
    fn the_known_numbers_come_out() {
        let config = PrivacyConfig {
            delta: 0.1,
            max_releases: 1,
            reward_bound: 0.5,
            reward_centre: 0.5,
            vector_noise: 2.0,
            ..Default::default()
        };
        let one = config.calibration(10, false);
        assert!((one.cluster_noise - 1.25 / one.mu).abs() < 1e-5, "{one:?}");
        assert!((1.3..1.4).contains(&one.cluster_noise), "{one:?}");
        assert_eq!(one.cluster_vector_noise, one.cluster_noise);
        // Rewards of twice the size take twice the noise in their sums, and no more in those of features.
        let whole = PrivacyConfig { reward_bound: 1.0, ..config.clone() }.calibration(10, false);
        assert!((whole.cluster_noise / one.cluster_noise - 1.0).abs() < 1e-6);
        assert!((whole.cluster_vector_noise / one.cluster_vector_noise - 2.0).abs() < 1e-6);
        let split = config.calibration(10, true);
        assert!((split.cluster_noise / one.cluster_noise - 0.9f64.sqrt().recip()).abs() < 1e-5);
        // Less noise in sums of rewards is more in those of features.
        let divided = PrivacyConfig { vector_noise: 1.0, ..config }.calibration(10, false);
        assert!((divided.cluster_noise - 2.0 / one.mu).abs() < 1e-5, "{divided:?}");
        assert!((divided.cluster_vector_noise - 1.0 / one.mu).abs() < 1e-5, "{divided:?}");
    }

    /// How far two interactions of two features are apart in one measurement, in standard deviations of noise with σ = 1.
    fn apart(config: &PrivacyConfig, one: ([f64; 2], f64), other: ([f64; 2], f64)) -> f64 {
        let (([a, b], y), ([c, d], z)) = (one, other);
        let matrix = square(a * b - c * d) + 0.5 * (square(a * a - c * c) + square(b * b - d * d));
        let vector = square(a * y - c * z) + square(b * y - d * z);
        (matrix + vector / square(config.vector_ratio())).sqrt()
    }

    /// Two features are enough: two interactions span no more.
    #[test]
    fn no_two_interactions_are_further_apart_than_the_budget_believes_and_two_are_as_far() {
        for (vector_noise, feature_bound, reward_bound) in
            [(0.3, 1.0, 1.0), (1.0, 1.0, 1.0), (1.5, 2.0, 0.5), (2.0, 1.0, 0.5), (5.0, 0.1, 3.0)]
        {
            let config = PrivacyConfig { vector_noise, feature_bound, reward_bound, ..Default::default() };
            let mut stream = crate::random::Seed(7).stream("neighbours", 0, 0);
            let mut any = |edge: bool| {
                let angle = stream.uniform() * std::f64::consts::TAU;
                let length = feature_bound * if edge { 1.0 } else { stream.uniform() };
                let reward = reward_bound * if edge { 1.0 } else { 2.0 * stream.uniform() - 1.0 };
                ([length * libm::cos(angle), length * libm::sin(angle)], reward)
            };
            for step in 0..20_000 {
                let (one, (x, y)) = (any(step % 2 == 0), any(step % 3 == 0));
                let far = apart(&config, one, (x, -y));
                assert!(far <= config.reach() * (1.0 + 1e-12), "{config:?}: {far}");
            }
            // The cosine between the features of the worst two is Ȳ²/(κ²X̄²), and their rewards have opposite signs.
            let cosine = 1.0 / square(vector_noise);
            if cosine <= 1.0 {
                let x = [cosine * feature_bound, (1.0 - cosine * cosine).sqrt() * feature_bound];
                let worst = apart(&config, ([feature_bound, 0.0], reward_bound), (x, -reward_bound));
                assert!((worst / config.reach() - 1.0).abs() < 1e-12, "{worst}");
            }
        }
    }

    #[test]
    fn a_user_with_many_interactions_takes_as_many_times_the_noise() {
        let one = PrivacyConfig::default().calibration(5, false).cluster_noise;
        let config = PrivacyConfig { unit: Unit::User, user_cap: 30, ..Default::default() };
        assert!((config.calibration(5, false).cluster_noise / one - 30.0).abs() < 1e-9);
    }
}
