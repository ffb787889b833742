//! One line of results: the settings of a cell and what came of it.

use posse_core::Algorithm;
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, WorldConfig};
use posse_sim::{RunConfig, Tally};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::experiment::Cell;

/// The result of a cell. `seconds` comes last, so that two runs differ at the end only.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The cell.
    id: String,
    /// The algorithm's name.
    algorithm: &'static str,
    /// All settings of the algorithm.
    parameters: Map<String, Value>,
    /// What was offered.
    environment: WorldConfig,
    /// Who was next.
    arrival: ArrivalConfig,
    /// How messages travelled.
    network: NetworkConfig,
    /// What went wrong with machines.
    faults: FaultConfig,
    /// The seed.
    seed: u64,
    /// How many agents there were.
    agents: u64,
    /// How many interactions there were.
    horizon: u64,
    /// Σ of what the chosen arms were worth less than the best ones.
    pub(crate) regret: f64,
    /// Σ of rewards.
    pub(crate) reward: f64,
    /// Messages with statistics from agents to the coordinator.
    uploads: u64,
    /// Messages with statistics from the coordinator to agents.
    downloads: u64,
    /// Both.
    pub(crate) messages: u64,
    /// Synchronous rounds.
    rounds: u64,
    /// Numbers in statistics, as they travelled.
    pub(crate) scalars_up: u64,
    /// The same, to agents.
    pub(crate) scalars_down: u64,
    /// Numbers as the linear papers count them.
    paper_scalars_up: u64,
    /// The same, to agents.
    paper_scalars_down: u64,
    /// Bytes of all messages.
    pub(crate) bytes_up: u64,
    /// The same, to agents.
    pub(crate) bytes_down: u64,
    /// Messages without statistics, both ways.
    control_messages: u64,
    /// Agents that acted at least once.
    agents_seen: u64,
    /// Observations lost with the state of crashed agents.
    lost_observations: u64,
    /// How long it took.
    pub(crate) seconds: f64,
}

impl Row {
    /// What came of `cell` in so many seconds.
    pub(crate) fn new(cell: &Cell, tally: &Tally, seconds: f64) -> Self {
        let RunConfig { seed, agents, horizon, world, arrival, network, faults, algorithm } =
            cell.config.clone();
        Self {
            id: cell.id.clone(),
            algorithm: algorithm.name(),
            parameters: parameters(&algorithm),
            environment: world,
            arrival,
            network,
            faults,
            seed: seed.0,
            agents,
            horizon,
            regret: tally.regret,
            reward: tally.reward,
            uploads: tally.up.messages,
            downloads: tally.down.messages,
            messages: tally.messages(),
            rounds: tally.rounds,
            scalars_up: tally.up.scalars,
            scalars_down: tally.down.scalars,
            paper_scalars_up: tally.up.paper_scalars,
            paper_scalars_down: tally.down.paper_scalars,
            bytes_up: tally.up.bytes,
            bytes_down: tally.down.bytes,
            control_messages: tally.up.control + tally.down.control,
            agents_seen: tally.agents_seen,
            lost_observations: tally.lost_observations,
            seconds,
        }
    }
}

/// The settings of an algorithm without its name.
fn parameters(algorithm: &Algorithm) -> Map<String, Value> {
    match serde_json::to_value(algorithm) {
        Ok(Value::Object(mut map)) => {
            map.shift_remove("name");
            map
        }
        _ => unreachable!("an algorithm is a struct with string keys"),
    }
}
