//! How long processors worked for a cell, which other programs on the machine do not change.

use std::time::Instant;

/// A clock of one cell. It begins when it is made and must be read on the same thread.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    began: Instant,
    work: Work,
    /// Nanoseconds that processors had worked, where the system tells them.
    worked: Option<u64>,
}

/// Whose work a stopwatch counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// That of the thread that reads it.
    OfThread,
    /// That of all threads of this process, one part of so many: cells that run at the same time on several threads each share
    /// it evenly, because threads come and go with what they do.
    OfProcess { cells: usize },
}

impl Work {
    fn so_far(self) -> Option<u64> {
        match self {
            Self::OfThread => of_thread(),
            Self::OfProcess { cells } => Some(of_process()? / cells.max(1) as u64),
        }
    }
}

impl Stopwatch {
    pub(crate) fn start(work: Work) -> Self {
        Self { began: Instant::now(), work, worked: work.so_far() }
    }

    /// Seconds of one processor since the beginning. Where the system does not tell them, those of the clock on the wall.
    pub(crate) fn seconds(&self) -> f64 {
        between(self.worked, self.work.so_far()).unwrap_or_else(|| self.began.elapsed().as_secs_f64())
    }
}

/// Seconds between two counts of nanoseconds, if the system counts. A kernel that does not writes zeros, but a zero at the
/// beginning alone is that of a thread that has just been made.
fn between(before: Option<u64>, now: Option<u64>) -> Option<f64> {
    let (before, now) = (before?, now.filter(|&nanoseconds| nanoseconds > 0)?);
    Some(now.saturating_sub(before) as f64 * 1e-9)
}

/// What Linux counts for every thread: the first number is nanoseconds on a processor.
fn of_thread() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// What Linux counts for a process, threads that have ended among it.
fn of_process() -> Option<u64> {
    process_nanoseconds(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// The sum of what the program and the system for it worked, in ticks of 10 ms: the fields 14 and 15 of `stat`. The second
/// field, the name of the program, may contain anything, but nothing behind its last bracket does.
fn process_nanoseconds(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    Some((ticks.next()?.ok()? + ticks.next()?.ok()?) * 10_000_000)
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
    fn work_of_a_process_is_that_of_the_program_and_of_the_system_for_it() {
        let stat = "17 (a (b) c) S 1 1 1 0 -1 4194560 5 0 0 0 250 30 7 8 20 0 3 0 99";
        assert_eq!(process_nanoseconds(stat), Some(2_800_000_000));
        assert_eq!(process_nanoseconds("17 (cut off) S 1 1"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn work_of_other_threads_counts_for_the_process() {
        let (thread, process) =
            (Stopwatch::start(Work::OfThread), Stopwatch::start(Work::OfProcess { cells: 1 }));
        let own = || thread.seconds();
        let other = || {
            let stopwatch = Stopwatch::start(Work::OfThread);
            let mut sum = 0u64;
            while stopwatch.seconds() < 0.1 {
                sum = std::hint::black_box((0..10_000).fold(sum, u64::wrapping_add));
            }
        };
        std::thread::spawn(other).join().unwrap();
        assert!(process.seconds() >= own() + 0.05, "{} beside {}", process.seconds(), own());
    }

    #[test]
    fn a_system_that_does_not_count_leaves_it_to_the_clock_on_the_wall() {
        assert_eq!(between(Some(0), Some(0)), None);
        assert_eq!(between(None, Some(1)), None);
        assert_eq!(between(Some(1), None), None);
    }
}
