//! The estimators. Each is a ratio of sums over rows, so that one piece of code gives all intervals.
//!
//! With weights w = π(a|x)/p(a|x), model q̂ and its mean under the policy q̂_π = Σ_b π(b|x)·q̂(x, b), row by row:
//!
//! | estimator | numerator | denominator |
//! |---|---|---|
//! | replay | 1\[a = π(x)\]·r | 1\[a = π(x)\] |
//! | ips | w·r | 1 |
//! | snips | w·r | w |
//! | dm | q̂_π | 1 |
//! | dr | q̂_π + w·(r − q̂) | 1 |
//! | switch | q̂_π + 1\[w ≤ τ\]·w·(r − q̂) | 1 |
//! | dr-os | q̂_π + λw/(w² + λ)·(r − q̂) | 1 |

use posse_core::Seed;
use serde::Serialize;

/// What is known about a row of a log and a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedRow {
    /// What the action that was taken earned (r).
    pub reward: f64,
    /// The probability with which it was taken (p), above 0.
    pub propensity: f64,
    /// The probability with which the policy would take it (π).
    pub policy: f64,
    /// What a model expects of it (q̂); 0 without one.
    pub expected: f64,
    /// What the model expects of the policy (q̂_π); 0 without one.
    pub expected_of_policy: f64,
}

impl JudgedRow {
    fn weight(&self) -> f64 {
        self.policy / self.propensity
    }
}

/// Lowers weights above `limit` to it, which biases estimates towards less and keeps single rows from deciding
/// them. Returns how many rows it touched.
pub fn clip(rows: &mut [JudgedRow], limit: f64) -> usize {
    let mut clipped = 0;
    for row in rows.iter_mut().filter(|row| row.weight() > limit) {
        row.propensity = row.policy / limit;
        clipped += 1;
    }
    clipped
}

/// The weight above which rows are clipped unless the caller says otherwise: √n, as truncated importance sampling
/// has it, but never below the number of actions, which are the weights of a log that was made at random.
#[must_use]
pub fn usual_limit(rows: usize, actions: usize) -> f64 {
    (rows as f64).sqrt().max(actions as f64)
}

/// How a value is estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Estimator {
    /// The mean reward of rows in which the policy would surely have done the same. Right for logs of a uniformly
    /// random policy only.
    Replay,
    /// Inverse propensity scores: unbiased, wild where propensities are small.
    Ips,
    /// The same, divided by the sum of the weights: hardly biased, much tamer.
    Snips,
    /// The direct method: believe the model. As good as the model is.
    Dm,
    /// Doubly robust: the model, corrected by weighted residuals. Right if the propensities or the model are.
    Dr,
    /// The same, without the correction where weights are above `threshold` (τ).
    Switch {
        /// τ: rows with larger weights are not corrected.
        threshold: f64,
    },
    /// The same with weights shrunk to λw/(w² + λ): optimistic shrinkage.
    DrOs {
        /// λ: the smaller it is, the more weights shrink.
        shrinkage: f64,
    },
}

impl Estimator {
    /// All of them, with usual parameters.
    pub const ALL: [Self; 7] = [
        Self::Replay,
        Self::Ips,
        Self::Snips,
        Self::Dm,
        Self::Dr,
        Self::Switch { threshold: 10.0 },
        Self::DrOs { shrinkage: 100.0 },
    ];

