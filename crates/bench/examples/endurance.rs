//! Runs one federation for very many interactions, and says whether its memory grew and how far rounding carried its
//! models away.
//!
//! `endurance INTERACTIONS` runs ten agents of `async-lin-ucb` with four features and four arms; 100 000 000 take some minutes on
//! one core. Ends with an error if an information that was kept current over the run and one that is derived anew from the
//! sums at the end differ by more than 1e-9, or if memory grew by a tenth after the first tenth of the run.
#![allow(clippy::print_stdout, reason = "it says what it found")]

use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::time::Instant;

use posse_core::{AgentId, Algorithm, AsyncLinUcb, Evidence, ModelConfig, Ridge, Seed};
use posse_sim::world::{Form, LinearConfig, WorldConfig};
use posse_sim::{Event, Observer, RunConfig, Stage, Tally};

const AGENTS: u64 = 10;
const DIMENSION: usize = 4;

/// Looks at memory on the way and at every model at the end.
struct Endurance {
    horizon: u64,
    early: Option<u64>,
    late: Option<u64>,
    /// The largest relative difference of an information, and how many were compared.
    worst: f64,
    compared: usize,
}

impl Endurance {
    fn compare(&mut self, kept: f64, regularization: f64, parts: &[&Evidence]) {
        let mut anew = Ridge::new(DIMENSION, regularization);
        let made = anew.refresh(parts.iter().copied()).is_ok();
        let difference = (anew.information() - kept).abs() / kept.abs().max(1.0);
        // Whatever is no number is as bad as can be.
        let difference = if made && !difference.is_nan() { difference } else { f64::INFINITY };
        self.worst = self.worst.max(difference);
        self.compared += 1;
    }
}

impl Observer for Endurance {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        let Event::Quiet = event else { return };
        let regularization = ModelConfig::default().regularization;
        for agent in (0..AGENTS).map(AgentId) {
            if let Some(view) = stage.agent(agent).and_then(|agent| agent.inspect().linear) {
                let parts: Vec<&Evidence> =
                    [Some(view.base), view.in_flight, Some(view.buffer)].into_iter().flatten().collect();
                self.compare(view.model.information(), regularization, &parts);
            }
        }
        let view = stage.coordinator().inspect();
        if let Some(evidence) = view.evidence {
            self.compare(view.information, regularization, &[evidence]);
        }
    }

    fn interacted(&mut self, tally: &Tally) -> ControlFlow<()> {
        if tally.interactions == self.horizon / 10 {
            self.early = resident();
        }
        if tally.interactions == self.horizon {
            self.late = resident();
        }
        ControlFlow::Continue(())
    }
}

/// Resident memory of this process, where the system tells.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| 1024 * kilobytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let horizon = std::env::args().nth(1).ok_or("how many interactions?")?.parse()?;
    let world =
        LinearConfig { form: Form::Authors, dimension: DIMENSION, arms: 4, ..LinearConfig::default() };
    let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
    let config =
        RunConfig { seed: Seed(1), ..RunConfig::new(WorldConfig::Linear(world), AGENTS, horizon, algorithm) };
    let mut endurance = Endurance { horizon, early: None, late: None, worst: 0.0, compared: 0 };
    let start = Instant::now();
    let tally = config.run(&mut endurance)?;
    let micros = start.elapsed().as_secs_f64() * 1e6 / horizon as f64;
    let Endurance { early, late, worst, compared, .. } = endurance;
    println!("{horizon} interactions, {micros:.2} µs each, {} messages", tally.messages());
    println!("resident memory after a tenth {early:?}, at the end {late:?} bytes");
    println!("largest relative difference of {compared} informations derived anew: {worst:.1e}");
    if compared <= AGENTS as usize || worst > 1e-9 {
        return Err("informations have drifted from their sums".into());
    }
    if let (Some(early), Some(late)) = (early, late)
        && late > early + early / 10
    {
        return Err("memory has grown".into());
    }
    Ok(())
}
