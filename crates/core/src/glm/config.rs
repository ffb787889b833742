//! Settings that the whole family shares, and the constants that follow from them.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use super::link::LinkFunction;
use super::solver::Solver;
use crate::error::ConfigError;
use crate::width::{NOT_NEGATIVE, POSITIVE, UNIT};

/// The regression model of a generalized linear algorithm, and the width of its confidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct GlmConfig {
    /// μ: how the expected reward follows from xᵀθ. Default logistic.
    pub link: LinkFunction,
    /// λ > 0: the weight of the prior belief that parameters are zero. Default 2.
    pub regularization: f64,
    /// R ≥ 0: the sub-Gaussian scale of the reward noise; 0.5 for rewards between 0 and 1. Default 0.5.
    pub noise: f64,
    /// δ in (0, 1): the probability with which the width may fail. Default 0.01.
    pub confidence: f64,
    /// S > 0: a bound on the norm of the true parameters; estimates are kept within it. Default 1.
    pub norm_bound: f64,
    /// X̄ > 0: a bound on the norm of an arm's features. The slopes that widths and solvers rely on are
    /// those for |z| ≤ S·X̄. Default 1.
    pub feature_bound: f64,
    /// ≥ 0: multiplies the theoretical width, which is several times too wide in practice. Default 0.15.
    pub width_scale: f64,
    /// ≥ 0: replaces the theoretical width by a constant, as is common on real data (0.3).
    pub fixed_width: Option<f64>,
}

impl Default for GlmConfig {
    fn default() -> Self {
        Self {
            link: LinkFunction::default(),
            regularization: 2.0,
            noise: 0.5,
            confidence: 0.01,
            norm_bound: 1.0,
            feature_bound: 1.0,
            width_scale: 0.15,
            fixed_width: None,
        }
    }
}

impl GlmConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        let not_negative = |v: f64| v >= 0.0 && v.is_finite();
        let require = ConfigError::require;
        require(positive(self.regularization), "regularization", self.regularization, POSITIVE)?;
        require(not_negative(self.noise), "noise", self.noise, NOT_NEGATIVE)?;
        require(self.confidence > 0.0 && self.confidence < 1.0, "confidence", self.confidence, UNIT)?;
        require(positive(self.norm_bound), "norm_bound", self.norm_bound, POSITIVE)?;
        require(positive(self.feature_bound), "feature_bound", self.feature_bound, POSITIVE)?;
        require(not_negative(self.width_scale), "width_scale", self.width_scale, NOT_NEGATIVE)?;
        let fixed = self.fixed_width.unwrap_or(0.0);
        require(not_negative(fixed), "fixed_width", fixed, NOT_NEGATIVE)?;
        let reach = self.norm_bound * self.feature_bound;
        // e⁻¹⁶ is the slope where a logistic curve is flat to seven digits: 1/c_μ² would swamp every width.
        let flat = self.link.smallest_slope(reach) < 1e-7;
        require(!flat, "norm_bound", self.norm_bound, "times `feature_bound` it must leave the link a slope")
    }

    pub(crate) fn constants(&self) -> Constants {
        let reach = self.norm_bound * self.feature_bound;
        Constants {
            link: self.link,
            lambda: self.regularization,
            noise: self.noise,
            confidence: self.confidence,
            radius: self.norm_bound,
            feature_bound: self.feature_bound,
            smallest: self.link.smallest_slope(reach),
            largest: self.link.largest_slope(reach),
            scale: self.width_scale,
            fixed: self.fixed_width,
        }
    }
}

/// The constants that the paper's formulas use, derived from [`GlmConfig`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    pub(crate) link: LinkFunction,
    /// λ > 0: the regulariser of the loss.
    pub(crate) lambda: f64,
    /// R ≥ 0: the sub-Gaussian scale of the noise in rewards.
    pub(crate) noise: f64,
    /// δ in (0, 1): the probability with which the confidence bounds may fail.
    pub(crate) confidence: f64,
    /// S > 0: the bound on the norm of the true parameters.
    pub(crate) radius: f64,
    /// X̄ > 0: the bound on the norm of features.
    pub(crate) feature_bound: f64,
    /// c_μ: the smallest slope of the link within the bounds.
    pub(crate) smallest: f64,
    /// k_μ: the largest slope of the link within the bounds.
    pub(crate) largest: f64,
    scale: f64,
    fixed: Option<f64>,
}

impl Constants {
    /// λ/c_μ: the regulariser of matrices that bound the loss from below.
    pub(crate) fn ridge(&self) -> f64 {
        self.lambda / self.smallest
    }

    /// The width to use instead of the theoretical one.
    pub(crate) fn practical(&self, theoretical: f64) -> f64 {
        self.fixed.unwrap_or(self.scale * theoretical)
    }

    /// 1 + 4B/c_μ + (8R²/c_μ²)·ln((1/δ)·√(4 + 8B/c_μ + 16R⁴/(c_μ⁴δ²))): how far an online learner whose
    /// regret is at most B may be off, squared, at confidence `delta`.
    pub(crate) fn online_radius(&self, potential: f64, delta: f64) -> f64 {
        let (c, r2) = (self.smallest, self.noise * self.noise);
        let inside = 4.0 + 8.0 * potential / c + 16.0 * r2 * r2 / (c * c * c * c * delta * delta);
        1.0 + 4.0 * potential / c + 8.0 * r2 / (c * c) * libm::log(inside.sqrt() / delta)
    }