    /// The name of the estimator in results and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Ips => "ips",
            Self::Snips => "snips",
            Self::Dm => "dm",
            Self::Dr => "dr",
            Self::Switch { .. } => "switch",
            Self::DrOs { .. } => "dr-os",
        }
    }

    /// The parameter of the estimator, if it has one.
    #[must_use]
    pub const fn parameter(self) -> Option<f64> {
        match self {
            Self::Switch { threshold } => Some(threshold),
            Self::DrOs { shrinkage } => Some(shrinkage),
            _ => None,
        }
    }

    /// The same estimator with the parameter that suits these rows: the one with the least estimated squared error,
    /// which is the variance of the mean plus the square of what the smaller weights leave out.
    #[must_use]
    pub fn tuned(self, rows: &[JudgedRow]) -> Self {
        let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1e3, 1e4, f64::INFINITY];
        let candidates: Vec<Self> = match self {
            Self::Switch { .. } => steps.map(|threshold| Self::Switch { threshold }).to_vec(),
            Self::DrOs { .. } => steps.map(|shrinkage| Self::DrOs { shrinkage }).to_vec(),
            _ => return self,
        };
        let error = |candidate: &Self| {
            let count = rows.len() as f64;
            let (own, whole): (Vec<f64>, Vec<f64>) =
                rows.iter().map(|row| (candidate.terms(row).0, Self::Dr.terms(row).0)).unzip();
            let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
            let (value, unbiased) = (mean(&own), mean(&whole));
            let variance = own.iter().map(|x| (x - value) * (x - value)).sum::<f64>() / count / count;
            variance + (value - unbiased) * (value - unbiased)
        };
        let best = candidates.iter().min_by(|one, other| error(one).total_cmp(&error(other)));
        best.copied().unwrap_or(self)
    }

    /// How far apart the terms of two rows can lie, if rewards span `rewards` and weights are at most `weight`.
    fn range(self, rewards: (f64, f64), weight: f64) -> f64 {
        let span = rewards.1 - rewards.0;
        match self {
            Self::Ips => weight * (rewards.1.max(0.0) - rewards.0.min(0.0)),
            Self::Dm => span,
            // The influence of a row on a ratio: a reward less the value, weighted.
            Self::Replay => span,
            Self::Snips => weight * span,
            Self::Dr | Self::Switch { .. } | Self::DrOs { .. } => span * (1.0 + 2.0 * weight),
        }
    }

    /// Numerator and denominator of a row.
    fn terms(self, row: &JudgedRow) -> (f64, f64) {
        let weight = row.weight();
        let corrected = |weight: f64| row.expected_of_policy + weight * (row.reward - row.expected);
        match self {
            Self::Replay => {
                let same = if row.policy == 1.0 { 1.0 } else { 0.0 };
                (same * row.reward, same)
            }
            Self::Ips => (weight * row.reward, 1.0),
            Self::Snips => (weight * row.reward, weight),
            Self::Dm => (row.expected_of_policy, 1.0),
            Self::Dr => (corrected(weight), 1.0),
            Self::Switch { threshold } => (corrected(if weight <= threshold { weight } else { 0.0 }), 1.0),
            Self::DrOs { shrinkage } if shrinkage.is_finite() => {
                (corrected(shrinkage * weight / (weight * weight + shrinkage)), 1.0)
            }
            Self::DrOs { .. } => (corrected(weight), 1.0),
        }
    }
}

/// How an interval is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// From the central limit theorem, ratios linearised around their value.
    Normal,
    /// The empirical Bernstein bound of Maurer and Pontil: wide, and true of any number of rows as long as no
    /// reward lies outside those in the log. Of ratios (snips, replay) their linearisation is bounded.
    Bernstein,
    /// From the percentiles of resampled logs.
    Bootstrap {
        /// How many resampled logs there are.
        samples: u32,
        /// The seed of the draw of their rows.
        seed: Seed,
    },
}

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimated value of a decision.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// How many rows count: the weights' effective sample size, or for replay the rows that match.
    pub effective: f64,
}

/// Estimates the value of a policy from rows, with an interval that covers it with probability `level` if rows are
/// independent and many. `None` if nothing in the log says anything: no rows, or none with a positive denominator.
#[must_use]
pub fn estimate(
    rows: &[JudgedRow],
    estimator: Estimator,
    interval: Interval,
    level: f64,
) -> Option<Estimate> {
    let terms: Vec<(f64, f64)> = rows.iter().map(|row| estimator.terms(row)).collect();
    let count = terms.len() as f64;
    let sums = terms.iter().fold((0.0, 0.0), |(top, bottom), (n, d)| (top + n, bottom + d));
    if sums.1 <= 0.0 {
        return None;
    }
    let value = sums.0 / sums.1;
    let (low, high) = match interval {
        Interval::Normal => {
            // The influence of a row on the ratio: (n − V·d) / mean of d.
            let mean = sums.1 / count;
            let squares: f64 = terms.iter().map(|(n, d)| (n - value * d) / mean).map(|x| x * x).sum();
            let spread = if count > 1.0 { (squares / (count - 1.0) / count).sqrt() } else { f64::INFINITY };
            let half = normal_quantile(0.5 + 0.5 * level) * spread;
            (value - half, value + half)
        }
        Interval::Bernstein => {
            let mean = sums.1 / count;
            let squares: f64 = terms.iter().map(|(n, d)| (n - value * d) / mean).map(|x| x * x).sum();
            let variance = if count > 1.0 { squares / (count - 1.0) } else { f64::INFINITY };
            let rewards = rows.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), row| {
                (low.min(row.reward), high.max(row.reward))
            });
            let weight = rows.iter().map(JudgedRow::weight).fold(0.0, f64::max);
            let range = estimator.range(rewards, weight) / mean;
            let log = (4.0 / (1.0 - level)).ln();
            let half = (2.0 * variance * log / count).sqrt() + 7.0 * range * log / (3.0 * (count - 1.0));
            (value - half, value + half)
        }
        Interval::Bootstrap { samples, seed } => {
            bootstrap(&terms, samples, seed, level).unwrap_or((value, value))
        }
    };
    let effective = match estimator {
        Estimator::Replay => sums.1,
        _ => effective_sample_size(rows),
    };
    Some(Estimate { value, low, high, effective })
}

