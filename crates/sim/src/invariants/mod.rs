//! What must hold after every event, whatever the links and the machines do. One property a file.

mod clusters;
mod conservation;
mod liveness;
mod monotone;
mod relays;
mod views;

use posse_core::Algorithm;

use crate::observer::{Event, Observer, Stage};

/// A property that holds after every event, or says how it does not.
trait Invariant {
    /// Takes note of an event and checks the machines after it.
    fn check(&mut self, event: &Event<'_>, stage: &dyn Stage) -> Result<(), String>;
}

/// All invariants that apply to an algorithm, as an observer. The first violation is kept.
pub struct Invariants {
    list: Vec<Box<dyn Invariant>>,
    events: u64,
    violation: Option<String>,
}

impl Invariants {
    /// The invariants that an algorithm has.
    #[must_use]
    pub fn of(algorithm: &Algorithm) -> Self {
        let list: Vec<Box<dyn Invariant>> = vec![
            conservation::of(algorithm),
            Box::new(relays::Relayed::of(algorithm)),
            Box::new(views::Views::of(algorithm)),
            Box::new(monotone::Monotone::of(algorithm)),
            Box::new(liveness::Liveness),
        ];
        Self { list, events: 0, violation: None }
    }

    /// What went wrong first, if anything did.
    #[must_use]
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// How many events were checked.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }
}

impl Observer for Invariants {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        self.events += 1;
        if self.violation.is_some() {
            return;
        }
        for invariant in &mut self.list {
            if let Err(what) = invariant.check(event, stage) {
                self.violation = Some(format!("event {}: {what}, after {event:?}", self.events));
                return;
            }
        }
    }
}

impl std::fmt::Debug for Invariants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invariants")
            .field("events", &self.events)
            .field("violation", &self.violation)
            .finish_non_exhaustive()
    }
}
