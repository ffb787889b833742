//! Progress on stderr: a bar on a terminal, a line a cell elsewhere, nothing if asked to be quiet.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::experiment::Cell;
use crate::runner::Outcome;

/// Says how far an experiment has come.
#[derive(Debug)]
pub(crate) struct Progress {
    form: Form,
    finished: AtomicU64,
    total: u64,
}

#[derive(Debug)]
enum Form {
    Bar(ProgressBar),
    Lines,
    Quiet,
}

impl Progress {
    /// Progress through `total` cells, `finished` of which were there before.
    pub(crate) fn new(finished: usize, total: usize, quiet: bool) -> Self {
        let (finished, total) = (finished as u64, total as u64);
        let form = if quiet {
            Form::Quiet
        } else if std::io::stderr().is_terminal() {
            let style =
                ProgressStyle::with_template("{bar:30} {pos}/{len} cells, {elapsed} gone, {eta} left  {msg}")
                    .expect("the template is well-formed");
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            bar.set_style(style);
            bar.set_position(finished);
            bar.enable_steady_tick(Duration::from_millis(250));
            Form::Bar(bar)
        } else {
            Form::Lines
        };
        Self { form, finished: AtomicU64::new(finished), total }
    }

    /// A cell has run.
    pub(crate) fn finished(&self, cell: &Cell, outcome: &Outcome) {
        let count = self.finished.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.form {
            Form::Bar(bar) => {
                bar.set_message(cell.id.clone());
                bar.inc(1);
            }
            Form::Lines => {
                let result = match outcome {
                    Ok(record) => format!(
                        "regret {:.0} messages {} {:.1} s",
                        record.tally.regret,
                        record.tally.messages(),
                        record.seconds
                    ),
                    Err(_) => "failed".into(),
                };
                // Progress that nobody reads any more is no reason to stop.
                let _ = writeln!(std::io::stderr(), "cell {count}/{} {} {result}", self.total, cell.id);
            }
            Form::Quiet => {}
        }
    }

    /// All cells have run.
    pub(crate) fn done(&self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}
/// Says how much of some files has been read: a bar on a terminal, nothing elsewhere.
#[derive(Debug)]
pub(crate) struct Bytes(Option<ProgressBar>);

impl Bytes {
    /// Progress through `total` bytes.
    pub(crate) fn new(total: u64, quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let style =
            ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}, {elapsed} gone, {eta} left")
                .expect("the template is well-formed");
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        bar.set_style(style);
        Self(Some(bar))
    }

    /// So many more bytes have been read.
    pub(crate) fn advance(&self, bytes: u64) {
        if let Self(Some(bar)) = self {
            bar.inc(bytes);
        }
    }

    /// All has been read, or nothing more will be.
    pub(crate) fn done(&self) {
        if let Self(Some(bar)) = self {
            bar.finish_and_clear();
        }
    }
}
