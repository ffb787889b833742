//! How fast this machine is, found out in about a second.

use std::time::Instant;

use posse_core::{Algorithm, AsyncLinUcb, Seed};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, LinearConfig, WorldConfig};
use posse_sim::{AdversaryConfig, RunConfig};

use crate::experiment::Experiment;

/// At least so long is measured: shorter times are mostly noise.
const SECONDS: f64 = 0.7;

/// Seconds that an interaction of a linear learner takes here: 25 features, 25 arms, agents that share.
pub(crate) fn seconds_of_an_interaction() -> f64 {
    let start = Instant::now();
    let mut interactions = 0.0;
    let mut seed = 0;
    while start.elapsed().as_secs_f64() < SECONDS {
        let config = RunConfig {
            seed: Seed(seed),
            agents: 100,
            horizon: 3_000,
            world: WorldConfig::Linear(LinearConfig::default()),
            arrival: ArrivalConfig::default(),
            network: NetworkConfig::default(),
            topology: posse_sim::TopologyConfig::default(),
            faults: FaultConfig::default(),
            adversaries: AdversaryConfig::default(),
            algorithm: Algorithm::AsyncLinUcb(AsyncLinUcb::default()),
        };
        // It is the same run whenever the seed is; only the time it takes is of interest.
        let _ = config.run(&mut ());
        interactions += config.horizon as f64;
        seed += 1;
    }
    start.elapsed().as_secs_f64() / interactions
}

/// Seconds of an interaction on the machine on which experiments were measured.
pub(crate) const REFERENCE: f64 = 4.9e-6;

/// About how long here, with all processors, what took so many minutes of one processor there.
pub(crate) fn scaled(minutes: f64, of_an_interaction: f64) -> f64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    60.0 * minutes * of_an_interaction / REFERENCE / processors
}

/// About how many minutes of one processor an experiment takes on the machine on which experiments were measured.
pub(crate) fn processor_minutes(experiment: &Experiment) -> f64 {
    let work: f64 = experiment.cells().iter().map(|cell| cell.work()).sum();
    work * REFERENCE / 60.0
}

/// About how long an experiment takes on this machine, with all its processors.
pub(crate) fn seconds_of(experiment: &Experiment, of_an_interaction: f64) -> f64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let cells = experiment.cells();
    let all: f64 = cells.iter().map(|cell| cell.work()).sum();
    let longest = cells.iter().map(|cell| cell.work()).fold(0.0, f64::max);
    // However many processors there are, no experiment is shorter than its longest cell.
    of_an_interaction * (all / processors).max(longest)
}
