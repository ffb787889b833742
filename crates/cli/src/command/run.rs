//! `posse run`: all cells of an experiment.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use super::{Ending, print};
use crate::experiment::Experiment;
use crate::progress::Progress;
use crate::results::Results;
use crate::row::Row;
use crate::{runner, table};

/// Run an experiment and show what came of it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse run experiments/async-fig2a.toml --out results/async-fig2a

A list in the file where one value is expected is a sweep: every combination is run, `repetitions` times
with the seeds seed, seed + 1, … The whole file is checked before anything runs.")]
pub(crate) struct Args {
    /// The experiment
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Write rows.json and the resolved experiment.toml to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace results of another configuration in the directory
    #[arg(long, requires = "out")]
    force: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
    /// How many cells to run at a time; by default as many as there are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Say nothing about progress
    #[arg(long, short)]
    quiet: bool,
}

/// Everything about an experiment that ran.
#[derive(Debug, Serialize)]
struct Document<'a> {
    config: Value,
    version: &'static str,
    rows: Vec<&'a Row>,
    /// Cells without a row.
    failures: Vec<Failure<'a>>,
}

/// A cell that failed.
#[derive(Debug, Serialize)]
struct Failure<'a> {
    id: &'a str,
    error: &'a str,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let experiment = Experiment::read(&args.file)?;
    let config = experiment.to_json();
    let results =
        args.out.as_ref().map(|directory| Results::open(directory, &config, args.force)).transpose()?;
    let cells = experiment.cells();
    let progress = Progress::new(cells.len(), args.quiet);
    let outcomes = runner::run(&cells, args.jobs.unwrap_or(0).into(), &progress)?;

    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (cell, outcome) in cells.iter().zip(&outcomes) {
        match outcome {
            Ok(row) => rows.push((cell.group, row)),
            Err(error) => failures.push(Failure { id: &cell.id, error }),
        }
    }
    for Failure { id, error } in &failures {
        let _ = writeln!(std::io::stderr(), "error: {id}: {error}");
    }
    let ending = if failures.is_empty() { Ending::Done } else { Ending::Failed };
    let summary = table::summary(&experiment.groups, &rows);
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let document = Document { config, version: env!("CARGO_PKG_VERSION"), rows, failures };
    let document = serde_json::to_string_pretty(&document)? + "\n";
    if let Some(results) = results {
        results.write(&document, &toml::to_string(&experiment.resolved)?)?;
    }
    print(if args.json { &document } else { &summary })?;
    Ok(ending)
}
