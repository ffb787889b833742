//! Running cells, several at a time.
//!
//! A cell depends on nothing but its configuration, so how many run at a time changes nothing but the
//! clock. Rows come back in the order of the plan.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use anyhow::Context;
use rayon::prelude::*;

use crate::experiment::Cell;
use crate::progress::Progress;
use crate::row::Row;

/// What came of a cell: a row, or why there is none.
pub(crate) type Outcome = Result<Row, String>;

/// Runs all cells, at most `jobs` at a time (0: as many as there are processors). A cell that fails does
/// not stop the others.
pub(crate) fn run(cells: &[Cell], jobs: usize, progress: &Progress) -> anyhow::Result<Vec<Outcome>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build().context("cannot start threads")?;
    let run_one = |(index, cell): (usize, &Cell)| {
        let outcome = run_cell(cell);
        progress.finished(cell, &outcome);
        (index, outcome)
    };
    // Threads take cells one by one in the order of the plan, and finish them in another.
    let mut outcomes: Vec<(usize, Outcome)> =
        pool.install(|| cells.iter().enumerate().par_bridge().map(run_one).collect());
    outcomes.sort_by_key(|(index, _)| *index);
    progress.done();
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Runs one cell; a panic is its failure and nobody else's.
fn run_cell(cell: &Cell) -> Outcome {
    let start = Instant::now();
    let run = AssertUnwindSafe(|| cell.config.run(&mut ()));
    match catch_unwind(run) {
        Ok(Ok(tally)) => Ok(Row::new(cell, &tally, start.elapsed().as_secs_f64())),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(format!("a bug in posse: {}", reason(&*panic))),
    }
}

/// What a panic said.
fn reason(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}
