//! Second readings: algorithms written down once more from their papers, with full matrices and nothing kept that could be
//! computed, and followed event by event.
//!
//! A [`Reading`] sees a run as it happened. Before every choice it computes the scores of all arms; the arm that was chosen
//! must have the largest. After every observation it says which messages follow; those that were sent must be the same.

mod alone;
mod alternating;
mod clustered;
mod clustered_alone;
mod exchanged;
mod networks;
mod noise;
mod one_group;
mod private_clusters;
mod promise;
mod push_and_pull;
mod users;

use posse_core::{AgentId, Downlink, Uplink, UserId};
use posse_sim::RunConfig;
use posse_sim::world::Offer;

use crate::literal::{Line, Pair};
use crate::support::dense::{Matrix, add_outer, add_vector, dot, form, ln_det, regularized, solve, zeros};
use crate::support::{Entry, run};

/// An algorithm as its paper has it.
pub(crate) trait Reading {
    /// The scores of all arms of an offer. Called once before every choice.
    fn scores(&mut self, offer: &Offer) -> Vec<f64>;

    /// Learns from the chosen arm `x` of an offer.
    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64);

    /// Whether messages can be compared now. Rounds that take several interactions are not over in between.
    fn is_settled(&self) -> bool {
        true
    }

    /// Messages with a payload since the last call, in any order.
    fn said(&mut self) -> Vec<Line> {
        Vec::new()
    }
}

/// Follows a run. Scores of chosen arms may be lower than the best by `tolerance`. Returns how many messages there were.
#[track_caller]
pub(crate) fn follow(config: &RunConfig, reading: &mut dyn Reading, tolerance: f64) -> usize {
    let mut world = config.world.build(config.agents, config.seed).unwrap();
    let mut offer = Offer::new();
    let mut arm_chosen = 0;
    let (mut sent, mut count, mut clear) = (Vec::new(), 0, 0_u64);
    let log = run(config).0.0;
    for entry in &log {
        match entry {
            Entry::Chose { step, agent, arm } => {
                if reading.is_settled() {
                    let mut expected = reading.said();
                    count += expected.len();
                    expected.sort_by_key(order);
                    sent.sort_by_key(order);
                    assert_eq!(sent, expected, "messages before step {step}");
                    sent.clear();
                }
                offer.agent = AgentId(*agent);
                offer.user = UserId(*agent);
                world.offer(*step, &mut offer);
                let scores = reading.scores(&offer);
                let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                assert!(scores[*arm] >= best - tolerance, "step {step}: {} is not {best}", scores[*arm]);
                // Ties and near ties say nothing about formulas.
                let behind = |score: &f64| best - score > 10.0 * tolerance;
                clear += u64::from(scores.iter().filter(|score| behind(score)).count() + 1 == scores.len());
                arm_chosen = *arm;
            }
            Entry::Learned { reward, .. } => reading.learn(&offer, offer.arms.row(arm_chosen), *reward),
            Entry::Up {
                agent,
                message: Uplink::Evidence(_) | Uplink::RoundEvidence { .. } | Uplink::NetworkPart(_),
            } => {
                sent.push(Line::Uploaded { agent: *agent });
            }
            Entry::Down {
                agent,
                message: Downlink::Snapshot(_) | Downlink::Commit { .. } | Downlink::Network(_),
            } => {
                sent.push(Line::Downloaded { agent: *agent });
            }
            _ => {}
        }
    }
    assert!(2 * clear > config.horizon, "only {clear} choices were clear");
    count
}

fn order(line: &Line) -> (u8, u64) {
    match line {
        Line::Uploaded { agent } => (0, *agent),
        Line::Downloaded { agent } => (1, *agent),
        Line::Chose { step, .. } => (2, *step),
    }
}

/// Upper confidence bounds of linear regression over these sums: xᵀθ̂ + α·√(xᵀV(λ)⁻¹x).
fn linear_bounds<'x>(
    sums: &Pair,
    model: &posse_core::ModelConfig,
    extra_noise: f64,
    arms: impl Iterator<Item = &'x [f64]>,
) -> Vec<f64> {
    let (d, lambda) = (sums.b.len(), model.regularization);
    let v = regularized(&sums.v, lambda);
    let theta = solve(&v, &sums.b);
    let alpha = model.fixed_width.unwrap_or_else(|| {
        let information = ln_det(&v) - d as f64 * libm::log(lambda);
        let failure = 2.0 * libm::log(1.0 / model.confidence);
        let width = (model.noise + extra_noise) * (information + failure).sqrt();
        model.width_scale * (width + lambda.sqrt() * model.norm_bound)
    });
    arms.map(|x| dot(x, &theta) + alpha * dot(x, &solve(&v, x)).sqrt()).collect()
}

/// All arms of an offer.
fn rows(offer: &Offer) -> impl Iterator<Item = &[f64]> {
    (0..offer.arms.len()).map(|arm| offer.arms.row(arm))
}

/// Φ, the distribution function of N(0, 1).
fn normal_below(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// Whether something that has this probability may happen `count` times in `trials`, within five standard deviations.
#[track_caller]
fn assert_frequency(probability: f64, count: u32, trials: u32, of: &str) {
    let (p, n) = (probability, f64::from(trials));
    let (expected, deviation) = (p * n, (p * (1.0 - p) * n).sqrt());
    assert!((f64::from(count) - expected).abs() < 5.0 * deviation + 1.0, "{of}: {count} and not {expected}");
}
