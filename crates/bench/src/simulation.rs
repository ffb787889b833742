//! Whole simulations of the size of Figures 2 and 3.

use posse_core::{
    Algorithm, AsyncLinUcb, AsyncLinUcbAm, ExchangeLinUcb, FedGlbUcb, GlmConfig, ModelConfig, OnsGlm,
    ProtocolConfig, ScheduledGlbUcb, Seed, SyncLinUcb, Threshold, UcbGlm, WidthForm,
};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, Form, GlmWorldConfig, HeterogeneousConfig, LinearConfig, WorldConfig};
use posse_sim::{AdversaryConfig, RunConfig};
use serde::Serialize;

use crate::Effort;
use crate::clock::Clock;
use crate::published::{Program, Published, PublishedRun, Size};

/// A simulation in the authors' world.
#[derive(Debug, Serialize)]
pub struct Simulated {
    /// Algorithm and settings, as the table shows them.
    pub name: String,
    /// How many interactions it had.
    pub interactions: u64,
    /// Interactions in a second of processor time, everything included.
    pub interactions_per_second: f64,
    /// Microseconds of processor time of an interaction, everything included.
    pub micros: f64,
    /// What the authors' Python code took; `None` where no program is published.
    pub published_micros: Option<f64>,
    /// Where that time was measured.
    pub published_from: Option<Origin>,
    /// The published time divided by ours.
    pub ratio: Option<f64>,
    /// Regret of the last repetition.
    pub regret: f64,
    /// Messages of the last repetition, in both directions.
    pub messages: u64,
    /// How many scalars those messages carry.
    pub scalars: u64,
    /// The run of the authors' program that the ratio is from, if it was in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_run: Option<PublishedRun>,
}

/// Where the time of a published program was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Beside ours, on this machine.
    ThisRun,
    /// Once, on another machine: for orientation.
    Elsewhere,
}

