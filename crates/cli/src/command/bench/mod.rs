//! `posse bench`: what things cost here, beside a baseline in the same run.

mod changes;
mod memory;
mod pictures;
mod simulations;
mod tables;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use posse_bench::{Effort, Measurements, Published, Suite, memory_at_rest, roofline};
use serde::Serialize;

use super::load::{self, Measured};
use super::{Ending, print, print_json};

/// Measure what an interaction, an upload and a simulation cost on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse bench --quick
  posse bench kernels --roofline
  posse bench agent simulation --rounds 3 --json > before.json
  posse bench agent simulation --compare before.json
  posse bench growth --rounds 3 --svg pictures
  posse bench simulation families --published clones

Run it in a release build and on a quiet machine; compare ratios, not seconds.")]
pub(crate) struct Args {
    /// What to measure; everything but `network` if nothing is named
    #[arg(value_enum, value_name = "SUITE")]
    suites: Vec<Named>,
    /// A look in a few seconds instead of numbers to quote
    #[arg(long)]
    quick: bool,
    /// How often every suite is measured, in turns; the least is shown and the spread tells the noise
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Show what changed since a document that --json wrote, and whether that is more than noise; measures three
    /// rounds unless --rounds says otherwise
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Measure what one core can do at most, and show kernels as a fraction of it
    #[arg(long)]
    roofline: bool,
    /// Draw what `growth` measures into this directory: performance-arms.svg and others, for light and dark pages;
    /// of several rounds the least
    #[arg(long, value_name = "DIRECTORY")]
    svg: Option<PathBuf>,
    /// Run the programs that papers' authors published beside `simulation` and `families`, from clones in this directory
    ///
    /// They are clones of `https://github.com/cyrilli/Async-LinUCB`, `https://github.com/cyrilli/FedGLB-UCB` and
    /// `https://github.com/ZhaoHaoRu/Federated-Clustering-of-Bandits`, and run with `python3` or what PYTHON names. For a
    /// repository that is not there, times are shown that were measured elsewhere.
    #[arg(long, value_name = "DIRECTORY")]
    published: Option<PathBuf>,
    /// Measure one row of `memory` in this process and print it; what the suite runs for each of its rows
    #[arg(long, value_name = "NUMBER", hide = true)]
    memory_row: Option<usize>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A suite as it is called on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Named {
    /// Memory of agents at rest and of their coordinators, for every family
    Memory,
    /// Single kernels: scoring, updates, sums and merges, factorisation, gradients and Hessians
    Kernels,
    /// Choosing and learning by one agent, beside plain loops and numpy (of `python3`, or what PYTHON names, if it is there)
    Agent,
    /// Taking in uploads, beside a literal coordinator
    Coordinator,
    /// Whole simulations, of published figures and of up to a million agents
    Simulation,
    /// Time of an interaction as arms, features, agents and interactions grow
    Growth,
    /// Generalized linear, clustered, neural and kernel families
    Families,
    /// A coordinator and an agent on loopback, as `posse load` measures them
    Network,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Document {
    rounds: Vec<Round>,
}

/// One measurement of everything that was asked for.
#[derive(Debug, Serialize)]
struct Round {
    #[serde(flatten)]
    measured: Measurements,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Measured>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    if let Some(row) = args.memory_row {
        print_json(&memory_at_rest(row, effort)?)?;
        return Ok(Ending::Done);
    }
    let before = match &args.compare {
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            Some(serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?)
        }
        None => None,
    };
    let everything =
        [Named::Memory, Named::Kernels, Named::Agent, Named::Coordinator, Named::Simulation, Named::Families];
    let mut suites = if args.suites.is_empty() { everything.to_vec() } else { args.suites.clone() };
    suites.sort_unstable();
    suites.dedup();
    if args.svg.is_some() && !suites.contains(&Named::Growth) {
        bail!("--svg draws what the suite `growth` measures: name that suite, or none");
    }
    let published = args.published.as_deref().map(|directory| open(directory, &suites)).transpose()?;
    let rounds = if before.is_some() { args.rounds.max(3) } else { args.rounds };
    let rounds =
        (0..rounds).map(|_| measure(&suites, effort, args, published.as_ref())).collect::<Result<_, _>>()?;
    let document = Document { rounds };
    if let Some(directory) = &args.svg {
        let growth: Vec<_> = document.rounds.iter().flat_map(|round| round.measured.growth.clone()).collect();
        pictures::write(&growth, directory)?;
    }
    if let Some(before) = before {
        print(&changes::table(&before, &serde_json::to_value(&document)?)?)?;
    } else if args.json {
        print_json(&document)?;
    } else {
        print(&tables::tables(&document.rounds))?;
    }
    Ok(Ending::Done)
}

/// The published programs in a directory, for those suites that have rows beside which they can run.
fn open(directory: &Path, suites: &[Named]) -> anyhow::Result<Published> {
    let known = [(Named::Simulation, Suite::Simulation), (Named::Families, Suite::Families)];
    let suites: Vec<Suite> =
        known.into_iter().filter(|(named, _)| suites.contains(named)).map(|(_, suite)| suite).collect();
    if suites.is_empty() {
        bail!(
            "--published runs programs beside the suites `simulation` and `families`: name one of them, or none"
        );
    }
    Published::open(directory, &suites)
}

fn measure(
    suites: &[Named],
    effort: Effort,
    args: &Args,
    published: Option<&Published>,
) -> anyhow::Result<Round> {
    let versions = published.map(|published| published.versions().clone());
    let mut measured = Measurements {
        roofline: args.roofline.then(roofline),
        published: versions,
        ..Measurements::default()
    };
    let mut network = None;
    for suite in suites {
        let suite = match suite {
            Named::Memory => {
                measured.memory = memory::measured(effort)?;
                continue;
            }
            Named::Kernels => Suite::Kernels,
            Named::Agent => Suite::Agent,
            Named::Coordinator => Suite::Coordinator,
            Named::Simulation => Suite::Simulation,
            Named::Growth => Suite::Growth,
            Named::Families => Suite::Families,
            Named::Network => {
                network = Some(load::measured(&load::Args::for_bench(args.quick))?);
                continue;
            }
        };
        measured.add(suite, effort, published)?;
    }
    Ok(Round { measured, network })
}
