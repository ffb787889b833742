//! From evidence about rows to estimates with their warnings: what all evaluations share.

use serde::Serialize;

use super::estimate::{
    Estimate, Estimator, Interval, JudgedRow, clip, doubt, effective_sample_size, estimate, usual_limit,
    warning,
};
use super::reward_model::{ModelKind, RewardModel};
use crate::decision_log::{DecisionLog, LEAST_PROPENSITY};

/// Settings of the estimators.
#[derive(Clone, Copy, Debug)]
pub struct Judging {
    /// How intervals are made. Default normal.
    pub interval: Interval,
    /// The probability with which intervals cover the true value. Default 0.95.
    pub level: f64,
    /// The largest weight of a row; `None` for [`usual_limit`], infinity for none. Default `None`.
    pub clip: Option<f64>,
    /// The model of rewards. `None`, the default, takes the model that predicts best.
    pub model: Option<ModelKind>,
}

impl Default for Judging {
    fn default() -> Self {
        Self { interval: Interval::Normal, level: 0.95, clip: None, model: None }
    }
}

/// What estimators say, and how far to trust them.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// How many rows the policy is judged on.
    pub judged: usize,
    /// The mean reward of the logging policy in those rows.
    pub logged: f64,
    /// The effective sample size, after clipping.
    pub effective: f64,
    /// The largest weight of a row.
    pub clip: f64,
    /// How many rows had a larger weight, which was cut to `clip`.
    pub clipped: usize,
    /// The model of rewards behind `dm`, `dr`, `switch` and `dr-os`; `None` if there is none.
    pub model: Option<ModelKind>,
    /// The share of the variance of rewards that it explains in rows it has not seen.
    pub explained: f64,
    /// The value that each estimator gives, in the order of [`Estimator::ALL`].
    pub estimates: Vec<Named>,
    /// Reasons to distrust the numbers, one sentence each.
    pub warnings: Vec<String>,
}

/// One estimator with its estimate.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    /// The name of the estimator.
    pub name: &'static str,
    /// The parameter of the estimator, chosen from the data; `None` if it has none.
    pub parameter: Option<f64>,
    /// The estimate; `None` if no row of the log counts, or the estimator does not suit the log.
    pub estimate: Option<Estimate>,
}

/// Judges evidence from a log. Without a model only estimators that need none speak.
pub(super) fn findings(
    log: &DecisionLog,
    mut evidence: Vec<JudgedRow>,
    model: Option<&RewardModel>,
    judging: &Judging,
) -> Result<Findings, String> {
    let Judging { interval, level, .. } = *judging;
    if let Some(place) = evidence.iter().position(|row| row.propensity < LEAST_PROPENSITY) {
        return Err(format!(
            "a propensity is {:e}, in row {} of those judged: no policy decides so once in 10⁹ times; correct the \
             column and prepare the log again",
            evidence[place].propensity,
            place + 1
        ));
    }
    let uniform = is_uniform(log);
    let limit = judging.clip.unwrap_or_else(|| usual_limit(evidence.len(), log.actions()));
    let clipped = if limit.is_finite() { clip(&mut evidence, limit) } else { 0 };
    let effective = effective_sample_size(&evidence);
    let one = |estimator: Estimator| {
        let suits = match estimator {
            // Right for logs of a uniformly random policy only.
            Estimator::Replay => uniform,
            Estimator::Ips | Estimator::Snips => true,
            _ => model.is_some(),
        };
        let estimator = if suits { estimator.tuned(&evidence) } else { estimator };
        let mut found = if suits { estimate(&evidence, estimator, interval, level) } else { None };
        // What smaller weights leave out is a bias that an interval of their variance does not know of.
        if let (Some(found), Some(_)) = (&mut found, estimator.parameter())
            && let Some(whole) = estimate(&evidence, Estimator::Dr, interval, level)
        {
            let bias = (found.value - whole.value).abs();
            (found.low, found.high) = (found.low - bias, found.high + bias);
        }
        Named { name: estimator.name(), parameter: estimator.parameter(), estimate: found }
    };
    let estimates: Vec<Named> = Estimator::ALL.into_iter().map(one).collect();
    let judged = evidence.len();
    let mut warnings = about_propensities(log);
    warnings.extend(warning(effective, judged));
    if clipped > 0 {
        warnings.push(format!(
            "{clipped} of {judged} rows had weights above {limit:.0} and count as {limit:.0}: estimates lean \
             towards what the log did; --clip sets the limit"
        ));
    }
    warnings.extend(doubt(&evidence, clipped));
    if let Some(model) = model.filter(|model| model.explained < 0.01) {
        warnings.push(format!(
            "the reward model ({}) explains {:.1} % of the variance of rewards: believe no `dm`",
            model.kind.word(),
            100.0 * model.explained.max(0.0)
        ));
    }
    Ok(Findings {
        judged,
        logged: evidence.iter().map(|row| row.reward).sum::<f64>() / judged as f64,
        effective,
        clip: limit,
        clipped,
        model: model.map(|model| model.kind),
        explained: model.map_or(0.0, |model| model.explained),
        estimates,
        warnings,
    })
}

/// Whether all actions were equally likely in all rows.
pub(super) fn is_uniform(log: &DecisionLog) -> bool {
    let one = 1.0 / log.actions() as f64;
    (0..log.rows()).all(|row| (log.propensity(row) - one).abs() < 1e-6 * one)
}

/// Returns warnings about propensities that are not in the log but assumed to be uniform. Empty if the log
/// has them.
pub(super) fn about_propensities(log: &DecisionLog) -> Vec<String> {
    if !log.assumes_uniform() {
        return Vec::new();
    }
    let mut counts = vec![0.0; log.actions()];
    (0..log.rows()).for_each(|row| counts[log.action(row)] += 1.0);
    let (actions, expected) = (log.actions() as f64, log.rows() as f64 / log.actions() as f64);
    // Pearson's χ², whose mean is the number of actions less one and whose variance is twice that.
    let distance: f64 = counts.iter().map(|count| (count - expected) * (count - expected) / expected).sum();
    let likely = actions - 1.0 + 6.0 * (2.0 * (actions - 1.0)).sqrt();
    if distance > likely {
        let most = counts.iter().fold(0.0f64, |most, count| most.max(*count)) / log.rows() as f64;
        return vec![format!(
            "the log has no propensities and its actions were not taken at random: one makes up {:.0} % of the \
             rows, {:.0} % would be even. Every estimate but `dm` is wrong; name the column of propensities with \
             --propensity when preparing the log",
            100.0 * most,
            100.0 / actions
        )];
    }
    vec![
        "the log has no propensities: all actions count as equally likely, as if it had been made at random"
            .into(),
    ]
}
