//! The evidence of an agent's own observations while it grows: the latest as they came, the earlier ones as a sum.
//!
//! Adding an observation to a packed sum reads and writes the whole of it, and an agent of few observations would hold a
//! matrix of mostly nothing. So observations are kept as they came while that takes less memory than their sum, and later
//! until there are enough for one pass over it. They are added in their order: every number is the one that adding
//! each at once would give.

use std::cell::{OnceCell, RefCell};

use crate::evidence::{Evidence, packed};
use crate::outer::TOGETHER;

/// The most observations that wait for their first sum, so that in high dimension no single call pays for hundreds.
const MOST: usize = 32;

thread_local! {
    /// Memory in which a few observations are added up for one call; the sum is not kept.
    static SUM: RefCell<Evidence> = RefCell::new(Evidence::none(0));
}

/// Observations that only their owner has, as a sum or still as they came.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    dimension: usize,
    /// Features and reward of each observation that is not in `sum` yet.
    recent: Vec<f64>,
    sum: Option<Box<Evidence>>,
    /// All observations added up, if that was asked for while some of them are not in `sum`.
    together: OnceCell<Box<Evidence>>,
}

impl Buffer {
    /// No observations yet, of `dimension` features each.
    pub(crate) const fn new(dimension: usize) -> Self {
        Self { dimension, recent: Vec::new(), sum: None, together: OnceCell::new() }
    }

    /// The observations behind `evidence`.
    pub(crate) fn of(evidence: Evidence) -> Self {
        let dimension = evidence.dimension();
        let sum = (!evidence.is_empty()).then(|| Box::new(evidence));
        Self { sum, ..Self::new(dimension) }
    }

    /// Takes in an observation that was checked before.
    #[inline]
    pub(crate) fn observe(&mut self, x: &[f64], y: f64) {
        debug_assert_eq!(x.len(), self.dimension, "it was checked");
        if self.together.get().is_some() {
            self.together.take();
        }
        if self.recent.capacity() == 0 {
            // Without this, features take one allocation and the reward beside them twice as much again.
            self.recent.reserve_exact(self.dimension + 1);
        }
        self.recent.extend_from_slice(x);
        self.recent.push(y);
        if self.recent.len() >= self.room() {
            self.settle();
        }
    }

    /// How many numbers of observations are kept before they are added up.
    const fn room(&self) -> usize {
        let d = self.dimension;
        let few = match self.sum {
            Some(_) => TOGETHER,
            None if packed(d) + d < MOST * (d + 1) => (packed(d) + d) / (d + 1) + 1,
            None => MOST,
        };
        few * (d + 1)
    }

    /// Adds up what came, and returns the sum of everything.
    pub(crate) fn settle(&mut self) -> &Evidence {
        let sum = match self.together.take() {
            Some(together) => self.sum.insert(together),
            None => {
                let sum = self.sum.get_or_insert_with(|| Box::new(Evidence::none(self.dimension)));
                sum.add_observations(&self.recent);
                sum
            }
        };
        self.recent.clear();
        sum
    }

    /// Everything added up. Costs a new sum if observations came since the last, and nothing otherwise.
    pub(crate) fn evidence(&self) -> &Evidence {
        match &self.sum {
            Some(sum) if self.recent.is_empty() => sum,
            _ => self.together.get_or_init(|| Box::new(self.first(self.waiting()))),
        }
    }

    /// The earlier sum and the first `count` of the observations that are not in it.
    pub(crate) fn first(&self, count: usize) -> Evidence {
        let mut sum = self.sum.as_deref().cloned().unwrap_or_else(|| Evidence::none(self.dimension));
        sum.add_observations(&self.recent[..count * (self.dimension + 1)]);
        sum
    }

