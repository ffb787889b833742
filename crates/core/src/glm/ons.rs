//! The online Newton step: an agent's own learning between rounds, and the width that goes with it.

use super::config::Constants;
use super::projection::{dot, project};
use crate::exchange::belief::Belief;

/// An iterate θ that moves with every observation, and what is known of its regret.
///
/// The model that chooses is not the iterate: it is ridge regression on the iterate's *predictions* xᵀθ,
/// which is why a [`Belief`] is told predictions in place of rewards.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ons {
    pub(crate) iterate: Vec<f64>,
    /// Σ (xᵀθ)² over all observations in the view.
    pub(crate) squares: f64,
    /// B: what the regret of the steps may have added up to.
    pub(crate) potential: f64,
    /// What predictions of shared observations may be off by, squared.
    pub(crate) shift: f64,
}

impl Ons {
    pub(crate) fn new(dimension: usize, potential: f64) -> Self {
        Self { iterate: vec![0.0; dimension], squares: 0.0, potential, shift: 0.0 }
    }

    /// Learns from an observation: predict, let the view remember the prediction, and step.
    pub(crate) fn step(&mut self, constants: &Constants, view: &mut Belief, x: &[f64], y: f64) {
        let z = dot(x, &self.iterate);
        view.observe(x, z);
        self.squares += z * z;
        let error = constants.link.mean(z) - y;
        let mut direction = x.to_vec();
        view.model().solve(&mut direction);
        let c = constants.smallest;
        self.potential += error * error * dot(x, &direction) / (2.0 * c);
        for (theta, w) in self.iterate.iter_mut().zip(&direction) {
            *theta -= error / c * w;
        }
        project(&mut self.iterate, constants.radius, view.regularization(), view.parts());
    }

    /// α: how far the model may be off, in its own norm, at confidence `delta`.
    pub(crate) fn width(&self, constants: &Constants, view: &Belief, delta: f64) -> f64 {
        let prior = view.regularization() * constants.radius * constants.radius;
        let unexplained = view.model().explained() - self.squares;
        let squared = self.shift + constants.online_radius(self.potential, delta) + prior + unexplained;
        constants.practical(squared.max(0.0).sqrt())
    }
}
