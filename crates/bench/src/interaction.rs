//! How many interactions a core does in a second.

use std::hint::black_box;

use anyhow::Context;
use posse_core::{AgentId, Algorithm, Arms, Federation, LinUcb, ModelConfig, Seed, Shape, UserId, WidthForm};
use serde::Serialize;

use crate::numpy::Numpy;
use crate::plain::PlainLinUcb;
use crate::plain_refactorising::RefactorisingLinUcb;
use crate::{Effort, shortest};

const ARMS: usize = 25;
/// Different offers, so that nothing is learned by heart; few enough to stay in the cache.
const OFFERS: usize = 64;

/// The slow baselines have one interaction for so many of the others'.
const ROUNDS_OF_SLOW: usize = 10;

/// Choosing among 25 arms and learning the reward, by us, by plain loops and by numpy.
#[derive(Debug, Serialize)]
pub struct Interactions {
    /// How many features an arm has.
    pub dimension: usize,
    /// Microseconds that posse takes for one interaction.
    pub posse_micros: f64,
    /// Microseconds that the plain loop takes for one interaction.
    pub plain_micros: f64,
    /// The time of the plain loop divided by ours.
    pub ratio: f64,
    /// Microseconds that plain loops take which factorise their matrix anew after every observation.
    pub refactorising_micros: f64,
    /// The time of those divided by ours.
    pub refactorising_ratio: f64,
    /// Microseconds that a vectorised program in numpy takes for one interaction, where there is Python with numpy.
    pub numpy_micros: Option<f64>,
    /// The time of numpy divided by ours.
    pub numpy_ratio: Option<f64>,
}

/// Measures at the given dimension.
pub(super) fn interactions(
    dimension: usize,
    numpy: &mut Option<Numpy>,
    effort: Effort,
) -> anyhow::Result<Interactions> {
    let mut stream = Seed(1).stream("bench", 0, 0);
    let scale = 1.0 / (dimension as f64).sqrt();
    let offers: Vec<Vec<f64>> =
        (0..OFFERS).map(|_| (0..ARMS * dimension).map(|_| scale * stream.normal()).collect()).collect();
    let arms = offers
        .iter()
        .map(|features| Arms::from_rows(dimension, &features.chunks_exact(dimension).collect::<Vec<_>>()))
        .collect::<Result<Vec<_>, _>>()
        .context("the offers of the benchmark")?;
    let rounds = match effort {
        Effort::Quick => 400_000 / (dimension * dimension),
        Effort::Full => 20_000_000 / (dimension * dimension),
    };
    let model = ModelConfig { width: WidthForm::DetTrace, ..Default::default() };
    let federation = Federation { agents: 1, horizon: 1_000_000, seed: Seed(0) };
    let mut agent =
        Algorithm::LinUcb(LinUcb { model }).agent(AgentId(0), Shape::shared(dimension), &federation)?;
    let mut plain = PlainLinUcb::new(dimension, 0.1);
    let mut refactorising = RefactorisingLinUcb::new(dimension, 0.1);
    let slow_rounds = (rounds / ROUNDS_OF_SLOW).max(1);
    if let Some(numpy) = numpy {
        numpy.offer(&offers, ARMS, dimension)?;
    }
    let (mut posse_seconds, mut plain_seconds) = (f64::INFINITY, f64::INFINITY);
    let mut refactorising_seconds = f64::INFINITY;
    let mut numpy_seconds: Option<f64> = None;
    // In turns, so that all meet the same disturbances.
    for _ in 0..5 {
        let mut failed = None;
        posse_seconds = posse_seconds.min(shortest(1, || {
            for round in 0..rounds {
                let offer = &arms[round % OFFERS];
                let interaction = agent.choose(UserId(0), offer).and_then(|choice| {
                    agent.learn(UserId(0), offer.row(choice.arm), reward(round)).map(drop)
                });
                failed = failed.take().or(interaction.err());
            }
        }));
        if let Some(error) = failed {
            return Err(error).context("the benchmark's own offers");
        }
        plain_seconds = plain_seconds.min(shortest(1, || {
            for round in 0..rounds {
                let offer = black_box(&offers[round % OFFERS]);
                let arm = plain.choose(offer);
                plain.learn(&offer[arm * dimension..(arm + 1) * dimension], reward(round));
            }
        }));
        refactorising_seconds = refactorising_seconds.min(shortest(1, || {
            for round in 0..slow_rounds {
                let offer = black_box(&offers[round % OFFERS]);
                let arm = refactorising.choose(offer);
                refactorising.learn(&offer[arm * dimension..(arm + 1) * dimension], reward(round));
            }
        }));
        if let Some(numpy) = numpy {
            let seconds = numpy.play(slow_rounds)?;
            numpy_seconds = Some(numpy_seconds.map_or(seconds, |least| least.min(seconds)));
        }
    }
    let micros = |seconds: f64| seconds * 1e6 / rounds as f64;
    let posse_micros = micros(posse_seconds);
    let slow_micros = |seconds: f64| seconds * 1e6 / slow_rounds as f64;
    let refactorising_micros = slow_micros(refactorising_seconds);
    let numpy_micros = numpy_seconds.map(slow_micros);
    Ok(Interactions {
        dimension,
        posse_micros,
        plain_micros: micros(plain_seconds),
        ratio: plain_seconds / posse_seconds,
        refactorising_micros,
        refactorising_ratio: refactorising_micros / posse_micros,
        numpy_micros,
        numpy_ratio: numpy_micros.map(|micros| micros / posse_micros),
    })
}

fn reward(round: usize) -> f64 {
    (round % 7) as f64 * 0.1
}
