//! Finding the minimiser of a loss that is spread over agents: ask for gradients at a point, move, repeat.
//!
//! The loss over n observations is F(θ) = (1/n)[Σ m(xᵀθ) − yxᵀθ + (λ/2)‖θ‖²] on the ball ‖θ‖ ≤ S. A
//! [`Minimiser`] is told the summed gradient at its [`point`](Minimiser::point) and moves, until the point
//! it holds is certainly within ε of the minimum. It is plain data, saved and restored like any machine.

mod step;

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use super::config::Constants;
use super::projection::dot;
use crate::error::DecodeError;
use crate::evidence::{Evidence, packed};
use crate::ridge::Ridge;
use crate::wire::v1;

/// A method for the global update. All stop when the mean loss certainly exceeds its minimum by at most ε.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum Solver {
    /// Whichever of `preconditioned` and `newton` sent fewer scalars when it was last used. The first round
    /// is `preconditioned`; `newton` is tried once it could be cheaper.
    #[default]
    Auto,
    /// Projected accelerated gradient with adaptive restart.
    Restart,
    /// The accelerated gradient of the papers: no projection, no restart.
    Nesterov,
    /// Newton's method: agents send their curvature with the gradient, and a handful of requests suffice.
    Newton,
    /// Projected accelerated gradient in the norm of Σxxᵀ + (λ/c_μ)I, which the coordinator has anyway: in
    /// it, the loss is as round as the link's slopes are equal.
    Preconditioned,
}

/// The loss to minimise, as the coordinator knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem<'a> {
    pub(crate) constants: &'a Constants,
    /// Σxxᵀ and n of all observations in the loss.
    pub(crate) evidence: &'a Evidence,
    /// Σxxᵀ + (λ/c_μ)I of the same observations, factorised.
    pub(crate) model: &'a Ridge,
    /// ε > 0: the solver stops when the mean loss is this close to its minimum.
    pub(crate) gap: f64,
}

impl Problem<'_> {
    fn count(&self) -> f64 {
        self.evidence.count().max(1) as f64
    }

    /// ℓ: how fast the gradient of F may change. Features beyond their bound are taken as they are.
    fn smoothness(&self) -> f64 {
        let d = self.evidence.dimension();
        let trace: f64 = (0..d).map(|i| self.evidence.gram()[packed(i) + i]).sum();
        let (k, bound) = (self.constants.largest, self.constants.feature_bound);
        k * (bound * bound).max(trace / self.count()) + self.constants.lambda / self.count()
    }

    /// k_μ/c_μ: how far from round the loss is in the norm of the evidence.
    fn condition(&self) -> f64 {
        self.constants.largest / self.constants.smallest
    }
}

/// A minimum that was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Solution {
    pub(crate) estimate: Vec<f64>,
    /// By how much F may exceed its minimum here.
    pub(crate) gap: f64,
    /// How many gradients it took.
    pub(crate) evaluations: u64,
}

/// The state of one minimisation: it names a point, is told the gradient there, and names the next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Minimiser {
    method: Method,
    /// Where the next gradient is needed.
    point: Vec<f64>,
    /// The point before, without momentum; with Newton's method, where the step came from.
    previous: Vec<f64>,
    /// The momentum sequence of the accelerated methods.
    momentum: f64,
    evaluations: u64,
    best: Vec<f64>,
    best_gap: f64,
    /// The bound at `previous` (Newton's method).
    last_gap: f64,
    halvings: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Restart,
    Nesterov,
    Newton,
    Preconditioned,
}

impl Minimiser {
    /// Starts at `estimate`, the last minimum.
    pub(crate) fn new(solver: Solver, measured: &Measured, estimate: &[f64]) -> Self {
        let method = match solver {
            Solver::Restart => Method::Restart,
            Solver::Nesterov => Method::Nesterov,
            Solver::Newton => Method::Newton,
            Solver::Preconditioned => Method::Preconditioned,
            Solver::Auto => measured.cheaper(estimate.len()),
        };
        Self {
            method,
            point: estimate.to_vec(),
            previous: estimate.to_vec(),
            momentum: 1.0,
            evaluations: 0,
            best: estimate.to_vec(),
            best_gap: f64::INFINITY,
            last_gap: f64::INFINITY,
            halvings: 0,
        }
    }

    /// Where the next gradient is needed.
    pub(crate) fn point(&self) -> &[f64] {
        &self.point
    }

    /// Whether the curvature is needed with it.
    pub(crate) fn needs_curvature(&self) -> bool {
        self.method == Method::Newton
    }

