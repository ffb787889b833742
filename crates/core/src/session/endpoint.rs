//! The agent's end of a link.

use std::fmt;

use prost::Message;

use crate::agent::{Agent, Choice};
use crate::arms::Arms;
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::ids::{AgentId, Epoch, Incarnation, Tick, UserId};
use crate::message::Uplink;
use crate::privacy::NoiseSource;
use crate::session::frame::{DownFrame, UpFrame};
use crate::session::upstream::Upstream;
use crate::time_span::TimeSpan;
use crate::wire::{self, v1};

/// An agent with its end of the link to the coordinator.
///
/// Send every frame that a method returns. Call [`tick`](Self::tick) at [`deadline`](Self::deadline):
/// what was not answered by then is sent again.
pub struct Endpoint {
    agent: Box<dyn Agent>,
    link: Upstream,
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
        Self { agent, link: Upstream::new(id, incarnation, resend_after) }
    }

    /// Makes the agent known: at the beginning of a life, and whenever a link was cut and is there again.
    /// It is repeated until there is an answer; messages wait for that.
    pub fn hello(&mut self, now: Tick) -> UpFrame {
        self.link.hello(now)
    }

    /// Looks at an offer before the choice; perhaps there is a question to send first.
    pub fn prepare(&mut self, now: Tick, user: UserId, arms: &Arms) -> Result<Option<UpFrame>, InputError> {
        let message = self.agent.prepare(now, user, arms)?;
        Ok(message.and_then(|message| self.link.submit(now, message)))
    }

    /// Goes through the effects of a [`prepare`](Self::prepare) whose question was `said`.
    pub fn prepare_again(&mut self, said: Uplink, now: Tick) -> Option<UpFrame> {
        self.agent.prepare_again(&said);
        self.link.submit(now, said)
    }

    /// The question that was asked last, if it is still in the queue.
    #[must_use]
    pub fn last_question(&self) -> Option<&Uplink> {
        self.link.queue.back()
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
        Ok(message.and_then(|message| self.link.submit(now, message)))
    }

    /// Tells the agent that the reward of a choice for `user` will never come; perhaps there is something to send.
    pub fn give_up(&mut self, now: Tick, user: UserId) -> Option<UpFrame> {
        let message = self.agent.give_up(user)?;
        self.link.submit(now, message)
    }

    /// Takes in a frame; perhaps there is an answer.
    pub fn receive(&mut self, now: Tick, frame: DownFrame) -> Result<Option<UpFrame>, ProtocolError> {
        let agent = &mut self.agent;
        self.link.receive(now, frame, |message| agent.receive(message))
    }

    /// Sends again what was not answered in time.
    pub fn tick(&mut self, now: Tick) -> Option<UpFrame> {
        self.link.tick(now)
    }

    /// When [`tick`](Self::tick) has something to do next.
    #[must_use]
    pub fn deadline(&self) -> Option<Tick> {
        self.link.deadline()
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
        (self.link.epoch, self.link.received)
    }

    /// The number of the oldest message that the coordinator has not accepted, if there is one.
    #[must_use]
    pub fn unanswered(&self) -> Option<u64> {
        (!self.link.queue.is_empty()).then(|| self.link.accepted + 1)
    }

    /// The number of the agent.
    #[must_use]
    pub const fn id(&self) -> AgentId {
        self.link.id
    }

    /// The life of the agent: 1 for the first, and one more whenever it lost its state.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.link.incarnation
    }

    /// Everything needed to go on after a crash, encoded.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        v1::EndpointState { machine: self.agent.save(), ..self.link.save() }.encode_to_vec()
    }

    /// Goes on from a saved state, or changes nothing. Say [`hello`](Self::hello) next.
    pub fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let mut state: v1::EndpointState = wire::decode(state)?;
        let machine = std::mem::take(&mut state.machine);
        let link = self.link.restored(state)?;
        self.agent.restore(&machine)?;
        self.link = link;
        self.agent.begin_life(self.link.incarnation);
        Ok(())
    }

    /// Everything that happened after the restored state was kept has been done again. Call it before anything new happens:
    /// from here on, a coordinator that has accepted more than this endpoint can have sent is an error, because another copy
    /// of the state has spoken. Without this call, messages that are still waiting count as sent.
    pub fn finish_replay(&mut self) {
        // One message travels at a time, so that of those that wait only the first may have left.
        self.link.finish_replay(1);
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.link.id)
            .field("epoch", &self.link.epoch)
            .field("incarnation", &self.link.incarnation)
            .field("received", &self.link.received)
            .field("accepted", &self.link.accepted)
            .field("queued", &self.link.queue.len())
            .finish_non_exhaustive()
    }
}
