//! The agent's end of a link.

use std::collections::VecDeque;
use std::fmt;

use prost::Message;

use crate::agent::{Agent, Choice};
use crate::arms::Arms;
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::ids::{AgentId, Epoch, Incarnation, Tick, UserId};
use crate::message::{Downlink, Uplink};
use crate::session::frame::{DownFrame, UpFrame};
use crate::wire::{self, v1};

/// An agent with its end of the link to the coordinator.
///
/// Send every frame that a method returns. Call [`tick`](Self::tick) at [`deadline`](Self::deadline):
/// what was not answered by then is sent again.
pub struct Endpoint {
    id: AgentId,
    agent: Box<dyn Agent>,
    epoch: Epoch,
    incarnation: Incarnation,
    /// The coordinator has answered in this life.
    greeted: bool,
    /// The newest numbered frame received.
    received: u64,
    /// The newest own message that the coordinator accepted.
    accepted: u64,
    /// Messages after that one; the first is on its way.
    queue: VecDeque<Uplink>,
    sent_at: Option<Tick>,
    resend_after: u64,
}

impl Endpoint {
    /// An agent at the beginning of a life. It sends again what is not answered in `resend_after`
    /// microseconds.
    #[must_use]
    pub fn new(id: AgentId, incarnation: Incarnation, agent: Box<dyn Agent>, resend_after: u64) -> Self {
        Self {
            id,
            agent,
            epoch: Epoch(0),
            incarnation,
            greeted: false,
            received: 0,
            accepted: 0,
            queue: VecDeque::new(),
            sent_at: None,
            resend_after,
        }
    }

    /// The first frame of a life: makes the agent known, and is sent again until it is answered. Later it
    /// reminds the coordinator that the agent is there.
    pub fn hello(&mut self, now: Tick) -> UpFrame {
        self.send(now)
    }

    /// Chooses one of `arms` for `user`; never waits for anybody.
    pub fn choose(&mut self, user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        self.agent.choose(user, arms)
    }

    /// Learns from a reward; perhaps there is something to send.
    pub fn learn(
        &mut self,
        user: UserId,
        arm: &[f64],
        reward: f64,
        now: Tick,
    ) -> Result<Option<UpFrame>, InputError> {
        let message = self.agent.learn(user, arm, reward)?;
        Ok(message.and_then(|message| self.submit(message, now)))
    }

    /// Takes in a frame; perhaps there is an answer.
    pub fn receive(&mut self, frame: DownFrame, now: Tick) -> Result<Option<UpFrame>, ProtocolError> {
        // Meant for an earlier life, or said in an earlier epoch: void.
        if frame.incarnation != self.incarnation || frame.epoch < self.epoch {
            return Ok(None);
        }
        let most = self.accepted.saturating_add(self.queue.len() as u64);
        if frame.acknowledged > most {
            return Err(ProtocolError::FrameGap { expected: most, got: frame.acknowledged });
        }
        // Also a life that was never answered may be told what is left of the coordinator's history.
        let told_what_is_left =
            matches!(&frame.message, Some(Downlink::Snapshot(snapshot)) if snapshot.authoritative);
        let new_epoch = frame.epoch > self.epoch && (self.greeted || told_what_is_left);
        let received = if new_epoch { 0 } else { self.received };
        let mut answers = None;
        let is_new = frame.sequence > received;
        if let (true, Some(message)) = (is_new, frame.message) {
            answers = self.agent.receive(message)?;
        }
        // From here on nothing fails.
        if new_epoch {
            // What the coordinator lost, the agent says again once it has seen what is left.
            self.queue.clear();
            self.accepted = frame.acknowledged;
            self.sent_at = None;
        }
        self.received = if is_new { frame.sequence } else { received };
        self.epoch = frame.epoch;
        let first_answer = !std::mem::replace(&mut self.greeted, true);
        let mut may_send = new_epoch || first_answer;
        while self.accepted < frame.acknowledged && self.queue.pop_front().is_some() {
            self.accepted += 1;
            may_send = true;
        }
        self.queue.extend(answers);
        if self.queue.is_empty() {
            self.sent_at = None;
        } else if may_send || self.sent_at.is_none() {
            return Ok(Some(self.send(now)));
        }
        Ok((frame.sequence > 0).then(|| self.bare()))
    }

    /// Sends again what was not answered in time.
    pub fn tick(&mut self, now: Tick) -> Option<UpFrame> {
        self.deadline().is_some_and(|deadline| deadline <= now).then(|| self.send(now))
    }

    /// When [`tick`](Self::tick) has something to do next.
    #[must_use]
    pub fn deadline(&self) -> Option<Tick> {
        self.sent_at.map(|sent| sent.after(self.resend_after))
    }

    /// The agent inside.
    #[must_use]
    pub fn agent(&self) -> &dyn Agent {
        &*self.agent
    }

    /// Whose endpoint it is.
    #[must_use]
    pub const fn id(&self) -> AgentId {
        self.id
    }

    /// The agent's life.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Everything needed to go on after a crash, encoded.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        v1::EndpointState {
            agent: self.id.0,
            epoch: self.epoch.0,
            incarnation: self.incarnation.0,
            greeted: self.greeted,
            received: self.received,
            accepted: self.accepted,
            queue: self.queue.iter().map(wire::uplink_to_wire).collect(),
            machine: self.agent.save(),
        }
        .encode_to_vec()
    }

    /// Goes on from a saved state, or changes nothing. What was on its way is sent again at the next
    /// [`tick`](Self::tick).
    pub fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::EndpointState = wire::decode(state)?;
        if state.agent != self.id.0 {
            return Err(DecodeError::invalid("state", "it belongs to another agent"));
        }
        let queue = state.queue.into_iter().map(wire::uplink_from_wire).collect::<Result<_, _>>()?;
        self.agent.restore(&state.machine)?;
        self.epoch = Epoch(state.epoch);
        self.incarnation = Incarnation(state.incarnation);
        self.greeted = state.greeted;
        self.received = state.received;
        self.accepted = state.accepted;
        self.queue = queue;
        self.sent_at = (!self.queue.is_empty() || !self.greeted).then_some(Tick(0));
        Ok(())
    }

    fn submit(&mut self, message: Uplink, now: Tick) -> Option<UpFrame> {
        self.queue.push_back(message);
        (self.queue.len() == 1).then(|| self.send(now))
    }

    /// The first message of the queue, or without one a hello.
    fn send(&mut self, now: Tick) -> UpFrame {
        let message = self.queue.front().cloned();
        self.sent_at = (message.is_some() || !self.greeted).then_some(now);
        let sequence = if message.is_some() { self.accepted + 1 } else { 0 };
        UpFrame { sequence, message, ..self.bare() }
    }

    /// A frame that only acknowledges.
    fn bare(&self) -> UpFrame {
        UpFrame {
            epoch: self.epoch,
            incarnation: self.incarnation,
            acknowledged: self.received,
            sequence: 0,
            message: None,
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id)
            .field("epoch", &self.epoch)
            .field("incarnation", &self.incarnation)
            .field("received", &self.received)
            .field("accepted", &self.accepted)
            .field("queued", &self.queue.len())
            .finish_non_exhaustive()
    }
}
