//! The lower end of a link: what an agent, or a relay, keeps about the delivery of what it says and hears.

use std::collections::VecDeque;

use crate::error::{DecodeError, ProtocolError};
use crate::ids::{AgentId, Epoch, Incarnation, Tick};
use crate::message::{Downlink, Uplink};
use crate::session::frame::{DownFrame, UpFrame};
use crate::time_span::TimeSpan;
use crate::wire::{self, v1};

/// The bookkeeping of one link towards the coordinator, without the machine that speaks over it.
pub(super) struct Upstream {
    pub(super) id: AgentId,
    pub(super) epoch: Epoch,
    pub(super) incarnation: Incarnation,
    /// How often it said hello in this life.
    greetings: u64,
    /// The coordinator has answered the last hello.
    greeted: bool,
    /// The newest numbered frame received.
    pub(super) received: u64,
    /// The newest own message that the coordinator accepted.
    pub(super) accepted: u64,
    /// The newest own message that may have left. The coordinator cannot have accepted a later one: if it says so, another
    /// copy of this state has spoken.
    sent: u64,
    /// The state was restored, and what happened after it was kept may be done again: any message may have left.
    replaying: bool,
    /// Messages after the accepted one; the first is on its way.
    pub(super) queue: VecDeque<Uplink>,
    sent_at: Option<Tick>,
    resend_after: TimeSpan,
}

impl Upstream {
    pub(super) fn new(id: AgentId, incarnation: Incarnation, resend_after: TimeSpan) -> Self {
        Self {
            id,
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

    pub(super) fn hello(&mut self, now: Tick) -> UpFrame {
        self.greeted = false;
        self.greetings += 1;
        self.send(now)
    }

    /// Takes in a frame. Its message, if it is new, goes to `deliver`, whose answers are queued. An error, also of
    /// `deliver`, means that nothing has changed here.
    pub(super) fn receive<A: IntoIterator<Item = Uplink>>(
        &mut self,
        now: Tick,
        frame: DownFrame,
        deliver: impl FnOnce(Downlink) -> Result<A, ProtocolError>,
    ) -> Result<Option<UpFrame>, ProtocolError> {
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
            answers = Some(deliver(message)?);
        }
        // From here on nothing fails.
        if new_epoch {
            // What the coordinator lost, the machine says again once it has seen what is left.
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
        self.queue.extend(answers.into_iter().flatten());
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

    /// Whether `frame` brings a message that was not received yet.
    pub(super) fn is_news(&self, frame: &DownFrame) -> bool {
        let current = frame.incarnation == self.incarnation && frame.epoch >= self.epoch;
        let received = if frame.epoch > self.epoch { 0 } else { self.received };
        current && frame.message.is_some() && frame.sequence > received
    }

    pub(super) fn tick(&mut self, now: Tick) -> Option<UpFrame> {
        self.deadline().is_some_and(|deadline| deadline <= now).then(|| self.send(now))
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        self.sent_at.map(|sent| sent.after(self.resend_after))
    }

    pub(super) fn submit(&mut self, now: Tick, message: Uplink) -> Option<UpFrame> {
        self.queue.push_back(message);
        (self.greeted && self.queue.len() == 1).then(|| self.send(now))
    }

    /// The state, without that of a machine.
    pub(super) fn save(&self) -> v1::EndpointState {
        v1::EndpointState {
            agent: self.id.0,
            epoch: self.epoch.0,
            incarnation: self.incarnation.0,
            received: self.received,
            accepted: self.accepted,
            queue: self.queue.iter().map(wire::uplink_to_wire).collect(),
            machine: Vec::new(),
            greetings: self.greetings,
        }
    }

    /// The saved end of the link, for one with the number and the patience of this one.
    pub(super) fn restored(&self, state: v1::EndpointState) -> Result<Self, DecodeError> {
        if state.agent != self.id.0 {
            return Err(DecodeError::invalid("state", "it belongs to another agent"));
        }
        let queue = state.queue.into_iter().map(wire::uplink_from_wire).collect::<Result<_, _>>()?;
        Ok(Self {
            id: self.id,
            epoch: Epoch(state.epoch),
            incarnation: Incarnation(state.incarnation),
            greetings: state.greetings,
            greeted: false,
            received: state.received,
            accepted: state.accepted,
            sent: state.accepted,
            replaying: true,
            queue,
            sent_at: None,
            resend_after: self.resend_after,
        })
    }

    /// Everything after the restored state was done again. Of the messages that wait, `left` at most may have left.
    pub(super) fn finish_replay(&mut self, left: usize) {
        let newest = self.accepted.saturating_add(self.queue.len().min(left) as u64);
        (self.sent, self.replaying) = (self.sent.max(newest), false);
    }

    /// From here on, any message that waits may have left.
    pub(super) fn begin_replay(&mut self) {
        (self.replaying, self.greeted, self.sent_at) = (true, false, None);
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
    pub(super) fn bare(&self) -> UpFrame {
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
