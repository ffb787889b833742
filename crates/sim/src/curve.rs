//! Curves: what a run adds up to, at moments that lie evenly on a logarithmic scale.

use std::ops::ControlFlow;

use crate::observer::{Event, Observer, Stage};
use crate::tally::Tally;

/// How many moments are recorded at most.
const POINTS: u32 = 60;

/// Records the tally of a run at about 60 moments, early ones closer together, and always at the end.
///
/// Regret and communication grow like logarithms and roots, so a plot needs as many points between 10 and
/// 100 interactions as between 10 000 and 100 000. A point holds everything that was sent so far; the last
/// one is what the whole run adds up to.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Interactions after which a point is due, the next one last.
    due: Vec<u64>,
    points: Vec<Tally>,
}

impl Curve {
    /// A curve of a run with so many interactions.
    #[must_use]
    pub fn new(horizon: u64) -> Self {
        let mut due = moments(horizon);
        due.reverse();
        Self { due, points: Vec::with_capacity(POINTS as usize) }
    }

    /// The points so far, in order of [`Tally::interactions`].
    #[must_use]
    pub fn points(&self) -> &[Tally] {
        &self.points
    }

    /// The points, in order of [`Tally::interactions`].
    #[must_use]
    pub fn into_points(self) -> Vec<Tally> {
        self.points
    }
}

impl Observer for Curve {
    fn observe(&mut self, _event: &Event<'_>, _stage: &dyn Stage) {}

    fn looks_at_machines(&self) -> bool {
        false
    }

    fn interacted(&mut self, tally: &Tally) -> ControlFlow<()> {
        let now = tally.interactions;
        if self.due.last().is_some_and(|due| *due <= now) {
            self.due.pop();
            self.points.push(tally.clone());
        } else if let Some(last) = self.points.last_mut()
            && last.interactions == now
        {
            // The end: what was still on its way has arrived.
            last.clone_from(tally);
        }
        ControlFlow::Continue(())
    }
}

/// About 60 numbers from 1 to `horizon`, each about the same factor above the one before.
pub(crate) fn moments(horizon: u64) -> Vec<u64> {
    let length = libm::log(horizon as f64);
    let between = (0..POINTS).map(|point| {
        let exact = libm::exp(length * f64::from(point) / f64::from(POINTS - 1));
        (libm::round(exact) as u64).clamp(1, horizon)
    });
    let mut all: Vec<u64> = between.chain([horizon]).collect();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::moments;

    #[test]
    fn moments_rise_from_the_first_interaction_to_the_last() {
        for horizon in (1..300).chain([30_000, 1_000_003, u64::MAX / 2]) {
            let all = moments(horizon);
            assert!(all.is_sorted_by(|a, b| a < b), "{horizon}: {all:?}");
            assert_eq!((all[0], all[all.len() - 1]), (1, horizon));
            assert!(all.len() <= 61);
        }
        assert_eq!(moments(4), [1, 2, 3, 4]);
        assert!(moments(30_000).len() > 45);
    }
}
