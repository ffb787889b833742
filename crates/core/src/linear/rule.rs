//! How a linear agent chooses, given its model: four rules, one scoring pass.

use crate::agent::Choice;
use crate::arms::Arms;
use crate::error::InputError;
use crate::linear::inverse_gap::InverseGap;
use crate::linear::lin_phe::PerturbedHistory;
use crate::linear::lin_ts::Thompson;
use crate::ridge::Ridge;
use crate::scoring::{check_arms, upper_confidence};
use crate::width::Width;

/// A rule for choosing among arms.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// The largest upper confidence bound.
    Ucb(Width),
    /// The best arm of a sampled model.
    Thompson(Thompson),
    /// The best arm of a model of perturbed rewards.
    PerturbedHistory(PerturbedHistory),
    /// Mostly the best mean, the others by how far they are behind.
    InverseGap(InverseGap),
}

impl Rule {
    /// Chooses with `model` over `count` observations, for the `step`-th time.
    #[inline]
    pub(crate) fn choose(
        &mut self,
        model: &Ridge,
        count: u64,
        arms: &Arms,
        step: u64,
    ) -> Result<Choice, InputError> {
        self.choose_shrunk(model, count, arms, step, 1.0)
    }

    /// The arm that [`choose`](Self::choose) would choose, if choosing changes nothing in the rule.
    pub(crate) fn foresee(&self, model: &Ridge, count: u64, arms: &Arms, step: u64) -> Option<usize> {
        check_arms(model.dimension(), arms).ok()?;
        let choice = match self {
            Self::Ucb(width) => upper_confidence(model, width.of(model, count), arms),
            Self::Thompson(rule) => rule.choose(model, count, arms, step, 1.0),
            Self::InverseGap(rule) => rule.choose(model, count, arms, step, 1.0),
            Self::PerturbedHistory(_) => return None,
        };
        Some(choice.ok()?.arm)
    }

    /// The same with every width multiplied by `shrink`. Perturbed history has none.
    #[inline]
    pub(crate) fn choose_shrunk(
        &mut self,
        model: &Ridge,
        count: u64,
        arms: &Arms,
        step: u64,
        shrink: f64,
    ) -> Result<Choice, InputError> {
        check_arms(model.dimension(), arms)?;
        match self {
            Self::Ucb(width) => upper_confidence(model, shrink * width.of(model, count), arms),
            Self::Thompson(rule) => rule.choose(model, count, arms, step, shrink),
            Self::InverseGap(rule) => rule.choose(model, count, arms, step, shrink),
            Self::PerturbedHistory(rule) => rule.choose(model, arms, step),
        }
    }
}
