//! Errands: agents that choose, learn or answer on other threads, each by itself.
//!
//! An agent goes to a thread whole and comes back whole, so nothing is shared and nothing depends on which thread it was.
//! When to send one is the business of [`ideal`](super::ideal).

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use posse_core::{Agent, Downlink, InputError, ProtocolError, Tick, Uplink};

use crate::world::Offer;

/// What an agent is to do on a thread of its own.
pub(super) enum Task {
    /// A whole interaction: choose among the arms of an offer and learn the reward.
    Act(Tick, Offer),
    /// Take in a message.
    Hear(Downlink),
}

/// What came of a [`Task`].
pub(super) enum Deed {
    /// The offer, and the arm that was chosen with what the agent said after it learned the reward.
    Acted(Offer, Result<(usize, Said), InputError>),
    Heard(Result<Option<Uplink>, ProtocolError>),
}

/// What an agent said after it learned a reward, or why it refused it.
type Said = Result<Option<Uplink>, InputError>;

/// Names an errand, in the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

type Returned = (Box<dyn Agent>, Deed);

/// An errand: an agent and what it is to do.
type Errand = (Ticket, Box<dyn Agent>, Task);

/// What came of an errand, or the panic that ended it.
type Outcome = (Ticket, Result<Returned, Box<dyn Any + Send>>);

/// Errands that a helper has at a time. With one more than it works on, it need not wait for the thread of the run.
const EACH: usize = 2;

/// The errands of one run.
pub(super) struct Errands {
    helpers: Vec<ErrandThread>,
    returns: Receiver<(usize, Outcome)>,
    /// Errands that no helper has yet.
    waiting: VecDeque<Errand>,
    done: BTreeMap<Ticket, Result<Returned, Box<dyn Any + Send>>>,
    sent: u64,
}

struct ErrandThread {
    errands: Sender<Errand>,
    /// How many it has.
    has: usize,
}

impl Errands {
    /// Starts so many threads that run errands. They end when this is dropped.
    pub(super) fn start<'scope>(scope: &'scope Scope<'scope, '_>, helpers: usize) -> Self {
        let (done, returns) = channel();
        let start = |index: usize| {
            let (errands, given) = channel();
            let done = done.clone();
            scope.spawn(move || help(index, &given, &done));
            ErrandThread { errands, has: 0 }
        };
        let helpers = (0..helpers).map(start).collect();
        Self { helpers, returns, waiting: VecDeque::new(), done: BTreeMap::new(), sent: 0 }
    }

    /// Sends an agent on an errand.
    pub(super) fn send(&mut self, machine: Box<dyn Agent>, task: Task) -> Ticket {
        self.sent += 1;
        let ticket = Ticket(self.sent);
        self.waiting.push_back((ticket, machine, task));
        self.hand_out();
        ticket
    }

    /// Waits for an agent to come back, and runs errands meanwhile that no helper has.
    ///
    /// # Panics
    /// If the agent did, with its panic.
    pub(super) fn fetch(&mut self, ticket: Ticket) -> Returned {
        loop {
            while let Ok(outcome) = self.returns.try_recv() {
                self.take_back(outcome);
            }
            if let Some(returned) = self.done.remove(&ticket) {
                return returned.unwrap_or_else(|panic| resume_unwind(panic));
            }
            match self.waiting.pop_front() {
                Some(errand) => {
                    let (ticket, returned) = run(errand);
                    self.done.insert(ticket, returned);
                }
                None => {
                    let outcome = self.returns.recv().expect("helpers live as long as the run");
                    self.take_back(outcome);
                }
            }
        }
    }

    fn take_back(&mut self, (helper, (ticket, returned)): (usize, Outcome)) {
        self.helpers[helper].has -= 1;
        self.done.insert(ticket, returned);
        self.hand_out();
    }

    fn hand_out(&mut self) {
        while let Some(helper) = self.helpers.iter_mut().min_by_key(|helper| helper.has)
            && helper.has < EACH
            && let Some(errand) = self.waiting.pop_front()
        {
            helper.has += 1;
            helper.errands.send(errand).expect("helpers live as long as the run");
        }
    }
}

/// Runs errands until no more can come.
fn help(index: usize, errands: &Receiver<Errand>, done: &Sender<(usize, Outcome)>) {
    for errand in errands {
        if done.send((index, run(errand))).is_err() {
            return;
        }
    }
}

