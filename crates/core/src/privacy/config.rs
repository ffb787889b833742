//! What a private federation promises, and the noise that keeps the promise.

use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::privacy::{conversion, tree};
use crate::width::{POSITIVE, UNIT};

/// What to do with features or rewards beyond their bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clip {
    /// Scale the features, and cut the reward, to the bound.
    #[default]
    Scale,
    /// Refuse the observation.
    Refuse,
}

/// The privacy of a federation: what is promised for one interaction over a whole run.
///
/// Two runs are neighbours if one interaction (x, y) is replaced by another. When users came, to which
/// agent, and how many there were is not protected; `docs/guides/what-privacy-you-get.md` has the whole list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrivacyConfig {
    /// ε > 0: how much more likely any outcome may be with one interaction than with another, as e^ε.
    /// Default 1.
    pub epsilon: f64,
    /// δ in (0, 1): the probability with which that may fail; well below one over the interactions.
    /// Default 1e-5.
    pub delta: f64,
    /// How often one stream of sums is released at most; then it falls silent. Every doubling costs noise.
    /// Default 16.
    pub max_releases: u64,
    /// How many trees one interaction may pass through: one more for every split of its cluster. The budget
    /// is divided by it; a cluster that used its share does not split again. Default 4.
    pub max_trees: u32,
    /// X̄ > 0: the longest features. Default 1.
    pub feature_bound: f64,
    /// Ȳ > 0: the largest |reward|. Default 1.
    pub reward_bound: f64,
    /// What to do with what is larger. Default scale.
    pub clip: Clip,
    /// Observations before the first release of a stream: with fewer than the noise weighs, a release is
    /// wasted. Default 500.
    pub first_release: u64,
    /// > 1: the next release is due when the observations have grown by this factor. It counts observations,
    /// > which are public, and looks at nothing else. Default 1.5.
    pub release_growth: f64,
    /// mL: streams of releases in the whole federation; bounds on the noise hold for that many at once, and
    /// grow with the root of its logarithm. Default 100.
    pub streams: u64,
    /// α_f in (0, 1): the probability with which the bounds on the noise may fail. Default 0.1.
    pub noise_failure: f64,
    /// Choose with the raw observations that were not released yet as well. Better choices; but then later
    /// interactions depend on raw earlier ones, and the promise holds for fixed sequences only. Default
    /// false.
    pub raw_buffer: bool,
}

impl Default for PrivacyConfig {
    fn default() -> Self {
        Self {
            epsilon: 1.0,
            delta: 1e-5,
            max_releases: 16,
            max_trees: 4,
            feature_bound: 1.0,
            reward_bound: 1.0,
            clip: Clip::Scale,
            first_release: 500,
            release_growth: 1.5,
            streams: 100,
            noise_failure: 0.1,
            raw_buffer: false,
        }
    }
}

impl PrivacyConfig {
    /// `Ok` if every setting is in its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        let unit = |v: f64| v > 0.0 && v < 1.0;
        let require = ConfigError::require;
        require(positive(self.epsilon), "epsilon", self.epsilon, POSITIVE)?;
        require(unit(self.delta), "delta", self.delta, UNIT)?;
        let releases = self.max_releases;
        if !(1..=1 << 40).contains(&releases) {
            return Err(ConfigError::new("max_releases", releases, "it must be at least 1, at most 2^40"));
        }
        if self.max_trees == 0 {
            return Err(ConfigError::new("max_trees", 0, "it must be at least 1"));
        }
        require(positive(self.feature_bound), "feature_bound", self.feature_bound, POSITIVE)?;
        require(positive(self.reward_bound), "reward_bound", self.reward_bound, POSITIVE)?;
        if self.first_release == 0 {
            return Err(ConfigError::new("first_release", 0, "it must be at least 1"));
        }
        let growth = self.release_growth;
        require(growth > 1.0 && growth.is_finite(), "release_growth", growth, "it must be above 1")?;
        if self.streams == 0 {
            return Err(ConfigError::new("streams", 0, "it must be at least 1"));
        }
        require(unit(self.noise_failure), "noise_failure", self.noise_failure, UNIT)
    }

    /// The noise that keeps the promise.
    #[must_use]
    pub fn calibration(&self, dimension: usize) -> Calibration {
        let rho_total = conversion::rho(self.epsilon, self.delta);
        let rho_tree = rho_total / f64::from(self.max_trees);
        let depth = tree::depth(self.max_releases);
        // One interaction moves [x; y][x; y]ᵀ by √2·(X̄² + Ȳ²) at most, in Frobenius' norm.
        let reach = self.feature_bound * self.feature_bound + self.reward_bound * self.reward_bound;
        let sigma = reach * (f64::from(depth) / (2.0 * rho_tree)).sqrt();
        let streams = self.streams as f64;
        let bounds = Bounds::new(sigma, depth, dimension, streams, self.max_releases, self.noise_failure);
        Calibration {
            rho_total,
            rho_tree,
            rho_node: reach * reach / (2.0 * sigma * sigma),
            depth,
            sigma,
            bounds,
        }
    }

    /// Whether a stream of `total` observations, `released` of which were released, is due.
    #[must_use]
    pub fn is_due(&self, total: u64, released: u64) -> bool {
        let grown = libm::ceil((self.release_growth - 1.0) * released as f64).max(1.0);
        total >= self.first_release && (total - released) as f64 >= grown
    }
}

