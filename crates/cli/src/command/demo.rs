//! `posse demo`: a federation on this machine, with machines that die.

use std::path::PathBuf;

use anyhow::bail;

use super::runtime::runtime;
use super::{Ending, print};
use crate::demo::{Demo, play, report};

/// See a federation learn, over real gRPC on loopback, while agents and the coordinator are killed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse demo --seconds 10 --agents 12

Agents choose arms in a synthetic world and share what they learn through a coordinator. Beside them, in the
same world: agents that learn alone, and one learner that sees everything.")]
pub(crate) struct Args {
    /// How many seconds the demo lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    seconds: f64,
    /// How many agents there are
    #[arg(long, value_name = "NUMBER", default_value_t = 36)]
    agents: u64,
    /// How many interactions there are, over all agents
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000)]
    interactions: u64,
    /// The seed of the world; another seed gives another world
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the report and the coordinator's log go
    #[arg(long, value_name = "DIR", default_value = "results/demo")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let Args { seconds, agents, interactions, seed, .. } = *args;
    if !(0.1..=3600.0).contains(&seconds) {
        bail!("--seconds {seconds}: it must be between 0.1 and 3600");
    }
    if !(2..=1000).contains(&agents) {
        bail!("--agents {agents}: it must be between 2 and 1000");
    }
    if !(100..=10_000_000).contains(&interactions) {
        bail!("--interactions {interactions}: it must be between 100 and 10000000");
    }
    let demo = Demo { seconds, agents, interactions, seed, out: args.out.clone() };
    let story = runtime()?.block_on(play(&demo, |line| print(&format!("{line}\n"))))?;
    let page = report::write(&demo, &story)?;
    print(&story.ending(&page))?;
    Ok(if story.conserved() { Ending::Done } else { Ending::Failed })
}
