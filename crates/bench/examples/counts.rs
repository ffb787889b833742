//! Runs one kernel a given number of times, for callgrind to count its instructions.
//!
//! `counts NAME REPETITIONS` runs one; `counts` alone lists the names. `cargo xtask counts` runs each twice with
//! different repetitions and takes the difference, so that setting up does not count.
#![allow(clippy::print_stdout, reason = "it lists its kernels")]

use std::error::Error;

use posse_core::{
    Agent, AgentId, Algorithm, Arms, AsyncLinUcb, Federation, KernelConfig, LinTs, LinUcb, NeuralConfig,
    NeuralUcb, OnsGlm, Seed, Shape, UserId, wire,
};
use posse_sim::RunConfig;
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, LinearConfig, WorldConfig};

type Kernel = (&'static str, fn(usize) -> Result<(), Box<dyn Error>>);

const KERNELS: [Kernel; 10] = [
    ("lin-ucb choose d=25 K=25", |n| choose(&linear(), 25, 25, n)),
    ("lin-ucb choose d=100 K=25", |n| choose(&linear(), 100, 25, n)),
    ("lin-ucb learn d=25", |n| learn(&linear(), 25, n)),
    ("lin-ucb learn d=100", |n| learn(&linear(), 100, n)),
    ("lin-ts choose d=25 K=25", |n| choose(&Algorithm::LinTs(LinTs::default()), 25, 25, n)),
    ("n-ons-glm learn d=25", |n| learn(&Algorithm::NOnsGlm(OnsGlm::default()), 25, n)),
    ("kernel-ucb choose d=10 K=4", |n| choose(&Algorithm::KernelUcb(KernelConfig::default()), 10, 4, n)),
    ("neural-ucb choose d=10 K=4", |n| choose(&neural(), 10, 4, n)),
    ("uplink encode and decode d=25", transport),
    ("async-lin-ucb interaction of a simulation d=25 K=25", simulate),
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
        std::hint::black_box(agent.choose(UserId(0), std::hint::black_box(&arms))?);
    }
    Ok(())
}

fn learn(algorithm: &Algorithm, dimension: usize, n: usize) -> Result<(), Box<dyn Error>> {
    let mut agent = agent(algorithm, dimension)?;
    let arms = arms(dimension, 16, 1000)?;
    for step in 0..n {
        let _ = std::hint::black_box(agent.learn(UserId(0), arms.row(step % 16), (step % 2) as f64)?);
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
        std::hint::black_box(wire::decode_uplink(&wire::encode_uplink(std::hint::black_box(&upload)))?);
    }
    Ok(())
}

fn simulate(n: usize) -> Result<(), Box<dyn Error>> {
    let config = RunConfig {
        seed: Seed(1),
        agents: 20,
        horizon: n as u64,
        world: WorldConfig::Linear(LinearConfig { dimension: 25, arms: 25, ..LinearConfig::default() }),
        arrival: ArrivalConfig::Uniform,
        network: NetworkConfig::default(),
        topology: posse_sim::TopologyConfig::default(),
        faults: FaultConfig::default(),
        algorithm: Algorithm::AsyncLinUcb(AsyncLinUcb::default()),
    };
    std::hint::black_box(config.run(&mut ())?);
    Ok(())
}
