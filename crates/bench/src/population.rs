//! Simulations of very many agents: what an interaction costs and how much memory they take.

use std::ops::ControlFlow;
use std::time::Instant;

use posse_core::{
    Algorithm, AsyncLinUcb, FedLinUcb, ModelConfig, ProtocolConfig, SyncLinUcb, Threshold, WidthForm,
};
use posse_sim::world::{Form, LinearConfig, WorldConfig};
use posse_sim::{Event, Observer, RunConfig, Stage, Tally};
use serde::Serialize;

use crate::coordinator::resident_bytes;

/// Five interactions an agent on average, 25 arms of 25 features.
#[derive(Debug, Serialize)]
pub struct PopulationTime {
    /// The algorithm's name.
    pub name: &'static str,
    /// How many agents there are.
    pub agents: u64,
    /// Seconds of the whole simulation.
    pub seconds: f64,
    /// Microseconds of an interaction, everything included.
    pub micros: f64,
    /// Messages in both directions.
    pub messages: u64,
    /// Resident memory at the end, while all agents are there, where the system tells.
    pub bytes: Option<u64>,
    /// Cumulative regret: the same in every repetition.
    pub regret: f64,
}

/// The algorithms that are measured with very many agents.
#[must_use]
pub fn populations() -> [Algorithm; 3] {
    let model = || ModelConfig { width: WidthForm::DetTrace, ..Default::default() };
    let (upload_threshold, download_threshold) = (Threshold(5.0), Threshold(5.0));
    let protocol = ProtocolConfig { upload_threshold, download_threshold, ..Default::default() };
    [
        Algorithm::AsyncLinUcb(AsyncLinUcb { model: model(), protocol, privacy: None }),
        Algorithm::FedLinUcb(FedLinUcb { model: model(), ..Default::default() }),
        Algorithm::SyncLinUcb(SyncLinUcb {
            model: model(),
            round_threshold: Threshold(116.4),
            ..Default::default()
        }),
    ]
}

/// Simulates that many agents once.
pub fn population(algorithm: Algorithm, agents: u64) -> anyhow::Result<PopulationTime> {
    let name = algorithm.name();
    let horizon = 5 * agents;
    let world = WorldConfig::Linear(LinearConfig { form: Form::Authors, ..Default::default() });
    let config = RunConfig::new(world, agents, horizon, algorithm);
    let mut memory = AtTheEnd { horizon, bytes: None };
    let start = Instant::now();
    let tally = config.run(&mut memory)?;
    let seconds = start.elapsed().as_secs_f64();
    let (micros, messages) = (seconds * 1e6 / horizon as f64, tally.messages());
    Ok(PopulationTime { name, agents, seconds, micros, messages, bytes: memory.bytes, regret: tally.regret })
}

/// Looks at the memory after the last interaction.
struct AtTheEnd {
    horizon: u64,
    bytes: Option<u64>,
}

impl Observer for AtTheEnd {
    fn observe(&mut self, _event: &Event<'_>, _stage: &dyn Stage) {}

    fn looks_at_machines(&self) -> bool {
        false
    }

    fn interacted(&mut self, tally: &Tally) -> ControlFlow<()> {
        if tally.interactions == self.horizon {
            self.bytes = resident_bytes();
        }
        ControlFlow::Continue(())
    }
}
