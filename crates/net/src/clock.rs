//! Where time comes from: the one place of the project that reads a clock to make ticks of it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use posse_core::Tick;

/// A source of ticks.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Tick + Send + Sync>);

impl Clock {
    /// Microseconds since 1970.
    #[must_use]
    pub fn system() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Tick(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
        })
    }

    /// Whatever `now` says. It may stand still.
    pub fn new(now: impl Fn() -> Tick + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time.
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