/// Noise calibrated to a promise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// ρ of everything that may be released, in zCDP.
    pub rho_total: f64,
    /// ρ of one tree.
    pub rho_tree: f64,
    /// ρ of one node of a tree.
    pub rho_node: f64,
    /// ν: levels of a tree.
    pub depth: u32,
    /// σ: standard deviation of a node's noise off the diagonal.
    pub sigma: f64,
    /// How large the noise of a release can be.
    pub bounds: Bounds,
}

/// How large the noise of a release can be, with high probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// ρ_s: of the matrix, in operator norm. Releases are shifted by twice as much, so that they stay
    /// positive definite.
    pub matrix: f64,
    /// Of the vector, in norm.
    pub vector: f64,
}

impl Bounds {
    /// ρ_s = σ√ν·(2√(d+1) + 2√ln(2·streams·releases/α_f)), and σ√ν·(√d + √(2 ln(streams/α_f))).
    #[must_use]
    pub fn new(sigma: f64, depth: u32, dimension: usize, streams: f64, releases: u64, failure: f64) -> Self {
        let deviation = sigma * f64::from(depth).sqrt();
        let d = dimension as f64;
        let all = libm::log(2.0 * streams * releases as f64 / failure);
        let each = libm::log(streams / failure).max(0.0);
        Self {
            matrix: deviation * (2.0 * (d + 1.0).sqrt() + 2.0 * all.sqrt()),
            vector: deviation * (d.sqrt() + (2.0 * each).sqrt()),
        }
    }

    /// What is added to the diagonal of a release: 2ρ_s.
    #[must_use]
    pub const fn shift(&self) -> f64 {
        2.0 * self.matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_have_the_known_numbers() {
        // ε = 1, δ = 0.1, eleven levels: σ = 15.6 and ρ_s = 717; with five levels 296.
        let rho = conversion::simple_rho(1.0, 0.1);
        for (depth, releases, sigma, matrix) in [(11, 1024, 15.6, 717.0), (5, 16, 10.5, 296.0)] {
            let exact = 2.0 * (f64::from(depth) / (2.0 * rho)).sqrt();
            assert!((exact - sigma).abs() < 0.05, "{exact}");
            let bounds = Bounds::new(exact, depth, 10, 20.0, releases, 0.1);
            assert!((bounds.matrix - matrix).abs() < 2.0, "{bounds:?}");
        }
    }

    #[test]
    fn a_calibration_spends_exactly_its_budget() {
        for (max_releases, max_trees) in [(1, 1), (16, 4), (1000, 7)] {
            let config = PrivacyConfig { max_releases, max_trees, ..Default::default() };
            let made = config.calibration(10);
            let all = made.rho_node * f64::from(made.depth) * f64::from(max_trees);
            assert!((all / made.rho_total - 1.0).abs() < 1e-12);
            assert!((conversion::epsilon(all, config.delta) - config.epsilon).abs() < 1e-6);
        }
    }

    #[test]
    fn releases_are_due_by_counts_alone() {
        let config = PrivacyConfig { first_release: 10, release_growth: 1.5, ..Default::default() };
        assert!(!config.is_due(9, 0));
        assert!(config.is_due(10, 0));
        assert!(!config.is_due(14, 10));
        assert!(config.is_due(15, 10));
        let often = PrivacyConfig { first_release: 1, release_growth: 1.01, ..Default::default() };
        assert!(often.is_due(4, 3) && !often.is_due(3, 3));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |config: PrivacyConfig| config.check().unwrap_err().name;
        let good = PrivacyConfig::default;
        assert_eq!(good().check(), Ok(()));
        for epsilon in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(PrivacyConfig { epsilon, ..good() }), "epsilon");
        }
        for delta in [0.0, 1.0, -0.1, 2.0, f64::NAN] {
            assert_eq!(refused(PrivacyConfig { delta, ..good() }), "delta");
        }
        assert_eq!(refused(PrivacyConfig { max_releases: 0, ..good() }), "max_releases");
        assert_eq!(refused(PrivacyConfig { max_trees: 0, ..good() }), "max_trees");
        assert_eq!(refused(PrivacyConfig { feature_bound: 0.0, ..good() }), "feature_bound");
        assert_eq!(refused(PrivacyConfig { reward_bound: -1.0, ..good() }), "reward_bound");
        assert_eq!(refused(PrivacyConfig { first_release: 0, ..good() }), "first_release");
        assert_eq!(refused(PrivacyConfig { release_growth: 1.0, ..good() }), "release_growth");
        assert_eq!(refused(PrivacyConfig { noise_failure: 1.0, ..good() }), "noise_failure");
    }
}
