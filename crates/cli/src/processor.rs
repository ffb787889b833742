//! How long a processor worked for this thread, which other programs on the machine do not change.

use std::time::Instant;

/// A clock of one thread. It begins when it is made and must be read on the same thread.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    began: Instant,
    /// Where the system tells it.
    worked: Option<f64>,
}

impl Stopwatch {
    /// Starts a stopwatch for the thread that calls this.
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), worked: worked() }
    }

    /// Seconds of one processor since the beginning. Where the system does not tell them, those of the clock on the wall.
    pub(crate) fn seconds(&self) -> f64 {
        match (self.worked, worked()) {
            (Some(before), Some(now)) => now - before,
            _ => self.began.elapsed().as_secs_f64(),
        }
    }
}

/// What Linux counts for every thread: the first number is nanoseconds on a processor.
fn worked() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u64 = text.split_whitespace().next()?.parse().ok()?;
    // A kernel that does not count writes zeros.
    (nanoseconds > 0).then_some(nanoseconds as f64 * 1e-9)
}
