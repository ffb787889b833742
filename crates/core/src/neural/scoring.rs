//! Which arm: a weighted sum of two upper confidence bounds, one of the linear model of gradients and one of
//! the network.

use std::sync::Arc;

use super::fn_ucb::{FeaturePoint, FnUcb};
use super::inverse::quadratic;
use super::network::{Network, Scratch};
use super::sparse::Sparse;
use super::statistic::{Precondition, Statistic, weighted_squares};
use crate::agent::Choice;
use crate::arms::{Arms, best};
use crate::error::InputError;

/// Everything that a choice of `fn-ucb` depends on.
pub(crate) struct Scoring<'a> {
    pub(crate) config: &'a FnUcb,
    /// The network at θ₀, where gradients are taken unless `features` says otherwise.
    pub(crate) start: &'a Network,
    /// The network whose output predicts rewards.
    pub(crate) predicts: &'a Network,
    /// The network at which gradients are taken if they follow it.
    pub(crate) shared: &'a Network,
    pub(crate) statistic: &'a Statistic,
    /// Inverses of the agents' own matrices, or their mean. Empty: the statistic above is all that is known.
    pub(crate) widths: &'a [Arc<Vec<f64>>],
    pub(crate) alpha: f64,
}

/// Memory that scoring works in. Always written before it is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct GradientMemory {
    pub(crate) scratch: Scratch,
    pub(crate) phi: Sparse,
}

impl Scoring<'_> {
    /// argmax (1 − α)·(φᵀθ̄ + ν_a·√λ·‖φ‖) + α·(f(x) + ν_b·√λ·mean‖φ‖).
    pub(crate) fn choose(&self, arms: &Arms, memory: &mut GradientMemory) -> Result<Choice, InputError> {
        let GradientMemory { scratch, phi } = memory;
        let root = self.config.neural.regularization.sqrt();
        let mut linear = Vec::with_capacity(arms.len());
        let mut network = Vec::with_capacity(arms.len());
        for arm in 0..arms.len() {
            let x = arms.row(arm);
            self.gradient(x, scratch, phi);
            if !phi.is_sound() {
                linear.push((f64::NAN, f64::NAN));
                network.push(f64::NAN);
                continue;
            }
            if self.alpha < 1.0 {
                let (mean, square) = self.statistic.mean_and_square(phi);
                linear.push((mean, self.config.linear_width * root * square.sqrt()));
            } else {
                linear.push((0.0, 0.0));
            }
            if self.alpha > 0.0 {
                let width = self.config.network_width * root * self.mean_width(phi);
                network.push(self.predicts.value(x, scratch) + width);
            } else {
                network.push(0.0);
            }
        }
        if self.config.rescale && self.config.neural.statistic == Precondition::Diagonal {
            rescale(&mut linear);
        }
        let scores = linear.iter().zip(&network);
        let arm = best(
            scores.map(|((mean, width), bound)| (1.0 - self.alpha) * (mean + width) + self.alpha * bound),
        )?;
        Ok(Choice { arm, propensity: Some(1.0) })
    }

    /// Writes φ(x), the gradient of the network's output at the features `x`, into `phi`.
    pub(crate) fn gradient(&self, x: &[f64], scratch: &mut Scratch, phi: &mut Sparse) {
        let network = match self.config.features_at {
            FeaturePoint::Start => self.start,
            FeaturePoint::Current => self.shared,
        };
        network.gradient(x, scratch, phi);
    }

    fn mean_width(&self, phi: &Sparse) -> f64 {
        if self.widths.is_empty() {
            return self.statistic.square(phi).sqrt();
        }
        let width = |matrix: &Arc<Vec<f64>>| match self.statistic.kind() {
            Precondition::Full => quadratic(matrix, phi).sqrt(),
            Precondition::Diagonal => weighted_squares(matrix, phi).max(0.0).sqrt(),
        };
        self.widths.iter().map(width).sum::<f64>() / self.widths.len().max(1) as f64
    }
}

/// Moves means to between 0 and 1, unless they are all the same.
fn rescale(scores: &mut [(f64, f64)]) {
    let means = || scores.iter().map(|(mean, _)| *mean).filter(|mean| mean.is_finite());
    let (low, high) = (means().fold(f64::INFINITY, f64::min), means().fold(f64::NEG_INFINITY, f64::max));
    if high > low {
        scores.iter_mut().for_each(|(mean, _)| *mean = (*mean - low) / (high - low));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neural::widths::widths;
    use crate::random::Seed;

    /// O21: the bound from the mean of the matrices is never below the mean of the bounds.
    #[test]
    fn less_communication_is_never_less_careful() {
        for kind in [Precondition::Full, Precondition::Diagonal] {
            let mut config = FnUcb::default();
            config.neural.statistic = kind;
            config.neural.hidden_width = 3;
            let start = config.neural.start(2, Seed(1));
            let mut stream = Seed(2).stream("test", 0, 0);
            let (mut scratch, mut phi) = (Scratch::default(), Sparse::default());
            let mut own = vec![config.neural.none(start.layout.parameters()); 4];
            for step in 0..60 {
                let x = [stream.normal(), stream.normal()];
                start.gradient(&x, &mut scratch, &mut phi);
                // Some have seen much more than others.
                own[(step % 10) % 4].learn(&phi, 1.0);
            }
            let mut again = own.clone();
            let (all, mean) = (widths(again.iter_mut(), false), widths(own.clone().iter_mut(), true));
            let scoring = |widths| Scoring {
                config: &config,
                start: &start,
                predicts: &start,
                shared: &start,
                statistic: &own[0],
                widths,
                alpha: 1.0,
            };
            let mut differed = false;
            for _ in 0..200 {
                let x = [stream.normal(), stream.normal()];
                start.gradient(&x, &mut scratch, &mut phi);
                let (main, less) = (scoring(&all).mean_width(&phi), scoring(&mean).mean_width(&phi));
                assert!(less >= main * (1.0 - 1e-12), "{less} below {main}");
                differed |= less > main * 1.01;
            }
            assert!(differed, "the two are not the same");
        }
    }

    #[test]
    fn rescaled_means_lie_between_zero_and_one() {
        let mut scores = vec![(-3.0, 0.1), (f64::NAN, 0.0), (5.0, 0.2), (1.0, 0.3)];
        rescale(&mut scores);
        assert_eq!((scores[0], scores[2], scores[3]), ((0.0, 0.1), (1.0, 0.2), (0.5, 0.3)));
        let mut same = vec![(2.0, 0.1), (2.0, 0.2)];
        rescale(&mut same);
        assert_eq!(same, [(2.0, 0.1), (2.0, 0.2)]);
    }
}
