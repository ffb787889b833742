//! Threads for the pieces of a coordinator's work.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use posse_core::{Piece, Workers};

/// As many threads as there are processors, of which the thread of the federation is the first. The others are started for the
/// pieces of one hand-out and end with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads(usize);

impl Threads {
    pub(super) fn of_this_machine() -> Self {
        Self(available_parallelism().map_or(1, NonZero::get))
    }
}

impl Workers for Threads {
    fn count(&self) -> usize {
        self.0
    }

    fn run(&self, pieces: Vec<Piece<'_>>) {
        let helpers = self.0.min(pieces.len()).saturating_sub(1);
        let left = Mutex::new(pieces.into_iter());
        // The lock is free again before a piece begins.
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || std::iter::from_fn(next).for_each(|piece| piece());
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
            work();
            for helper in started {
                helper.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once() {
        for (threads, count) in [(1, 3), (2, 0), (2, 1), (3, 100)] {
            let mut done = vec![0; count];
            let pieces = done.iter_mut().map(|done| -> Piece<'_> { Box::new(|| *done += 1) });
            Threads(threads).run(pieces.collect());
            assert_eq!(done, vec![1; count], "{threads} threads");
        }
        assert!(Threads::of_this_machine().count() >= 1);
    }
}
