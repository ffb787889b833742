//! The agent's end of a link.

use std::collections::VecDeque;
use std::fmt;

use prost::Message;

use crate::agent::{Agent, Choice};
use crate::arms::Arms;
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::ids::{AgentId, Epoch, Incarnation, Tick, UserId};
use crate::message::Uplink;
use crate::privacy::NoiseSource;
use crate::session::frame::{DownFrame, UpFrame};
use crate::time_span::TimeSpan;
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
    /// How often it said hello in this life.
    greetings: u64,
    /// The coordinator has answered the last hello.
    greeted: bool,
    /// The newest numbered frame received.
    received: u64,
    /// The newest own message that the coordinator accepted.
    accepted: u64,
    /// The newest own message that may have left. The coordinator cannot have accepted a later one: if it says so, another
    /// copy of this agent's state has spoken.
    sent: u64,
    /// The state was restored, and what happened after it was kept may be done again: any message may have left.
    replaying: bool,
    /// Messages after the accepted one; the first is on its way.
    queue: VecDeque<Uplink>,
    sent_at: Option<Tick>,
    resend_after: TimeSpan,
}

impl Endpoint {
    /// An agent at the beginning of a life. It sends again what is not answered in `resend_after`.
    #[must_use]
    pub fn new(
        id: AgentId,
        incarnation: Incarnation,
        mut agent: Box<dyn Agent>,
        resend_after: TimeSpan,
    ) -> Self {
        agent.begin_life(incarnation);
        Self {
            id,
            agent,
            epoch: Epoch(0),
            incarnation,
            greetings: 0,
            greeted: false,
            received: 0,
            accepted: 0,
            sent: 0,
            replaying: false,
            queue: VecDeque::new(),
            sent_at: None,
            resend_after,
        }
    }

    /// Makes the agent known: at the beginning of a life, and whenever a link was cut and is there again.
    /// It is repeated until there is an answer; messages wait for that.
    pub fn hello(&mut self, now: Tick) -> UpFrame {
        self.greeted = false;
        self.greetings += 1;
        self.send(now)
    }

    /// Looks at an offer before the choice; perhaps there is a question to send first.
    pub fn prepare(&mut self, now: Tick, user: UserId, arms: &Arms) -> Result<Option<UpFrame>, InputError> {
        let message = self.agent.prepare(now, user, arms)?;
        Ok(message.and_then(|message| self.submit(now, message)))
    }

    /// Goes through the effects of a [`prepare`](Self::prepare) whose question was `said`.
    pub fn prepare_again(&mut self, said: Uplink, now: Tick) -> Option<UpFrame> {
        self.agent.prepare_again(&said);
        self.submit(now, said)
    }

    /// The question that was asked last, if it is still in the queue.
    #[must_use]
    pub fn last_question(&self) -> Option<&Uplink> {
        self.queue.back()
    }

    /// Chooses one of `arms` for `user`; never waits for the coordinator.
    pub fn choose(&mut self, user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        self.agent.choose(user, arms)
    }

    /// Learns from a reward; perhaps there is something to send.
    pub fn learn(
        &mut self,
        now: Tick,
        user: UserId,
        arm: &[f64],
        reward: f64,
    ) -> Result<Option<UpFrame>, InputError> {
        let message = self.agent.learn(user, arm, reward)?;
        Ok(message.and_then(|message| self.submit(now, message)))
    }

    /// Tells the agent that the reward of a choice for `user` will never come; perhaps there is something to send.
    pub fn give_up(&mut self, now: Tick, user: UserId) -> Option<UpFrame> {
        let message = self.agent.give_up(user)?;
        self.submit(now, message)
    }

