//! A model of rewards for the direct method: the mean reward of an action, shrunk to the mean of all.

use crate::log::Log;

/// What each action is expected to earn, from the other part of the log for each of the two parts.
#[derive(Clone, Debug, PartialEq)]
pub struct RewardModel {
    parts: [Vec<f64>; 2],
}

/// How many rows of the mean reward every action starts with.
const PRIOR_ROWS: f64 = 10.0;

/// Fits the model on some rows of a log. Even and odd rows are fitted apart, and each part is judged by the model of
/// the other, so that no row is explained by itself.
#[must_use]
pub fn fit_reward_model(log: &Log, rows: std::ops::Range<usize>) -> RewardModel {
    let fit = |parity: usize| {
        let mut sums = vec![(0.0, 0.0); log.actions()];
        let (mut all, mut count) = (0.0, 0.0);
        for row in rows.clone().filter(|row| row % 2 == parity) {
            let (sum, number) = &mut sums[log.action(row)];
            (*sum, *number) = (*sum + log.reward(row), *number + 1.0);
            (all, count) = (all + log.reward(row), count + 1.0);
        }
        let mean = if count > 0.0 { all / count } else { 0.0 };
        sums.into_iter().map(|(sum, number)| (sum + PRIOR_ROWS * mean) / (number + PRIOR_ROWS)).collect()
    };
    RewardModel { parts: [fit(0), fit(1)] }
}

impl RewardModel {
    /// What each action is expected to earn in a row.
    #[must_use]
    pub fn expected(&self, row: usize) -> &[f64] {
        &self.parts[1 - row % 2]
    }
}
