//! Watching a simulation: what happened, and the machines as they are right after it.

use std::ops::ControlFlow;

use posse_core::{Agent, AgentId, Coordinator, Cost, Downlink, Incarnation, Relay, Uplink};

use crate::tally::Tally;

/// An event of a run, told to observers right after it happened.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// An agent became known to the coordinator.
    Joined {
        /// The agent that it happened to.
        agent: AgentId,
        /// The life that the agent is in.
        incarnation: Incarnation,
    },
    /// An agent is about to leave for good.
    Leaving {
        /// The agent that it happened to.
        agent: AgentId,
    },
    /// An agent chose an arm.
    Chose {
        /// The interaction, counted from 0 over all agents.
        step: u64,
        /// The agent that it happened to.
        agent: AgentId,
        /// The index of the arm.
        arm: usize,
        /// What it is worth less than the best one, in expectation.
        regret: f64,
        /// What an arm of the offer is worth on average: choosing at random.
        average_mean: f64,
    },
    /// An agent learned a reward.
    Learned {
        /// The agent that it happened to.
        agent: AgentId,
        /// The reward that the agent learned from.
        reward: f64,
    },
    /// The coordinator, or the relay above the agent, took in a message.
    Up {
        /// The agent that sent it.
        agent: AgentId,
        /// The life of the agent in which it was sent.
        incarnation: Incarnation,
        /// The message that the coordinator accepted.
        message: &'a Uplink,
    },
    /// An agent took in a message.
    Down {
        /// The agent that it happened to.
        agent: AgentId,
        /// The message that the agent received.
        message: &'a Downlink,
    },
    /// The parent of a relay took in a message of it.
    Passed {
        /// How many relays are between this one and the root.
        depth: usize,
        /// The number of the relay among those of its depth.
        relay: usize,
        /// The message that its parent accepted.
        message: &'a Uplink,
    },
    /// A relay took in a message of its parent.
    Heard {
        /// How many relays are between this one and the root.
        depth: usize,
        /// The number of the relay among those of its depth.
        relay: usize,
    },
    /// A deadline passed, or an agent left, and the coordinator acted on it.
    Ticked,
    /// An agent is about to crash.
    Crashing {
        /// The agent that it happened to.
        agent: AgentId,
        /// The life that the agent is in.
        incarnation: Incarnation,
        /// Whether it will come back with what it knew.
        durable: bool,
    },
    /// The coordinator came back from its log.
    Restarted {
        /// Whether replaying the log gave the same bits as before. Only asked if nothing was lost.
        same_bits: bool,
        /// How many entries at the end of the log were lost.
        lost: usize,
    },
    /// Every message has arrived and nothing is left to send.
    Quiet,
}

/// The direction in which a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From an agent to the coordinator.
    Up,
    /// From the coordinator to an agent.
    Down,
}

/// Something that was sent, whether or not it will arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sent {
    /// Whether it went up to the coordinator or down to an agent.
    pub direction: Direction,
    /// The agent that sent it, if it went up, or that it was sent to, if it went down.
    pub agent: AgentId,
    /// The kind of message in words, or what a frame without one is for.
    pub kind: &'static str,
    /// What sending it cost, in every unit.
    pub cost: Cost,
}

/// The machines, as they are right after an event.
pub trait Stage {
    /// The coordinator as it is now.
    fn coordinator(&self) -> &dyn Coordinator;

    /// An agent, if it is there and running.
    fn agent(&self, agent: AgentId) -> Option<&dyn Agent>;

    /// The life that an agent is in now.
    fn incarnation(&self, agent: AgentId) -> Incarnation;

    /// Relays by depth, those below the coordinator first. Child `i` of a depth belongs to relay `i` modulo the number
    /// of relays above it.
    fn relays(&self) -> Vec<Vec<&dyn Relay>> {
        Vec::new()
    }

    /// The relay that an agent speaks to, by its number among those of the lowest level; `None` without relays. Unless
    /// agents change relays, agent `i` belongs to relay `i` modulo their number.
    fn relay_of(&self, agent: AgentId) -> Option<usize> {
        let relays = self.relays();
        relays.last().map(|lowest| (agent.0 % lowest.len() as u64) as usize)
    }

    /// Every agent that is there and running.
    fn agents(&self) -> Vec<AgentId>;
}

/// Watches a run: the simulator calls it for events, messages and interactions, and it may stop the run.
pub trait Observer {
    /// Called after every event, with the event and all machines as they are right after it.
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage);

    /// Whether this observer looks at the machines on the stage. If it does not, agents of a run on several threads may be
    /// ahead of the event that is told, or missing. By default it does.
    fn looks_at_machines(&self) -> bool {
        true
    }

    /// Called for everything that is sent, and sent again, before [`interacted`](Self::interacted).
    fn sent(&mut self, _sent: &Sent) {}

    /// Called after every interaction, and once more when everything has arrived, with what the run adds up
    /// to so far. [`ControlFlow::Break`] ends the run with [`RunError::Stopped`](crate::RunError::Stopped).
    fn interacted(&mut self, _tally: &Tally) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// The observer that ignores everything, for runs of which only the [`Tally`] is wanted.
impl Observer for () {
    fn observe(&mut self, _event: &Event<'_>, _stage: &dyn Stage) {}

    fn looks_at_machines(&self) -> bool {
        false
    }
}

/// Tells every observer of the list, in order.
impl Observer for Vec<&mut dyn Observer> {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        for observer in self {
            observer.observe(event, stage);
        }
    }

    fn looks_at_machines(&self) -> bool {
        self.iter().any(|observer| observer.looks_at_machines())
    }

    fn sent(&mut self, sent: &Sent) {
        for observer in self {
            observer.sent(sent);
        }
    }

    fn interacted(&mut self, tally: &Tally) -> ControlFlow<()> {
        self.iter_mut().try_for_each(|observer| observer.interacted(tally))
    }
}
