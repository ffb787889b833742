//! `posse run`: all cells of an experiment.

use std::path::PathBuf;

use super::Ending;
use super::execute::{Options, execute};
use crate::experiment::Experiment;

/// Run an experiment and show what came of it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse run experiments/async-fig2a.toml --out results/async-fig2a

A list in the file where one value is expected is a sweep: every combination is run, `repetitions` times
with the seeds seed, seed + 1, … The whole file is checked before anything runs. With --out, finished cells
are kept, and the same command goes on where it was interrupted.")]
pub(crate) struct Args {
    /// The file of the experiment to run
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let read = if args.options.quick { Experiment::read_quick } else { Experiment::read };
    execute(&read(&args.file)?, &args.options)
}
