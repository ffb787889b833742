//! From an agent's frame to the frames that answer it: who is heard, what the hub makes of it, where the answers go.

use std::time::Instant;

use posse_core::session::{DownFrame, LogEvent, Step, UpFrame};
use posse_core::{AgentId, Tick};
use serde_json::json;
use tonic::Status;

use super::{Outcome, Owner, quarantined};
use crate::federation::outbox::Posted;
use crate::federation::{Answer, Reason, Refusal, validate};

/// Frames that wait for an agent behind a proxy.
const MAILBOX: usize = 8;

impl Owner {
    pub(super) fn frame(
        &mut self,
        agent: AgentId,
        frame: UpFrame,
        answer: Answer,
        now: Tick,
        outcome: &mut Outcome,
    ) {
        if let Answer::Link(link) = answer
            && !self.has_link(agent, link)
        {
            // The link ended while this frame waited, so no answer can be sent. The agent sends it again.
            return;
        }
        let judged = self.hear(agent, frame, now);
        match (judged, answer) {
            (Ok(step), Answer::Link(_)) => self.follow(step, outcome),
            (Ok(step), Answer::Exchange(reply)) => {
                self.let_go(agent, Status::aborted("this agent came by a call: whoever calls has no link"));
                self.mailboxes.entry(agent).or_default();
                self.follow(step, outcome);
                outcome.exchanges.push((agent, reply));
            }
            (Err(refusal), answer) => {
                self.note_refusal(agent, refusal.reason);
                match answer {
                    Answer::Exchange(reply) => drop(reply.send(Err(refusal))),
                    Answer::Link(_) => self.let_go(agent, refusal.into_status()),
                }
            }
        }
    }

    pub(super) fn has_link(&self, agent: AgentId, number: u64) -> bool {
        self.links.get(&agent).is_some_and(|link| link.number == number)
    }

    /// Ends the link of an agent.
    pub(super) fn let_go(&mut self, agent: AgentId, why: Status) {
        if let Some(link) = self.links.remove(&agent) {
            link.outbox.end(why);
        }
    }

    /// Lets the hub judge a frame and apply it.
    pub(super) fn hear(&mut self, agent: AgentId, frame: UpFrame, now: Tick) -> Result<Step, Refusal> {
        if self.conduct.is_quarantined(agent) {
            return Err(quarantined());
        }
        let Some(state) = &mut self.state else {
            return Err(Refusal::unavailable(&self.why()));
        };
        self.lives.check(&state.hub, agent, frame.incarnation)?;
        let mut charged = 0;
        if let Some(message) = &frame.message {
            validate::check(&self.config, message)?;
            charged = self.credit.spend(&self.config, agent, message, Instant::now())?;
        }
        let cost = frame.cost();
        let step = state.hub.receive(now, agent, frame);
        let counts = |step: &Step| step.log.iter().any(|entry| matches!(entry.event, LogEvent::Accepted(..)));
        let counted = step.as_ref().is_ok_and(counts);
        if counted {
            self.conduct.accepted(agent);
        } else {
            self.credit.refund(agent, charged);
        }
        let step = step?;
        self.ledger.heard(agent, if counted { charged } else { 0 });
        self.up.add(cost);
        Ok(step)
    }

    /// Puts what a hub did into the outcome.
    pub(super) fn follow(&mut self, step: Step, outcome: &mut Outcome) {
        for entry in &step.log {
            match &entry.event {
                LogEvent::Joined(agent, life) => {
                    self.audit.note("joined", json!({ "agent": agent.0, "life": life.0 }));
                }
                LogEvent::Left(agent) => self.audit.note("left", json!({ "agent": agent.0 })),
                _ => {}
            }
            outcome.uploads += u64::from(matches!(entry.event, LogEvent::Accepted(..)));
            outcome.entries.push(entry.encode());
        }
        for (agent, frame) in step.frames {
            if let (Some(message), Some(state)) = (&frame.message, &self.state)
                && let Some(took) = self.stopwatch.note(message, || state.hub.coordinator().inspect().version)
            {
                self.metrics.round(&self.config.name, took);
            }
            outcome.frames.push((agent, frame));
        }
    }

    pub(super) fn deliver(&mut self, agent: AgentId, frame: DownFrame) {
        let cost = frame.cost();
        let has_message = u64::from(frame.message.is_some());
        if let Some(link) = self.links.get(&agent) {
            match link.outbox.post(Box::new(frame)) {
                Posted::Queued => {
                    self.down.add(cost);
                    self.downloads += has_message;
                }
                // A slow link is a lossy link: the session says it again.
                Posted::Dropped => {}
                Posted::Unread => drop(self.links.remove(&agent)),
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
        self.ledger.refused(agent, reason);
        if self.conduct.refused(&self.config, agent, reason) {
            self.audit.note("quarantined", json!({ "agent": agent.0, "reason": reason.word() }));
        }
    }
}
