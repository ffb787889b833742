//! Ridge regression over a changing body of evidence: the only owner of values derived from it.

use std::cell::RefCell;
use std::sync::Arc;

use crate::arms::Columns;
use crate::error::ProtocolError;
use crate::evidence::Evidence;
use crate::factor::{Factor, Scores, Workspace};
use crate::workers::{ThisThread, Workers};

/// After this many rank-one updates the factor is made anew from the evidence.
const UPDATES_BETWEEN_REFRESHES: u32 = 256;

/// What is said of evidence that has no model.
const NO_FIT: ProtocolError = ProtocolError::Evidence("no finite model fits it");

/// The last evidence that came from elsewhere, with its model.
#[derive(Debug)]
pub(crate) struct Heard {
    evidence: Arc<Evidence>,
    model: Ridge,
}

thread_local! {
    /// One scratch tile for every model of the thread: it stays in the fastest cache, whichever of
    /// thousands of agents acts next. Always written before it is read.
    static WORKSPACE: RefCell<Workspace> = RefCell::new(Workspace::new());
}

/// V(λ) = Σxxᵀ + λI with its factor, its estimate and its information, kept current.
///
/// The **information** is ln det(I + Σxxᵀ/λ): zero without observations, growing with each. Triggers
/// compare it and widths are made of it; unlike ln det V(λ) it starts from an exact zero.
#[derive(Clone, Debug)]
pub struct Ridge {
    regularization: f64,
    factor: Factor,
    information: f64,
    updates: u32,
    drift: f64,
}

impl Ridge {
    /// No observations, regularised by λ = `regularization`.
    ///
    /// # Panics
    /// Unless `regularization` is positive and finite: configurations are checked before.
    #[must_use]
    pub fn new(dimension: usize, regularization: f64) -> Self {
        assert!(regularization > 0.0 && regularization.is_finite(), "λ is positive and finite");
        let factor = Factor::new(dimension, regularization);
        Self { regularization, factor, information: 0.0, updates: 0, drift: 0.0 }
    }

