//! Who has joined and who is next to be sent something: a table and a heap over it.
//!
//! About 80 bytes an agent. The next agent due is at the top of the heap, so that an upload costs
//! O(log N) whatever it sets off, and nothing is looked at that is not sent.

use std::collections::BTreeMap;

use crate::ids::{AgentId, Version};

/// What the coordinator remembers of an agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seat<K = AgentId> {
    pub(crate) agent: K,
    /// Information of what the agent was sent and has sent.
    pub(crate) information: f64,
    /// The agent is due for a snapshot once the coordinator's information exceeds this.
    due: f64,
    /// The newest version it was sent, or is known to have.
    pub(crate) version: Version,
    /// Its uploads in the coordinator's evidence.
    pub(crate) uploads: u64,
    /// Where it stands in the heap.
    place: u32,
}

/// Seats by agent, ordered by when they are due.
#[derive(Clone, Debug)]
pub(crate) struct Roster<K = AgentId> {
    seats: Vec<Seat<K>>,
    /// Indices into `seats`, a binary min-heap by (due, agent).
    heap: Vec<u32>,
    index: BTreeMap<K, u32>,
}

impl<K> Default for Roster<K> {
    fn default() -> Self {
        Self { seats: Vec::new(), heap: Vec::new(), index: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Roster<K> {
    pub(crate) fn get(&self, agent: K) -> Option<&Seat<K>> {
        self.index.get(&agent).map(|&seat| &self.seats[seat as usize])
    }

    pub(crate) fn len(&self) -> usize {
        self.seats.len()
    }

    /// Returns every seat, by rising agent.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Seat<K>> {
        self.index.values().map(|&seat| &self.seats[seat as usize])
    }

    /// Seats an agent, or changes its seat. It is due `patience` after `information`.
    pub(crate) fn set(&mut self, agent: K, information: f64, patience: f64, version: Version, uploads: u64) {
        let due = information + patience;
        match self.index.get(&agent) {
            Some(&seat) => {
                let old = &mut self.seats[seat as usize];
                *old = Seat { agent, information, due, version, uploads, place: old.place };
                let place = old.place as usize;
                self.restore_order(place);
            }
            None => {
                let seat = u32::try_from(self.seats.len()).expect("fewer than 2³² agents");
                grow_gently(&mut self.seats);
                grow_gently(&mut self.heap);
                self.seats.push(Seat { agent, information, due, version, uploads, place: seat });
                self.heap.push(seat);
                self.index.insert(agent, seat);
                self.restore_order(seat as usize);
            }
        }
    }

    /// The agent that is due first, if it is due before `information`.
    pub(crate) fn first_due(&self, information: f64) -> Option<&Seat<K>> {
        let first = &self.seats[*self.heap.first()? as usize];
        (first.due < information).then_some(first)
    }

    pub(crate) fn remove(&mut self, agent: K) {
        let Some(seat) = self.index.remove(&agent) else { return };
        let place = self.seats[seat as usize].place as usize;
        let last = self.heap.len() - 1;
        self.swap(place, last);
        self.heap.pop();
        if place < last {
            self.restore_order(place);
        }
        self.seats.swap_remove(seat as usize);
        if let Some(moved) = self.seats.get(seat as usize) {
            self.heap[moved.place as usize] = seat;
            self.index.insert(moved.agent, seat);
        }
    }

    fn restore_order(&mut self, mut place: usize) {
        while place > 0 && self.before(place, (place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        loop {
            let children = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let Some(first) = children.reduce(|a, b| if self.before(b, a) { b } else { a }) else { return };
            if !self.before(first, place) {
                return;
            }
            self.swap(place, first);
            place = first;
        }
    }

    fn before(&self, a: usize, b: usize) -> bool {
        let key = |place: usize| {
            let seat = &self.seats[self.heap[place] as usize];
            (seat.due, seat.agent)
        };
        key(a) < key(b)
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for place in [a, b] {
            self.seats[self.heap[place] as usize].place = place as u32;
        }
    }
}

/// An eighth more instead of twice as much: memory per agent is what limits a large federation.
fn grow_gently<T>(vector: &mut Vec<T>) {
    if vector.len() == vector.capacity() {
        vector.reserve_exact((vector.len() / 8).max(16));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_heap_agrees_with_looking_at_everybody(
            changes in proptest::collection::vec((0u64..20, 0u8..8, proptest::bool::weighted(0.2)), 1..120)
        ) {
            let mut roster = Roster::default();
            let mut plain: BTreeMap<AgentId, f64> = BTreeMap::new();
            for (agent, due, leaves) in changes {
                let (agent, due) = (AgentId(agent), f64::from(due));
                if leaves {
                    roster.remove(agent);
                    plain.remove(&agent);
                } else {
                    roster.set(agent, due - 1.0, 1.0, Version(0), 0);
                    plain.insert(agent, due);
                }
                let first = plain.iter().map(|(a, d)| (*d, *a)).min_by(|a, b| a.partial_cmp(b).unwrap());
                let found = roster.first_due(f64::INFINITY).map(|seat| (seat.due, seat.agent));
                prop_assert_eq!(found, first);
                prop_assert_eq!(roster.len(), plain.len());
                prop_assert!(roster.iter().map(|seat| seat.agent).eq(plain.keys().copied()));
            }
        }
    }
}
