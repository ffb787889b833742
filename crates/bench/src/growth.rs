//! How the time of an interaction grows with arms, features, agents and interactions.

use posse_core::{Algorithm, AsyncLinUcb, ModelConfig, ProtocolConfig, SyncLinUcb, Threshold, WidthForm};
use posse_sim::RunConfig;
use posse_sim::world::{Form, LinearConfig, WorldConfig};
use serde::Serialize;

use crate::Effort;
use crate::clock::Clock;

/// Seconds after which a simulation is not repeated.
const ENOUGH: f64 = 0.2;

/// One simulation in the world of Figure 2, with one of its sizes changed.
#[derive(Clone, Debug, Serialize)]
pub struct GrowthPoint {
    /// The algorithm, and its threshold if there is one.
    pub name: &'static str,
    /// The size that was changed.
    pub along: Along,
    /// Its value.
    pub size: u64,
    /// Microseconds of processor time of an interaction, everything included.
    pub micros: f64,
    /// Messages of an interaction, both ways.
    pub messages: f64,
}

/// The sizes of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Along {
    /// K: arms of an offer.
    Arms,
    /// d: features of an arm.
    Features,
    /// N: agents, with five interactions each or 20 000 in all, whichever is more.
    Agents,
    /// T: interactions of all agents.
    Interactions,
}

impl Along {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Arms, Self::Features, Self::Agents, Self::Interactions];

    /// The word for it, which JSON has as well.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Arms => "arms",
            Self::Features => "features",
            Self::Agents => "agents",
            Self::Interactions => "interactions",
        }
    }

    const fn sizes(self, effort: Effort) -> &'static [u64] {
        match (effort, self) {
            (Effort::Full, Self::Arms) => &[5, 10, 25, 50, 100, 200],
            (Effort::Full, Self::Features) => &[5, 10, 25, 50, 100, 200],
            (Effort::Full, Self::Agents) => &[10, 100, 1_000, 10_000, 100_000],
            (Effort::Full, Self::Interactions) => &[1_000, 10_000, 100_000, 1_000_000],
            (Effort::Quick, Self::Arms) => &[5, 25, 50],
            (Effort::Quick, Self::Features) => &[5, 25, 50],
            (Effort::Quick, Self::Agents) => &[10, 100, 1_000],
            (Effort::Quick, Self::Interactions) => &[1_000, 10_000, 50_000],
        }
    }
}

/// The sizes that stay while another one changes.
#[derive(Clone, Copy)]
struct Sizes {
    arms: usize,
    dimension: usize,
    agents: u64,
    horizon: u64,
}

impl Sizes {
    const fn with(along: Along, size: u64) -> Self {
        let mut sizes = Self { arms: 25, dimension: 25, agents: 100, horizon: 20_000 };
        match along {
            Along::Arms => sizes.arms = size as usize,
            Along::Features => sizes.dimension = size as usize,
            Along::Agents => {
                sizes.agents = size;
                if 5 * size > sizes.horizon {
                    sizes.horizon = 5 * size;
                }
            }
            Along::Interactions => sizes.horizon = size,
        }
        sizes
    }
}

/// Measures along every size, for an exchange, for rounds and for agents that never speak.
pub fn growth(effort: Effort) -> anyhow::Result<Vec<GrowthPoint>> {
    let mut points = Vec::new();
    for along in Along::ALL {
        for &size in along.sizes(effort) {
            for (name, algorithm) in algorithms() {
                points.push(measure(name, algorithm, along, size, effort)?);
            }
        }
    }
    Ok(points)
}

fn algorithms() -> [(&'static str, Algorithm); 3] {
    let model = || ModelConfig { width: WidthForm::DetTrace, ..Default::default() };
    let exchange = |threshold| {
        let (upload_threshold, download_threshold) = (Threshold(threshold), Threshold(threshold));
        let protocol = ProtocolConfig { upload_threshold, download_threshold, ..Default::default() };
        Algorithm::AsyncLinUcb(AsyncLinUcb { model: model(), protocol, privacy: None })
    };
    let round_threshold = Threshold(116.4);
    let rounds = Algorithm::SyncLinUcb(SyncLinUcb { model: model(), round_threshold, ..Default::default() });
    [
        ("async-lin-ucb/threshold=5", exchange(5.0)),
        ("async-lin-ucb/threshold=inf", exchange(f64::INFINITY)),
        ("sync-lin-ucb", rounds),
    ]
}

fn measure(
    name: &'static str,
    algorithm: Algorithm,
    along: Along,
    size: u64,
    effort: Effort,
) -> anyhow::Result<GrowthPoint> {
    let Sizes { arms, dimension, agents, horizon } = Sizes::with(along, size);
    let world =
        WorldConfig::Linear(LinearConfig { form: Form::Authors, arms, dimension, ..Default::default() });
    let config = RunConfig::new(world, agents, horizon, algorithm);
    let (mut least, mut messages) = (f64::INFINITY, 0);
    let clock = Clock::start();
    // Short runs are disturbed more than long ones, and cost little to repeat.
    for repetition in 0..3 {
        if repetition > 0 && (effort == Effort::Quick || clock.seconds() > ENOUGH) {
            break;
        }
        let own = Clock::start();
        messages = config.run(&mut ())?.messages();
        least = least.min(own.seconds());
    }
    let interactions = horizon as f64;
    let (micros, messages) = (least * 1e6 / interactions, messages as f64 / interactions);
    Ok(GrowthPoint { name, along, size, micros, messages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_grows_by_itself_for_every_algorithm() {
        let points = growth(Effort::Quick).unwrap();
        for along in Along::ALL {
            for (name, _) in algorithms() {
                let sizes: Vec<u64> = points
                    .iter()
                    .filter(|point| point.along == along && point.name == name)
                    .map(|point| point.size)
                    .collect();
                assert_eq!(sizes, along.sizes(Effort::Quick), "{name} along {}", along.word());
            }
        }
        // Agents that never speak send nothing at any size.
        let silent = points.iter().filter(|point| point.name.ends_with("inf"));
        assert!(silent.clone().all(|point| point.messages == 0.0) && silent.count() > 0);
        // More agents have more to say to each other: the size reaches the simulation.
        let messages: Vec<f64> = points
            .iter()
            .filter(|point| point.along == Along::Agents && point.name == "async-lin-ucb/threshold=5")
            .map(|point| point.messages)
            .collect();
        assert!(messages.windows(2).all(|pair| pair[0] < pair[1]), "{messages:?}");
    }
}
