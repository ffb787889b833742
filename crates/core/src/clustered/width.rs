//! How far an estimate over sums with noise may be off, for choices and for comparing estimates.

use crate::evidence::Evidence;
use crate::privacy::{Budget, PrivacyConfig, smallest_eigenvalue};
use crate::width::ModelConfig;

/// What is known of some sums with noise besides their numbers. It is computed from released sums alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Noisy {
    /// The variance of the noise off the diagonal.
    pub(crate) variance: f64,
    /// The smallest eigenvalue of the matrix, after it was made positive definite.
    pub(crate) lowest: f64,
    /// How many observations the sums are over.
    pub(crate) count: u64,
}

impl Noisy {
    /// Sums with noise of this variance, as the coordinator made them positive definite.
    pub(crate) fn of(sums: &Evidence, variance: f64) -> Self {
        let lowest = if sums.is_empty() { 0.0 } else { smallest_eigenvalue(sums.gram(), sums.dimension()) };
        Self { variance, lowest, count: sums.count() }
    }
}

/// The width of a model over sums with noise.
///
/// Let G be the true sums, S ⪰ ℓ·I the sums with noise after their eigenvalues were raised to a floor, H = S − G, h the
/// noise of the vector and V = S + λI. Then θ̂ − θ = V⁻¹(Σxη + h − Hθ − λθ), and with m and v the bounds on the noise
/// of the matrix and of the vector,
///
/// β = σ₀·√(1 + m/(ℓ+λ))·√(2 ln(mL/α_f) + d·ln(1 + T/(d(ℓ+λ)))) + (v + ‖H‖·S)/√(ℓ+λ) + √λ·S,
///
/// where ‖H‖ ≤ m if no eigenvalue was raised and ≤ 2m + floor otherwise. The first root is the price of G ⪯ S + m·I.
///
/// The first term is not quite a bound. That of Σxη in the norm of (G + c·I)⁻¹ holds with c in the logarithm, and costs a factor of
/// 1 + (m + c − λ)/(ℓ + λ) in the norm of V⁻¹: with c = ℓ + λ, as in the logarithm here, the root would be up to √2 times as large. The
/// second term rules both.
#[derive(Clone, Debug)]
pub(crate) struct PrivateWidth {
    noise: f64,
    /// 2 ln(mL/α_f): the share of the width that pays for the probability of failure.
    failure: f64,
    dimension: f64,
    budget: Budget,
    regularization: f64,
    norm_bound: f64,
    scale: f64,
    fixed: Option<f64>,
}

impl PrivateWidth {
    pub(crate) fn new(
        model: &ModelConfig,
        privacy: &PrivacyConfig,
        budget: Budget,
        dimension: usize,
    ) -> Self {
        let streams = privacy.streams as f64;
        Self {
            noise: model.noise,
            failure: 2.0 * libm::log(streams / privacy.noise_failure),
            dimension: dimension as f64,
            budget,
            regularization: model.regularization,
            norm_bound: model.norm_bound,
            scale: model.width_scale * privacy.private_width,
            fixed: model.fixed_width,
        }
    }

    /// The width over these sums.
    pub(crate) fn of(&self, sums: Noisy) -> f64 {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        let Noisy { variance, lowest, count } = sums;
        let least = lowest.max(0.0) + self.regularization;
        let (matrix, vector) = (self.budget.matrix_bound(variance), self.budget.vector_bound(variance));
        let floor = self.budget.floor(variance);
        // At the floor, eigenvalues may have been raised from anywhere below it.
        let off = if lowest > floor * (1.0 + 1e-9) { matrix } else { 2.0 * matrix + floor };
        let data = self.dimension * libm::log1p(count as f64 / (self.dimension * least));
        let rewards = self.noise * ((1.0 + matrix / least) * (self.failure + data)).sqrt();
        let privacy = (vector + off * self.norm_bound) / least.sqrt();
        self.scale * (rewards + privacy + self.regularization.sqrt() * self.norm_bound)
    }
}

/// How far the estimate θ̂ over sums with noise is usually off because of the noise: √(d·variance·(κ² + ‖θ̂‖²))/(ℓ + λ).
///
/// It is not a bound. A bound that holds for all streams at once is several times as large, and users who differ are then never told
/// apart.
pub(crate) fn noise_radius(budget: &Budget, sums: Noisy, estimate: &[f64], regularization: f64) -> f64 {
    let norm = estimate.iter().map(|v| v * v).sum::<f64>().sqrt();
    let off = budget.typical_noise(sums.variance, norm);
    off / (sums.lowest.max(0.0) + regularization)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_follows_its_formula_and_grows_with_noise() {
        let model = ModelConfig { noise: 0.5, regularization: 1.0, ..Default::default() };
        let privacy = PrivacyConfig { private_width: 1.0, ..Default::default() };
        let budget = Budget::new(&privacy, 10, false);
        let width = PrivateWidth::new(&model, &privacy, budget.clone(), 10);
        let sums = Noisy { variance: 9.0, lowest: 500.0, count: 9000 };
        let (m, v) = (budget.matrix_bound(9.0), budget.vector_bound(9.0));
        let inside = 2.0 * libm::log(1000.0) + 10.0 * libm::log(1.0 + 9000.0 / 5010.0);
        let expected = 0.5 * ((1.0 + m / 501.0) * inside).sqrt() + (v + m) / 501f64.sqrt() + 1.0;
        assert!((width.of(sums) - expected).abs() < 1e-12);
        assert!(width.of(Noisy { variance: 16.0, ..sums }) > width.of(sums));
        assert!(width.of(Noisy { lowest: budget.floor(9.0), ..sums }) > width.of(sums), "some were raised");
        let none = Noisy { variance: 0.0, lowest: 0.0, count: 0 };
        assert!((width.of(none) - 0.5 * (2.0 * libm::log(1000.0)).sqrt() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn noise_moves_estimates_less_the_more_is_known() {
        let budget = Budget::new(&PrivacyConfig::default(), 2, false);
        let sums = Noisy { variance: 4.0, lowest: 99.0, count: 1000 };
        // Two features with noise of variance 4: κ² + ‖θ̂‖² = κ² + 25.
        let expected = (2.0 * 4.0 * (budget.vector_ratio * budget.vector_ratio + 25.0)).sqrt() / 100.0;
        assert!((noise_radius(&budget, sums, &[3.0, 4.0], 1.0) - expected).abs() < 1e-12);
        assert_eq!(noise_radius(&budget, Noisy { variance: 0.0, ..sums }, &[3.0, 4.0], 1.0), 0.0);
    }
}
