//! Models of rewards for the direct method and doubly robust estimates, fitted so that no row explains itself.
//!
//! | model | what it expects of an action |
//! |---|---|
//! | means | the mean reward of the action, whatever the context |
//! | ridge | the same plus a linear function of the context, or of the item's features |
//! | stumps | the same plus a sum of small steps, each at a threshold of one number |
//!
//! Without a choice the model with the smallest error on rows that it was not fitted on is taken.

use std::ops::Range;

use serde::Serialize;

use super::ridge_model::Linear;
use super::stumps::Boosted;
use crate::decision_log::{ContextUse, DecisionLog};

/// How many parts the rows are divided into: each is predicted by a model of the others.
const FOLDS: usize = 5;
/// How many rows of the mean reward every action starts with.
pub(super) const PRIOR_ROWS: f64 = 10.0;

/// A kind of reward model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ModelKind {
    /// The mean reward of each action.
    Means,
    /// A linear function of context or features.
    Ridge,
    /// Boosted decision stumps over context or features.
    Stumps,
}

impl ModelKind {
    /// Every kind of reward model.
    pub const ALL: [Self; 3] = [Self::Means, Self::Ridge, Self::Stumps];

    /// The word for this kind in commands and results.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Means => "means",
            Self::Ridge => "ridge",
            Self::Stumps => "stumps",
        }
    }
}

/// What each action is expected to earn in each row, by models that have not seen the row.
#[derive(Clone, Debug)]
pub struct RewardModel {
    /// Which kind of model it is.
    pub kind: ModelKind,
    /// The share of the variance of rewards that it explains in rows that it was not fitted on. Below 0 it is worse
    /// than the mean of all rewards.
    pub explained: f64,
    folds: Vec<Fitted>,
    /// The least and the largest reward: expectations stay between them.
    range: (f64, f64),
}

/// A model fitted on all parts but one.
#[derive(Clone, Debug)]
struct Fitted {
    means: Vec<f64>,
    rest: Rest,
}

/// What a model adds to the mean of an action.
#[derive(Clone, Debug)]
enum Rest {
    Nothing,
    /// One model for each action, or one for all.
    Linear(Vec<Linear>),
    Boosted(Vec<Boosted>),
}

/// Fits a model to a log. Errors are measured in `judged`; the other rows are used for fitting only. Without a
/// `kind` the one with the smallest error is taken.
#[must_use]
pub fn fit_reward_model(log: &DecisionLog, judged: Range<usize>, kind: Option<ModelKind>) -> RewardModel {
    let rewards = || (0..log.rows()).map(|row| log.reward(row));
    let range =
        rewards().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), r| (low.min(r), high.max(r)));
    let fit = |kind: ModelKind| {
        let folds = (0..FOLDS).map(|fold| fit_without(log, fold, kind)).collect();
        let mut model = RewardModel { kind, explained: 0.0, folds, range };
        model.explained = explained(log, judged.clone(), &model);
        model
    };
    match kind {
        Some(kind) => fit(kind),
        None => {
            let all = ModelKind::ALL.map(fit);
            // Of equals the simplest.
            let best =
                all.iter().fold(&all[0], |best, own| if own.explained > best.explained { own } else { best });
            best.clone()
        }
    }
}

fn explained(log: &DecisionLog, judged: Range<usize>, model: &RewardModel) -> f64 {
    let count = judged.len() as f64;
    let mean = judged.clone().map(|row| log.reward(row)).sum::<f64>() / count;
    let squares = |of: &dyn Fn(usize) -> f64| -> f64 { judged.clone().map(|row| of(row) * of(row)).sum() };
    let variance = squares(&|row| log.reward(row) - mean);
    let error = squares(&|row| log.reward(row) - model.expected_of(log, row, log.action(row)));
    if variance > 0.0 { 1.0 - error / variance } else { 0.0 }
}

/// Whether every action has a model of its own: contexts have a block for each.
fn is_per_action(log: &DecisionLog) -> bool {
    log.context_use() == ContextUse::Blocks
}

fn fit_without(log: &DecisionLog, fold: usize, kind: ModelKind) -> Fitted {
    let rows: Vec<usize> = (0..log.rows()).filter(|row| row % FOLDS != fold).collect();
    let mut sums = vec![(0.0, 0.0); log.actions()];
    for &row in &rows {
        let (sum, number) = &mut sums[log.action(row)];
        (*sum, *number) = (*sum + log.reward(row), *number + 1.0);
    }
    let all: f64 = sums.iter().map(|(sum, _)| sum).sum();
    let mean = if rows.is_empty() { 0.0 } else { all / rows.len() as f64 };
    let shrunk = |(sum, number): &(f64, f64)| (sum + PRIOR_ROWS * mean) / (number + PRIOR_ROWS);
    let means: Vec<f64> = sums.iter().map(shrunk).collect();
    if kind == ModelKind::Means || log.regressors() == 0 {
        return Fitted { means, rest: Rest::Nothing };
    }
    // What the mean of the action leaves open is explained by the numbers that go with it.
    let models = if is_per_action(log) { log.actions() } else { 1 };
    let mut inputs = vec![(Vec::new(), Vec::new()); models];
    for &row in &rows {
        let action = log.action(row);
        let (x, y) = &mut inputs[if models == 1 { 0 } else { action }];
        log.push_regressors(row, action, x);
        y.push(log.reward(row) - means[action]);
    }
    let width = log.regressors();
    let rest = match kind {
        ModelKind::Ridge => Rest::Linear(inputs.iter().map(|(x, y)| Linear::fit(x, y, width)).collect()),
        _ => Rest::Boosted(inputs.iter().map(|(x, y)| Boosted::fit(x, y, width)).collect()),
    };
    Fitted { means, rest }
}

impl RewardModel {
    /// What each action is expected to earn in a row, in the order of the actions.
    #[must_use]
    pub fn expected(&self, log: &DecisionLog, row: usize) -> Vec<f64> {
        (0..log.actions()).map(|action| self.expected_of(log, row, action)).collect()
    }

    fn expected_of(&self, log: &DecisionLog, row: usize, action: usize) -> f64 {
        let Fitted { means, rest } = &self.folds[row % FOLDS];
        let mut x = Vec::new();
        if !matches!(rest, Rest::Nothing) {
            log.push_regressors(row, action, &mut x);
        }
        let more = match rest {
            Rest::Nothing => 0.0,
            Rest::Linear(models) => models.get(action).unwrap_or(&models[0]).predict(&x),
            Rest::Boosted(models) => models.get(action).unwrap_or(&models[0]).predict(&x),
        };
        (means[action] + more).clamp(self.range.0, self.range.1)
    }
}
