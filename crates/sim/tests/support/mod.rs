//! What the oracle tests share: small runs, a log of what happened in them, and plain linear algebra.
#![allow(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod dense;

use posse_core::{
    Algorithm, AsyncLinUcb, Downlink, JoinPolicy, LinUcb, ProtocolConfig, Seed, Threshold, Uplink,
};
use posse_sim::world::{GlmWorldConfig, LinearConfig, WorldConfig};
use posse_sim::{Event, Observer, RunConfig, Stage, Tally};

/// What happened, as far as oracles compare it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    Chose { step: u64, agent: u64, arm: usize },
    Learned { agent: u64, reward: f64 },
    Up { agent: u64, message: Uplink },
    Down { agent: u64, message: Downlink },
}

/// Everything that happened, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Log(pub(crate) Vec<Entry>);

impl Observer for Log {
    fn looks_at_machines(&self) -> bool {
        false
    }

    fn observe(&mut self, event: &Event<'_>, _stage: &dyn Stage) {
        self.0.push(match event {
            Event::Chose { step, agent, arm, .. } => Entry::Chose { step: *step, agent: agent.0, arm: *arm },
            Event::Learned { agent, reward } => Entry::Learned { agent: agent.0, reward: *reward },
            Event::Up { agent, message, .. } => Entry::Up { agent: agent.0, message: (*message).clone() },
            Event::Down { agent, message } => Entry::Down { agent: agent.0, message: (*message).clone() },
            _ => return,
        });
    }
}

impl Log {
    /// Who chose which arm, step after step.
    pub(crate) fn choices(&self) -> Vec<(u64, usize)> {
        let choice = |entry: &Entry| match entry {
            Entry::Chose { agent, arm, .. } => Some((*agent, *arm)),
            _ => None,
        };
        self.0.iter().filter_map(choice).collect()
    }
}

/// A small run in the papers' model: uniform arrivals, an ideal network.
pub(crate) fn small(seed: u64, agents: u64, horizon: u64, algorithm: Algorithm) -> RunConfig {
    RunConfig { seed: Seed(seed), ..RunConfig::new(linear(5, 10), agents, horizon, algorithm) }
}

/// A linear world of `dimension` features and `arms` arms an offer.
pub(crate) fn linear(dimension: usize, arms: usize) -> WorldConfig {
    WorldConfig::Linear(LinearConfig { dimension, arms, ..LinearConfig::default() })
}

/// A world whose rewards the algorithm takes: `otherwise`, unless it has a link.
pub(crate) fn world_for(algorithm: &Algorithm, otherwise: WorldConfig) -> WorldConfig {
    match algorithm.link_function() {
        Some(link) => {
            WorldConfig::Glm(GlmWorldConfig { link, dimension: 5, arms: 10, ..GlmWorldConfig::default() })
        }
        None => otherwise,
    }
}

/// Runs to the end and remembers everything.
pub(crate) fn run(config: &RunConfig) -> (Log, Tally) {
    let mut log = Log::default();
    let tally = config.run(&mut log).expect("the configuration is possible");
    (log, tally)
}

/// The choices of a run.
pub(crate) fn choices(config: &RunConfig) -> Vec<(u64, usize)> {
    run(config).0.choices()
}

pub(crate) fn lin_ucb() -> Algorithm {
    Algorithm::LinUcb(LinUcb::default())
}

pub(crate) fn central() -> Algorithm {
    Algorithm::CentralLinUcb(LinUcb::default())
}

pub(crate) fn async_lin_ucb(protocol: ProtocolConfig) -> Algorithm {
    Algorithm::AsyncLinUcb(AsyncLinUcb { protocol, ..AsyncLinUcb::default() })
}

/// γ_U, γ_D and when newcomers become known.
pub(crate) fn protocol(upload: f64, download: f64, join: JoinPolicy) -> ProtocolConfig {
    ProtocolConfig {
        upload_threshold: Threshold(upload),
        download_threshold: Threshold(download),
        join,
        ..ProtocolConfig::default()
    }
}

/// Equal up to 1e-9, relative.
#[track_caller]
pub(crate) fn assert_close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0), "{a} is not {b}");
}
