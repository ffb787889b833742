//! What a global update of the generalized linear family costs, method by method.

use posse_core::{Algorithm, ScheduledGlbUcb, Seed, Solver, SolverConfig};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, GlmWorldConfig, WorldConfig};
use posse_sim::{AdversaryConfig, RunConfig};
use serde::Serialize;

use crate::Effort;

/// One round of 20 agents over `observations` clicks, from a cold start, to within 1/n² of the minimum.
#[derive(Debug, Serialize)]
pub struct Solved {
    /// How many features an arm has.
    pub dimension: usize,
    /// How many observations all agents have together.
    pub observations: u64,
    /// The method of the coordinator.
    pub solver: Solver,
    /// How often every agent was asked.
    pub gradients: u64,
    /// Scalars an agent sent and received in the whole round.
    pub scalars: u64,
}

const AGENTS: u64 = 20;

/// Every method at a few dimensions and numbers of observations.
pub fn solved(effort: Effort) -> anyhow::Result<Vec<Solved>> {
    let sizes: &[u64] = if effort == Effort::Quick { &[400, 4000] } else { &[400, 4000, 40_000] };
    let mut rows = Vec::new();
    for dimension in [5, 10, 25, 50] {
        for &observations in sizes {
            for solver in
                [Solver::Nesterov, Solver::Restart, Solver::Newton, Solver::Preconditioned, Solver::Auto]
            {
                rows.push(measure(dimension, observations, solver)?);
            }
        }
    }
    Ok(rows)
}

fn measure(dimension: usize, observations: u64, solver: Solver) -> anyhow::Result<Solved> {
    let update = SolverConfig { solver, max_evaluations: 100_000, ..SolverConfig::default() };
    let schedule = ScheduledGlbUcb { round_every: observations, update, ..ScheduledGlbUcb::default() };
    let config = RunConfig {
        seed: Seed(0),
        agents: AGENTS,
        horizon: observations,
        world: WorldConfig::Glm(GlmWorldConfig { dimension, arms: 5, ..GlmWorldConfig::default() }),
        arrival: ArrivalConfig::RoundRobin,
        network: NetworkConfig::default(),
        topology: posse_sim::TopologyConfig::default(),
        faults: FaultConfig::default(),
        adversaries: AdversaryConfig::default(),
        algorithm: Algorithm::FedGlbUcb1(schedule),
    };
    let tally = config.run(&mut ())?;
    Ok(Solved {
        dimension,
        observations,
        solver,
        // Its part of the round, then gradients.
        gradients: tally.up.messages / AGENTS - 1,
        scalars: (tally.up.scalars + tally.down.scalars) / AGENTS,
    })
}
