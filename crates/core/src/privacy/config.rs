//! The settings of a private federation: what is promised, for whom, and how often sums are released.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::privacy::factorisation::{MAX_RELEASES, Mechanism};
use crate::width::{NOT_NEGATIVE, POSITIVE, UNIT};

/// What to do with features or rewards beyond their bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum Clip {
    /// Scale the features, and cut the reward, to the bound.
    #[default]
    Scale,
    /// Refuse the observation with an [`InputError`](crate::InputError).
    Refuse,
}

/// Whose data the promise protects: two runs are neighbours if they differ in one such unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// One interaction: its features and its reward.
    #[default]
    Interaction,
    /// All interactions of one user with one agent, of which at most `user_cap` are learned from.
    User,
    /// Everything that one agent saw and did: features, rewards and choices of all its users. Only networks (`fn-ucb`) protect
    /// that much, and nothing less.
    Agent,
}

impl Unit {
    /// The name in configuration files and statements.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interaction => "interaction",
            Self::User => "user",
            Self::Agent => "agent",
        }
    }
}

/// The privacy of a federation: what is promised over a whole run.
///
/// Two runs are neighbours if one interaction (x, y), or all of one user's, are replaced by others. When users came, to
/// which agent, and how many there were is not protected; `docs/guides/what-privacy-you-get.md` has the whole list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct PrivacyConfig {
    /// ε > 0: how much more likely any outcome may be with one unit than with another, as e^ε. Default 1.
    pub epsilon: f64,
    /// δ in (0, 1): the probability with which ε may fail; well below one over the interactions.
    /// Default 1e-5.
    pub delta: f64,
    /// The unit that the promise protects. Default interaction.
    pub unit: Unit,
    /// ≥ 1: with `unit = "user"`, how many interactions of one user an agent learns from. Noise grows in proportion.
    /// Later ones are served and forgotten. Default 50.
    pub user_cap: u64,
    /// How the noise of successive releases is correlated. Default factorisation.
    pub mechanism: Mechanism,
    /// in [1, 512]: how often one stream of sums is released at most; then it falls silent. Default 24.
    pub max_releases: u64,
    /// X̄ > 0: the longest features. Default 1.
    pub feature_bound: f64,
    /// Ȳ > 0: the largest |reward − `reward_centre`|. Default 1.
    pub reward_bound: f64,
    /// Subtracted from every reward before it is learned: rewards in [0, 1] have bound ½ around ½, which takes less
    /// noise than bound 1 around 0. The features should contain a constant, which then learns the rest. Default 0.
    pub reward_centre: f64,
    /// ν > 0: how much noise sums of rewards carry, relative to sums of features, both in units of their bounds. More noise in the
    /// one means less in the other; between 1 and 2 estimates suffer least. Default 1.4.
    pub vector_noise: f64,
    /// What to do with features and rewards beyond their bounds. Default scale.
    pub clip: Clip,
    /// ≥ 1: observations before the first release of a stream. With fewer than the noise weighs, a release is
    /// wasted. Default 50.
    pub first_release: u64,
    /// in (1, ∞): the next release is due when the observations have grown by this factor. It counts observations,
    /// which are public, and looks at nothing else. Default 1.3.
    pub release_growth: f64,
    /// in (0, 1): the share of the budget that decides which users are alike, by sums of each user with noise of their own.
    /// It is spent only where clusters may split (`edge_scale` is finite). Default 0.1.
    pub edge_share: f64,
    /// in [1, 512]: how often the sums of one user are released to tell users apart. Default 3.
    pub edge_releases: u64,
    /// ≥ 1: observations of a user before the first release of that user's sums. Default 400.
    pub edge_first: u64,
    /// in (1, ∞): the next release of a user's sums is due when the user's observations have grown by this factor. Default 4.
    pub edge_growth: f64,
    /// ≥ 0: multiplies the width of choices over sums with noise, beside `width_scale`. The width of theory (1) holds for all
    /// streams at once and explores nearly at random; noise explores by itself. Default 0.03.
    pub private_width: f64,
    /// ≥ 1: streams of releases (mL) in the whole federation; bounds on the noise hold for that many at once, and
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
            unit: Unit::Interaction,
            user_cap: 50,
            mechanism: Mechanism::Factorisation,
            max_releases: 24,
            feature_bound: 1.0,
            reward_bound: 1.0,
            reward_centre: 0.0,
            vector_noise: 1.4,
            clip: Clip::Scale,
            first_release: 50,
            release_growth: 1.3,
            edge_share: 0.1,
            edge_releases: 3,
            edge_first: 400,
            edge_growth: 4.0,
            private_width: 0.03,
            streams: 100,
            noise_failure: 0.1,
            raw_buffer: false,
        }
    }
}

/// Bounds may not be so small or large that their squares leave the numbers.
const LARGEST_BOUND: f64 = 1e60;

