//! Events of the future, in the order in which they happen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use posse_core::Tick;

/// A queue ordered by time, and by order of insertion among events of the same time.
pub(super) struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    inserted: u64,
}

struct Entry<T> {
    at: Tick,
    order: u64,
    item: T,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), inserted: 0 }
    }

    pub(super) fn push(&mut self, at: Tick, item: T) {
        self.heap.push(Reverse(Entry { at, order: self.inserted, item }));
        self.inserted += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(Tick, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.item))
    }
}

impl<T> Entry<T> {
    const fn key(&self) -> (Tick, u64) {
        (self.at, self.order)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
