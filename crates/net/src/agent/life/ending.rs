//! How a life ends: the coordinator refuses a message for good, or another process has spoken for the agent.

use posse_core::{Epoch, Incarnation, ProtocolError, Tick};
use prost::Message;
use tracing::{error, warn};

use super::super::{AgentConfig, AgentError, set_aside};
use super::Life;
use crate::v1;

impl Life {
    /// A new life after this one cannot go on. Choices that wait still do.
    pub(in crate::agent) fn begin_again(
        &mut self,
        config: &AgentConfig,
        life: Incarnation,
    ) -> Result<(), AgentError> {
        let (endpoint, _) = self.rules.endpoint(life, config.local_features)?;
        self.endpoint = endpoint;
        self.draw_secret(config);
        self.outbox.clear();
        (self.over, self.refused, self.unreadable) = (None, (0, 0), 0);
        self.status.life = life.0;
        self.status.superseded = None;
        self.save()?;
        Ok(())
    }

    /// The coordinator has accepted a message of this number and checksum in this life. If the one that waits here has the
    /// same number and is another, a copy of this state has spoken: this life is over.
    pub(in crate::agent) fn compare(&mut self, sequence: u64, checksum: u32) -> Result<(), ProtocolError> {
        if self.endpoint.unanswered() != Some(sequence) {
            return Ok(());
        }
        let state = posse_core::wire::v1::EndpointState::decode(&self.endpoint.save()[..]);
        let waits = state.ok().and_then(|state| state.queue.into_iter().next());
        if waits.is_none_or(|message| crc32c::crc32c(&message.encode_to_vec()) == checksum) {
            return Ok(());
        }
        self.over = Some("another copy of its state has spoken for this agent");
        Err(ProtocolError::FrameGap { expected: sequence - 1, got: sequence })
    }

    /// This life has said, in `epoch`, to have received messages up to this number. The coordinator does not send them again, so a
    /// state that has received less would never hear them: it is an old copy, and this life is over.
    pub(in crate::agent) fn compare_heard(&mut self, epoch: Epoch, number: u64) -> Result<(), ProtocolError> {
        let (known, received) = self.endpoint.received();
        if (epoch, number) <= (known, received) {
            return Ok(());
        }
        self.over = Some("a later copy of its state has heard more than this one");
        Err(ProtocolError::FrameGap { expected: received, got: number })
    }

    /// The coordinator has told the number of its history. If it is not the one that this life began with, the coordinator
    /// cannot know what this life has said: a message without an answer may count elsewhere, and would count twice. This
    /// life is set aside, and the error says so.
    pub(in crate::agent) fn compare_history(
        &mut self,
        told: Option<u64>,
        now: Tick,
        config: &AgentConfig,
    ) -> Result<(), String> {
        let (Some(known), Some(told)) = (self.rules.history, told) else {
            self.rules.history = told.or(self.rules.history);
            return Ok(());
        };
        if known == told {
            return Ok(());
        }
        let why = "this coordinator is not the one that this life has joined, or has begun again";
        let frame = self.endpoint.unanswered().unwrap_or(0);
        self.set_aside("elsewhere", why, frame, now, config);
        Err(why.to_owned())
    }

    /// The next life begins at a coordinator with this history.
    pub(in crate::agent) fn begin_at(&mut self, history: Option<u64>) {
        self.rules.history = history.or(self.rules.history);
    }

    /// The next join asks for a new life in place of the one that was superseded.
    pub(in crate::agent) fn live_again(&mut self) {
        self.status.superseded = None;
        self.over = Some("another process spoke for this agent, and a new life was asked for");
    }

    /// The coordinator refused something with this reason. A message that is refused for good is set aside, so
    /// that it does not block what comes after it.
    pub(in crate::agent) fn refuse(&mut self, reason: &str, why: &str, now: Tick, config: &AgentConfig) {
        if reason == "superseded" {
            warn!(agent = self.id().0, life = self.status.life, why, "this agent was superseded");
            self.status.superseded = Some(why.to_owned());
            return;
        }
        let Some(frame) = self.endpoint.unanswered().filter(|_| set_aside::is_final(reason)) else { return };
        let times = if self.refused.0 == frame { self.refused.1 + 1 } else { 1 };
        self.refused = (frame, times);
        if times >= set_aside::REFUSALS && !self.set_aside(reason, why, frame, now, config) {
            // Tried again at the next refusal: what cannot be kept is not thrown away.
            self.refused.1 -= 1;
        }
    }

    /// A frame from the coordinator cannot be taken in. If that happens again and again, this life is set aside and a
    /// new one begins: otherwise nothing that the coordinator says would ever reach the agent.
    pub(in crate::agent) fn fail_to_receive(&mut self, why: &ProtocolError, now: Tick, config: &AgentConfig) {
        self.unreadable += 1;
        if self.unreadable >= set_aside::REFUSALS {
            let frame = self.endpoint.received().1;
            self.set_aside("unreadable", &why.to_string(), frame, now, config);
        }
    }

    /// Keeps this life in a file, if there is a place for it, and lets the next join ask for a new one. `false` if it
    /// could not be kept.
    fn set_aside(&mut self, reason: &str, why: &str, frame: u64, now: Tick, config: &AgentConfig) -> bool {
        if self.over.is_some() {
            return true;
        }
        let what = v1::SetAside {
            reason: reason.to_owned(),
            message: why.to_owned(),
            time: now.0,
            endpoint: self.endpoint.save(),
            rules: serde_json::to_vec(&self.rules).expect("settings have string keys"),
        };
        let life = self.status.life;
        let kept =
            config.state.as_deref().map(|state| set_aside::keep(state, life, frame, &what)).transpose();
        match kept {
            Ok(path) => error!(
                agent = self.id().0,
                life,
                frame,
                reason,
                why,
                ?path,
                "a message was refused for good: \
                               this life is set aside and a new one begins"
            ),
            Err(cause) => {
                self.status.trouble = Some(cause.to_string());
                return false;
            }
        }
        self.status.set_aside += 1;
        self.status.last_refusal = Some(format!("{reason}: {why}"));
        self.over = Some("the coordinator and this life do not understand each other");
        true
    }
}
