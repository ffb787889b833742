//! Running cells, several at a time.
//!
//! A cell depends on nothing but its configuration, so how many run at a time changes nothing but the
//! clock. Outcomes come back in the order of the plan.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use posse_sim::{AgentGroups, Curve, Event, Ledger, Observer, RunError, Sent, Stage, Tally};
use rayon::prelude::*;

use crate::embed::OutsideFailure;
use crate::experiment::{Cell, Curves};
use crate::processor::{Stopwatch, Work};
use crate::progress::Progress;
use crate::row::Record;
use crate::share;

/// What came of a cell: a record, or why there is none.
pub(crate) type Outcome = Result<Record, String>;

/// Keeps what came of a cell.
pub(crate) type Keep<'k> = dyn Fn(&Cell, &Outcome) -> anyhow::Result<()> + Sync + 'k;

/// Runs all cells, at most `jobs` at a time (0: as many as there are processors), and hands each to `keep`
/// as it finishes. A cell that fails does not stop the others; a raised `stop` does, and then the cells that
/// did not finish have no outcome. If one cannot be kept, that is an error.
pub(crate) fn run(
    cells: &[&Cell],
    curves: Curves,
    jobs: usize,
    progress: &Progress,
    stop: &AtomicBool,
    keep: &Keep<'_>,
) -> anyhow::Result<Vec<Option<Outcome>>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build().context("cannot start threads")?;
    let trouble: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    // Processors that would have no cell prepare the offers of those that there are.
    let threads = (pool.current_num_threads() / cells.len().max(1)).max(1);
    let work = if threads == 1 { Work::OfThread } else { Work::OfProcess { cells: cells.len() } };
    let run_one = |(index, cell): (usize, &&Cell)| {
        let outcome = run_cell(cell, threads, work, curves, progress, stop)?;
        if let Err(error) = keep(cell, &outcome) {
            stop.store(true, Ordering::Relaxed);
            trouble.lock().expect("nobody panics with it").get_or_insert(error);
            return None;
        }
        progress.finished(cell, &outcome);
        Some((index, outcome))
    };
    // Threads take cells one by one in the order that they are given in, and finish them in another.
    let finished: Vec<(usize, Outcome)> =
        pool.install(|| cells.iter().enumerate().par_bridge().filter_map(run_one).collect());
    progress.done();
    if let Some(error) = trouble.into_inner().expect("nobody panics with it") {
        return Err(error);
    }
    let mut outcomes = vec![None; cells.len()];
    for (index, outcome) in finished {
        outcomes[index] = Some(outcome);
    }
    Ok(outcomes)
}

/// Runs one cell on up to `threads` threads. A panic counts as the failure of this cell only. `None` if the run was
/// stopped.
fn run_cell(
    cell: &Cell,
    threads: usize,
    work: Work,
    curves: Curves,
    progress: &Progress,
    stop: &AtomicBool,
) -> Option<Outcome> {
    if stop.load(Ordering::Relaxed) {
        return None;
    }
    let (start, stopwatch) = (Instant::now(), Stopwatch::start(work));
    let groups = curves.groups.min(usize::try_from(cell.config.agents).unwrap_or(usize::MAX));
    let groups = if groups == 0 { None } else { Some(AgentGroups::new(&cell.config, groups, curves.by)) };
    let groups = match groups.transpose() {
        Ok(groups) => groups,
        Err(error) => return Some(Err(error.to_string())),
    };
    let ledger = Ledger::new(cell.config.agents);
    let curve = Curve::new(cell.config.horizon);
    let mut watch = Watch { curve, ledger, groups, stop, cell, progress, looked: start };
    let run = AssertUnwindSafe(|| cell.config.run_on(threads, &mut watch));
    Some(match catch_unwind(run) {
        Ok(Ok(tally)) if !(tally.regret.is_finite() && tally.reward.is_finite()) => {
            Err(format!("regret {} or reward {} is no finite number", tally.regret, tally.reward))
        }
        Ok(Ok(tally)) => Ok(Record {
            tally,
            curve: watch.curve.into_points(),
            groups: watch.groups.map_or_else(Vec::new, AgentGroups::into_points),
            agents: share::spreads(&watch.ledger),
            messages: share::flows(&watch.ledger),
            seconds: stopwatch.seconds(),
        }),
        Ok(Err(RunError::Stopped { .. })) => return None,
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(match panic.downcast_ref::<OutsideFailure>() {
            Some(failure) => failure.text.clone(),
            None => format!("a bug in posse: {}", reason(&*panic)),
        }),
    })
}

/// Records a run, and stops it when `stop` is set.
struct Watch<'s> {
    curve: Curve,
    ledger: Ledger,
    groups: Option<AgentGroups>,
    stop: &'s AtomicBool,
    cell: &'s Cell,
    progress: &'s Progress,
    /// When progress was last told.
    looked: Instant,
}

/// How many interactions pass between two looks at the clock. Looking costs about as much as a few additions.
const LOOK: u64 = 256;

impl Observer for Watch<'_> {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        self.ledger.observe(event, stage);
        if let Some(groups) = &mut self.groups {
            groups.observe(event, stage);
        }
    }

    fn looks_at_machines(&self) -> bool {
        false
    }

    fn sent(&mut self, sent: &Sent) {
        self.ledger.sent(sent);
        if let Some(groups) = &mut self.groups {
            groups.sent(sent);
        }
    }

    fn interacted(&mut self, tally: &Tally) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        if tally.interactions.is_multiple_of(LOOK) && self.looked.elapsed() > Duration::from_secs(1) {
            self.looked = Instant::now();
            self.progress.inside(self.cell, tally.interactions as f64 / self.cell.config.horizon as f64);
        }
        if let Some(groups) = &mut self.groups {
            groups.interacted(tally)?;
        }
        self.curve.interacted(tally)
    }
}

/// The message of a panic, if it is a text.
fn reason(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}
