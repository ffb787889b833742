//! How long a processor worked for this thread, which other programs on the machine do not change.

use std::time::Instant;

/// A clock of one thread. It begins when it is made and must be read on the same thread.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    began: Instant,
    /// Nanoseconds that a processor had worked for the thread, where the system tells them.
    worked: Option<u64>,
}

impl Stopwatch {
    /// Starts a stopwatch for the thread that calls this.
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), worked: worked() }
    }

    /// Seconds of one processor since the beginning. Where the system does not tell them, those of the clock on the wall.
    pub(crate) fn seconds(&self) -> f64 {
        between(self.worked, worked()).unwrap_or_else(|| self.began.elapsed().as_secs_f64())
    }
}

/// Seconds between two counts of nanoseconds, if the system counts. A kernel that does not writes zeros, but a zero at the
/// beginning alone is that of a thread that has just been made.
fn between(before: Option<u64>, now: Option<u64>) -> Option<f64> {
    let (before, now) = (before?, now.filter(|&nanoseconds| nanoseconds > 0)?);
    Some(now.saturating_sub(before) as f64 * 1e-9)
}

/// What Linux counts for every thread: the first number is nanoseconds on a processor.
fn worked() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_just_been_made_is_measured_by_its_processor() {
        assert_eq!(between(Some(0), Some(2_000_000_000)), Some(2.0));
        assert_eq!(between(Some(500_000_000), Some(2_000_000_000)), Some(1.5));
    }

    #[test]
    fn a_system_that_does_not_count_leaves_it_to_the_clock_on_the_wall() {
        assert_eq!(between(Some(0), Some(0)), None);
        assert_eq!(between(None, Some(1)), None);
        assert_eq!(between(Some(1), None), None);
    }
}
