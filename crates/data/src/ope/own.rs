//! A policy of the caller's own, given by its probabilities in every row of a log.

use std::path::Path;

use super::estimate::JudgedRow;
use super::judge::{Findings, Judging, findings};
use super::reward_model::fit_reward_model;
use crate::decision_log::DecisionLog;
use crate::error::{DataError, Problem};
use crate::records::{Format, Records};

/// Probabilities of a policy, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnPolicy {
    /// One for each row: of what the log did. Or one for each row and action, in the order of the actions.
    probabilities: Vec<f64>,
    per_action: bool,
}

#[cfg(test)]
impl OwnPolicy {
    /// A policy that surely does what the log did.
    pub(super) fn of_the_log(log: &DecisionLog) -> Self {
        Self { probabilities: vec![1.0; log.rows()], per_action: false }
    }
}

/// Rows may be off by this much from summing to one.
const ROUNDING: f64 = 1e-3;

/// Reads a policy from a CSV file with a header and a row for each row of the log. One column has the probability of
/// what the log did; or there is a column for each action, called as in the log, and every row sums to one.
pub fn read_policy(path: &Path, log: &DecisionLog) -> Result<OwnPolicy, DataError> {
    let mut records = Records::open(path, &Format::csv())?;
    let per_action = records.columns().len() > 1;
    let fields: Vec<usize> = if per_action {
        log.action_names().iter().map(|name| records.column(name)).collect::<Result<_, _>>()?
    } else {
        vec![0]
    };
    let mut probabilities = Vec::with_capacity(log.rows() * fields.len());
    while records.next(&mut |_| {})? {
        let mut sum = 0.0;
        for &field in &fields {
            let p = records.number(field)?;
            if !(0.0..=1.0).contains(&p) {
                return Err(records.refuse(field, "a probability from 0 to 1"));
            }
            probabilities.push(p);
            sum += p;
        }
        if per_action && (sum - 1.0).abs() > ROUNDING {
            let problem = format!("the probabilities of this row sum to {sum}, not to 1");
            return Err(records.error(fields[0], Problem::Setting(problem)));
        }
    }
    let rows = probabilities.len() / fields.len();
    if rows != log.rows() {
        let problem = format!("it has {rows} rows, the log {}: every row of the log needs one", log.rows());
        return Err(Problem::Setting(problem).of(path));
    }
    Ok(OwnPolicy { probabilities, per_action })
}

/// Estimates what a policy of the caller's own would have earned, over all rows of a log. With one probability a row,
/// there is no saying what a model expects of the policy, so only replay, ips and snips speak.
pub fn evaluate_own(log: &DecisionLog, policy: &OwnPolicy, judging: &Judging) -> Result<Findings, String> {
    let model = policy.per_action.then(|| fit_reward_model(log, 0..log.rows(), judging.model));
    let row = |row: usize| {
        let own = |action: usize| policy.probabilities[row * log.actions() + action];
        let (taken, expected, of_policy) = match &model {
            None => (policy.probabilities[row], 0.0, 0.0),
            Some(model) => {
                let expected = model.expected(log, row);
                let of_policy = expected.iter().enumerate().map(|(action, q)| own(action) * q).sum();
                (own(log.action(row)), expected[log.action(row)], of_policy)
            }
        };
        JudgedRow {
            reward: log.reward(row),
            propensity: log.propensity(row),
            policy: taken,
            expected,
            expected_of_policy: of_policy,
        }
    };
    findings(log, (0..log.rows()).map(row).collect(), model.as_ref(), judging)
}
