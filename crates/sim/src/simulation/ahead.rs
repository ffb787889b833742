//! Asking the world ahead: other threads prepare offers while this one lets agents choose.
//!
//! What a world offers at an interaction depends on its seed and the number of the interaction alone, never on what was chosen
//! before. So the threads that prepare offers, each with a world of its own, give the bits that one thread would.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

use posse_core::UserId;

use crate::world::{Arrivals, Offer, World};

/// Offers that are handed over together. A batch of 25 arms with 25 features each has 80 kB.
const BATCH: usize = 16;
/// Batches that a helper may be ahead of the simulation.
const WAITING: usize = 4;

/// What a helper prepared, or the panic that ended it.
type Prepared = Result<Vec<Offer>, Box<dyn Any + Send>>;

/// Fills in the offer of interaction `step`: whose turn it is, and what that agent meets.
pub(super) fn ask(world: &mut dyn World, arrivals: &mut dyn Arrivals, step: u64, offer: &mut Offer) {
    offer.agent = world.turn(step).unwrap_or_else(|| arrivals.agent(step));
    offer.user = UserId(offer.agent.0);
    world.offer(step, offer);
}

/// The offers of a run, from helpers that prepare batches of them in turns.
pub(super) struct Ahead {
    helpers: Vec<Helper>,
    /// The batch at hand, and the helper that prepared it.
    batch: Vec<Offer>,
    turn: usize,
}

struct Helper {
    full: Receiver<Prepared>,
    /// Batches that were used go back, so that their memory is used again.
    used: Sender<Vec<Offer>>,
}

impl Ahead {
    /// Starts a helper with each of these worlds, for a run of `horizon` interactions. The helpers end when the run has all
    /// offers, or when this is dropped.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        worlds: Vec<(Box<dyn World>, Box<dyn Arrivals>)>,
        horizon: u64,
    ) -> Self {
        let count = worlds.len();
        let start = |(index, (world, arrivals))| {
            let (sender, full) = sync_channel(WAITING);
            let (used, empty) = channel();
            let firsts = (0..horizon).step_by(BATCH).skip(index).step_by(count);
            scope.spawn(move || prepare(world, arrivals, firsts, horizon, &sender, &empty));
            Helper { full, used }
        };
        let helpers = worlds.into_iter().enumerate().map(start).collect();
        Self { helpers, batch: Vec::new(), turn: 0 }
    }

    /// Fills in the offer of interaction `step`. Must be called for all interactions in their order.
    ///
    /// # Panics
    /// If the world did, with the world's panic.
    pub(super) fn next(&mut self, step: u64, offer: &mut Offer) {
        let index = (step % BATCH as u64) as usize;
        if index == 0 {
            let used = std::mem::take(&mut self.batch);
            // A helper that has prepared its last batch needs none back.
            let _ = self.helpers[self.turn].used.send(used);
            self.turn = (step / BATCH as u64) as usize % self.helpers.len();
            let prepared = self.helpers[self.turn].full.recv().expect("a helper prepares all its batches");
            self.batch = prepared.unwrap_or_else(|panic| resume_unwind(panic));
        }
        std::mem::swap(offer, &mut self.batch[index]);
    }
}

/// Prepares the batches that begin with these interactions, until nobody takes them any more.
fn prepare(
    mut world: Box<dyn World>,
    mut arrivals: Box<dyn Arrivals>,
    firsts: impl Iterator<Item = u64>,
    horizon: u64,
    full: &SyncSender<Prepared>,
    empty: &Receiver<Vec<Offer>>,
) {
    for first in firsts {
        let mut batch = empty.try_recv().unwrap_or_default();
        batch.resize_with(BATCH, Offer::new);
        let prepared = catch_unwind(AssertUnwindSafe(|| {
            for (step, offer) in (first..horizon).zip(&mut batch) {
                ask(&mut *world, &mut *arrivals, step, offer);
            }
            batch
        }));
        let is_last = prepared.is_err();
        if full.send(prepared).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use posse_core::{AgentId, Seed, Shape};

    use super::*;
    use crate::world::ArrivalConfig;

    /// A world with one arm, which is worth the number of the interaction, and that ends with a panic.
    struct Short(u64);

    impl World for Short {
        fn shape(&self, _: AgentId) -> Shape {
            Shape::shared(1)
        }

        fn offer(&mut self, step: u64, offer: &mut Offer) {
            assert!(step < self.0, "the world ends here");
            offer.clear(1);
            offer.push(&[1.0], step as f64);
        }

        fn parameters(&self, _: AgentId) -> Option<Vec<f64>> {
            None
        }
    }

    #[test]
    fn offers_come_in_order_up_to_the_panic_of_the_world_which_is_passed_on() {
        for helpers in 1..4 {
            let arrivals = || ArrivalConfig::RoundRobin.build(3, 100, Seed(1)).unwrap();
            let worlds = (0..helpers).map(|_| (Box::new(Short(70)) as Box<dyn World>, arrivals()));
            std::thread::scope(|scope| {
                let mut ahead = Ahead::start(scope, worlds.collect(), 100);
                let mut offer = Offer::new();
                // The batch with interaction 70 begins with 64.
                for step in 0..64 {
                    ahead.next(step, &mut offer);
                    assert_eq!((offer.agent, offer.user), (AgentId(step % 3), UserId(step % 3)));
                    assert_eq!(offer.means, [step as f64]);
                }
                let panic = catch_unwind(AssertUnwindSafe(|| ahead.next(64, &mut offer))).unwrap_err();
                assert_eq!(panic.downcast_ref::<&str>(), Some(&"the world ends here"));
            });
        }
    }
}
