//! How much of some files has been read.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{EVERY, duration};

/// Says how much of some files has been read: a bar on a terminal, a line now and then elsewhere.
#[derive(Debug)]
pub(crate) struct Bytes {
    form: BytesForm,
    total: u64,
    start: Instant,
    read: Cell<u64>,
    said: Cell<Instant>,
}

#[derive(Debug)]
enum BytesForm {
    Bar(ProgressBar),
    Lines,
    Quiet,
}

impl Bytes {
    /// Progress through `total` bytes; shows nothing if `quiet`.
    pub(crate) fn new(total: u64, quiet: bool) -> Self {
        let form = if quiet {
            BytesForm::Quiet
        } else if std::io::stderr().is_terminal() {
            let style =
                ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}, {elapsed} gone, {eta} left")
                    .expect("the template is well-formed");
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            bar.set_style(style);
            BytesForm::Bar(bar)
        } else {
            BytesForm::Lines
        };
        let now = Instant::now();
        Self { form, total, start: now, read: Cell::new(0), said: Cell::new(now) }
    }

    /// So many more bytes have been read.
    pub(crate) fn advance(&self, bytes: u64) {
        match &self.form {
            BytesForm::Bar(bar) => bar.inc(bytes),
            BytesForm::Lines => {
                self.read.set(self.read.get() + bytes);
                if self.said.get().elapsed() >= EVERY {
                    self.said.set(Instant::now());
                    let _ = writeln!(std::io::stderr(), "{}", self.line(self.start.elapsed().as_secs_f64()));
                }
            }
            BytesForm::Quiet => {}
        }
    }

    /// How far reading has come after so many seconds.
    fn line(&self, seconds: f64) -> String {
        let read = self.read.get();
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let left = match self.total.saturating_sub(read) {
            0 => String::new(),
            rest => format!(", about {} left", duration(seconds * rest as f64 / read.max(1) as f64)),
        };
        format!("read {:.0} of {:.0} MB{left}", megabytes(read), megabytes(self.total.max(read)))
    }

    /// All has been read, or nothing more will be.
    pub(crate) fn done(&self) {
        if let BytesForm::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_says_how_far_it_is_and_how_long_the_rest_takes() {
        let bytes = Bytes { form: BytesForm::Lines, ..Bytes::new(80_000_000, true) };
        bytes.advance(20_000_000);
        assert_eq!(bytes.line(10.0), "read 20 of 80 MB, about 30 s left");
        bytes.advance(70_000_000);
        assert_eq!(bytes.line(10.0), "read 90 of 90 MB");
    }
}
