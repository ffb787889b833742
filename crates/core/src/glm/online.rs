//! The coordinator's half of FedGLB-UCB₃: each round takes one online Newton step with the gradients of all
//! agents.

use std::sync::Arc;

use super::config::Constants;
use super::projection::{dot, project};
use crate::error::DecodeError;
use crate::evidence::{Evidence, multiply, packed};
use crate::message::Fit;
use crate::ridge::Ridge;
use crate::wire::v1;

/// The sums over the online steps of all rounds.
#[derive(Clone, Debug)]
pub(crate) struct Online {
    /// γ: gradients are divided by it.
    step: f64,
    /// Σ ggᵀ over the rounds' gradients.
    curvature: Evidence,
    potential: f64,
    squares: f64,
}

impl Online {
    pub(crate) fn new(dimension: usize, step: f64, potential: f64) -> Self {
        Self { step, curvature: Evidence::none(dimension), potential, squares: 0.0 }
    }

    /// The step of a round: `collected` holds the matrix of everything and the gradients at `last` in place
    /// of a moment; it is given the moment of predictions. Returns where the step leads.
    pub(crate) fn step(
        &mut self,
        constants: &Constants,
        before: &Evidence,
        collected: &mut Evidence,
        last: &[f64],
    ) -> Vec<f64> {
        let gradient = collected.moment().to_vec();
        let (old, new) = (multiply(before.gram(), 0.0, last), multiply(collected.gram(), 0.0, last));
        let news: Vec<f64> = new.iter().zip(&old).map(|(new, old)| new - old).collect();
        self.squares += dot(last, &news).max(0.0);
        let moment: Vec<f64> = before.moment().iter().zip(&news).map(|(b, news)| b + news).collect();
        collected.set_moment(&moment);
        let before = self.curvature.clone();
        self.curvature.add_observation(&gradient, 0.0);
        if Ridge::new(last.len(), constants.lambda).refresh([&self.curvature].into_iter()).is_err() {
            // Gradients too large to be squared: this round brings observations, and no step.
            self.curvature = before;
            return last.to_vec();
        }
        newton_step(constants, self.step, [&self.curvature].into_iter(), &gradient, last, &mut self.potential)
    }

    pub(crate) fn fit(&self) -> Fit {
        Fit::Online {
            curvature: Arc::new(self.curvature.gram().to_vec()),
            potential: self.potential,
            squares: self.squares,
        }
    }

    pub(crate) fn save(&self, state: &mut v1::GlmCoordinatorState) {
        state.online_curvature = Some(v1::Packed { entries: self.curvature.gram().to_vec() });
        (state.potential, state.squares) = (self.potential, self.squares);
    }

    pub(crate) fn restore(&mut self, state: &v1::GlmCoordinatorState) -> Result<(), DecodeError> {
        let d = self.curvature.dimension();
        let entries = state.online_curvature.clone().unwrap_or_default().entries;
        let finite = entries.iter().chain([&state.potential, &state.squares]).all(|v| v.is_finite());
        if entries.len() != packed(d) || !finite {
            return Err(DecodeError::invalid("curvature", "it does not fit this federation"));
        }
        self.curvature = bent(entries, d);
        (self.potential, self.squares) = (state.potential, state.squares);
        Ok(())
    }
}

/// A sum of outer products of gradients; how many there were does not matter.
pub(crate) fn bent(entries: Vec<f64>, dimension: usize) -> Evidence {
    Evidence::from_parts_unchecked(entries, vec![0.0; dimension], 1)
}

/// Π(θ − A⁻¹g/γ) with A = Σ `parts` + λI and Π the projection in its norm; gᵀA⁻¹g/(2γ) is what the step's
/// regret may be.
pub(crate) fn newton_step<'e>(
    constants: &Constants,
    step: f64,
    parts: impl Iterator<Item = &'e Evidence> + Clone,
    gradient: &[f64],
    theta: &[f64],
    potential: &mut f64,
) -> Vec<f64> {
    let mut model = Ridge::new(theta.len(), constants.lambda);
    let mut next = theta.to_vec();
    if model.refresh(parts.clone()).is_err() {
        // Gradients too large to be squared: no step is better than a wild one.
        return next;
    }
    let mut direction = gradient.to_vec();
    model.solve(&mut direction);
    *potential += dot(gradient, &direction) / (2.0 * step);
    for (theta, w) in next.iter_mut().zip(&direction) {
        *theta -= w / step;
    }
    if !next.iter().all(|v| v.is_finite()) {
        return theta.to_vec();
    }
    project(&mut next, constants.radius, constants.lambda, parts);
    next
}