    /// w_n = √(2nε/c_μ) + (R/c_μ)·√(information + 2 ln(1/δ)) + √(λ/c_μ)·S: the ellipsoid around the
    /// minimiser of the loss over n observations, found up to ε.
    pub(crate) fn batch_radius(&self, count: u64, gap: f64, information: f64) -> f64 {
        let prior = self.ridge().sqrt() * self.radius;
        if count == 0 {
            return prior;
        }
        let c = self.smallest;
        let found = (2.0 * count as f64 * gap / c).sqrt();
        let failure = 2.0 * libm::log(1.0 / self.confidence);
        found + self.noise / c * (information + failure).sqrt() + prior
    }

    /// What the predictions of a minimiser may be off by, squared and summed:
    /// (8R²/c_μ²)Λ + 2B/c_μ + (4R/c_μ)·√(2Λ)·(‖θ_n‖ + S + √(2B/c_μ)), with B = nε + λS²/2 and
    /// Λ = ln(1/δ) + ½ ln det(I + Σxxᵀ). Nothing before the first round.
    pub(crate) fn batch_shift(&self, count: u64, gap: f64, unit_information: f64, norm: f64) -> f64 {
        if count == 0 {
            return 0.0;
        }
        let (c, r, s) = (self.smallest, self.noise, self.radius);
        let excess = count as f64 * gap + 0.5 * self.lambda * s * s;
        let log = libm::log(1.0 / self.confidence) + 0.5 * unit_information;
        let reach = norm + s + (2.0 * excess / c).sqrt();
        8.0 * r * r / (c * c) * log + 2.0 * excess / c + 4.0 * r / c * (2.0 * log).sqrt() * reach
    }
}

/// How the minimiser of the global loss is found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct SolverConfig {
    /// The method that finds the global estimate. Default auto: the one that sent the fewest scalars so far.
    pub solver: Solver,
    /// ε: how far the mean loss of n observations may stay above its minimum. Default inverse-square: 1/n².
    pub precision: Precision,
    /// ≥ 1: the most times that agents are asked for gradients in a round. Default 5000.
    pub max_evaluations: u64,
}

/// By how much the mean loss over n observations may exceed its minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 1/n², as in the papers.
    #[default]
    InverseSquare,
    /// 1/n, which is as much as the width needs.
    Inverse,
}

impl Default for SolverConfig {
    fn default() -> Self {
        Self { solver: Solver::Auto, precision: Precision::InverseSquare, max_evaluations: 5000 }
    }
}

impl SolverConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.max_evaluations == 0 {
            return Err(ConfigError::new("max_evaluations", 0, "it must be at least 1"));
        }
        Ok(())
    }

    /// Returns ε, by how much the mean loss over `count` observations may exceed its minimum when a solver
    /// stops.
    pub(crate) fn gap(&self, count: u64) -> f64 {
        let n = count.max(1) as f64;
        match self.precision {
            Precision::InverseSquare => 1.0 / (n * n),
            Precision::Inverse => 1.0 / n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_those_of_the_specification() {
        let constants = GlmConfig::default().constants();
        assert!((constants.smallest - 0.196_612).abs() < 1e-6 && constants.largest == 0.25);
        assert!((constants.ridge() - 2.0 / 0.196_612).abs() < 1e-4);
        // Without data: the prior alone.
        assert!((constants.batch_radius(0, 0.0, 0.0) - constants.ridge().sqrt()).abs() < 1e-12);
        assert_eq!(constants.batch_shift(0, 0.0, 0.0, 0.0), 0.0);
        let loose = constants.batch_shift(100, 1e-4, 3.0, 0.5);
        assert!(constants.batch_shift(100, 1e-4, 6.0, 0.5) > loose);
        assert!(constants.online_radius(2.0, 0.01) > constants.online_radius(1.0, 0.01));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |config: GlmConfig| config.check().unwrap_err().name;
        let good = GlmConfig::default;
        assert_eq!(good().check(), Ok(()));
        assert_eq!(refused(GlmConfig { regularization: 0.0, ..good() }), "regularization");
        assert_eq!(refused(GlmConfig { noise: -1.0, ..good() }), "noise");
        assert_eq!(refused(GlmConfig { confidence: 0.0, ..good() }), "confidence");
        assert_eq!(refused(GlmConfig { norm_bound: f64::INFINITY, ..good() }), "norm_bound");
        assert_eq!(refused(GlmConfig { feature_bound: 0.0, ..good() }), "feature_bound");
        assert_eq!(refused(GlmConfig { width_scale: f64::NAN, ..good() }), "width_scale");
        assert_eq!(refused(GlmConfig { norm_bound: 40.0, ..good() }), "norm_bound");
        let none = SolverConfig { max_evaluations: 0, ..Default::default() };
        assert_eq!(none.check().unwrap_err().name, "max_evaluations");
    }
}
