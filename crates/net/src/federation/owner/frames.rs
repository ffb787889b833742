//! From an agent's frame to the frames that answer it: who is heard, what the hub makes of it, where the answers go.

use std::task::Waker;
use std::time::Instant;

use posse_core::session::{DownFrame, LogEvent, Step, UpFrame};
use posse_core::{AgentId, Epoch, Incarnation, ProtocolError, Tick};
use serde_json::json;
use tonic::Status;
use tracing::error;

use super::{Outcome, Owner, quarantined};
use crate::federation::outbox::Posted;
use crate::federation::{Reason, Refusal, Reply, ReplyTo, validate};
use crate::trace::Tracer;

/// Frames that wait for an agent behind a proxy.
const MAILBOX: usize = 8;

impl Owner {
    pub(super) fn frame(
        &mut self,
        agent: AgentId,
        (frame, bytes): (UpFrame, &[u8]),
        answer: ReplyTo,
        now: Tick,
        outcome: &mut Outcome,
    ) {
        if let ReplyTo::Link(link) = answer
            && !self.has_link(agent, link)
        {
            // The link ended while this frame waited, so no answer can be sent. The agent sends it again.
            return;
        }
        if let ReplyTo::Exchange(instance, _) = answer
            && let Err(refusal) = self.lives.may_speak(agent, instance)
        {
            self.refuse(agent, refusal, answer);
            return;
        }
        let traced = self.tracer.as_ref().and_then(|_| Tracer::begin(agent, &frame));
        let is_bound = match &answer {
            ReplyTo::Link(_) => self.links.get(&agent).is_some_and(|link| link.is_bound),
            ReplyTo::Exchange(instance, _) => instance.is_some(),
        };
        let judged = self.hear(agent, frame, is_bound, now);
        // A message that is sent again because its answer was slow is traced once.
        if judged.as_ref().is_ok_and(counts) {
            outcome.traced.extend(traced);
        }
        match (judged, answer) {
            (Ok(step), ReplyTo::Link(_)) => self.follow_frame(step, bytes, outcome),
            (Ok(step), ReplyTo::Exchange(_, reply)) => {
                self.let_go(
                    agent,
                    Status::aborted("this agent made a call: an agent that exchanges by calls has no link"),
                );
                self.mailboxes.entry(agent).or_default();
                self.follow_frame(step, bytes, outcome);
                outcome.exchanges.push((agent, reply));
            }
            (Err(refusal), answer) => self.refuse(agent, refusal, answer),
        }
    }

    /// Counts a refusal and tells the agent; its link ends with it.
    fn refuse(&mut self, agent: AgentId, refusal: Refusal, answer: ReplyTo) {
        self.note_refusal(agent, refusal.reason);
        match answer {
            ReplyTo::Exchange(_, reply) => drop(reply.send(Err(refusal))),
            ReplyTo::Link(_) => self.let_go(agent, refusal.into_status()),
        }
    }

    /// What the newest life of an agent has said to have received, if that is `life` and anything is known: the epoch, and the
    /// number of the newest message in it.
    pub(super) fn last_heard(&self, agent: AgentId, life: Incarnation) -> Option<(Epoch, u64)> {
        let hub = &self.state.as_ref()?.hub;
        let received = hub.received_by(agent);
        (hub.incarnation(agent) == Some(life) && received > 0).then(|| (hub.epoch(), received))
    }

    pub(super) fn has_link(&self, agent: AgentId, number: u64) -> bool {
        self.links.get(&agent).is_some_and(|link| link.number == number)
    }

    /// Ends the link of an agent.
    pub(super) fn let_go(&mut self, agent: AgentId, why: Status) {
        if let Some(link) = self.links.remove(&agent) {
            link.outbox.end(why);
            self.begin_lease(agent);
        }
    }

    /// Lets the hub judge a frame and apply it. `is_bound` if the process that sent it has named itself and was told at its join
    /// what is known of its life.
    fn hear(&mut self, agent: AgentId, frame: UpFrame, is_bound: bool, now: Tick) -> Result<Step, Refusal> {
        if self.conduct.is_quarantined(agent) {
            return Err(quarantined());
        }
        if self.is_lost {
            return Err(self.unavailable());
        }
        let Some(state) = &mut self.state else {
            return Err(self.unavailable());
        };
        self.lives.check(&state.hub, agent, frame.incarnation)?;
        let mut charged = 0;
        if let Some(message) = &frame.message {
            validate::check(&self.config, message)?;
            charged = self.credit.spend(&self.config, agent, message, Instant::now())?;
        }
        let cost = frame.cost();
        // A process that was told at its join what this life has heard knows whether it is an old copy. From it, such a hello is
        // one that was overtaken on its way by those that were sent after it.
        let is_late_hello = !is_bound && frame.greeting > 0 && frame.epoch < state.hub.epoch();
        let step = state.hub.receive(now, agent, frame);
        if is_late_hello && step.as_ref().is_ok_and(|step| step.frames.iter().all(|(to, _)| *to != agent)) {
            // The hub has nothing to say to it: another process has heard what this epoch began with, and said so. Without an
            // answer this one would greet for ever.
            let epoch = state.hub.epoch().0;
            let why =
                format!("a later state of {agent} has gone on in epoch {epoch}: this one is an old copy");
            return Err(Refusal::new(Reason::Superseded, why));
        }
        let counted = step.as_ref().is_ok_and(counts);
        if counted {
            self.conduct.accepted(agent);
        } else {
            self.credit.refund(agent, charged);
        }
        let step = step?;
        self.accounts.heard(agent, if counted { charged } else { 0 });
        if !self.links.contains_key(&agent) {
            self.begin_lease(agent);
        }
        self.up.add(cost);
        Ok(step)
    }

