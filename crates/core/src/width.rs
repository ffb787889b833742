//! Confidence widths: how far the estimate may be off, in units of an arm's own width.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::ridge::Ridge;

/// How the information in a width is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum WidthForm {
    /// ln det(I + Σxxᵀ/λ), from the data at hand.
    #[default]
    LogDet,
    /// d·ln(1 + n/(dλ)), its upper bound for features in the unit ball; what published code uses.
    DetTrace,
}

/// The regression model that an algorithm of the linear family keeps, and the width of its confidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ModelConfig {
    /// λ > 0: the weight of the prior belief that parameters are zero. Small values let early
    /// observations count for more, and every first upload is sent sooner. Default 0.1.
    pub regularization: f64,
    /// σ ≥ 0: the sub-Gaussian scale of the reward noise. Default 0.1.
    pub noise: f64,
    /// δ in (0, 1): the probability with which the width may fail. Default 0.1.
    pub confidence: f64,
    /// S > 0: a bound on the norm of the true parameters. Default 1.
    pub norm_bound: f64,
    /// How the width measures information. Default log-det.
    pub width: WidthForm,
    /// ≥ 0: multiplies the theoretical width. Default 1.
    pub width_scale: f64,
    /// ≥ 0: replaces the theoretical width by a constant, as is common on real data (0.3).
    pub fixed_width: Option<f64>,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            regularization: 0.1,
            noise: 0.1,
            confidence: 0.1,
            norm_bound: 1.0,
            width: WidthForm::LogDet,
            width_scale: 1.0,
            fixed_width: None,
        }
    }
}

impl ModelConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        let not_negative = |v: f64| v >= 0.0 && v.is_finite();
        let require = ConfigError::require;
        require(positive(self.regularization), "regularization", self.regularization, POSITIVE)?;
        require(not_negative(self.noise), "noise", self.noise, NOT_NEGATIVE)?;
        require(self.confidence > 0.0 && self.confidence < 1.0, "confidence", self.confidence, UNIT)?;
        require(positive(self.norm_bound), "norm_bound", self.norm_bound, POSITIVE)?;
        require(not_negative(self.width_scale), "width_scale", self.width_scale, NOT_NEGATIVE)?;
        let fixed = self.fixed_width.unwrap_or(0.0);
        require(not_negative(fixed), "fixed_width", fixed, NOT_NEGATIVE)
    }

    pub(crate) fn model(&self, dimension: usize) -> Ridge {
        Ridge::new(dimension, self.regularization)
    }

    pub(crate) fn width(&self) -> Width {
        Width {
            noise: self.noise,
            form: self.width,
            scale: self.width_scale,
            fixed: self.fixed_width,
            failure: 2.0 * libm::log(1.0 / self.confidence),
            prior: self.regularization.sqrt() * self.norm_bound,
            missing: 0.0,
        }
    }
}

pub(crate) const POSITIVE: &str = "it must be a positive, finite number";
pub(crate) const NOT_NEGATIVE: &str = "it must be a finite number, zero or more";
pub(crate) const UNIT: &str = "it must lie strictly between 0 and 1";

/// α = σ·√(information + 2 ln(1/δ)) + √λ·S, or a constant.
#[derive(Clone, Debug)]
pub(crate) struct Width {
    noise: f64,
    form: WidthForm,
    scale: f64,
    fixed: Option<f64>,
    failure: f64,
    prior: f64,
    /// Information that the model may lack.
    missing: f64,
}

impl Width {
    /// The width of a model over `count` observations.
    pub(crate) fn of(&self, model: &Ridge, count: u64) -> f64 {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        let information = match self.form {
            WidthForm::LogDet => model.information() + self.missing,
            WidthForm::DetTrace => {
                let d = model.dimension() as f64;
                d * libm::log1p(count as f64 / (d * model.regularization()))
            }
        };
        self.scale * (self.noise * (information + self.failure).sqrt() + self.prior)
    }

    /// The same width for models that were rounded: whose own widths may be wrong by a share of `tolerance`, and whose
    /// information may be too small by what that comes to in `dimension` directions. It holds as long as it did before.
    pub(crate) fn for_rounded(mut self, tolerance: f64, dimension: usize) -> Self {
        self.scale *= 1.0 + tolerance;
        self.missing = -2.0 * dimension as f64 * libm::log1p(-tolerance);
        self
    }

    /// The same width with more noise: what alternating minimisation adds to the rewards.
    pub(crate) fn with_extra_noise(mut self, extra: f64) -> Self {
        self.noise += extra;
        self
    }

    /// A width that is always `value`, unless one was fixed before.
    pub(crate) fn or_fixed_at(mut self, value: f64) -> Self {
        self.fixed = self.fixed.or(Some(self.scale * value));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_follow_their_formulas() {
        let config = ModelConfig { regularization: 0.5, noise: 0.2, confidence: 0.05, ..Default::default() };
        let mut model = config.model(2);
        model.append(&[1.0, 0.0], 0.0);
        let failure = 2.0 * libm::log(20.0);
        // det(I + xxᵀ/λ) = 1 + 1/0.5.
        let log_det = 0.2 * (libm::log(3.0) + failure).sqrt() + 0.5_f64.sqrt();
        assert!((config.width().of(&model, 1) - log_det).abs() < 1e-12);
        let det_trace = ModelConfig { width: WidthForm::DetTrace, width_scale: 2.0, ..config.clone() };
        let expected = 2.0 * (0.2 * (2.0 * libm::log(2.0) + failure).sqrt() + 0.5_f64.sqrt());
        assert!((det_trace.width().of(&model, 1) - expected).abs() < 1e-12);
        let fixed = ModelConfig { fixed_width: Some(0.3), ..config };
        assert_eq!(fixed.width().of(&model, 1), 0.3);
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |config: ModelConfig| config.check().unwrap_err().name;
        let good = ModelConfig::default;
        assert_eq!(refused(ModelConfig { regularization: 0.0, ..good() }), "regularization");
        assert_eq!(refused(ModelConfig { regularization: f64::NAN, ..good() }), "regularization");
        assert_eq!(refused(ModelConfig { noise: -0.1, ..good() }), "noise");
        assert_eq!(refused(ModelConfig { confidence: 1.0, ..good() }), "confidence");
        assert_eq!(refused(ModelConfig { norm_bound: 0.0, ..good() }), "norm_bound");
        assert_eq!(refused(ModelConfig { fixed_width: Some(f64::INFINITY), ..good() }), "fixed_width");
        assert_eq!(good().check(), Ok(()));
    }
}
