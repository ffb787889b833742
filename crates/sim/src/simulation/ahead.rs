//! Working ahead: other threads prepare offers, and let agents look at them before their turn.
//!
//! What a world offers at an interaction depends on its seed and the number of the interaction alone, never on what was chosen
//! before. So the threads that prepare offers, each with a world of its own, give the bits that one thread would. The thread of
//! the run prepares offers, too, when it would have to wait for them. What an agent foresees is the business of
//! [`ideal`](super::ideal).

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use posse_core::{Agent, UserId};

use crate::world::{Arrivals, Offer, World};

/// Offers that are handed over together. A batch of 25 arms with 25 features each has 160 kB.
const BATCH: usize = 32;
/// Batches for each helper that it may have prepared or have been told to prepare.
const WAITING: u64 = 4;

/// What a helper is to do.
enum Job {
    /// Prepare the batch of this number, in memory that was used before.
    Prepare(u64, Vec<Offer>),
    /// Let agents foresee what they will choose from these offers.
    Foresee(Rehearsal),
}

/// What a helper did, or the panic that ended it.
enum Done {
    Prepared(u64, Prepared),
    Foreseen(Result<Rehearsal, Panic>),
}

type Panic = Box<dyn Any + Send>;

/// A batch of offers, or the panic of the world, which is passed on when the batch is needed.
type Prepared = Result<Vec<Offer>, Panic>;

/// A batch of offers with those agents that look at them ahead of their turns.
#[derive(Default)]
pub(super) struct Rehearsal {
    pub(super) offers: Vec<Offer>,
    /// For each offer its agent, if that agent takes part.
    pub(super) machines: Vec<Option<Box<dyn Agent>>>,
    /// The arm that each agent foresaw.
    pub(super) arms: Vec<Option<usize>>,
}

/// Fills in the offer of interaction `step`: whose turn it is, and what that agent meets.
pub(super) fn ask(world: &mut dyn World, arrivals: &mut dyn Arrivals, step: u64, offer: &mut Offer) {
    offer.agent = world.turn(step).unwrap_or_else(|| arrivals.agent(step));
    offer.user = UserId(offer.agent.0);
    world.offer(step, offer);
}

/// The offers of a run, in batches that helpers prepare, or the thread of the run where it would have to wait.
pub(super) struct Ahead {
    helpers: Vec<Helper>,
    returns: Receiver<(usize, Done)>,
    horizon: u64,
    /// The batch at hand, and its number.
    batch: Vec<Offer>,
    number: u64,
    /// Batches that are prepared, by number.
    ready: BTreeMap<u64, Prepared>,
    /// The first batch that nobody was told to prepare yet.
    unassigned: u64,
    /// The rehearsal of the batch after the one at hand has come back.
    rehearsed: Option<Rehearsal>,
    is_rehearsing: bool,
    /// Batches that were used, for their memory.
    spare: Vec<Vec<Offer>>,
    /// Waits until helpers have time for a rehearsal, so that there is one of every batch: for tests.
    pub(super) is_patient: bool,
}

struct Helper {
    jobs: Sender<Job>,
    /// Batches that it was told to prepare and has not.
    has: u64,
}

