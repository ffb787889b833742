//! Threads for the pieces of a machine's work.
#![expect(clippy::disallowed_types, reason = "this is what a host does, and no machine")]

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};

use posse_core::{Piece, Workers};

/// Does the pieces of a machine's work on several threads, of which the calling one is the first. The others are started for
/// these pieces and end with them. That takes some tens of microseconds, and machines hand out no less.
#[derive(Clone, Copy, Debug)]
pub struct Threads(
    /// How many pieces are done at the same time.
    pub usize,
);

impl Workers for Threads {
    fn count(&self) -> usize {
        self.0
    }

    /// # Panics
    /// If a piece did, with its panic.
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
    use std::collections::BTreeSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::thread::{ThreadId, current};

    use super::*;

    #[test]
    fn as_many_pieces_as_there_are_threads_are_done_at_the_same_time() {
        for count in 1..4 {
            // Each piece ends only when all have begun.
            let (barrier, seen) = (Barrier::new(count), Mutex::new(BTreeSet::<String>::new()));
            let piece = |_| -> Piece<'_> {
                Box::new(|| {
                    barrier.wait();
                    let id: ThreadId = current().id();
                    seen.lock().unwrap().insert(format!("{id:?}"));
                })
            };
            Threads(count).run((0..count).map(piece).collect());
            assert_eq!(seen.into_inner().unwrap().len(), count);
        }
    }

    #[test]
    fn every_piece_is_done_once() {
        for (threads, count) in [(0, 3), (1, 3), (2, 0), (2, 1), (3, 100)] {
            let mut done = vec![0; count];
            let pieces = done.iter_mut().map(|done| -> Piece<'_> { Box::new(|| *done += 1) });
            Threads(threads).run(pieces.collect());
            assert_eq!(done, vec![1; count], "{threads} threads");
        }
    }

    #[test]
    fn the_panic_of_a_piece_is_that_of_the_run() {
        let piece = |number: usize| -> Piece<'_> { Box::new(move || assert!(number != 3, "it ends here")) };
        let run = || Threads(2).run((0..6).map(piece).collect());
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the third piece ends with one");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"it ends here"));
    }
}