    /// Everything anew from the sum of `parts`, or an error that changes nothing.
    pub fn refresh<'e>(
        &mut self,
        parts: impl Iterator<Item = &'e Evidence> + Clone,
    ) -> Result<(), ProtocolError> {
        self.refresh_on(parts, &ThisThread)
    }

    /// Like [`refresh`](Self::refresh), with the same bits; where there are hundreds of features, `workers` share the work.
    pub fn refresh_on<'e>(
        &mut self,
        mut parts: impl Iterator<Item = &'e Evidence> + Clone,
        workers: &dyn Workers,
    ) -> Result<(), ProtocolError> {
        let expected = self.dimension();
        if let Some(other) = parts.clone().find(|part| part.dimension() != expected) {
            return Err(ProtocolError::Dimension { expected, got: other.dimension() });
        }
        let made = WORKSPACE.with_borrow_mut(|workspace| {
            let spare = workspace.spare(self.dimension());
            let made = spare.refresh(self.regularization, parts.clone(), workers);
            if made {
                std::mem::swap(&mut self.factor, spare);
            }
            made
        });
        if !made {
            return Err(NO_FIT);
        }
        self.updates = 0;
        // An exact zero without data, whatever the rounding of λ's square root.
        self.information = if parts.all(Evidence::is_empty) { 0.0 } else { self.fresh_information() };
        Ok(())
    }

    /// Whether a model of this dimension and regularisation fits `evidence`. Nothing changes.
    pub(crate) fn check_fit(&self, evidence: &Evidence, workers: &dyn Workers) -> Result<(), ProtocolError> {
        let (expected, got) = (self.dimension(), evidence.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let fits = WORKSPACE.with_borrow_mut(|workspace| {
            workspace.spare(expected).refresh(self.regularization, std::iter::once(evidence), workers)
        });
        if fits { Ok(()) } else { Err(NO_FIT) }
    }

    /// Everything anew from `evidence`, which remembers that this model was made of it; or an error that changes nothing.
    pub(crate) fn refresh_noting(
        &mut self,
        evidence: &mut Evidence,
        workers: &dyn Workers,
    ) -> Result<(), ProtocolError> {
        self.refresh_on(std::iter::once(&*evidence), workers)?;
        evidence.note_model(self.regularization, self.information);
        Ok(())
    }

    /// The information of `evidence`, or an error if no model fits it. Many agents hear the same from a
    /// coordinator: it is factorised for the first of them, unless the coordinator did so in this process.
    pub(crate) fn check(evidence: &Arc<Evidence>, regularization: f64) -> Result<f64, ProtocolError> {
        if let Some(information) = evidence.known_information(regularization) {
            return Ok(information);
        }
        Self::hear(evidence, regularization)
    }

    /// Makes a model of `evidence` that others can copy, unless the last one was of the same. Returns its information.
    fn hear(evidence: &Arc<Evidence>, regularization: f64) -> Result<f64, ProtocolError> {
        let known = WORKSPACE.with_borrow(|workspace| {
            let heard = workspace.heard.as_ref();
            let same = |heard: &&Heard| {
                Arc::ptr_eq(&heard.evidence, evidence) && heard.model.regularization == regularization
            };
            heard.filter(same).map(|heard| heard.model.information)
        });
        if let Some(information) = known {
            return Ok(information);
        }
        let last = WORKSPACE.with_borrow_mut(|workspace| workspace.heard.take());
        let fits = |model: &Self| {
            model.dimension() == evidence.dimension() && model.regularization == regularization
        };
        let last = last.map(|heard| heard.model).filter(fits);
        let mut model = last.unwrap_or_else(|| Self::new(evidence.dimension(), regularization));
        model.refresh(std::iter::once(&**evidence))?;
        let information = model.information;
        let heard = Heard { evidence: Arc::clone(evidence), model };
        WORKSPACE.with_borrow_mut(|workspace| workspace.heard = Some(heard));
        Ok(information)
    }

    /// Like [`refresh`](Self::refresh) with nothing but `evidence`, which many models are refreshed with in
    /// turn.
    pub(crate) fn refresh_to(&mut self, evidence: &Arc<Evidence>) -> Result<(), ProtocolError> {
        let (expected, got) = (self.dimension(), evidence.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        self.information = Self::hear(evidence, self.regularization)?;
        self.updates = 0;
        WORKSPACE.with_borrow(|workspace| {
            let heard = workspace.heard.as_ref().expect("it was just made");
            self.factor.copy_from(&heard.model.factor);
        });
        Ok(())
    }

    /// Makes this a new model as far as [`drift`](Self::drift) goes. The caller refreshes it next.
    pub(crate) const fn forget_drift(&mut self) {
        self.drift = 0.0;
    }

    /// Adds an observation that was checked before, and returns by how much the information grew.
    ///
    /// `parts` is the evidence *including* this observation. It is read only once in a while, to repair
    /// the rounding errors of incremental updates; see [`drift`](Self::drift).
    #[inline]
    pub(crate) fn learn<'e>(
        &mut self,
        x: &[f64],
        y: f64,
        parts: impl Iterator<Item = &'e Evidence> + Clone,
    ) -> f64 {
        let gain = self.append(x, y);
        if self.is_worn() {
            self.repair(parts);
        }
        gain
    }

    /// Whether so many observations were appended that a [`repair`](Self::repair) is due.
    #[inline]
    pub(crate) const fn is_worn(&self) -> bool {
        self.updates >= UPDATES_BETWEEN_REFRESHES
    }

    /// Adds an observation without ever repairing.
    #[inline]
    pub(crate) fn append(&mut self, x: &[f64], y: f64) -> f64 {
        let square = WORKSPACE.with_borrow_mut(|workspace| self.factor.update(x, y, workspace));
        let gain = libm::log1p(square);
        self.information += gain;
        self.updates += 1;
        gain
    }

    /// Makes the factor anew from the evidence, and remembers how far off the old one was.
    #[cold]
    pub(crate) fn repair<'e>(&mut self, parts: impl Iterator<Item = &'e Evidence> + Clone) {
        let incremental = self.information;
        // Evidence from real observations is always positive semidefinite; should rounding ever say
        // otherwise, the incremental factor is the better one.
        if self.refresh(parts).is_ok() {
            let difference = (self.information - incremental).abs();
            self.drift = self.drift.max(difference / self.information.abs().max(1.0));
        }
        self.updates = 0;
    }

    /// Calls `read` with the mean and the width of every arm.
    pub(crate) fn score<R>(&self, arms: Columns<'_>, read: impl FnOnce(Scores<'_>) -> R) -> R {
        self.score_perturbed(arms, |_| 0.0, read)
    }

    /// Like [`score`](Self::score), for a model perturbed in the factor's coordinates: means become
    /// xᵀ(θ̂ + U⁻¹·noise).
    pub(crate) fn score_perturbed<R>(
        &self,
        arms: Columns<'_>,
        noise: impl FnMut(usize) -> f64,
        read: impl FnOnce(Scores<'_>) -> R,
    ) -> R {
        WORKSPACE.with_borrow_mut(|workspace| read(self.factor.score(arms, noise, workspace)))
    }

    /// The ridge estimate θ̂ = V(λ)⁻¹Σxy.
    #[must_use]
    pub fn estimate(&self) -> Vec<f64> {
        let mut theta = vec![0.0; self.dimension()];
        self.factor.estimate(&mut theta);
        theta
    }

    /// Replaces `v` by V(λ)⁻¹v.
    pub(crate) fn solve(&self, v: &mut [f64]) {
        self.factor.solve_transposed(v);
        self.factor.solve(v);
    }

    /// bᵀV(λ)⁻¹b for the moment b: how much of the squared rewards the estimate explains.
    pub(crate) fn explained(&self) -> f64 {
        self.factor.explained()
    }

    /// U⁻ᵀv, in place: v in the coordinates in which [`score_perturbed`](Self::score_perturbed) adds noise.
    pub(crate) fn to_factor_coordinates(&self, v: &mut [f64]) {
        self.factor.solve_transposed(v);
    }

    /// Returns ln det(I + Σxxᵀ/λ), zero or more.
    #[must_use]
    pub const fn information(&self) -> f64 {
        self.information
    }

    /// λ, the weight of the belief that parameters are zero.
    #[must_use]
    pub const fn regularization(&self) -> f64 {
        self.regularization
    }

    /// The number of features d.
    #[must_use]
    pub const fn dimension(&self) -> usize {
        self.factor.dimension()
    }

    /// The largest relative error of the information that a repair has found so far.
    #[must_use]
    pub const fn drift(&self) -> f64 {
        self.drift
    }

    fn fresh_information(&self) -> f64 {
        (self.factor.ln_det() - self.dimension() as f64 * libm::log(self.regularization)).max(0.0)
    }

    pub(crate) fn save(&self) -> crate::wire::v1::RidgeState {
        crate::wire::v1::RidgeState {
            entries: self.factor.entries(),
            inverse_diagonal: self.factor.inverse_diagonal().to_vec(),
            information: self.information,
            updates: self.updates,
            drift: self.drift,
        }
    }

    pub(crate) fn restore(&mut self, state: &crate::wire::v1::RidgeState) -> Result<(), crate::DecodeError> {
        let mut factor = Factor::new(self.dimension(), self.regularization);
        let finite = state.information.is_finite() && state.drift.is_finite();
        if !finite || !factor.restore(&state.entries, &state.inverse_diagonal) {
            return Err(crate::DecodeError::invalid("model", "not a triangular factor of this dimension"));
        }
        self.factor = factor;
        self.information = state.information;
        self.updates = state.updates;
        self.drift = state.drift;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