impl Ahead {
    /// Starts a helper with each of these worlds, for a run of `horizon` interactions. The helpers end when this is dropped.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        worlds: Vec<(Box<dyn World>, Box<dyn Arrivals>)>,
        horizon: u64,
    ) -> Self {
        let (done, returns) = channel();
        let start = |(index, (world, arrivals))| {
            let (jobs, given) = channel();
            let done = done.clone();
            scope.spawn(move || help(index, world, arrivals, horizon, &given, &done));
            Helper { jobs, has: 0 }
        };
        let helpers = worlds.into_iter().enumerate().map(start).collect();
        let mut ahead = Self {
            helpers,
            returns,
            horizon,
            batch: Vec::new(),
            number: 0,
            ready: BTreeMap::new(),
            unassigned: 0,
            rehearsed: None,
            is_rehearsing: false,
            spare: Vec::new(),
            is_patient: false,
        };
        ahead.hand_out();
        ahead
    }

    /// Whether interaction `step` is the first of a batch.
    pub(super) const fn begins_batch(step: u64) -> bool {
        step.is_multiple_of(BATCH as u64)
    }

    /// Fills in the offer of interaction `step`. Must be called for all interactions in their order, with a world of the
    /// caller's. After the first of a batch, [`hand_out`](Self::hand_out) is due.
    ///
    /// # Panics
    /// If a world did on another thread, with its panic.
    pub(super) fn next(
        &mut self,
        world: &mut dyn World,
        arrivals: &mut dyn Arrivals,
        step: u64,
        offer: &mut Offer,
    ) {
        let index = (step % BATCH as u64) as usize;
        if index == 0 {
            self.number = step / BATCH as u64;
            let batch = match self.rehearsed.take() {
                Some(rehearsal) => rehearsal.offers,
                None => self.fetch(world, arrivals),
            };
            let used = std::mem::replace(&mut self.batch, batch);
            self.spare.push(used);
        }
        std::mem::swap(offer, &mut self.batch[index]);
    }

    /// The offers of the batch at hand. One that was taken is another now: its agent is that of an earlier offer.
    pub(super) fn batch(&self) -> &[Offer] {
        &self.batch
    }

    /// The batch after the one at hand, for a rehearsal, if it is prepared and a helper has nothing else to do. A helper that
    /// does not keep up with preparing offers is no help in a rehearsal.
    pub(super) fn upcoming(&mut self) -> Option<Vec<Offer>> {
        self.take_back_all();
        while self.is_patient && self.helpers.iter().any(|helper| helper.has > 0) {
            let done = self.returns.recv().expect("helpers live as long as the run");
            self.take_back(done);
        }
        let next = self.number + 1;
        let has_time = self.helpers.iter().any(|helper| helper.has == 0);
        if !has_time || self.ready.get(&next)?.is_err() {
            return None;
        }
        self.ready.remove(&next)?.ok()
    }

    /// Lets agents look at the offers of the batch after the one at hand, on another thread.
    pub(super) fn rehearse(&mut self, rehearsal: Rehearsal) {
        let helper =
            self.helpers.iter().min_by_key(|helper| helper.has).expect("there is one helper at least");
        helper.jobs.send(Job::Foresee(rehearsal)).expect("helpers live as long as the run");
        self.is_rehearsing = true;
    }

    /// Waits for the rehearsal that is under way, if one is: agents and what they foresaw are in it.
    ///
    /// # Panics
    /// If an agent or a world did on another thread, with its panic.
    pub(super) fn bring_back(&mut self) -> Option<&mut Rehearsal> {
        if !self.is_rehearsing {
            return None;
        }
        while self.is_rehearsing {
            let done = self.returns.recv().expect("helpers live as long as the run");
            self.take_back(done);
        }
        self.rehearsed.as_mut()
    }

    /// Waits for the batch at hand, and prepares later ones meanwhile that no helper has.
    fn fetch(&mut self, world: &mut dyn World, arrivals: &mut dyn Arrivals) -> Vec<Offer> {
        loop {
            self.take_back_all();
            if let Some(batch) = self.ready.remove(&self.number) {
                return batch.unwrap_or_else(|panic| resume_unwind(panic));
            }
            self.hand_out();
            if let Some(number) = self.assign() {
                let memory = self.spare.pop().unwrap_or_default();
                self.ready.insert(number, prepare(world, arrivals, number, self.horizon, memory));
            } else {
                let done = self.returns.recv().expect("helpers live as long as the run");
                self.take_back(done);
            }
        }
    }

    fn take_back_all(&mut self) {
        while let Ok(done) = self.returns.try_recv() {
            self.take_back(done);
        }
    }

    fn take_back(&mut self, (helper, done): (usize, Done)) {
        match done {
            Done::Prepared(number, prepared) => {
                self.helpers[helper].has -= 1;
                self.ready.insert(number, prepared);
            }
            Done::Foreseen(rehearsal) => {
                self.rehearsed = Some(rehearsal.unwrap_or_else(|panic| resume_unwind(panic)));
                self.is_rehearsing = false;
            }
        }
    }

    /// Tells helpers which batches to prepare next.
    pub(super) fn hand_out(&mut self) {
        while let Some(index) = (0..self.helpers.len()).min_by_key(|index| self.helpers[*index].has)
            && self.helpers[index].has < WAITING / 2
            && let Some(number) = self.assign()
        {
            let job = Job::Prepare(number, self.spare.pop().unwrap_or_default());
            self.helpers[index].has += 1;
            self.helpers[index].jobs.send(job).expect("helpers live as long as the run");
        }
    }

    /// The next batch that is to be prepared, if it is not too early for it.
    fn assign(&mut self) -> Option<u64> {
        let most = self.batches().min(self.number + 1 + WAITING * self.helpers.len() as u64);
        let number = self.unassigned;
        (number < most).then(|| {
            self.unassigned += 1;
            number
        })
    }

    const fn batches(&self) -> u64 {
        self.horizon.div_ceil(BATCH as u64)
    }
}

/// Prepares the offers of a batch, in memory that was used before.
fn prepare(
    world: &mut dyn World,
    arrivals: &mut dyn Arrivals,
    number: u64,
    horizon: u64,
    mut offers: Vec<Offer>,
) -> Prepared {
    let first = number * BATCH as u64;
    offers.resize_with((horizon - first).min(BATCH as u64) as usize, Offer::new);
    catch_unwind(AssertUnwindSafe(|| {
        for (step, offer) in (first..).zip(&mut offers) {
            ask(world, arrivals, step, offer);
        }
        offers
    }))
}

/// Does jobs until no more can come.
fn help(
    index: usize,
    mut world: Box<dyn World>,
    mut arrivals: Box<dyn Arrivals>,
    horizon: u64,
    jobs: &Receiver<Job>,
    done: &Sender<(usize, Done)>,
) {
    for job in jobs {
        let result = match job {
            Job::Prepare(number, memory) => {
                Done::Prepared(number, prepare(&mut *world, &mut *arrivals, number, horizon, memory))
            }
            Job::Foresee(mut rehearsal) => Done::Foreseen(catch_unwind(AssertUnwindSafe(|| {
                rehearsal.run();
                rehearsal
            }))),
        };
        if done.send((index, result)).is_err() {
            return;
        }
    }
}

impl Rehearsal {
    fn run(&mut self) {
        let foresee = |(offer, machine): (&Offer, &Option<Box<dyn Agent>>)| {
            machine.as_ref()?.foresee(offer.user, &offer.arms)
        };
        self.arms.clear();
        self.arms.extend(self.offers.iter().zip(&self.machines).map(foresee));
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
                let (mut world, mut own) = (Short(70), arrivals());
                let mut next = |step, offer: &mut Offer| ahead.next(&mut world, &mut *own, step, offer);
                // The batch with interaction 70 begins with 64.
                for step in 0..64 {
                    next(step, &mut offer);
                    assert_eq!((offer.agent, offer.user), (AgentId(step % 3), UserId(step % 3)));
                    assert_eq!(offer.means, [step as f64]);
                }
                let panic = catch_unwind(AssertUnwindSafe(|| next(64, &mut offer))).unwrap_err();
                assert_eq!(panic.downcast_ref::<&str>(), Some(&"the world ends here"));
            });
        }
    }
}