    /// Lets a relay's hub take in a frame of its parent.
    pub(super) fn hear_parent(
        &mut self,
        frame: DownFrame,
        reply: Reply<()>,
        now: Tick,
        outcome: &mut Outcome,
    ) {
        let Some(state) = &mut self.state else {
            drop(reply.send(Err(self.unavailable())));
            return;
        };
        match state.hub.hear(now, frame) {
            Ok(step) => {
                if std::mem::take(&mut self.is_lost) {
                    self.trouble(None);
                }
                self.follow(step, outcome);
                outcome.heard.push(reply);
            }
            Err(error) => {
                if matches!(error, ProtocolError::FrameGap { .. }) {
                    self.lose_parent("the parent has heard more of this relay than its log holds");
                }
                drop(reply.send(Err(error.into())));
            }
        }
    }

    /// A relay cannot go on without counting something twice: says so, and takes nothing more from its children.
    pub(super) fn lose_parent(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_lost, true) {
            error!(federation = self.config.name, why, "this relay cannot go on");
        }
        let remedy = "move its data away and start it as a new relay; its agents begin new lives there";
        self.trouble(Some(format!("{why}: {remedy}")));
    }

    /// Puts what a hub did into the outcome.
    pub(super) fn follow(&mut self, step: Step, outcome: &mut Outcome) {
        self.follow_frame(step, &[], outcome);
    }

    /// The same for what a hub did with the frame that came as `bytes`, which the log keeps as they are.
    fn follow_frame(&mut self, step: Step, bytes: &[u8], outcome: &mut Outcome) {
        for entry in &step.log {
            self.last_words.note(entry, bytes);
            match &entry.event {
                LogEvent::Joined(agent, life) => {
                    self.audit.note("joined", json!({ "agent": agent.0, "life": life.0 }));
                }
                LogEvent::Left(agent) => {
                    self.presence.forget(*agent);
                    self.audit.note("left", json!({ "agent": agent.0 }));
                }
                _ => {}
            }
            outcome.uploads += u64::from(matches!(entry.event, LogEvent::Accepted(..)));
            outcome.entries.push(entry.encode_received(bytes));
        }
        outcome.up.extend(step.up);
        for (agent, frame) in step.frames {
            if let (Some(message), Some(state)) = (&frame.message, &self.state)
                && let Some(took) = self.stopwatch.note(message, || state.hub.coordinator().inspect().version)
            {
                self.metrics.round(&self.config.name, took);
            }
            outcome.frames.push((agent, frame));
        }
    }

    /// Puts a frame where its agent reads it. If that is a link that sleeps, its waker is added to `sleepers`.
    pub(super) fn deliver(&mut self, agent: AgentId, frame: DownFrame, sleepers: &mut Vec<Waker>) {
        let cost = frame.cost();
        let has_message = u64::from(frame.message.is_some());
        if let Some(link) = self.links.get(&agent) {
            match link.outbox.post(Box::new(frame), sleepers) {
                Posted::Queued => {
                    self.down.add(cost);
                    self.downloads += has_message;
                }
                // A slow link is a lossy link: the session says it again.
                Posted::Dropped => {}
                Posted::Unread => {
                    self.links.remove(&agent);
                    self.begin_lease(agent);
                }
            }
        } else if let Some(mail) = self.mailboxes.get_mut(&agent) {
            if mail.is_empty() {
                self.waiting.push_back(agent);
            }
            // A message that is said again while it waits is there once.
            mail.retain(|old| old.sequence == 0 || old.sequence != frame.sequence);
            if mail.len() < MAILBOX {
                mail.push_back(frame);
                self.down.add(cost);
                self.downloads += has_message;
            }
        }
    }

    pub(super) fn note_refusal(&mut self, agent: AgentId, reason: Reason) {
        self.metrics.refused(&self.config.name, reason);
        self.accounts.refused(agent, reason);
        if self.conduct.refused(&self.config, agent, reason) {
            self.audit.note("quarantined", json!({ "agent": agent.0, "reason": reason.word() }));
        }
    }
}

/// Whether the hub accepted a message.
fn counts(step: &Step) -> bool {
    step.log.iter().any(|entry| matches!(entry.event, LogEvent::Accepted(..)))
}