fn bootstrap(terms: &[(f64, f64)], samples: u32, seed: Seed, level: f64) -> Option<(f64, f64)> {
    let mut values: Vec<f64> = (0..samples)
        .filter_map(|sample| {
            let mut stream = seed.stream("bootstrap", sample.into(), 0);
            let (mut top, mut bottom) = (0.0, 0.0);
            for _ in 0..terms.len() {
                let (n, d) = terms[stream.below(terms.len() as u64) as usize];
                (top, bottom) = (top + n, bottom + d);
            }
            (bottom > 0.0).then(|| top / bottom)
        })
        .collect();
    values.sort_by(f64::total_cmp);
    // The percentile, interpolated between neighbours.
    let at = |share: f64| {
        let place = share * (values.len() as f64 - 1.0);
        let below = values[place.floor() as usize];
        below + (values[place.ceil() as usize] - below) * (place - place.floor())
    };
    (!values.is_empty()).then(|| (at(0.5 - 0.5 * level), at(0.5 + 0.5 * level)))
}

/// (Σw)²/Σw²: how many rows of equal weight would say as much; 0 without any.
#[must_use]
pub fn effective_sample_size(rows: &[JudgedRow]) -> f64 {
    let (sum, squares) = rows.iter().map(JudgedRow::weight).fold((0.0, 0.0), |(s, q), w| (s + w, q + w * w));
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}

/// What to say if so few rows count that estimate and interval are not to be trusted: fewer than a hundred, or than
/// one in ten.
#[must_use]
pub fn warning(effective: f64, rows: usize) -> Option<String> {
    if effective < 100.0 {
        return Some(format!(
            "only {effective:.0} of {rows} rows count: the log says little about this policy, trust no interval"
        ));
    }
    (effective < 0.1 * rows as f64).then(|| {
        format!(
            "{effective:.0} of {rows} rows count: the policy does what the log seldom did, so a few rows decide \
             and intervals may be too narrow"
        )
    })
}

/// A doubt about propensities, in a sentence. Where they are right, weights average 1, less what clipping took away;
/// an average that is more than five standard errors off is no accident.
pub(super) fn doubt(rows: &[JudgedRow], clipped: usize) -> Option<String> {
    let count = rows.len() as f64;
    let mean = rows.iter().map(JudgedRow::weight).sum::<f64>() / count;
    let squares: f64 = rows.iter().map(|row| (row.weight() - mean) * (row.weight() - mean)).sum();
    let error = squares.sqrt() / count;
    if mean > 1.05 && mean - 1.0 > 5.0 * error {
        return Some(format!(
            "weights average {mean:.2}, where right propensities make it 1: the log took these actions more often than \
             its propensities say. Correct the column; until then `ips` is too high, and `snips` is less wrong"
        ));
    }
    (clipped == 0 && mean < 0.95 && 1.0 - mean > 5.0 * error).then(|| {
        format!(
            "weights average {mean:.2} instead of 1: the policy does what the log never did, or did less often than its \
             propensities say. `ips` is too low; no estimator knows what was never tried"
        )
    })
}

/// The point below which a standard normal lies with probability `p`, by bisection of its distribution function.
fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if 0.5 * libm::erfc(-middle / std::f64::consts::SQRT_2) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}
