//! Progress on stderr: a bar on a terminal, lines elsewhere, nothing if asked to be quiet.

mod bytes;

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::experiment::Cell;
use crate::runner::Outcome;
pub(crate) use bytes::Bytes;

/// Elsewhere than on a terminal, so much time passes between two lines about cells that are still running.
const EVERY: Duration = Duration::from_secs(20);
/// Of more cells than this, not every one has a line of its own.
const MAX_LINES: u64 = 200;

/// Says how far an experiment has come.
#[derive(Debug)]
pub(crate) struct Progress {
    form: Form,
    total: u64,
    /// The work of all cells that were left to run.
    work: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    finished: u64,
    start: Instant,
    /// The work of cells that finished since the start.
    done: f64,
    /// The work that was done of each cell that is running, by its place in the plan.
    running: Vec<(usize, f64)>,
    said: Instant,
}

#[derive(Debug)]
enum Form {
    Bar(ProgressBar),
    Lines,
    Quiet,
    /// Nothing is printed; another thread reads the numbers.
    Shared(Arc<Shared>),
}

/// How far an experiment has come, for another thread that asks now and then.
#[derive(Debug, Default)]
pub struct Shared {
    /// How many cells there are.
    pub cells: AtomicU64,
    /// How many of them have finished, in this run or before.
    pub finished: AtomicU64,
    /// The share of the work of this run that is done, from 0 to 1, as the bits of a number.
    share: AtomicU64,
}

impl Shared {
    /// The share of the work of this run that is done, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Ordering::Relaxed))
    }
}

impl Progress {
    /// Progress through `total` cells, of which these are left to run.
    pub(crate) fn new(left: &[&Cell], total: usize, quiet: bool) -> Self {
        let total = total as u64;
        let finished = total - left.len() as u64;
        let form = if quiet {
            Form::Quiet
        } else if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} cells, {elapsed} gone  {msg}")
                .expect("the template is well-formed");
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            bar.set_style(style);
            bar.set_position(finished);
            bar.enable_steady_tick(Duration::from_millis(250));
            Form::Bar(bar)
        } else {
            Form::Lines
        };
        let now = Instant::now();
        let state = State { finished, start: now, done: 0.0, running: Vec::new(), said: now };
        let work = left.iter().map(|cell| cell.work()).sum();
        Self { form, total, work, state: Mutex::new(state) }
    }

    /// Progress that prints nothing. It writes its numbers into `shared`, where another thread reads them.
    pub(crate) fn counted(left: &[&Cell], total: usize, shared: Arc<Shared>) -> Self {
        shared.cells.store(total as u64, Ordering::Relaxed);
        shared.finished.store((total - left.len()) as u64, Ordering::Relaxed);
        Self { form: Form::Shared(shared), ..Self::new(left, total, true) }
    }

    /// A cell has come so far: a share from 0 to 1. Long cells are heard of before they end.
    pub(crate) fn inside(&self, cell: &Cell, share: f64) {
        if matches!(self.form, Form::Quiet) {
            return;
        }
        let mut state = self.state.lock().expect("nobody panics with it");
        let own = share * cell.work();
        match state.running.iter_mut().find(|(place, _)| *place == cell.index) {
            Some((_, known)) => *known = own,
            None => state.running.push((cell.index, own)),
        }
        if let Form::Shared(shared) = &self.form {
            shared.share.store(self.share(&state).to_bits(), Ordering::Relaxed);
            return;
        }
        if state.said.elapsed() < EVERY {
            return;
        }
        state.said = Instant::now();
        let left = self.left(&state);
        match &self.form {
            Form::Bar(bar) => bar.set_message(format!("{left}  {} {:.0} %", cell.id, 100.0 * share)),
            Form::Lines => {
                // Progress that nobody reads any more is no reason to stop.
                let _ = writeln!(
                    std::io::stderr(),
                    "running {}/{} {} {:.0} %{left}",
                    state.finished,
                    self.total,
                    cell.id,
                    100.0 * share
                );
            }
            Form::Quiet | Form::Shared(_) => {}
        }
    }

    /// Called when a cell has run, with its outcome; moves the bar on, or prints a line.
    pub(crate) fn finished(&self, cell: &Cell, outcome: &Outcome) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.finished += 1;
        state.done += cell.work();
        state.running.retain(|(place, _)| *place != cell.index);
        let left = self.left(&state);
        match &self.form {
            Form::Bar(bar) => {
                bar.set_message(format!("{left}  {}", cell.id));
                bar.inc(1);
            }
            Form::Lines => {
                let few = self.total <= MAX_LINES || state.finished == self.total || outcome.is_err();
                if !few && state.said.elapsed() < Duration::from_secs(2) {
                    return;
                }
                state.said = Instant::now();
                let result = match outcome {
                    Ok(record) => format!(
                        "regret {:.0} messages {} {:.1} s",
                        record.tally.regret,
                        record.tally.messages(),
                        record.seconds
                    ),
                    Err(_) => "failed".into(),
                };
                let _ = writeln!(
                    std::io::stderr(),
                    "cell {}/{} {} {result}{left}",
                    state.finished,
                    self.total,
                    cell.id
                );
            }
            Form::Shared(shared) => {
                shared.finished.store(state.finished, Ordering::Relaxed);
                shared.share.store(self.share(&state).to_bits(), Ordering::Relaxed);
            }
            Form::Quiet => {}
        }
    }

    /// The share of the work that is done, from 0 to 1.
    fn share(&self, state: &State) -> f64 {
        let done = state.done + state.running.iter().map(|(_, own)| own).sum::<f64>();
        if self.work > 0.0 { (done / self.work).min(1.0) } else { 1.0 }
    }

    /// How long it will still take, if what is left goes on as what is done did; nothing at the ends.
    fn left(&self, state: &State) -> String {
        let done = state.done + state.running.iter().map(|(_, own)| own).sum::<f64>();
        let rest = self.work - done;
        let gone = state.start.elapsed().as_secs_f64();
        if gone < 2.0 || done <= 0.0 || rest <= 0.0 {
            return String::new();
        }
        format!(", about {} left", duration(gone * rest / done))
    }

    /// Called when all cells have run; removes the bar.
    pub(crate) fn done(&self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}

/// A length of time as people say it: 40 s, 12 min, 3 h.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 99.5 * 60.0 => format!("{:.0} min", s / 60.0),
        s if s < 99.5 * 3600.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}
