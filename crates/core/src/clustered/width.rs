//! The width of a model over sums with noise.

use crate::privacy::{Bounds, PrivacyConfig};
use crate::width::ModelConfig;

/// β = σ₀·√(2 ln(mL/α_f) + d·ln(ρ_max/ρ_min + T/(dL'ρ_min))) + √(L'ρ_max + λ)·S + √L'·‖h‖/√ρ_min.
///
/// With L' releases in the sum, each shifted by 2ρ_s and with noise of norm ρ_s at most, ρ_min = ρ_s and
/// ρ_max = 3ρ_s. It follows from θ̂ − θ = S⁻¹(Σxη + h − H̃θ).
#[derive(Clone, Debug)]
pub(crate) struct PrivateWidth {
    noise: f64,
    /// 2 ln(mL/α_f).
    failure: f64,
    dimension: f64,
    bounds: Bounds,
    regularization: f64,
    norm_bound: f64,
    scale: f64,
    fixed: Option<f64>,
}

impl PrivateWidth {
    pub(crate) fn new(model: &ModelConfig, privacy: &PrivacyConfig, dimension: usize) -> Self {
        let streams = privacy.streams as f64;
        Self {
            noise: model.noise,
            failure: 2.0 * libm::log(streams / privacy.noise_failure),
            dimension: dimension as f64,
            bounds: privacy.calibration(dimension).bounds,
            regularization: model.regularization,
            norm_bound: model.norm_bound,
            scale: model.width_scale,
            fixed: model.fixed_width,
        }
    }

    /// For the sum of `members` releases over `count` observations.
    pub(crate) fn of(&self, members: u64, count: u64) -> f64 {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        let (l, rho, d) = (members as f64, self.bounds.matrix, self.dimension);
        let data = if members == 0 { 0.0 } else { d * libm::log(3.0 + count as f64 / (d * l * rho)) };
        let noise = self.noise * (self.failure + data).sqrt();
        let prior = (3.0 * l * rho + self.regularization).sqrt() * self.norm_bound;
        let vector = l.sqrt() * self.bounds.vector / rho.sqrt();
        self.scale * (noise + prior + vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_follows_its_formula_and_grows_with_members() {
        let model = ModelConfig { noise: 0.5, regularization: 1.0, ..Default::default() };
        let privacy = PrivacyConfig::default();
        let width = PrivateWidth::new(&model, &privacy, 10);
        let Bounds { matrix: rho, vector } = privacy.calibration(10).bounds;
        let inside = 2.0 * libm::log(1000.0) + 10.0 * libm::log(3.0 + 9000.0 / (20.0 * rho));
        let expected = 0.5 * inside.sqrt() + (6.0 * rho + 1.0).sqrt() + 2f64.sqrt() * vector / rho.sqrt();
        assert!((width.of(2, 9000) - expected).abs() < 1e-12);
        assert!(width.of(3, 9000) > width.of(2, 9000) && width.of(1, 0) > width.of(0, 0));
    }
}
