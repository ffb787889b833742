//! Clustered users: whole simulations, and the step between two phases for very many users.

use std::time::Instant;

use anyhow::{Context, anyhow};
use posse_core::{
    AgentId, Algorithm, ClusterConfig, Downlink, Fclub, FclubDc, Federation, ModelConfig, PhaseId, Seed,
    Shape, Threshold, UserId,
};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, Assignment, ClusteredConfig, WorldConfig};
use posse_sim::{AdversaryConfig, RunConfig};
use serde::Serialize;

use crate::Effort;
use crate::coordinator::resident_bytes;
use crate::published::{Program, Published};
use crate::simulation::{Simulated, beside};

/// The step between two phases at one agent.
#[derive(Debug, Serialize)]
pub struct PhaseStep {
    /// How many users the agent serves.
    pub users: u64,
    /// Time of the whole step: estimates, edges, components and new sums.
    pub milliseconds: f64,
    /// How many clusters the agent has after the step; it had one before.
    pub clusters: usize,
    /// Resident memory of the agent divided by its users; `None` where the system does not report it.
    pub bytes_per_user: Option<f64>,
}

fn model() -> ModelConfig {
    ModelConfig { regularization: 1.0, noise: 0.5, width_scale: 0.3, ..Default::default() }
}

/// 40 users, 5 agents, 10 arms of 10 features; published: the authors' Python code, run beside ours where it is present.
pub fn simulated(effort: Effort, published: Option<&Published>) -> anyhow::Result<Vec<Simulated>> {
    let clusters = || ClusterConfig { merge_scale: Threshold(2.0), ..Default::default() };
    let threshold = 1.01;
    let delayed = FclubDc {
        model: model(),
        clusters: clusters(),
        upload_threshold: Threshold(threshold),
        download_threshold: Threshold(threshold),
    };
    let at_once = Fclub { model: model(), clusters: clusters() };
    // At every step their program for it copies records that are as long as the run.
    let copying = Program::clustered("FCLUB", 0.0).at_most(2_000, 10_000);
    let delaying = Program::clustered("LDP_FCLUB_DC", threshold);
    [
        ("fclub-dc, threshold 1.01", Algorithm::FclubDc(delayed), 262.0, delaying),
        ("fclub", Algorithm::Fclub(at_once), 19_500.0, copying),
    ]
    .into_iter()
    .map(|(name, algorithm, micros, program)| {
        let assignment = Assignment::Contiguous;
        let config = RunConfig {
            seed: Seed(0),
            agents: 5,
            horizon: if effort == Effort::Quick { 20_000 } else { 100_000 },
            world: WorldConfig::Clustered(ClusteredConfig { assignment, ..Default::default() }),
            arrival: ArrivalConfig::Uniform,
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

/// One agent with so many users of two kinds, each seen twenty times.
pub fn phase_step(users: u64) -> anyhow::Result<PhaseStep> {
    let d = 10;
    let before = resident_bytes();
    let clusters = ClusterConfig { edge_scale: Threshold(0.4), ..Default::default() };
    let algorithm = Algorithm::FclubDc(FclubDc {
        model: model(),
        clusters,
        upload_threshold: Threshold::NEVER,
        ..Default::default()
    });
    let federation = Federation { agents: 1, horizon: 1_000_000, seed: Seed(0) };
    let mut agent = algorithm.agent(AgentId(0), Shape::shared(d), &federation)?;
    let mut stream = Seed(1).stream("bench", 0, 0);
    let mut x = vec![0.0; d];
    for round in 0..20 {
        for user in 0..users {
            x.iter_mut().for_each(|x| *x = 0.3 * stream.normal());
            let reward = if user % 2 == 0 { x[0] } else { -x[0] };
            let said = agent.learn(UserId(user), &x, reward).context("the benchmark's own observations")?;
            anyhow::ensure!(said.is_none(), "round {round}: nothing is to be said before the phase");
        }
    }
    let held = before.zip(resident_bytes()).map(|(before, now)| now.saturating_sub(before));
    let start = Instant::now();
    agent
        .receive(Downlink::Regroup { phase: PhaseId(2), anew: false })
        .map_err(|error| anyhow!("{error}"))?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    let bytes_per_user = held.map(|bytes| bytes as f64 / users as f64);
    Ok(PhaseStep { users, milliseconds, clusters: agent.clusters().len(), bytes_per_user })
}
