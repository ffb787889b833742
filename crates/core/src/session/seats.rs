//! The upper ends of all links: which message each agent is sent next, and when it is sent again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::error::DecodeError;
use crate::ids::{AgentId, Epoch, Incarnation, Tick};
use crate::message::{Downlink, Outgoing, Recipient};
use crate::session::frame::DownFrame;
use crate::time_span::TimeSpan;
use crate::wire::{self, v1};

/// What a hub keeps about the delivery of messages to its agents, without the machine that speaks.
pub(super) struct Seats {
    pub(super) epoch: Epoch,
    seats: BTreeMap<AgentId, LinkSeat>,
    /// Messages that are not acknowledged, for the few agents that have any.
    queues: BTreeMap<AgentId, Queue>,
    /// When the first message of a queue is sent again.
    timers: BTreeSet<(Tick, AgentId)>,
    resend_after: TimeSpan,
}

/// What is remembered of an agent's link, also while nothing is on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LinkSeat {
    pub(super) incarnation: Incarnation,
    /// The newest message accepted from the agent.
    pub(super) accepted: u64,
    /// The newest number given to a message for the agent.
    numbered: u64,
    /// The newest message that the agent has said to have received. Earlier ones are not sent again.
    pub(super) received: u64,
    /// The agent knows this epoch. Until then it is sent nothing.
    pub(super) acquainted: bool,
    /// This life left for good. What it sent before may still come, and counts for nothing.
    pub(super) gone: bool,
}

/// Messages for an agent, not acknowledged.
#[derive(Clone, Debug, Default)]
struct Queue {
    messages: VecDeque<(u64, Downlink)>,
    /// The message on its way, and when it is sent again.
    in_flight: Option<(u64, Tick)>,
}

/// Frames with their recipients, to be sent once the log entries of their step are kept.
pub(super) type Frames = Vec<(AgentId, DownFrame)>;

impl Seats {
    pub(super) const fn new(resend_after: TimeSpan) -> Self {
        Self {
            epoch: Epoch(0),
            seats: BTreeMap::new(),
            queues: BTreeMap::new(),
            timers: BTreeSet::new(),
            resend_after,
        }
    }

    pub(super) fn get(&self, agent: AgentId) -> Option<&LinkSeat> {
        self.seats.get(&agent)
    }

    /// Every agent that was ever heard of, by number.
    pub(super) fn agents(&self) -> impl Iterator<Item = AgentId> {
        self.seats.keys().copied()
    }

