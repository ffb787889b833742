//! Who has joined and who is next to be sent something: a table, and the order in which its seats are due.
//!
//! About 80 bytes an agent. A coordinator's information hardly ever falls, so an agent that was just sent a snapshot is due
//! after everybody who was sent one before: it goes to the end of a queue, and only the few others, whose views are older
//! than the newest, go through a heap. So an upload costs O(1) for each snapshot that it sets off, O(log N) besides, and
//! looks at nobody who is sent nothing.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

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
}

/// The number of a seat, which it keeps until an agent is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatNumber(u32);

/// Says that a seat is due at a time. It counts only while the seat says the same: entries of seats that have changed stay
/// where they are until their time comes.
#[derive(Clone, Copy, Debug)]
struct Turn {
    due: f64,
    seat: u32,
}

/// Seats by agent, ordered by when they are due.
#[derive(Clone, Debug)]
pub(crate) struct Roster<K = AgentId> {
    seats: Vec<Seat<K>>,
    index: BTreeMap<K, u32>,
    /// Turns that were later than all turns before them when they were added, so that the queue is in order by itself.
    queue: VecDeque<Turn>,
    /// Turns that would have been out of order in the queue.
    heap: BinaryHeap<Reverse<Turn>>,
}

impl<K> Default for Roster<K> {
    fn default() -> Self {
        Self { seats: Vec::new(), index: BTreeMap::new(), queue: VecDeque::new(), heap: BinaryHeap::new() }
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
        if let Some(&seat) = self.index.get(&agent) {
            return self.change(SeatNumber(seat), information, patience, version, uploads);
        }
        let seat = u32::try_from(self.seats.len()).expect("fewer than 2³² agents");
        let due = information + patience;
        grow_gently(&mut self.seats);
        self.seats.push(Seat { agent, information, due, version, uploads });
        self.index.insert(agent, seat);
        self.line_up(Turn { due, seat });
    }

    /// Changes a seat whose number is known, without looking for it.
    pub(crate) fn change(
        &mut self,
        SeatNumber(seat): SeatNumber,
        information: f64,
        patience: f64,
        version: Version,
        uploads: u64,
    ) {
        let old = &mut self.seats[seat as usize];
        let due = information + patience;
        let is_new = due != old.due;
        *old = Seat { agent: old.agent, information, due, version, uploads };
        if is_new {
            self.line_up(Turn { due, seat });
        }
    }

    /// The seat that is due first, if it is due before `information`. Of several that are due at the same time, any.
    pub(crate) fn first_due(&mut self, information: f64) -> Option<(SeatNumber, &Seat<K>)> {
        loop {
            let (queued, heaped) = (self.queue.front().copied(), self.heap.peek().map(|turn| turn.0));
            let is_queued = queued.is_some_and(|queued| heaped.is_none_or(|heaped| queued <= heaped));
            let first = if is_queued { queued? } else { heaped? };
            if first.due >= information {
                return None;
            }
            if self.counts(first) {
                return Some((SeatNumber(first.seat), &self.seats[first.seat as usize]));
            }
            if is_queued {
                self.queue.pop_front();
            } else {
                self.heap.pop();
            }
        }
    }

    pub(crate) fn remove(&mut self, agent: K) {
        let Some(seat) = self.index.remove(&agent) else { return };
        self.seats.swap_remove(seat as usize);
        if let Some(moved) = self.seats.get(seat as usize) {
            self.index.insert(moved.agent, seat);
            let due = moved.due;
            self.line_up(Turn { due, seat });
        }
        self.tidy_up_if_due();
    }

    /// Whether a turn is still that of its seat.
    fn counts(&self, turn: Turn) -> bool {
        self.seats.get(turn.seat as usize).is_some_and(|seat| seat.due == turn.due)
    }

    fn line_up(&mut self, turn: Turn) {
        // What never comes needs no place in the order.
        if turn.due == f64::INFINITY {
            return;
        }
        if self.queue.back().is_none_or(|last| last.due <= turn.due) {
            self.queue.push_back(turn);
        } else {
            self.heap.push(Reverse(turn));
        }
        self.tidy_up_if_due();
    }

    fn tidy_up_if_due(&mut self) {
        if self.queue.len() + self.heap.len() > 2 * self.seats.len() + 64 {
            self.tidy_up();
        }
    }

    /// Sorts one turn for each seat into the queue, and drops turns that a later change has replaced. Called once in
    /// as many changes as there are seats, so that it costs O(log N) for each.
    #[cold]
    fn tidy_up(&mut self) {
        let turns = self.seats.iter().zip(0..).map(|(seat, number)| Turn { due: seat.due, seat: number });
        let mut turns: Vec<Turn> = turns.filter(|turn| turn.due < f64::INFINITY).collect();
        turns.sort_unstable();
        self.heap.clear();
        self.queue = turns.into();
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Turn {}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.due.total_cmp(&other.due).then(self.seat.cmp(&other.seat))
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
        fn the_first_who_is_due_is_found_by_looking_at_everybody(
            changes in proptest::collection::vec((0u64..20, 0u8..8, proptest::bool::weighted(0.2)), 1..400),
            now in 0u8..9,
        ) {
            let mut roster = Roster::default();
            let mut plain: BTreeMap<AgentId, f64> = BTreeMap::new();
            for (agent, due, leaves) in changes {
                let (agent, due) = (AgentId(agent), f64::from(due));
                if leaves {
                    roster.remove(agent);
                    plain.remove(&agent);
                } else {
                    // Seven means never.
                    let patience = if due == 7.0 { f64::INFINITY } else { 1.0 };
                    roster.set(agent, due - 1.0, patience, Version(0), 0);
                    plain.insert(agent, due - 1.0 + patience);
                }
                let now = f64::from(now);
                let first = plain.values().copied().filter(|due| *due < now).min_by(f64::total_cmp);
                let found = roster.first_due(now).map(|(_, seat)| (seat.agent, seat.due));
                prop_assert_eq!(found.map(|(_, due)| due), first);
                prop_assert!(found.is_none_or(|(agent, due)| plain[&agent] == due));
                prop_assert_eq!(roster.len(), plain.len());
                prop_assert!(roster.iter().map(|seat| seat.agent).eq(plain.keys().copied()));
                prop_assert!(roster.queue.len() + roster.heap.len() <= 2 * roster.len() + 64);
            }
        }
    }
}
