//! What an interaction costs where rewards are not linear: gradients of networks, and kernels.

use std::hint::black_box;

use anyhow::Context;
use posse_core::{
    Agent, AgentId, Algorithm, AlphaRule, Arms, Federation, FnUcb, InputError, KernelConfig, NeuralConfig,
    Precondition, Seed, Shape, Threshold, UserId,
};
use serde::Serialize;

use crate::plain_nonlinear::{PlainGradientUcb, PlainKernelUcb};
use crate::{Effort, shortest};

/// As in the experiments of the paper.
const ARMS: usize = 4;
const DIMENSION: usize = 10;
const UNITS: usize = 20;
const OFFERS: usize = 64;

/// Choosing among 4 arms of 10 features and learning the reward, by us and by the plain loop.
#[derive(Debug, Serialize)]
pub struct Nonlinear {
    /// The learner as the printed table names it.
    pub name: &'static str,
    /// Numbers that it keeps a square or a row of: parameters of a network, observations of a history.
    pub size: usize,
    /// Microseconds that posse takes for one interaction.
    pub posse_micros: f64,
    /// Microseconds that the plain loop takes for one interaction.
    pub plain_micros: f64,
    /// The time of the plain loop divided by ours.
    pub ratio: f64,
}

/// The linear bound of `fn-ucb` with both kinds of statistics, without rounds and training; and `kernel-ucb`
/// with histories up to two lengths.
pub fn nonlinear(effort: Effort) -> anyhow::Result<Vec<Nonlinear>> {
    let offers = Offers::new()?;
    let quick = effort == Effort::Quick;
    let network = |name, statistic, rounds| gradients(name, statistic, rounds, &offers);
    let (full, diagonal) = if quick { (300, 2_000) } else { (3_000, 50_000) };
    let histories = if quick { [100, 300] } else { [300, 1_000] };
    let mut rows = vec![
        network("fn-ucb, whole matrices", Precondition::Full, full)?,
        network("fn-ucb, diagonals", Precondition::Diagonal, diagonal)?,
    ];
    for history in histories {
        rows.push(kernel(history, &offers)?);
    }
    Ok(rows)
}

struct Offers {
    plain: Vec<Vec<f64>>,
    arms: Vec<Arms>,
}

impl Offers {
    fn new() -> anyhow::Result<Self> {
        let mut stream = Seed(1).stream("bench", 0, 0);
        let scale = (DIMENSION as f64).sqrt().recip();
        let mut offer = || (0..ARMS * DIMENSION).map(|_| scale * stream.normal()).collect();
        let plain: Vec<Vec<f64>> = (0..OFFERS).map(|_| offer()).collect();
        let arms =
            plain.iter().map(|x| Arms::from_rows(DIMENSION, &x.chunks_exact(DIMENSION).collect::<Vec<_>>()));
        Ok(Self { arms: arms.collect::<Result<_, _>>().context("the offers of the benchmark")?, plain })
    }

    /// As many interactions of an agent.
    fn play(&self, agent: &mut dyn Agent, rounds: usize) -> Result<(), InputError> {
        for round in 0..rounds {
            let offer = &self.arms[round % OFFERS];
            let choice = agent.choose(UserId(0), offer)?;
            agent.learn(UserId(0), offer.row(choice.arm), reward(round))?;
        }
        Ok(())
    }
}

/// Gradients at a network that is not trained.
fn gradients(
    name: &'static str,
    statistic: Precondition,
    rounds: usize,
    offers: &Offers,
) -> anyhow::Result<Nonlinear> {
    let neural = NeuralConfig { statistic, hidden_width: UNITS, training_stop: 0, ..Default::default() };
    let (size, lambda) = (neural.parameters(DIMENSION), neural.regularization);
    let config =
        FnUcb { neural, alpha: AlphaRule::Zero, round_threshold: Threshold::NEVER, ..Default::default() };
    let width = config.linear_width * lambda.sqrt();
    let algorithm = Algorithm::FnUcb(config);
    let mut stream = Seed(2).stream("bench", 0, 0);
    let parameters: Vec<f64> = (0..size).map(|_| stream.normal()).collect();
    let diagonal = statistic == Precondition::Diagonal;
    measure(name, size, rounds, &algorithm, offers, || {
        let mut plain = PlainGradientUcb::new(DIMENSION, UNITS, parameters.clone(), diagonal, lambda, width);
        for round in 0..rounds {
            let offer = black_box(&offers.plain[round % OFFERS]);
            let arm = plain.choose(offer);
            plain.learn(&offer[arm * DIMENSION..(arm + 1) * DIMENSION], reward(round));
        }
    })
}

/// A history that grows from nothing to its limit.
fn kernel(history: usize, offers: &Offers) -> anyhow::Result<Nonlinear> {
    let config = KernelConfig { max_history: history, ..Default::default() };
    let (lambda, nu) = (config.regularization, config.exploration);
    measure("kernel-ucb", history, history, &Algorithm::KernelUcb(config), offers, || {
        let mut plain = PlainKernelUcb::new(DIMENSION, lambda, nu);
        for round in 0..history {
            let offer = black_box(&offers.plain[round % OFFERS]);
            let arm = plain.choose(offer);
            plain.learn(&offer[arm * DIMENSION..(arm + 1) * DIMENSION], reward(round));
        }
    })
}

/// Both in turns, each time from the beginning, so that both meet the same disturbances.
fn measure(
    name: &'static str,
    size: usize,
    rounds: usize,
    algorithm: &Algorithm,
    offers: &Offers,
    mut plain: impl FnMut(),
) -> anyhow::Result<Nonlinear> {
    let federation = Federation { agents: 1, horizon: rounds as u64, seed: Seed(0) };
    let (mut posse_seconds, mut plain_seconds) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        let mut agent = algorithm.agent(AgentId(0), Shape::shared(DIMENSION), &federation)?;
        let mut played = Ok(());
        posse_seconds = posse_seconds.min(shortest(1, || played = offers.play(&mut *agent, rounds)));
        played.context("the benchmark's own offers")?;
        plain_seconds = plain_seconds.min(shortest(1, &mut plain));
    }
    let micros = |seconds: f64| seconds * 1e6 / rounds as f64;
    Ok(Nonlinear {
        name,
        size,
        posse_micros: micros(posse_seconds),
        plain_micros: micros(plain_seconds),
        ratio: plain_seconds / posse_seconds,
    })
}

fn reward(round: usize) -> f64 {
    (round % 7) as f64 * 0.1
}
