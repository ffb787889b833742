//! How fast an agent of the generalized linear family adds up gradients over what it stored.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::Context;
use posse_core::{
    Agent, AgentId, Algorithm, Downlink, FedGlbUcb, Federation, RoundId, Seed, Shape, Threshold, UserId,
};
use serde::Serialize;

use crate::{Effort, shortest};

/// One gradient over `observations` clicks, beside adding up as many numbers as it reads.
#[derive(Debug, Serialize)]
pub struct GradientSum {
    /// How many features an arm has.
    pub dimension: usize,
    /// Observations that are added up.
    pub observations: usize,
    /// Gigabytes of stored interactions that a gradient went through in a second.
    pub posse_rate: f64,
    /// The same for plain sums of an array of that size: what the memory gives one core.
    pub memory_rate: f64,
    /// `posse_rate` divided by `memory_rate`.
    pub ratio: f64,
}

/// An agent with that many features answers requests for gradients.
pub fn gradient_sums(dimension: usize, effort: Effort) -> anyhow::Result<GradientSum> {
    // More than a cache holds, unless it is only a look.
    let observations = if effort == Effort::Quick { 20_000 } else { 4_000_000 / dimension };
    let mut agent = filled(dimension, observations)?;
    let round = RoundId(1);
    agent.receive(Downlink::Collect { round, whole: false })?;
    let point = Arc::new(vec![0.1; dimension]);
    let mut step = 0;
    let posse = shortest(10, || {
        step += 1;
        let request = Downlink::GradientRequest { round, step, point: point.clone(), curvature: false };
        black_box(agent.receive(request).expect("the agent is in the round"));
    });
    // Features and the reward.
    let numbers = observations * (dimension + 1);
    let plain: Vec<f64> = (0..numbers).map(|n| n as f64).collect();
    let memory = shortest(10, || {
        black_box(sum(black_box(&plain)));
    });
    let gigabytes = (numbers * size_of::<f64>()) as f64 / 1e9;
    let (posse_rate, memory_rate) = (gigabytes / posse, gigabytes / memory);
    Ok(GradientSum { dimension, observations, posse_rate, memory_rate, ratio: posse_rate / memory_rate })
}

/// Sixteen sums side by side, so that additions do not wait for each other.
fn sum(numbers: &[f64]) -> f64 {
    let mut sums = [0.0; 16];
    for chunk in numbers.chunks_exact(sums.len()) {
        for (sum, number) in sums.iter_mut().zip(chunk) {
            *sum += number;
        }
    }
    sums.iter().sum()
}

/// What a gradient together with its Hessian takes over the clicks of an agent.
pub(super) struct HessianSum {
    pub(super) observations: usize,
    pub(super) seconds: f64,
}

/// An agent with that many features answers requests for gradients with curvature.
pub(super) fn hessian_sum(dimension: usize, effort: Effort) -> anyhow::Result<HessianSum> {
    let observations = if effort == Effort::Quick { 2_000 } else { 1_000_000 / dimension };
    let mut agent = filled(dimension, observations)?;
    let round = RoundId(1);
    agent.receive(Downlink::Collect { round, whole: false })?;
    let point = Arc::new(vec![0.1; dimension]);
    let mut step = 0;
    let seconds = shortest(5, || {
        step += 1;
        let request = Downlink::GradientRequest { round, step, point: point.clone(), curvature: true };
        black_box(agent.receive(request).expect("the agent is in the round"));
    });
    Ok(HessianSum { observations, seconds })
}

fn filled(dimension: usize, observations: usize) -> anyhow::Result<Box<dyn Agent>> {
    let algorithm =
        Algorithm::FedGlbUcb(FedGlbUcb { round_threshold: Threshold::NEVER, ..FedGlbUcb::default() });
    let federation = Federation { agents: 1, horizon: observations as u64, seed: Seed(0) };
    let mut agent = algorithm.agent(AgentId(0), Shape::shared(dimension), &federation)?;
    let mut stream = Seed(0).stream("bench", 0, 0);
    let mut x = vec![0.0; dimension];
    let scale = (dimension as f64).sqrt().recip();
    for _ in 0..observations {
        x.iter_mut().for_each(|value| *value = scale * (2.0 * stream.uniform() - 1.0));
        let reward = f64::from(stream.uniform() < 0.5);
        agent.learn(UserId(0), &x, reward).context("features and rewards are in range")?;
    }
    Ok(agent)
}
