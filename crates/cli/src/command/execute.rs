//! Running an experiment to its end, or to where it is interrupted: what `run` and `reproduce` share.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;

use super::{Ending, print};
use crate::check::{self, Verdict};
use crate::experiment::{Cell, Experiment};
use crate::progress::Progress;
use crate::results::Results;
use crate::row::Row;
use crate::runner::Outcome;
use crate::shard::Shard;
use crate::shelf::Shelf;
use crate::{interrupt, runner, silence, statement, table};

/// The options that `posse run` and `posse reproduce` share.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Keep results in this directory; the same command again goes on where it was interrupted
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Replace other results in the directory
    #[arg(long, requires = "out")]
    force: bool,
    /// Also write every table as CSV
    #[arg(long, requires = "out")]
    csv: bool,
    /// Run only part I of N, for several machines; `posse merge` joins the parts
    #[arg(long, value_name = "I/N", requires = "out")]
    shard: Option<Shard>,
    /// Scale down to a first look in seconds, labelled QUICK everywhere
    #[arg(long)]
    pub(super) quick: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    pub(super) json: bool,
    /// How many cells to run at a time; by default as many as there are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Take cells that another experiment has run from this directory, and keep those that run here for others
    #[arg(long, value_name = "DIR")]
    pub(super) cells: Option<PathBuf>,
    /// Say nothing about progress
    #[arg(long, short)]
    pub(super) quiet: bool,
}

impl Options {
    /// The options of a program that embeds posse: nothing is printed.
    pub(crate) const fn embedded(
        out: Option<PathBuf>,
        force: bool,
        jobs: Option<u16>,
        shard: Option<Shard>,
    ) -> Self {
        let (csv, quick, json, cells, quiet) = (false, false, false, None, true);
        Self { out, force, csv, shard, quick, json, jobs, cells, quiet }
    }

    /// The same, with results in this directory and cells shared in that one.
    pub(super) fn with_directories(&self, out: PathBuf, cells: PathBuf) -> Self {
        Self { out: Some(out), cells: Some(cells), ..self.clone() }
    }
}

/// Everything about an experiment that ran.
#[derive(Debug, Serialize)]
struct Document<'a> {
    experiment: &'a str,
    quick: bool,
    config: Value,
    version: &'static str,
    rows: &'a [Row<'a>],
    /// The cells that failed, and so have no row.
    failures: Vec<Failure<'a>>,
    /// Empty if only a part was run.
    checks: &'a [Verdict],
    /// The accountant's statement for each private setting.
    privacy: Vec<Value>,
}

/// A cell that failed, with its error.
#[derive(Debug, Serialize)]
struct Failure<'a> {
    id: &'a str,
    error: &'a str,
}

/// Runs what is left to run of an experiment and shows what came of all of it.
pub(super) fn execute(experiment: &Experiment, options: &Options) -> anyhow::Result<Ending> {
    let stop = interrupt::watch();
    let show = |left: &[&Cell], all: usize| Progress::new(left, all, options.quiet);
    let Played { cells, outcomes, results } = play(experiment, options, stop, &show)?;
    if stop.load(Ordering::Relaxed) && outcomes.iter().any(Option::is_none) {
        say_how_to_resume(&outcomes, options);
        return Ok(Ending::Interrupted);
    }
    conclude(experiment, options, (&cells, &outcomes), results)
}

/// The cells of an experiment after all of them have run, or after `stop` was raised.
#[derive(Debug)]
pub(crate) struct Played {
    /// The part of the plan that was asked for.
    pub(crate) cells: Vec<Cell>,
    /// What came of each cell; `None` if it did not finish.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    /// The directory that the cells are kept in, if there is one. Its tables are not written yet.
    pub(crate) results: Option<Results>,
}

/// Runs the cells that are neither in the directory of results nor on the shelf, until `stop` is raised. `show` makes
/// the progress from the cells that are left to run and the number of all.
pub(crate) fn play(
    experiment: &Experiment,
    options: &Options,
    stop: &AtomicBool,
    show: &dyn Fn(&[&Cell], usize) -> Progress,
) -> anyhow::Result<Played> {
    let mut cells = experiment.cells();
    cells.retain(|cell| options.shard.is_none_or(|shard| shard.holds(cell.index)));
    let (mut results, mut outcomes) = open(experiment, options, &cells)?;

    let shelf =
        options.cells.as_deref().map(|directory| Shelf::open(directory, experiment.curves)).transpose()?;
    for (cell, outcome) in cells.iter().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none()) {
        if let Some(record) = shelf.as_ref().and_then(|shelf| shelf.take(cell)) {
            let known = Ok(record);
            results.as_ref().map_or(Ok(()), |results| results.keep(cell, &known))?;
            *outcome = Some(known);
        }
    }
    let pending: Vec<usize> = (0..cells.len()).filter(|place| outcomes[*place].is_none()).collect();
    // The longest first, so that the last one does not keep a single processor busy at the end.
    let mut pending = pending;
    pending.sort_by(|one, other| cells[*other].work().total_cmp(&cells[*one].work()));
    let left: Vec<&Cell> = pending.iter().map(|place| &cells[*place]).collect();
    let progress = show(&left, cells.len());
    let keep = |cell: &Cell, outcome: &Outcome| {
        if let (Some(shelf), Ok(record)) = (&shelf, outcome) {
            shelf.put(cell, record)?;
        }
        results.as_ref().map_or(Ok(()), |results| results.keep(cell, outcome))
    };
    let began = Instant::now();
    let ran =
        runner::run(&left, experiment.curves, options.jobs.unwrap_or(0).into(), &progress, stop, &keep)?;
    let (seconds, count) = (began.elapsed().as_secs_f64(), ran.iter().flatten().count());
    for (place, outcome) in pending.into_iter().zip(ran) {
        outcomes[place] = outcome;
    }
    if let Some(results) = &mut results {
        // Without a cell to run there is no run to take time, however long it took to see that.
        results.count_time(if count > 0 { seconds } else { 0.0 }, count);
        results.note(&cells, &outcomes)?;
    }
    Ok(Played { cells, outcomes, results })
}

