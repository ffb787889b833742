//! `posse merge`: the parts of an experiment in one directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::execute::{ending, show, sort_out};
use super::{Ending, print};
use crate::check;
use crate::results::{Made, Results};
use crate::runner::Outcome;

/// Join the results of shards
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse run experiments/async-fig3.toml --shard 1/2 --out part1     on one machine
  posse run experiments/async-fig3.toml --shard 2/2 --out part2     on another
  posse merge whole part1 part2

The result is the same as that of one run. Checks are judged here.")]
pub(crate) struct Args {
    /// The directory to write the whole results to
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// The directories of the parts to join
    #[arg(value_name = "DIR", required = true)]
    parts: Vec<PathBuf>,
    /// Replace other results in OUT
    #[arg(long)]
    force: bool,
    /// Also write every table as CSV
    #[arg(long)]
    csv: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let mut parts = Vec::new();
    for directory in &args.parts {
        parts.push((directory.as_path(), Made::read(directory)?));
    }
    refuse_unlike(&parts)?;
    let (outcomes, first) = join(parts)?;
    let experiment = first.experiment;
    let cells = experiment.cells();
    let (mut results, _) = Results::open(&args.out, &experiment, None, &cells, args.force)?;
    for (cell, outcome) in cells.iter().zip(&outcomes) {
        if let Some(outcome) = outcome {
            results.keep(cell, outcome)?;
        }
    }
    results.note(&cells, &outcomes)?;
    let (rows, failures) = sort_out(&cells, &outcomes);
    let verdicts = check::judge(&experiment, &rows);
    results.finish(&experiment, &rows, &verdicts, args.csv)?;
    print(&show(&experiment, &rows, &verdicts))?;
    Ok(ending(&failures, &verdicts))
}

/// Only parts of the same experiment, made by the same build, belong together.
fn refuse_unlike(parts: &[(&Path, Made)]) -> anyhow::Result<()> {
    let [(first, one), rest @ ..] = parts else { bail!("there is nothing to join") };
    for (directory, other) in rest {
        let mut found = other.manifest.differences(&one.manifest);
        if !other.manifest.posse.is_like(&one.manifest.posse) {
            found.push(format!("it was made by {}, not {}", other.manifest.posse, one.manifest.posse));
        }
        if !found.is_empty() {
            let list: String = found.iter().map(|line| format!("\n  - {line}")).collect();
            bail!("{} and {} do not belong together:{list}", directory.display(), first.display());
        }
    }
    Ok(())
}

/// What came of every cell of the plan, each found exactly once, and the first of the parts.
fn join(parts: Vec<(&Path, Made)>) -> anyhow::Result<(Vec<Option<Outcome>>, Made)> {
    let mut found: BTreeMap<usize, (&Path, Outcome)> = BTreeMap::new();
    let mut problems = Vec::new();
    let mut first = None;
    for (directory, mut part) in parts {
        for (cell, outcome) in part.cells.iter().zip(std::mem::take(&mut part.outcomes)) {
            let Some(outcome) = outcome else { continue };
            if let Some((other, _)) = found.insert(cell.index, (directory, outcome)) {
                let (other, own) = (other.display(), directory.display());
                problems.push(format!("{} is in both {other} and {own}", cell.id));
            }
        }
        first.get_or_insert(part);
    }
    let Some(first) = first else { bail!("there is nothing to join") };
    let cells = first.experiment.cells();
    let missing = cells.iter().filter(|cell| !found.contains_key(&cell.index));
    problems.extend(missing.map(|cell| format!("{} is missing", cell.id)));
    if !problems.is_empty() {
        const SHOWN: usize = 10;
        let mut list: String = problems.iter().take(SHOWN).map(|line| format!("\n  - {line}")).collect();
        if problems.len() > SHOWN {
            list.push_str(&format!("\n  - and {} more", problems.len() - SHOWN));
        }
        bail!("the parts do not make a whole:{list}");
    }
    let outcomes = found.into_values().map(|(_, outcome)| Some(outcome)).collect();
    Ok((outcomes, first))
}