    /// How many gradients it was given.
    pub(crate) const fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// Takes in the gradient of the summed loss at the point, without the regulariser. Returns the minimum
    /// once it is found, or the best point there is after `most` gradients.
    pub(crate) fn advance(
        &mut self,
        problem: &Problem<'_>,
        gradient: &[f64],
        curvature: Option<&[f64]>,
        most: u64,
    ) -> Option<Solution> {
        self.evaluations += 1;
        let lambda = problem.constants.lambda;
        let total: Vec<f64> = gradient.iter().zip(&self.point).map(|(g, theta)| g + lambda * theta).collect();
        let (candidate, gap) = self.descend(problem, &total);
        let usable = gap.is_finite() && candidate.iter().all(|v| v.is_finite());
        if usable && gap < self.best_gap {
            (self.best, self.best_gap) = (candidate.clone(), gap);
        }
        if self.best_gap <= problem.gap.max(noise_floor(problem)) || self.evaluations >= most || !usable {
            let (estimate, gap) = (self.best.clone(), self.best_gap);
            return Some(Solution { estimate, gap, evaluations: self.evaluations });
        }
        match self.method {
            Method::Restart | Method::Preconditioned => self.accelerate(problem, candidate),
            Method::Nesterov => self.accelerate_as_published(problem, &total),
            Method::Newton => self.jump(problem, &total, curvature, gap),
        }
        None
    }

    pub(crate) fn save(&self) -> v1::MinimiserState {
        v1::MinimiserState {
            method: self.method as u32,
            point: self.point.clone(),
            previous: self.previous.clone(),
            momentum: self.momentum,
            evaluations: self.evaluations,
            best: self.best.clone(),
            best_gap: self.best_gap,
            last_gap: self.last_gap,
            halvings: self.halvings,
        }
    }

    pub(crate) fn restored(state: v1::MinimiserState, dimension: usize) -> Result<Self, DecodeError> {
        let methods = [Method::Restart, Method::Nesterov, Method::Newton, Method::Preconditioned];
        let method = methods.into_iter().find(|method| *method as u32 == state.method);
        let vectors = [&state.point, &state.previous, &state.best];
        let fits = vectors.iter().all(|v| v.len() == dimension && v.iter().all(|v| v.is_finite()));
        let method = method.filter(|_| fits);
        Ok(Self {
            method: method.ok_or(DecodeError::invalid("minimiser", "it does not fit this federation"))?,
            point: state.point,
            previous: state.previous,
            momentum: state.momentum,
            evaluations: state.evaluations,
            best: state.best,
            best_gap: state.best_gap,
            last_gap: state.last_gap,
            halvings: state.halvings,
        })
    }
}

/// Where rounding drowns the gradient: asking for more would never end.
fn noise_floor(problem: &Problem<'_>) -> f64 {
    let rounding = 1e-15 * problem.constants.feature_bound;
    rounding * rounding * problem.count() / (2.0 * problem.constants.lambda)
}

/// How many gradients the two good methods asked for when each was last used; zero if it never was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) preconditioned: u64,
    pub(crate) newton: u64,
}

/// The fewest gradients that Newton's method can do with: one to see where it is, one to see that it has arrived.
const FEWEST_JUMPS: u64 = 2;

impl Measured {
    /// Takes note of a minimisation that has ended.
    pub(crate) fn note(&mut self, minimiser: &Minimiser) {
        match minimiser.method {
            Method::Preconditioned => self.preconditioned = minimiser.evaluations,
            Method::Newton => self.newton = minimiser.evaluations,
            Method::Restart | Method::Nesterov => {}
        }
    }

    /// The method that sent fewer scalars for d features: 2d a gradient, and the curvature's d(d+1)/2 on top for
    /// Newton's. One that was not used yet is taken at the least it can need.
    fn cheaper(&self, d: usize) -> Method {
        let (gradient, matrix) = (2 * d as u64, packed(d) as u64);
        let by_gradients = self.preconditioned.saturating_mul(gradient);
        let by_jumps = self.newton.max(FEWEST_JUMPS).saturating_mul(gradient + matrix);
        if by_gradients <= by_jumps { Method::Preconditioned } else { Method::Newton }
    }
}

/// Returns vᵀ(Σxxᵀ + ridge·I)v.
fn squared_norm(problem: &Problem<'_>, v: &[f64]) -> f64 {
    let ridge = problem.model.regularization();
    dot(v, &crate::evidence::multiply(problem.evidence.gram(), ridge, v))
}

#[cfg(test)]
mod tests;
