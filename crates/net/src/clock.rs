//! Where time comes from: the one place of the project that reads a clock to make ticks of it.

use std::sync::Arc;
#[cfg(feature = "agent")]
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use posse_core::{Tick, TimeSpan};

/// A source of ticks that does not jump.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Tick + Send + Sync>);

impl Clock {
    /// Microseconds since 1970, as the machine's clock said when this was called, plus the time that has passed
    /// since. A clock that is set back or forward afterwards does not move it.
    #[must_use]
    pub fn system() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (start, began) = (Tick(span(since).as_micros()), Instant::now());
        Self::new(move || start.after(span(began.elapsed())))
    }

    /// A clock that shows what `now` returns. It may stand still.
    pub fn new(now: impl Fn() -> Tick + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// This clock, but one that never goes back: after it was set back, time goes on from where it was. What waits for a
    /// moment on a clock that was set back by a day would wait for a day.
    #[cfg(feature = "agent")]
    pub(crate) fn steady(self) -> Self {
        let time = Mutex::new(RunningTime::new(self));
        Self::new(move || time.lock().unwrap_or_else(PoisonError::into_inner).now())
    }

    /// Returns the time, in microseconds.
    #[must_use]
    pub fn now(&self) -> Tick {
        (self.0)()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clock({:?})", self.now())
    }
}

/// A length of time as machines know it, or the longest that they do.
pub(crate) fn span(duration: Duration) -> TimeSpan {
    TimeSpan::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// A clock of the caller's that goes on from a given time: what passes on the one passes on the other.
///
/// A coordinator's time goes on from the end of its log. Neither a restart nor a machine whose clock is wrong by
/// days can then put off a deadline, or let all of them pass at once.
#[derive(Debug)]
pub(crate) struct RunningTime {
    clock: Clock,
    last: Tick,
    now: Tick,
    /// The time goes on from the end of a log, which happens once.
    #[cfg(feature = "coordinator")]
    begun: bool,
}

impl RunningTime {
    pub(crate) fn new(clock: Clock) -> Self {
        let last = clock.now();
        Self {
            clock,
            last,
            now: last,
            #[cfg(feature = "coordinator")]
            begun: false,
        }
    }

    /// Goes on from `end_of_log`, where 0 stands for a log without entries. A log that is opened again after it
    /// failed ends before the present, and the time just runs on.
    #[cfg(feature = "coordinator")]
    pub(crate) fn go_on_from(&mut self, end_of_log: Tick) {
        if !std::mem::replace(&mut self.begun, true) && end_of_log > Tick(0) {
            self.last = self.clock.now();
            self.now = end_of_log;
        }
        self.now = self.now.max(end_of_log);
    }

    /// The time, which never goes back.
    pub(crate) fn now(&mut self) -> Tick {
        let read = self.clock.now();
        self.now = self.now.after(TimeSpan::from_micros(read.0.saturating_sub(self.last.0)));
        self.last = read;
        self.now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn running_time_goes_on_from_the_log_and_never_back() {
        let wall = Arc::new(AtomicU64::new(1_700_000_000_000_000));
        let clock = Clock::new({
            let wall = Arc::clone(&wall);
            move || Tick(wall.load(Ordering::SeqCst))
        });
        let mut time = RunningTime::new(clock);
        // The log was written by a machine whose clock was a day ahead.
        let end_of_log = Tick(1_700_086_400_000_000);
        time.go_on_from(end_of_log);
        assert_eq!(time.now(), end_of_log);
        wall.fetch_add(5, Ordering::SeqCst);
        assert_eq!(time.now(), end_of_log.after(TimeSpan::from_micros(5)));
        // Set back by an hour: no time passes, and none is taken back.
        wall.fetch_sub(3_600_000_000, Ordering::SeqCst);
        assert_eq!(time.now(), end_of_log.after(TimeSpan::from_micros(5)));
        wall.fetch_add(2, Ordering::SeqCst);
        assert_eq!(time.now(), end_of_log.after(TimeSpan::from_micros(7)));
    }

    #[test]
    fn a_steady_clock_goes_on_after_it_was_set_back() {
        let wall = Arc::new(AtomicU64::new(1_700_000_000_000_000));
        let shown = Arc::clone(&wall);
        let clock = Clock::new(move || Tick(shown.load(Ordering::SeqCst))).steady();
        let start = clock.now();
        wall.fetch_sub(86_400_000_000, Ordering::SeqCst);
        assert_eq!(clock.now(), start);
        wall.fetch_add(50, Ordering::SeqCst);
        assert_eq!(clock.now(), start.after(TimeSpan::from_micros(50)));
    }
}