    /// Calls `read` with the earlier sum and the first `count` of the observations that are not in it.
    pub(crate) fn with_first<R>(&self, count: usize, read: impl FnOnce(&Evidence) -> R) -> R {
        match &self.sum {
            Some(sum) if count == 0 => read(sum),
            Some(_) => read(&self.first(count)),
            None => SUM.with_borrow_mut(|sum| {
                if sum.dimension() == self.dimension {
                    sum.clear();
                } else {
                    *sum = Evidence::none(self.dimension);
                }
                sum.add_observations(&self.recent[..count * (self.dimension + 1)]);
                read(sum)
            }),
        }
    }

    /// The observations that are not in the sum yet: features and reward of each.
    pub(crate) fn recent(&self) -> impl Iterator<Item = (&[f64], f64)> {
        self.recent.chunks_exact(self.dimension + 1).map(|row| (&row[..self.dimension], row[self.dimension]))
    }

    /// Returns how many observations are not in the sum yet.
    pub(crate) const fn waiting(&self) -> usize {
        self.recent.len() / (self.dimension + 1)
    }

    /// Whether every observation is still there as it came.
    pub(crate) const fn is_unsummed(&self) -> bool {
        self.sum.is_none()
    }

    /// Adds the observations that `other` holds.
    pub(crate) fn add(&mut self, other: &Evidence) {
        self.settle();
        self.sum.as_mut().expect("it was settled").add(other);
    }

    /// Gives away all observations and starts again without any.
    pub(crate) fn take(&mut self) -> Evidence {
        self.settle();
        *self.sum.take().expect("it was settled")
    }

    /// Forgets all observations.
    pub(crate) fn clear(&mut self) {
        self.recent.clear();
        self.sum = None;
        self.together.take();
    }

    /// Gives back memory that is not needed to keep the observations.
    pub(crate) fn rest(&mut self) {
        self.together.take();
        // Moving everything for the room of a single observation is not worth it.
        if self.recent.capacity() > self.recent.len() + self.dimension + 1 {
            self.recent.shrink_to_fit();
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.sum.as_ref().map_or(0, |sum| sum.count()) + self.waiting() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Seed;

    proptest! {
        #[test]
        fn a_buffer_holds_the_bits_of_adding_each_observation_at_once(
            d in 1usize..40, n in 0usize..70, looks in 1usize..20, seed: u64,
        ) {
            let mut stream = Seed(seed).stream("observations", 0, 0);
            let (mut buffer, mut plain) = (Buffer::new(d), Evidence::none(d));
            for step in 0..n {
                let x: Vec<f64> = (0..d).map(|_| stream.normal()).collect();
                let y = stream.normal();
                buffer.observe(&x, y);
                plain.observe(&x, y).unwrap();
                prop_assert_eq!(buffer.count(), plain.count());
                if step % looks == 0 {
                    prop_assert_eq!(buffer.evidence(), &plain);
                    buffer.rest();
                }
                prop_assert!(buffer.waiting() <= MOST);
            }
            buffer.with_first(buffer.waiting(), |sum| assert_eq!(sum, &plain));
            prop_assert_eq!(buffer.evidence(), &plain);
            prop_assert_eq!(buffer.clone().take(), plain.clone());
            let mut both = plain.clone();
            both.add(&plain);
            buffer.add(&plain);
            prop_assert_eq!(buffer.settle(), &both);
        }
    }

    #[test]
    fn few_observations_take_less_memory_than_their_sum() {
        let mut buffer = Buffer::new(25);
        for step in 0..13 {
            buffer.observe(&[f64::from(step); 25], 1.0);
            assert!(buffer.is_unsummed());
            assert!(buffer.recent.len() < packed(25) + 25);
        }
        buffer.observe(&[1.0; 25], 1.0);
        assert!(!buffer.is_unsummed());
        assert_eq!((buffer.waiting(), buffer.count()), (0, 14));
    }

    #[test]
    fn nothing_is_nothing() {
        let mut buffer = Buffer::of(Evidence::none(3));
        assert!(buffer.is_empty() && buffer.is_unsummed());
        assert_eq!(buffer.evidence(), &Evidence::none(3));
        buffer.observe(&[1.0, 2.0, 3.0], 1.0);
        buffer.clear();
        assert_eq!(buffer.take(), Evidence::none(3));
    }
}