fn run((ticket, mut machine, task): Errand) -> Outcome {
    let returned = catch_unwind(AssertUnwindSafe(|| {
        let deed = task.run(&mut *machine);
        (machine, deed)
    }));
    (ticket, returned)
}

impl Task {
    fn run(self, machine: &mut dyn Agent) -> Deed {
        match self {
            Self::Act(now, offer) => {
                let done = act(machine, now, &offer);
                Deed::Acted(offer, done)
            }
            Self::Hear(message) => Deed::Heard(machine.receive(message)),
        }
    }
}

fn act(machine: &mut dyn Agent, now: Tick, offer: &Offer) -> Result<(usize, Said), InputError> {
    let question = machine.prepare(now, offer.user, &offer.arms)?;
    debug_assert!(question.is_none(), "agents of a coordinator that only takes notes ask nothing");
    let arm = machine.choose(offer.user, &offer.arms)?.arm;
    Ok((arm, machine.learn(offer.user, offer.arms.row(arm), offer.reward(arm))))
}

#[cfg(test)]
mod tests {
    use posse_core::{
        AgentId, AgentView, Algorithm, Arms, Choice, DecodeError, Federation, LinUcb, Seed, Shape, UserId,
    };

    use super::*;

    /// Remembers which message it has heard, and ends with a panic at the third.
    struct Frail(u64);

    impl Agent for Frail {
        fn choose(&mut self, _: UserId, _: &Arms) -> Result<Choice, InputError> {
            Ok(Choice { arm: 0, propensity: None })
        }

        fn learn(&mut self, _: UserId, _: &[f64], _: f64) -> Result<Option<Uplink>, InputError> {
            Ok(None)
        }

        fn receive(&mut self, _: Downlink) -> Result<Option<Uplink>, ProtocolError> {
            assert!(self.0 != 3, "it ends here");
            Ok(Some(Uplink::NetworkRequest { observations: self.0 }))
        }

        fn inspect(&self) -> AgentView<'_> {
            AgentView::alone(self.0, 0.0)
        }

        fn save(&self) -> Vec<u8> {
            Vec::new()
        }

        fn restore(&mut self, _: &[u8]) -> Result<(), DecodeError> {
            Ok(())
        }
    }

    #[test]
    fn every_agent_comes_back_with_what_it_did_or_its_panic() {
        for helpers in 1..4 {
            std::thread::scope(|scope| {
                let mut errands = Errands::start(scope, helpers);
                let message = || Task::Hear(Downlink::Abort { round: posse_core::RoundId(1) });
                let tickets: Vec<Ticket> =
                    (0..10).map(|index| errands.send(Box::new(Frail(index)), message())).collect();
                // Fetched in another order than they were sent.
                for index in [9_u64, 0, 5, 1, 2, 8, 4, 6, 7] {
                    let (machine, deed) = errands.fetch(tickets[index as usize]);
                    assert_eq!(machine.inspect().unsent, index);
                    let Deed::Heard(Ok(said)) = deed else { panic!("it was to hear") };
                    assert_eq!(said, Some(Uplink::NetworkRequest { observations: index }));
                }
                let panic = catch_unwind(AssertUnwindSafe(|| errands.fetch(tickets[3]))).err().unwrap();
                assert_eq!(panic.downcast_ref::<&str>(), Some(&"it ends here"));
            });
        }
    }

    #[test]
    fn an_interaction_elsewhere_is_choosing_and_learning() {
        let federation = Federation { agents: 1, horizon: 10, seed: Seed(1) };
        let agent =
            || Algorithm::LinUcb(LinUcb::default()).agent(AgentId(0), Shape::shared(2), &federation).unwrap();
        let mut offer = Offer::new();
        offer.clear(2);
        offer.push(&[1.0, 0.0], 0.25);
        offer.push(&[0.0, 2.0], 0.5);
        let mut plain = agent();
        let arm = plain.choose(offer.user, &offer.arms).unwrap().arm;
        let said = plain.learn(offer.user, offer.arms.row(arm), offer.reward(arm)).unwrap();
        std::thread::scope(|scope| {
            let mut errands = Errands::start(scope, 1);
            let ticket = errands.send(agent(), Task::Act(Tick(1), offer.clone()));
            let (machine, deed) = errands.fetch(ticket);
            let Deed::Acted(back, Ok((chosen, learned))) = deed else { panic!("it was to act") };
            assert_eq!((back, chosen, learned), (offer, arm, Ok(said)));
            assert_eq!(machine.save(), plain.save());
        });
    }
}