    /// How many agents were ever heard of, and for how many of them something waits.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.seats.len(), self.queues.len())
    }

    /// A new life of an agent begins: what was meant for the last one is void.
    pub(super) fn begin_life(&mut self, agent: AgentId, incarnation: Incarnation) {
        self.drop_queue(agent);
        let seat =
            LinkSeat { incarnation, accepted: 0, numbered: 0, received: 0, acquainted: true, gone: false };
        self.seats.insert(agent, seat);
    }

    /// The agent will hear of this epoch next. Nothing may reach it before that.
    pub(super) fn acquaint(&mut self, agent: AgentId) {
        self.drop_queue(agent);
        if let Some(seat) = self.seats.get_mut(&agent) {
            seat.acquainted = true;
        }
    }

    /// The life of an agent ends for good. Returns `false` if there is none, or it has ended before.
    pub(super) fn leave(&mut self, agent: AgentId) -> bool {
        let Some(seat) = self.seats.get_mut(&agent).filter(|seat| !seat.gone) else { return false };
        (seat.gone, seat.acquainted) = (true, false);
        self.drop_queue(agent);
        true
    }

    /// Numbers start over, and every agent has to be introduced again when it comes back.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch) {
        (self.queues, self.timers) = (BTreeMap::new(), BTreeSet::new());
        self.epoch = epoch;
        for seat in self.seats.values_mut() {
            seat.acquainted = false;
            (seat.numbered, seat.received) = (0, 0);
        }
    }

    /// The next message of the agent was accepted.
    pub(super) fn accept(&mut self, agent: AgentId) {
        if let Some(seat) = self.seats.get_mut(&agent) {
            seat.accepted += 1;
        }
    }

    /// The agent has received everything up to the message of this number.
    pub(super) fn acknowledge(&mut self, agent: AgentId, acknowledged: u64) {
        if let Some(seat) = self.seats.get_mut(&agent) {
            seat.received = seat.received.max(acknowledged.min(seat.numbered));
        }
        let Some(queue) = self.queues.get_mut(&agent) else { return };
        while queue.messages.front().is_some_and(|(sequence, _)| *sequence <= acknowledged) {
            queue.messages.pop_front();
        }
        if let Some((sequence, due)) = queue.in_flight
            && sequence <= acknowledged
        {
            queue.in_flight = None;
            self.timers.remove(&(due, agent));
        }
        if queue.messages.is_empty() {
            self.drop_queue(agent);
        }
    }

    /// Numbers messages and sends those to agents whose link is free.
    pub(super) fn enqueue(&mut self, now: Tick, outgoing: Vec<Outgoing>, frames: &mut Frames) {
        let mut touched = BTreeSet::new();
        for Outgoing { to, message } in outgoing {
            // Most messages are for one agent, which is found without a look at all the others.
            let possible = match to {
                Recipient::Agent(agent) => self.seats.range_mut(agent..=agent),
                Recipient::Everyone | Recipient::EveryoneBut(_) => self.seats.range_mut(..),
            };
            let recipients = possible.filter(|(agent, _)| to.includes(**agent));
            for (&agent, seat) in recipients.filter(|(_, seat)| seat.acquainted) {
                seat.numbered += 1;
                let queue = self.queues.entry(agent).or_default();
                queue.messages.retain(|(_, old)| !old.is_superseded_by(&message));
                queue.messages.push_back((seat.numbered, message.clone()));
                touched.insert(agent);
            }
        }
        for agent in touched {
            self.send_next(now, agent, frames);
        }
    }

    /// Sends the first message of a queue, unless one is on its way.
    pub(super) fn send_next(&mut self, now: Tick, agent: AgentId, frames: &mut Frames) {
        let Some(queue) = self.queues.get_mut(&agent).filter(|queue| queue.in_flight.is_none()) else {
            return;
        };
        let Some((sequence, message)) = queue.messages.front().cloned() else { return };
        let due = now.after(self.resend_after);
        queue.in_flight = Some((sequence, due));
        self.timers.insert((due, agent));
        let frame = DownFrame { sequence, message: Some(message), ..self.bare(agent) };
        frames.push((agent, frame));
    }

    /// Sends again what was not acknowledged in time.
    pub(super) fn resend(&mut self, now: Tick, frames: &mut Frames) {
        while let Some(&(due, agent)) = self.timers.first().filter(|(due, _)| *due <= now) {
            self.timers.remove(&(due, agent));
            if let Some(queue) = self.queues.get_mut(&agent) {
                queue.in_flight = None;
            }
            self.send_next(now, agent, frames);
        }
    }

    /// When something is sent again next.
    pub(super) fn deadline(&self) -> Option<Tick> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Sends what waits for `agent`; if nothing does and it wants an answer, an acknowledgement.
    pub(super) fn answer(
        &mut self,
        now: Tick,
        agent: AgentId,
        wanted: bool,
        greeting: u64,
        frames: &mut Frames,
    ) {
        self.send_next(now, agent, frames);
        if wanted && !frames.iter().any(|(to, _)| *to == agent) {
            frames.push((agent, self.bare(agent)));
        }
        // Frames made before the acceptance carry an old acknowledgement.
        let acknowledged = self.bare(agent).acknowledged;
        for (_, frame) in frames.iter_mut().filter(|(to, _)| *to == agent) {
            (frame.acknowledged, frame.greeting) = (acknowledged, greeting);
        }
    }

    /// A frame that only acknowledges.
    fn bare(&self, agent: AgentId) -> DownFrame {
        let seat = self.seats.get(&agent);
        DownFrame {
            epoch: self.epoch,
            incarnation: seat.map_or(Incarnation(0), |seat| seat.incarnation),
            acknowledged: seat.map_or(0, |seat| seat.accepted),
            sequence: 0,
            message: None,
            greeting: 0,
        }
    }

    fn drop_queue(&mut self, agent: AgentId) {
        self.stop_waiting(agent);
        self.queues.remove(&agent);
    }

    /// The message on its way counts as lost.
    pub(super) fn stop_waiting(&mut self, agent: AgentId) {
        if let Some((_, due)) = self.queues.get_mut(&agent).and_then(|queue| queue.in_flight.take()) {
            self.timers.remove(&(due, agent));
        }
    }

    /// Everything but the epoch and the patience.
    pub(super) fn save(&self) -> Vec<v1::SeatState> {
        let saved = |(agent, seat): (&AgentId, &LinkSeat)| v1::SeatState {
            agent: agent.0,
            incarnation: seat.incarnation.0,
            accepted: seat.accepted,
            sent: seat.numbered,
            received: seat.received,
            acquainted: seat.acquainted,
            gone: seat.gone,
            queue: self.queues.get(agent).map_or_else(Vec::new, |queue| {
                let queued = |(sequence, message): &(u64, Downlink)| v1::QueuedDownlink {
                    sequence: *sequence,
                    message: Some(wire::downlink_to_wire(message)),
                };
                queue.messages.iter().map(queued).collect()
            }),
        };
        self.seats.iter().map(saved).collect()
    }

    /// The saved seats of an epoch, with the patience of these ones.
    pub(super) fn restored(&self, epoch: Epoch, saved: Vec<v1::SeatState>) -> Result<Self, DecodeError> {
        let mut restored = Self { epoch, ..Self::new(self.resend_after) };
        for seat in saved {
            let agent = AgentId(seat.agent);
            let own = LinkSeat {
                incarnation: Incarnation(seat.incarnation),
                accepted: seat.accepted,
                numbered: seat.sent,
                received: seat.received,
                acquainted: seat.acquainted,
                gone: seat.gone,
            };
            restored.seats.insert(agent, own);
            let mut messages = VecDeque::new();
            for queued in seat.queue {
                let message = queued.message.ok_or(DecodeError::invalid("queue", "a message is missing"))?;
                messages.push_back((queued.sequence, wire::downlink_from_wire(message)?));
            }
            if let Some((sequence, _)) = messages.front() {
                // On its way for ever: it is sent again at the next tick.
                let in_flight = Some((*sequence, Tick(0)));
                restored.timers.insert((Tick(0), agent));
                restored.queues.insert(agent, Queue { messages, in_flight });
            }
        }
        Ok(restored)
    }
}
