//! Whole simulations of the size of Figures 2 and 3.

use std::time::Instant;

use posse_core::{
    Algorithm, AsyncLinUcb, AsyncLinUcbAm, ExchangeLinUcb, FedGlbUcb, GlmConfig, ModelConfig, OnsGlm,
    ProtocolConfig, ScheduledGlbUcb, Seed, SyncLinUcb, Threshold, UcbGlm, WidthForm,
};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, Form, GlmWorldConfig, HeterogeneousConfig, LinearConfig, WorldConfig};
use posse_sim::{AdversaryConfig, RunConfig};
use serde::Serialize;

use crate::Effort;

/// A simulation in the authors' world.
#[derive(Debug, Serialize)]
pub struct Simulated {
    /// Algorithm and settings, as the table shows them.
    pub name: &'static str,
    /// Interactions a second, everything included.
    pub interactions_per_second: f64,
    /// Microseconds an interaction, everything included.
    pub micros: f64,
    /// What the authors' Python code took on another machine, for orientation; `None` where no program is published.
    pub published_micros: Option<f64>,
    /// The published time divided by ours.
    pub ratio: Option<f64>,
    /// Regret of the last repetition.
    pub regret: f64,
    /// Messages of the last repetition, in both directions.
    pub messages: u64,
    /// How many scalars those messages carry.
    pub scalars: u64,
}

/// Measures the settings for which times of the published code are known, and the exchange that is our own.
pub fn simulated(effort: Effort) -> anyhow::Result<Vec<Simulated>> {
    let settings = [
        ("async-lin-ucb, threshold 5", asynchronous(5.0), alike(), Some(883.0)),
        ("async-lin-ucb, threshold 2", asynchronous(2.0), alike(), Some(827.0)),
        ("async-lin-ucb, threshold inf", asynchronous(f64::INFINITY), alike(), Some(193.0)),
        ("async-lin-ucb-am, 20 of 25 shared", alternating(5.0), alike_in(20), Some(22_600.0)),
        ("sync-lin-ucb, round threshold 116.4", synchronous(116.4), alike(), Some(193.0)),
        ("sync-lin-ucb, round threshold 0.1164", synchronous(0.1164), alike(), Some(391.0)),
        ("exchange-lin-ucb, defaults", Algorithm::ExchangeLinUcb(ExchangeLinUcb::default()), alike(), None),
    ];
    settings
        .into_iter()
        .map(|(name, algorithm, world, published)| {
            let config = RunConfig {
                seed: Seed(0),
                agents: 1000,
                horizon: if effort == Effort::Quick { 6_000 } else { 30_000 },
                world,
                arrival: ArrivalConfig::Uniform,
                network: NetworkConfig::default(),
                topology: posse_sim::TopologyConfig::default(),
                faults: FaultConfig::default(),
                adversaries: AdversaryConfig::default(),
                algorithm,
            };
            measure(name, &config, published, effort)
        })
        .collect()
}

/// The world of Figure 2: the same parameters for all agents.
fn alike() -> WorldConfig {
    WorldConfig::Linear(LinearConfig { form: Form::Authors, ..Default::default() })
}

/// The world of Figure 3: agents have the parameters of so many of 25 features in common.
fn alike_in(shared: usize) -> WorldConfig {
    WorldConfig::Heterogeneous(HeterogeneousConfig { form: Form::Authors, shared, ..Default::default() })
}

/// 20 agents that take turns, 200 interactions each, 25 arms of 10 features: the size at which the published
/// code of the generalized linear family was run.
pub fn simulated_clicks(effort: Effort) -> anyhow::Result<Vec<Simulated>> {
    let model = || GlmConfig { width_scale: 0.05, feature_bound: 2f64.sqrt(), ..GlmConfig::default() };
    let urgent = |threshold| {
        let round_threshold = Threshold(threshold);
        Algorithm::FedGlbUcb(FedGlbUcb { model: model(), round_threshold, ..Default::default() })
    };
    let schedule = || ScheduledGlbUcb { model: model(), round_every: 63, ..Default::default() };
    let settings = [
        ("fed-glb-ucb, round threshold 0.12", urgent(0.12), 1293.0),
        ("fed-glb-ucb, round threshold 3", urgent(3.0), 1293.0),
        ("fed-glb-ucb-1, every 63", Algorithm::FedGlbUcb1(schedule()), 185.0),
        ("fed-glb-ucb-2, every 63", Algorithm::FedGlbUcb2(schedule()), 1064.0),
        ("n-ons-glm", Algorithm::NOnsGlm(OnsGlm { model: model() }), 866.0),
        ("n-ucb-glm", Algorithm::NUcbGlm(UcbGlm { model: model(), ..Default::default() }), 320.0),
        ("one-ucb-glm", Algorithm::OneUcbGlm(UcbGlm { model: model(), ..Default::default() }), 759.0),
    ];
    settings
        .into_iter()
        .map(|(name, algorithm, published)| {
            let config = RunConfig {
                seed: Seed(0),
                agents: 20,
                horizon: 4_000,
                world: WorldConfig::Glm(GlmWorldConfig { form: Form::Authors, ..Default::default() }),
                arrival: ArrivalConfig::RoundRobin,
                network: NetworkConfig::default(),
                topology: posse_sim::TopologyConfig::default(),
                faults: FaultConfig::default(),
                adversaries: AdversaryConfig::default(),
                algorithm,
            };
            measure(name, &config, Some(published), effort)
        })
        .collect()
}

/// Runs a simulation once to warm up, and then so often that the least time is meant.
pub(crate) fn measure(
    name: &'static str,
    config: &RunConfig,
    published_micros: Option<f64>,
    effort: Effort,
) -> anyhow::Result<Simulated> {
    let mut seconds = f64::INFINITY;
    let mut tally = config.run(&mut ())?;
    for _ in 0..if effort == Effort::Quick { 1 } else { 3 } {
        let start = Instant::now();
        tally = config.run(&mut ())?;
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    let micros = seconds * 1e6 / config.horizon as f64;
    Ok(Simulated {
        name,
        interactions_per_second: 1e6 / micros,
        micros,
        published_micros,
        ratio: published_micros.map(|published| published / micros),
        regret: tally.regret,
        messages: tally.messages(),
        scalars: tally.up.scalars + tally.down.scalars,
    })
}

fn model() -> ModelConfig {
    ModelConfig { width: WidthForm::DetTrace, ..Default::default() }
}

fn protocol(threshold: f64) -> ProtocolConfig {
    let (upload_threshold, download_threshold) = (Threshold(threshold), Threshold(threshold));
    ProtocolConfig { upload_threshold, download_threshold, ..Default::default() }
}

fn asynchronous(threshold: f64) -> Algorithm {
    Algorithm::AsyncLinUcb(AsyncLinUcb { model: model(), protocol: protocol(threshold), privacy: None })
}

/// As in the authors' code, which begins without a model of an agent's own.
fn alternating(threshold: f64) -> Algorithm {
    let model = ModelConfig { width: WidthForm::LogDet, ..Default::default() };
    let protocol = protocol(threshold);
    Algorithm::AsyncLinUcbAm(AsyncLinUcbAm { model, protocol, cold_start: false, ..Default::default() })
}

fn synchronous(threshold: f64) -> Algorithm {
    let round_threshold = Threshold(threshold);
    Algorithm::SyncLinUcb(SyncLinUcb { model: model(), round_threshold, ..Default::default() })
}
