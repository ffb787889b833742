//! How a host lends a machine more than one processor.
//!
//! A machine starts no threads. Where a piece of its work is large and divides into pieces that do not depend on each other, it
//! hands them to its host, which may run them wherever it likes. Every number is computed by exactly one piece, in the order in
//! which one thread would compute it, so that it shows in no bit how many threads there were.

use std::fmt::Debug;
use std::ops::Range;

/// A piece of work that depends on no other piece that is handed out with it.
pub type Piece<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Where the pieces of a machine's work are done. The defaults do them on the calling thread.
///
/// A host with threads does as many pieces at a time as it has processors to spare:
///
/// ```
/// use std::sync::Mutex;
/// use std::sync::mpsc::channel;
/// use posse_core::{Piece, Workers};
///
/// #[derive(Debug)]
/// struct TwoThreads;
///
/// impl Workers for TwoThreads {
///     fn count(&self) -> usize {
///         2
///     }
///
///     fn run(&self, pieces: Vec<Piece<'_>>) {
///         let left = Mutex::new(pieces.into_iter());
///         let next = || left.lock().unwrap().next();
///         let work = || std::iter::from_fn(&next).for_each(|piece| piece());
///         std::thread::scope(|scope| {
///             scope.spawn(work);
///             work();
///         });
///     }
/// }
///
/// let (done, all) = channel();
/// let piece = |number: u32| -> Piece<'_> {
///     let done = done.clone();
///     Box::new(move || done.send(number).unwrap())
/// };
/// TwoThreads.run((1..=4).map(piece).collect());
/// assert_eq!(all.try_iter().sum::<u32>(), 10);
/// ```
pub trait Workers: Debug + Send + Sync {
    /// How many pieces are done at the same time: 1 or more. A machine hands out nothing to a single worker.
    fn count(&self) -> usize {
        1
    }

    /// Does every piece once, in any order and on any thread, and returns when all of them are done.
    fn run(&self, pieces: Vec<Piece<'_>>) {
        pieces.into_iter().for_each(|piece| piece());
    }
}

/// The calling thread alone: what every machine begins with.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisThread;

impl Workers for ThisThread {}

/// Multiplications of `f64` that a piece has at least: some 80 µs. To start a thread for it takes a host up to half as long.
const LEAST: usize = 1 << 20;
/// Pieces for each worker. With more than one, a worker that others keep from its processor does fewer.
const EACH: usize = 4;

/// Into how many pieces work of so many multiplications divides.
pub(crate) fn pieces_of(multiplications: usize, workers: &dyn Workers) -> usize {
    match workers.count() {
        0 | 1 => 1,
        count => (multiplications / LEAST).clamp(1, EACH.saturating_mul(count)),
    }
}

/// Cuts a row of things with these weights into at most so many ranges of about the same weight. None is empty.
pub(crate) fn evenly(weights: impl Iterator<Item = usize> + Clone, pieces: usize) -> Vec<Range<usize>> {
    let total: usize = weights.clone().sum();
    let (mut ranges, mut begin, mut sum) = (Vec::with_capacity(pieces), 0, 0);
    for (place, weight) in weights.enumerate() {
        sum += weight;
        // Multiplied and not divided, so that the last range ends with the last thing.
        if sum * pieces >= total * (ranges.len() + 1) {
            ranges.push(begin..place + 1);
            begin = place + 1;
        }
    }
    ranges
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Says that it has so many threads, and does the last piece first.
    #[derive(Debug)]
    pub(crate) struct Backwards(pub(crate) usize);

    impl Workers for Backwards {
        fn count(&self) -> usize {
            self.0
        }

        fn run(&self, pieces: Vec<Piece<'_>>) {
            pieces.into_iter().rev().for_each(|piece| piece());
        }
    }

    #[test]
    fn ranges_cover_everything_once_and_weigh_about_the_same() {
        for (count, pieces) in [(1, 1), (1, 5), (7, 3), (100, 8), (64, 64), (10, 40)] {
            let weights: Vec<usize> = (1..=count).collect();
            let ranges = evenly(weights.iter().copied(), pieces);
            assert!(ranges.len() <= pieces && ranges.iter().all(|range| !range.is_empty()));
            let ends: Vec<usize> = ranges.iter().map(|range| range.end).collect();
            let begins: Vec<usize> = ranges.iter().map(|range| range.start).collect();
            assert_eq!((begins[0], *ends.last().unwrap()), (0, count));
            assert_eq!(begins[1..], ends[..ends.len() - 1]);
            let (total, heaviest) = (weights.iter().sum::<usize>(), count);
            for range in ranges {
                let weight: usize = weights[range].iter().sum();
                assert!(weight <= total / pieces + 2 * heaviest, "{weight} of {total} in {pieces}");
            }
        }
    }

    #[test]
    fn little_work_is_not_handed_out() {
        assert_eq!(pieces_of(LEAST - 1, &Backwards(8)), 1);
        assert_eq!(pieces_of(3 * LEAST, &Backwards(8)), 3);
        assert_eq!(pieces_of(usize::MAX, &Backwards(2)), 2 * EACH);
        assert_eq!(pieces_of(usize::MAX, &ThisThread), 1);
        assert_eq!(pieces_of(usize::MAX, &Backwards(0)), 1);
    }
}
