//! Perturbed history: choose what is best under a model of rewards with added noise.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use crate::agent::Choice;
use crate::arms::Arms;
use crate::error::{DecodeError, InputError};
use crate::evidence::{Evidence, packed};
use crate::ids::AgentId;
use crate::parcel::pivoted_cholesky;
use crate::random::Seed;
use crate::ridge::Ridge;
use crate::scoring::{Draws, best_of_sample};

/// How the perturbation of rewards one cannot see is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum Perturbation {
    /// ξ ~ N(0, Σxxᵀ) exactly: what perturbing every reward of the history would give.
    #[default]
    Exact,
    /// ξ ~ N(0, Σxxᵀ + λI): cheaper, and the same as Thompson sampling with v² = a/4.
    Approximate,
}

/// θ̃ = V(λ)⁻¹(b + √(a/4)·ξ).
///
/// The original adds a fair coin a times to every past reward; a sum of x times such coins has covariance
/// (a/4)·Σxxᵀ, which is all that evidence from other agents allows to reproduce.
#[derive(Clone, Debug)]
pub(crate) struct PerturbedHistory {
    scale: f64,
    mode: Perturbation,
    draws: Draws,
    /// Full columns of a square root of the evidence at the last [`recompute`](Self::recompute).
    root: Vec<f64>,
    /// Features of observations made since that computation, one row after another.
    recent: Vec<f64>,
    /// ξ, kept to be reused.
    noise: Vec<f64>,
}

impl PerturbedHistory {
    pub(crate) fn new(a: f64, mode: Perturbation, dimension: usize, agent: AgentId, seed: Seed) -> Self {
        Self {
            scale: (a / 4.0).sqrt(),
            mode,
            draws: Draws::new(agent, seed),
            root: Vec::new(),
            recent: Vec::new(),
            noise: vec![0.0; dimension],
        }
    }

    pub(crate) fn choose(&mut self, model: &Ridge, arms: &Arms, step: u64) -> Result<Choice, InputError> {
        if self.mode == Perturbation::Approximate {
            return self.draws.choose(self.scale, model, arms, step);
        }
        let d = self.noise.len();
        let mut stream = self.draws.stream(step);
        self.noise.fill(0.0);
        for column in self.root.chunks_exact(d).chain(self.recent.chunks_exact(d)) {
            let weight = self.scale * stream.normal();
            for (xi, value) in self.noise.iter_mut().zip(column) {
                *xi += weight * value;
            }
        }
        model.to_factor_coordinates(&mut self.noise);
        best_of_sample(model, arms, |j| self.noise[j])
    }

    /// Remembers an observation; `parts` is the evidence including it.
    pub(crate) fn observe<'e>(&mut self, x: &[f64], parts: impl Iterator<Item = &'e Evidence>) {
        // Without features there is nothing to perturb, and no draw to be spent on it.
        if self.mode == Perturbation::Approximate || x.iter().all(|&v| v == 0.0) {
            return;
        }
        self.recent.extend_from_slice(x);
        // A square root has d columns at most; beyond twice that a new one is cheaper to draw with.
        if self.recent.len() >= 2 * x.len() * x.len() {
            self.recompute(parts);
        }
    }

    /// Takes the square root of the evidence anew.
    pub(crate) fn recompute<'e>(&mut self, parts: impl Iterator<Item = &'e Evidence>) {
        if self.mode == Perturbation::Approximate {
            return;
        }
        let d = self.noise.len();
        let mut gram = vec![0.0; packed(d)];
        for part in parts {
            for (sum, value) in gram.iter_mut().zip(part.gram()) {
                *sum += value;
            }
        }
        let (pivots, columns) = pivoted_cholesky(d, &gram, d);
        let parcel = crate::parcel::LowRank::new(pivots, columns, vec![0.0; d], 0);
        self.root.clear();
        parcel.for_each_column(|column| self.root.extend_from_slice(column));
        self.recent.clear();
    }

    pub(crate) fn save(&self) -> (Vec<f64>, Vec<f64>) {
        (self.root.clone(), self.recent.clone())
    }

    pub(crate) fn restore(&mut self, root: Vec<f64>, recent: Vec<f64>) -> Result<(), DecodeError> {
        let d = self.noise.len().max(1);
        let fits = |v: &[f64]| v.len().is_multiple_of(d) && v.iter().all(|x| x.is_finite());
        if !fits(&root) || !fits(&recent) {
            return Err(DecodeError::invalid("history", "it does not fit the dimension"));
        }
        self.root = root;
        self.recent = recent;
        Ok(())
    }
}