impl PrivacyConfig {
    /// `Ok` if every setting is in its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        let bound = |v: f64| (1.0 / LARGEST_BOUND..=LARGEST_BOUND).contains(&v);
        let unit = |v: f64| v > 0.0 && v < 1.0;
        let require = ConfigError::require;
        let at_least_one = |name: &'static str, value: u64| match value {
            0 => Err(ConfigError::new(name, 0, "it must be at least 1")),
            _ => Ok(()),
        };
        require(positive(self.epsilon), "epsilon", self.epsilon, POSITIVE)?;
        require(unit(self.delta), "delta", self.delta, UNIT)?;
        at_least_one("user_cap", self.user_cap)?;
        for (name, releases) in [("max_releases", self.max_releases), ("edge_releases", self.edge_releases)] {
            if !(1..=MAX_RELEASES).contains(&releases) {
                return Err(ConfigError::new(name, releases, "it must be at least 1, at most 512"));
            }
        }
        require(bound(self.feature_bound), "feature_bound", self.feature_bound, POSITIVE)?;
        require(bound(self.reward_bound), "reward_bound", self.reward_bound, POSITIVE)?;
        require(self.reward_centre.is_finite(), "reward_centre", self.reward_centre, "it must be finite")?;
        require(bound(self.vector_noise), "vector_noise", self.vector_noise, POSITIVE)?;
        at_least_one("first_release", self.first_release)?;
        at_least_one("edge_first", self.edge_first)?;
        for (name, growth) in [("release_growth", self.release_growth), ("edge_growth", self.edge_growth)] {
            require(growth > 1.0 && growth.is_finite(), name, growth, "it must be above 1")?;
        }
        require(unit(self.edge_share), "edge_share", self.edge_share, UNIT)?;
        let width = self.private_width;
        require(width >= 0.0 && width.is_finite(), "private_width", width, NOT_NEGATIVE)?;
        at_least_one("streams", self.streams)?;
        require(unit(self.noise_failure), "noise_failure", self.noise_failure, UNIT)
    }

    /// `Ok` if sums over observations can keep this promise: every setting is in its range, and the unit is one that sums protect.
    pub(crate) fn check_for_sums(&self) -> Result<(), ConfigError> {
        self.check()?;
        let allowed = "sums protect one interaction or one user; only fn-ucb protects agents";
        if self.unit == Unit::Agent { Err(ConfigError::new("unit", "agent", allowed)) } else { Ok(()) }
    }

    /// Whether a cluster of `total` observations, `released` of which were released, is due.
    #[must_use]
    pub fn is_due(&self, total: u64, released: u64) -> bool {
        due(self.first_release, self.release_growth, total, released)
    }

    /// Whether a cluster has half of the observations that make it due, or more.
    #[must_use]
    pub fn is_half_due(&self, total: u64, released: u64) -> bool {
        due(self.first_release.div_ceil(2), 0.5 * (1.0 + self.release_growth), total, released)
    }

    /// Whether the sums of a user with `total` observations, `released` of which were released, are due.
    #[must_use]
    pub fn is_edge_due(&self, total: u64, released: u64) -> bool {
        due(self.edge_first, self.edge_growth, total, released)
    }
}

fn due(first: u64, growth: f64, total: u64, released: u64) -> bool {
    let grown = libm::ceil((growth - 1.0) * released as f64).max(1.0);
    total >= first && total.saturating_sub(released) as f64 >= grown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_due_by_counts_alone() {
        let config = PrivacyConfig { first_release: 10, release_growth: 1.5, ..Default::default() };
        assert!(!config.is_due(9, 0));
        assert!(config.is_due(10, 0));
        assert!(!config.is_due(14, 10));
        assert!(config.is_due(15, 10));
        assert!(!config.is_half_due(4, 0) && config.is_half_due(5, 0));
        assert!(!config.is_half_due(12, 10) && config.is_half_due(13, 10));
        let often = PrivacyConfig { first_release: 1, release_growth: 1.01, ..Default::default() };
        assert!(often.is_due(4, 3) && !often.is_due(3, 3));
        assert!(!config.is_edge_due(399, 0) && config.is_edge_due(400, 0) && !config.is_edge_due(1599, 400));
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
        for releases in [0, 513] {
            assert_eq!(refused(PrivacyConfig { max_releases: releases, ..good() }), "max_releases");
            assert_eq!(refused(PrivacyConfig { edge_releases: releases, ..good() }), "edge_releases");
        }
        assert_eq!(refused(PrivacyConfig { user_cap: 0, ..good() }), "user_cap");
        for bound in [0.0, -1.0, 1e100, 1e-100, f64::NAN] {
            assert_eq!(refused(PrivacyConfig { feature_bound: bound, ..good() }), "feature_bound");
            assert_eq!(refused(PrivacyConfig { reward_bound: bound, ..good() }), "reward_bound");
        }
        for noise in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert_eq!(refused(PrivacyConfig { vector_noise: noise, ..good() }), "vector_noise");
        }
        assert_eq!(refused(PrivacyConfig { reward_centre: f64::NAN, ..good() }), "reward_centre");
        assert_eq!(refused(PrivacyConfig { first_release: 0, ..good() }), "first_release");
        assert_eq!(refused(PrivacyConfig { edge_first: 0, ..good() }), "edge_first");
        assert_eq!(refused(PrivacyConfig { release_growth: 1.0, ..good() }), "release_growth");
        assert_eq!(refused(PrivacyConfig { edge_growth: 0.5, ..good() }), "edge_growth");
        assert_eq!(refused(PrivacyConfig { edge_share: 1.0, ..good() }), "edge_share");
        assert_eq!(refused(PrivacyConfig { private_width: -1.0, ..good() }), "private_width");
        assert_eq!(refused(PrivacyConfig { streams: 0, ..good() }), "streams");
        assert_eq!(refused(PrivacyConfig { noise_failure: 1.0, ..good() }), "noise_failure");
    }
}