/// Measures the settings for which programs are published, and the exchange that is our own. The programs run where they are
/// present; elsewhere times are shown that were measured on another machine.
pub fn simulated(effort: Effort, published: Option<&Published>) -> anyhow::Result<Vec<Simulated>> {
    let theirs = |algorithm, threshold, micros| Some((micros, Program::linear(algorithm, threshold)));
    let alternate = Program::linear("AsyncLinUCB_AM", 5.0).at_most(300, 3_000);
    let settings = [
        ("async-lin-ucb, threshold 5", asynchronous(5.0), alike(), theirs("AsyncLinUCB", 5.0, 883.0)),
        ("async-lin-ucb, threshold 2", asynchronous(2.0), alike(), theirs("AsyncLinUCB", 2.0, 827.0)),
        (
            "async-lin-ucb, threshold inf",
            asynchronous(f64::INFINITY),
            alike(),
            theirs("AsyncLinUCB", f64::INFINITY, 193.0),
        ),
        ("async-lin-ucb-am, 20 of 25 shared", alternating(5.0), alike_in(20), Some((22_600.0, alternate))),
        (
            "sync-lin-ucb, round threshold 116.4",
            synchronous(116.4),
            alike(),
            theirs("SyncLinUCB", 116.4, 193.0),
        ),
        (
            "sync-lin-ucb, round threshold 0.1164",
            synchronous(0.1164),
            alike(),
            theirs("SyncLinUCB", 0.1164, 391.0),
        ),
        ("exchange-lin-ucb, defaults", Algorithm::ExchangeLinUcb(ExchangeLinUcb::default()), alike(), None),
    ];
    settings
        .into_iter()
        .map(|(name, algorithm, world, known)| {
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
            match known {
                Some((micros, program)) => beside(name, config, micros, &program, published, effort),
                None => measure(name, &config, None, effort),
            }
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
pub fn simulated_clicks(effort: Effort, published: Option<&Published>) -> anyhow::Result<Vec<Simulated>> {
    let model = || GlmConfig { width_scale: 0.05, feature_bound: 2f64.sqrt(), ..GlmConfig::default() };
    let urgent = |threshold| {
        let round_threshold = Threshold(threshold);
        Algorithm::FedGlbUcb(FedGlbUcb { model: model(), round_threshold, ..Default::default() })
    };
    let schedule = || ScheduledGlbUcb { model: model(), round_every: 63, ..Default::default() };
    let newton = || UcbGlm { model: model(), ..Default::default() };
    let theirs = Program::clicks;
    // Their program for it takes ever longer, by the square of the interactions.
    let one = theirs("One_UCB_GLM", 0.0).at_most(1_000, u64::MAX);
    let settings = [
        ("fed-glb-ucb, round threshold 0.12", urgent(0.12), 1293.0, theirs("FedGLB_UCB", 0.12)),
        ("fed-glb-ucb, round threshold 3", urgent(3.0), 1293.0, theirs("FedGLB_UCB", 3.0)),
        ("fed-glb-ucb-1, every 63", Algorithm::FedGlbUcb1(schedule()), 185.0, theirs("FedGLB_UCB_v1", 63.0)),
        ("fed-glb-ucb-2, every 63", Algorithm::FedGlbUcb2(schedule()), 1064.0, theirs("FedGLB_UCB_v2", 63.0)),
        ("n-ons-glm", Algorithm::NOnsGlm(OnsGlm { model: model() }), 866.0, theirs("N_ONS_GLM", 0.0)),
        ("n-ucb-glm", Algorithm::NUcbGlm(newton()), 320.0, theirs("N_UCB_GLM", 0.0)),
        ("one-ucb-glm", Algorithm::OneUcbGlm(newton()), 759.0, one),
    ];
    settings
        .into_iter()
        .map(|(name, algorithm, micros, program)| {
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
            beside(name, config, micros, &program, published, effort)
        })
        .collect()
}

/// Measures ours, and after it the authors' program where it is present, with the same number of interactions. If that is
/// fewer than usual, the name says so: a row of its own, which is not compared with others.
pub(crate) fn beside(
    name: &str,
    mut config: RunConfig,
    elsewhere_micros: f64,
    program: &Program,
    published: Option<&Published>,
    effort: Effort,
) -> anyhow::Result<Simulated> {
    let Some(published) = published.filter(|published| published.has(program)) else {
        return measure(name, &config, Some(elsewhere_micros), effort);
    };
    let mut name = name.to_owned();
    let interactions = program.interactions(config.horizon, effort);
    if interactions < config.horizon {
        config.horizon = interactions;
        name = format!("{name}, {interactions}");
    }
    let row = measure(name, &config, None, effort)?;
    let run = published.run(program, &size(&config)?, row.micros)?;
    Ok(Simulated {
        published_micros: Some(run.micros),
        published_from: Some(Origin::ThisRun),
        ratio: Some(run.micros / row.micros),
        published_run: Some(run),
        ..row
    })
}

fn size(config: &RunConfig) -> anyhow::Result<Size> {
    let (arms, features, shared) = match &config.world {
        WorldConfig::Linear(world) => (world.arms, world.dimension, world.dimension),
        WorldConfig::Heterogeneous(world) => (world.arms, world.dimension, world.shared),
        WorldConfig::Glm(world) => (world.arms, world.dimension, world.dimension),
        WorldConfig::Clustered(world) => (world.arms, world.dimension, world.dimension),
        _ => anyhow::bail!("no program was published for this world"),
    };
    let (users, clusters) = match &config.world {
        WorldConfig::Clustered(world) => (world.users, world.clusters),
        _ => (config.agents, 1),
    };
    Ok(Size { agents: config.agents, users, clusters, arms, features, shared, interactions: config.horizon })
}

/// Runs a simulation once to warm up, and then so often that the least time is meant.
pub(crate) fn measure(
    name: impl Into<String>,
    config: &RunConfig,
    published_micros: Option<f64>,
    effort: Effort,
) -> anyhow::Result<Simulated> {
    let mut seconds = f64::INFINITY;
    let mut tally = config.run(&mut ())?;
    for _ in 0..if effort == Effort::Quick { 1 } else { 3 } {
        let own = Clock::start();
        tally = config.run(&mut ())?;
        seconds = seconds.min(own.seconds());
    }
    let micros = seconds * 1e6 / config.horizon as f64;
    Ok(Simulated {
        name: name.into(),
        interactions: config.horizon,
        interactions_per_second: 1e6 / micros,
        micros,
        published_micros,
        published_from: published_micros.map(|_| Origin::Elsewhere),
        ratio: published_micros.map(|published| published / micros),
        regret: tally.regret,
        messages: tally.messages(),
        scalars: tally.up.scalars + tally.down.scalars,
        published_run: None,
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
