//! Runs one kernel a given number of times, for callgrind to count its instructions.
//!
//! `counts NAME REPETITIONS` runs one; `counts` alone lists the names. `cargo xtask counts` runs each twice with
//! different repetitions and takes the difference, so that setting up does not count.
#![allow(clippy::print_stdout, reason = "it lists its kernels")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

use posse_core::{
    Agent, AgentId, Algorithm, Arms, AsyncLinUcb, Downlink, Evidence, FedGlbUcb, Federation, KernelConfig,
    LinTs, LinUcb, ModelConfig, NeuralConfig, NeuralUcb, OnsGlm, Parcel, ProtocolConfig, Ridge, RoundId,
    Seed, Shape, SyncLinUcb, Threshold, UserId, WidthForm, wire,
};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, Form, LinearConfig, WorldConfig};
use posse_sim::{AdversaryConfig, RunConfig};

type Kernel = (&'static str, fn(usize) -> Result<(), Box<dyn Error>>);

const KERNELS: [Kernel; 20] = [
    ("lin-ucb choose d=25 K=25", |n| choose(&linear(), 25, 25, n)),
    ("lin-ucb choose d=100 K=25", |n| choose(&linear(), 100, 25, n)),
    ("lin-ucb choose d=10 K=4", |n| choose(&linear(), 10, 4, n)),
    ("lin-ucb learn d=25", |n| learn(&linear(), 25, n)),
    ("lin-ucb learn d=100", |n| learn(&linear(), 100, n)),
    ("lin-ts choose d=25 K=25", |n| choose(&Algorithm::LinTs(LinTs::default()), 25, 25, n)),
    ("evidence observe d=25", observe),
    ("evidence add a parcel of rank 4 d=25", unpack),
    ("model merge and refactor d=25", refactor),
    ("normals fill 27", normals),
    ("n-ons-glm learn d=25", |n| learn(&Algorithm::NOnsGlm(OnsGlm::default()), 25, n)),
    ("fed-glb-ucb gradient d=25 n=100", |n| gradient(false, n)),
    ("fed-glb-ucb gradient and Hessian d=25 n=100", |n| gradient(true, n)),
    ("kernel-ucb choose d=10 K=4", |n| choose(&Algorithm::KernelUcb(KernelConfig::default()), 10, 4, n)),
    ("neural-ucb choose d=10 K=4", |n| choose(&neural(), 10, 4, n)),
    ("uplink encode and decode d=25", transport),
    ("async-lin-ucb simulated interaction, fresh arms", |n| simulate(asynchronous(5.0), Form::Paper, n)),
    ("async-lin-ucb simulated interaction, threshold 5", |n| simulate(asynchronous(5.0), Form::Authors, n)),
    ("async-lin-ucb simulated interaction, threshold inf", |n| {
        simulate(asynchronous(f64::INFINITY), Form::Authors, n)
    }),
    ("sync-lin-ucb simulated interaction, threshold 0.1", |n| simulate(synchronous(0.1), Form::Authors, n)),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        KERNELS.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(());
    };
    let repetitions = arguments.next().ok_or("how many repetitions?")?.parse()?;
    let (_, kernel) = KERNELS.iter().find(|(own, _)| *own == name).ok_or("there is no such kernel")?;
    kernel(repetitions)
}

fn linear() -> Algorithm {
    Algorithm::LinUcb(LinUcb::default())
}

fn neural() -> Algorithm {
    let neural = NeuralConfig { hidden_width: 8, training_steps: 2, ..NeuralConfig::default() };
    Algorithm::NeuralUcb(NeuralUcb { neural, ..NeuralUcb::default() })
}

/// Arms with normal features, as many sets as there are steps.
fn arms(dimension: usize, count: usize, step: usize) -> Result<Arms, Box<dyn Error>> {
    let mut stream = Seed(3).stream("counted-arms", step as u64, 0);
    let scale = 1.0 / (dimension as f64).sqrt();
    let row = |_| (0..dimension).map(|_| scale * stream.normal()).collect::<Vec<f64>>();
    Ok(Arms::from_rows(dimension, &(0..count).map(row).collect::<Vec<_>>())?)
}

/// An agent that has learned a little.
fn agent(algorithm: &Algorithm, dimension: usize) -> Result<Box<dyn Agent>, Box<dyn Error>> {
    let federation = Federation { agents: 1, horizon: 10_000, seed: Seed(1) };
    let mut agent = algorithm.agent(AgentId(0), Shape::shared(dimension), &federation)?;
    for step in 0..40 {
        let arms = arms(dimension, 4, step)?;
        let arm = agent.choose(UserId(0), &arms)?.arm;
        let _ = agent.learn(UserId(0), arms.row(arm), f64::from(u8::from(step % 2 == 0)))?;
    }
    Ok(agent)
}

fn choose(algorithm: &Algorithm, dimension: usize, count: usize, n: usize) -> Result<(), Box<dyn Error>> {
    let mut agent = agent(algorithm, dimension)?;
    let arms = arms(dimension, count, 1000)?;
    for _ in 0..n {
        black_box(agent.choose(UserId(0), black_box(&arms))?);
    }
    Ok(())
}