/// Opens the directory of results, if there is one, and finds out what is already there.
fn open(
    experiment: &Experiment,
    options: &Options,
    cells: &[Cell],
) -> anyhow::Result<(Option<Results>, Vec<Option<Outcome>>)> {
    let Some(directory) = &options.out else { return Ok((None, vec![None; cells.len()])) };
    let (results, earlier) = Results::open(directory, experiment, options.shard, cells, options.force)?;
    let mut stderr = std::io::stderr();
    for line in &earlier.broken {
        let _ = writeln!(stderr, "warning: {line}");
    }
    let known = earlier.records.iter().flatten().count();
    if known > 0 && !options.quiet {
        let _ = writeln!(stderr, "{known} of {} cells are there already", cells.len());
    }
    Ok((Some(results), earlier.records.into_iter().map(|record| record.map(Ok)).collect()))
}

/// Shows and writes what came of all cells.
fn conclude(
    experiment: &Experiment,
    options: &Options,
    (cells, outcomes): (&[Cell], &[Option<Outcome>]),
    results: Option<Results>,
) -> anyhow::Result<Ending> {
    let (rows, failures) = sort_out(cells, outcomes);
    let verdicts = if options.shard.is_some() { Vec::new() } else { check::judge(experiment, &rows) };
    if let Some(mut results) = results {
        results.finish(experiment, &rows, &verdicts, options.csv)?;
    }
    let text = if options.json {
        let failures = failures.iter().map(|(id, error)| Failure { id, error }).collect();
        let document = Document {
            experiment: &experiment.id,
            quick: experiment.quick,
            config: experiment.to_json(),
            version: env!("CARGO_PKG_VERSION"),
            rows: &rows,
            failures,
            checks: &verdicts,
            privacy: statement::statements(&experiment.groups, &rows)
                .iter()
                .map(statement::Statement::document)
                .collect(),
        };
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        show(experiment, &rows, &verdicts)
    };
    print(&text)?;
    for line in silence::silent(&experiment.groups, &rows) {
        let _ = writeln!(std::io::stderr(), "warning: {line}");
    }
    if !options.quiet {
        say_how_to_report(options);
    }
    Ok(ending(&failures, &verdicts))
}

/// Rows, and the cells that have none with the reason, which is also said on stderr.
pub(super) fn sort_out<'a>(
    cells: &'a [Cell],
    outcomes: &'a [Option<Outcome>],
) -> (Vec<Row<'a>>, Vec<(&'a str, &'a str)>) {
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (cell, outcome) in cells.iter().zip(outcomes) {
        match outcome {
            Some(Ok(record)) => rows.push(Row { cell, record }),
            Some(Err(error)) => failures.push((cell.id.as_str(), error.as_str())),
            None => {}
        }
    }
    for (id, error) in &failures {
        let _ = writeln!(std::io::stderr(), "error: {id}: {error}");
    }
    (rows, failures)
}

/// The table and the verdicts, for people.
pub(crate) fn show(experiment: &Experiment, rows: &[Row<'_>], verdicts: &[Verdict]) -> String {
    let label = if experiment.quick {
        "QUICK: fewer agents, interactions and repetitions than the experiment asks for\n"
    } else {
        ""
    };
    label.to_owned()
        + &table::summary(&experiment.groups, &experiment.figures, rows)
        + &statement::report(&experiment.groups, rows)
        + &check::report(verdicts, experiment.quick)
}

/// How a run ended in which these cells failed and these verdicts were given.
pub(super) fn ending(failures: &[(&str, &str)], verdicts: &[Verdict]) -> Ending {
    let failed = !failures.is_empty() || verdicts.iter().any(Verdict::is_failure);
    if failed { Ending::Failed } else { Ending::Done }
}

/// Tells the user on stderr how to make a report of the results.
fn say_how_to_report(options: &Options) {
    let mut stderr = std::io::stderr();
    let _ = match &options.out {
        Some(directory) => writeln!(stderr, "plots and tables: posse report {}", directory.display()),
        None => writeln!(stderr, "with --out DIR the results are kept, and `posse report DIR` plots them"),
    };
}

/// What to do after an interruption.
fn say_how_to_resume(outcomes: &[Option<Outcome>], options: &Options) {
    let (done, all) = (outcomes.iter().flatten().count(), outcomes.len());
    let mut stderr = std::io::stderr();
    let _ = match &options.out {
        Some(directory) => writeln!(
            stderr,
            "interrupted: {done} of {all} cells are kept in {}; the same command goes on from there",
            directory.display()
        ),
        None => {
            writeln!(stderr, "interrupted after {done} of {all} cells: with --out DIR they would be kept")
        }
    };
}
