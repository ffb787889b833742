//! The clock by which simulations are measured.

use std::fs;
use std::time::Instant;

/// The time that this thread had a processor, where the system tells; elsewhere time by the clock. Simulations of a second
/// and more meet whatever else the machine does; a curve shows it, and programs beside them say their processor time, too.
pub(super) struct Clock {
    begin: Instant,
    used: Option<f64>,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { begin: Instant::now(), used: processor_seconds() }
    }

    pub(super) fn seconds(&self) -> f64 {
        let used = self.used.zip(processor_seconds()).map(|(before, now)| now - before);
        used.unwrap_or_else(|| self.begin.elapsed().as_secs_f64())
    }
}

/// Linux counts nanoseconds on a processor for every thread.
fn processor_seconds() -> Option<f64> {
    // The system adds up at its own ticks, which are some milliseconds apart, and whenever a thread lets go of its processor.
    std::thread::yield_now();
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}