    /// Takes in a frame; perhaps there is an answer.
    pub fn receive(&mut self, now: Tick, frame: DownFrame) -> Result<Option<UpFrame>, ProtocolError> {
        // Meant for an earlier life, or said in an earlier epoch: void. A new epoch begins with its
        // authoritative snapshot and with nothing else.
        let new_epoch = frame.epoch > self.epoch;
        let void = frame.incarnation != self.incarnation || frame.epoch < self.epoch;
        if void || (new_epoch && frame.message.is_none()) {
            return Ok(None);
        }
        let queued = if self.replaying { self.queue.len() as u64 } else { 0 };
        let most = self.sent.max(self.accepted.saturating_add(queued));
        // Also in a new epoch: a coordinator that lost part of its history has accepted less than it had, not more.
        if frame.acknowledged > most {
            return Err(ProtocolError::FrameGap { expected: most, got: frame.acknowledged });
        }
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
            self.sent = frame.acknowledged;
        }
        self.received = if is_new { frame.sequence } else { received };
        self.epoch = frame.epoch;
        // Only the answer to the last hello counts: what was sent before a link was cut may still come.
        let answered = !self.greeted && frame.greeting == self.greetings;
        self.greeted |= answered;
        let mut may_send = new_epoch || answered;
        while self.accepted < frame.acknowledged && self.queue.pop_front().is_some() {
            self.accepted += 1;
            may_send = true;
        }
        self.queue.extend(answers);
        if !self.greeted {
            return Ok((frame.sequence > 0).then(|| self.bare()));
        }
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

    /// Draws the agent's privacy noise from here from now on.
    pub fn use_noise(&mut self, noise: Box<dyn NoiseSource>) {
        self.agent.use_noise(noise);
    }

    /// The agent that this endpoint stands for.
    #[must_use]
    pub fn agent(&self) -> &dyn Agent {
        &*self.agent
    }

    /// The newest message that reached the agent: its epoch and its number there.
    #[must_use]
    pub const fn received(&self) -> (Epoch, u64) {
        (self.epoch, self.received)
    }

    /// The number of the oldest message that the coordinator has not accepted, if there is one.
    #[must_use]
    pub fn unanswered(&self) -> Option<u64> {
        (!self.queue.is_empty()).then(|| self.accepted + 1)
    }

    /// The number of the agent.
    #[must_use]
    pub const fn id(&self) -> AgentId {
        self.id
    }

    /// The life of the agent: 1 for the first, and one more whenever it lost its state.
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
            received: self.received,
            accepted: self.accepted,
            queue: self.queue.iter().map(wire::uplink_to_wire).collect(),
            machine: self.agent.save(),
            greetings: self.greetings,
        }
        .encode_to_vec()
    }

    /// Goes on from a saved state, or changes nothing. Say [`hello`](Self::hello) next.
    pub fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::EndpointState = wire::decode(state)?;
        if state.agent != self.id.0 {
            return Err(DecodeError::invalid("state", "it belongs to another agent"));
        }
        let queue = state.queue.into_iter().map(wire::uplink_from_wire).collect::<Result<_, _>>()?;
        self.agent.restore(&state.machine)?;
        self.epoch = Epoch(state.epoch);
        self.incarnation = Incarnation(state.incarnation);
        self.agent.begin_life(self.incarnation);
        self.greetings = state.greetings;
        self.greeted = false;
        self.received = state.received;
        self.accepted = state.accepted;
        self.queue = queue;
        (self.sent, self.replaying) = (self.accepted, true);
        self.sent_at = None;
        Ok(())
    }

    /// Everything that happened after the restored state was kept has been done again. Call it before anything new happens:
    /// from here on, a coordinator that has accepted more than this endpoint can have sent is an error, because another copy
    /// of the state has spoken. Without this call, messages that are still waiting count as sent.
    pub fn finish_replay(&mut self) {
        // One message travels at a time, so that of those that wait only the first may have left.
        let first = self.accepted.saturating_add(u64::from(!self.queue.is_empty()));
        (self.sent, self.replaying) = (self.sent.max(first), false);
    }

    fn submit(&mut self, now: Tick, message: Uplink) -> Option<UpFrame> {
        self.queue.push_back(message);
        (self.greeted && self.queue.len() == 1).then(|| self.send(now))
    }

    /// The first message of the queue, or a hello while there was no answer to one. What is said before the
    /// coordinator knows this life would have to be said again, so it waits.
    fn send(&mut self, now: Tick) -> UpFrame {
        self.sent_at = Some(now);
        let message = self.queue.front().filter(|_| self.greeted).cloned();
        let sequence = if message.is_some() { self.accepted + 1 } else { 0 };
        self.sent = self.sent.max(sequence);
        let greeting = if self.greeted { 0 } else { self.greetings };
        UpFrame { sequence, message, greeting, ..self.bare() }
    }

    /// A frame that only acknowledges.
    fn bare(&self) -> UpFrame {
        UpFrame {
            epoch: self.epoch,
            incarnation: self.incarnation,
            acknowledged: self.received,
            sequence: 0,
            message: None,
            greeting: 0,
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