fn learn(algorithm: &Algorithm, dimension: usize, n: usize) -> Result<(), Box<dyn Error>> {
    let mut agent = agent(algorithm, dimension)?;
    let arms = arms(dimension, 16, 1000)?;
    for step in 0..n {
        let _ = black_box(agent.learn(UserId(0), arms.row(step % 16), (step % 2) as f64)?);
    }
    Ok(())
}

/// The first upload of an asynchronous agent, to bytes and back.
fn transport(n: usize) -> Result<(), Box<dyn Error>> {
    let federation = Federation { agents: 1, horizon: 10_000, seed: Seed(1) };
    let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
    let mut agent = algorithm.agent(AgentId(0), Shape::shared(25), &federation)?;
    let mut upload = None;
    for step in 0..10_000 {
        let arms = arms(25, 1, step)?;
        upload = agent.learn(UserId(0), arms.row(0), 0.5)?;
        if upload.is_some() {
            break;
        }
    }
    let upload = upload.ok_or("the agent never uploads")?;
    for _ in 0..n {
        black_box(wire::decode_uplink(&wire::encode_uplink(black_box(&upload)))?);
    }
    Ok(())
}

fn observe(n: usize) -> Result<(), Box<dyn Error>> {
    let (arms, mut evidence) = (arms(25, 16, 1000)?, Evidence::none(25));
    for step in 0..n {
        black_box(&mut evidence).observe(arms.row(step % 16), 0.5)?;
    }
    Ok(())
}

/// Few observations, which travel as columns, and their sum with what there is.
fn unpack(n: usize) -> Result<(), Box<dyn Error>> {
    let (arms, mut evidence) = (arms(25, 4, 1000)?, Evidence::none(25));
    (0..4).try_for_each(|row| evidence.observe(arms.row(row), 0.5))?;
    let parcel = Parcel::wrap(&evidence);
    for _ in 0..n {
        // A copy of a parcel is not unpacked yet.
        black_box(&mut evidence).add(black_box(&parcel).clone().evidence());
    }
    Ok(())
}

/// What a coordinator does with an upload: sums of two, and their model.
fn refactor(n: usize) -> Result<(), Box<dyn Error>> {
    let (arms, mut evidence) = (arms(25, 16, 1000)?, Evidence::none(25));
    (0..16).try_for_each(|row| evidence.observe(arms.row(row), 0.5))?;
    let mut model = Ridge::new(25, 0.1);
    for _ in 0..n {
        black_box(&mut model).refresh([&evidence, &evidence].into_iter())?;
    }
    Ok(())
}

fn normals(n: usize) -> Result<(), Box<dyn Error>> {
    let mut stream = Seed(5).stream("counted-normals", 0, 0);
    let mut x = [0.0; 27];
    (0..n).for_each(|_| stream.fill_normal(black_box(&mut x)));
    Ok(())
}

/// A gradient over a hundred clicks that an agent stored, alone or with its Hessian.
fn gradient(curvature: bool, n: usize) -> Result<(), Box<dyn Error>> {
    let config = FedGlbUcb { round_threshold: Threshold::NEVER, ..FedGlbUcb::default() };
    let federation = Federation { agents: 1, horizon: 1000, seed: Seed(0) };
    let mut agent = Algorithm::FedGlbUcb(config).agent(AgentId(0), Shape::shared(25), &federation)?;
    let arms = arms(25, 100, 1000)?;
    for row in 0..100 {
        let _ = agent.learn(UserId(0), arms.row(row), (row % 2) as f64)?;
    }
    let (round, point) = (RoundId(1), Arc::new(vec![0.1; 25]));
    agent.receive(Downlink::Collect { round, whole: false })?;
    for step in 1..=n as u64 {
        let point = Arc::clone(&point);
        black_box(agent.receive(Downlink::GradientRequest { round, step, point, curvature })?);
    }
    Ok(())
}

fn model() -> ModelConfig {
    ModelConfig { width: WidthForm::DetTrace, ..Default::default() }
}

fn asynchronous(threshold: f64) -> Algorithm {
    let (upload_threshold, download_threshold) = (Threshold(threshold), Threshold(threshold));
    let protocol = ProtocolConfig { upload_threshold, download_threshold, ..Default::default() };
    Algorithm::AsyncLinUcb(AsyncLinUcb { model: model(), protocol, privacy: None })
}

fn synchronous(threshold: f64) -> Algorithm {
    let round_threshold = Threshold(threshold);
    Algorithm::SyncLinUcb(SyncLinUcb { model: model(), round_threshold, ..Default::default() })
}

/// Twenty agents, as many interactions as repetitions.
fn simulate(algorithm: Algorithm, form: Form, n: usize) -> Result<(), Box<dyn Error>> {
    let config = RunConfig {
        seed: Seed(1),
        agents: 20,
        horizon: n as u64,
        world: WorldConfig::Linear(LinearConfig { form, pool: 100, ..LinearConfig::default() }),
        arrival: ArrivalConfig::Uniform,
        network: NetworkConfig::default(),
        topology: posse_sim::TopologyConfig::default(),
        faults: FaultConfig::default(),
        adversaries: AdversaryConfig::default(),
        algorithm,
    };
    black_box(config.run(&mut ())?);
    Ok(())
}
