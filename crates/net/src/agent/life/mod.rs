//! An agent's life: its endpoint, the choices that wait for rewards, and the journal that brings both back.
//!
//! The journal holds every event since the last saved state. The endpoint is deterministic, so replaying
//! them gives it back with the same bits. Events are written when they happen, or at the end of the caller's batch, which
//! outlives a crash of the process, and synced before any frame leaves, which outlives a crash of the machine: whatever
//! the coordinator was told, the agent remembers.

mod ending;
mod keeping;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use posse_core::privacy::PrivacyPolicy;
use posse_core::session::{DownFrame, Endpoint, UpFrame};
use posse_core::{AgentId, Arms, Epoch, Incarnation, ProtocolError, Shape, Tick, UserId};
use prost::Message;
use tracing::warn;

use super::journal::Journal;
use super::noise::Secret;
use super::rules::Rules;
use super::{
    AgentConfig, AgentError, ChoiceId, ChooseError, Chosen, NoiseOrigin, RewardError, policy, set_aside,
};
use crate::v1::journal_entry::Event;
use crate::v1::{self, JournalEntry, RuntimeState};

/// Frames that may wait; the newest is the one that counts.
const OUTBOX: usize = 4;

/// Counts and the state of an agent's link, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AgentStatus {
    /// The number of the agent's life.
    pub life: u64,
    /// The coordinator has answered the last hello.
    pub connected: bool,
    /// What went wrong last, until it is right again.
    pub trouble: Option<String>,
    /// Another process speaks for this agent, or its life has ended, in the coordinator's words. Nothing that the
    /// agent learns reaches the coordinator, so it takes no more rewards until it is given a new life.
    pub superseded: Option<String>,
    /// Lives that ended because the coordinator refused one of their messages for good. They are kept in
    /// `set-aside` in the state directory, if there is one.
    pub set_aside: u64,
    /// The newest refusal that made the agent set a life aside: its reason and the coordinator's sentence.
    pub last_refusal: Option<String>,
    /// How many choices wait for their rewards.
    pub pending: usize,
    /// How many choices were made since the start of the process.
    pub choices: u64,
    /// How many rewards were learned from since the start of the process.
    pub rewards: u64,
    /// How many choices expired without a reward since the start of the process.
    pub expired: u64,
    /// Frames with messages sent since the start, repetitions included.
    pub uplinks: u64,
    /// How many messages were received since the start of the process.
    pub downlinks: u64,
    /// Bytes of frames since the start, both ways.
    pub bytes: u64,
}

/// Files to sync, and how many entries are durable then.
type Unsynced = (Vec<Arc<File>>, u64);

struct Pending {
    user: UserId,
    arm: Vec<f64>,
    /// When the choice expires; 0 if it never does.
    expires: Tick,
}

pub(super) struct Life {
    rules: Rules,
    shape: Shape,
    endpoint: Endpoint,
    /// What privacy noise follows from, where there is any.
    secret: Option<Secret>,
    /// What this agent requires of a federation.
    policy: Option<PrivacyPolicy>,
    choices: u64,
    /// The offer of the next choice was prepared for already.
    prepared: bool,
    /// Some choice was prepared for since the process started.
    prepared_before: bool,
    pending: BTreeMap<ChoiceId, Pending>,
    expiries: BTreeSet<(Tick, ChoiceId)>,
    journal: Option<Journal>,
    /// What happens now is part of a batch, so the journal is written later.
    in_batch: bool,
    /// The agent was closed: what it learned from now on would not be kept.
    closed: bool,
    outbox: VecDeque<UpFrame>,
    /// This life cannot go on, for this reason: the next join asks for a new one.
    pub(super) over: Option<&'static str>,
    /// The number of the frame that the coordinator refused last, and how often.
    refused: (u64, u32),
    /// How many messages in a row could not be taken in.
    unreadable: u32,
    /// The processes that used this state, from the newest that the coordinator has answered to this one. A process
    /// may end before it reaches the coordinator, or before it hears the answer.
    instances: Vec<u64>,
    pub(super) status: AgentStatus,
    one_arm: Arms,
}

impl Life {
    /// A new life, in a process with this `instance`.
    pub(super) fn begin(
        config: &AgentConfig,
        rules: Rules,
        life: Incarnation,
        instance: u64,
    ) -> Result<Self, AgentError> {
        let mut new = Self::new(config, rules, life)?;
        new.instances = vec![instance];
        new.draw_secret(config);
        if let Some(directory) = &config.state {
            new.journal = Some(Journal::open(directory)?.0);
            new.save()?;
        }
        Ok(new)
    }

    fn new(config: &AgentConfig, rules: Rules, life: Incarnation) -> Result<Self, AgentError> {
        let (endpoint, shape) = rules.endpoint(life, config.local_features)?;
        Ok(Self {
            one_arm: Arms::new(shape.dimension()),
            rules,
            shape,
            endpoint,
            secret: None,
            policy: config.policy,
            choices: 0,
            prepared: false,
            prepared_before: false,
            pending: BTreeMap::new(),
            expiries: BTreeSet::new(),
            journal: None,
            in_batch: false,
            closed: false,
            outbox: VecDeque::new(),
            over: None,
            refused: (0, 0),
            unreadable: 0,
            instances: Vec::new(),
            status: AgentStatus {
                life: life.0,
                set_aside: config.state.as_deref().map_or(0, set_aside::count),
                ..AgentStatus::default()
            },
        })
    }

    /// The life that the state in the configured directory belongs to, if there is one that can go on.
    pub(super) fn resume(config: &AgentConfig, instance: u64) -> Result<Option<Self>, AgentError> {
        let Some(directory) = &config.state else { return Ok(None) };
        let (journal, replay) = Journal::open(directory)?;
        let Some(state) = &replay.state else { return Ok(None) };
        if replay.lost_entries > 0 {
            warn!(entries = replay.lost_entries, "the end of the agent's journal is lost: a new life begins");
            return Ok(None);
        }
        let foreign = |error: &dyn std::fmt::Display| AgentError::Foreign(error.to_string());
        let state = RuntimeState::decode(&state[..]).map_err(|error| foreign(&error))?;
        let rules = Rules::kept(&state.rules, &config.registry).map_err(|error| foreign(&error))?;
        let policy = policy::in_force(config, &state.policy)?;
        policy::admit(policy.as_ref(), &rules, config.noise)?;
        let mut life = Self::new(config, rules, Incarnation(0))?;
        life.policy = policy;
        life.use_secret(Secret::from_bytes(&state.secret));
        life.endpoint.restore(&state.endpoint).map_err(|error| foreign(&error))?;
        life.status.life = life.endpoint.incarnation().0;
        life.choices = state.choices;
        life.instances = state.instances;
        for chosen in state.pending {
            life.remember(chosen);
        }
        for bytes in &replay.entries {
            let entry = JournalEntry::decode(&bytes[..]).map_err(|error| foreign(&error))?;
            life.replay(entry, config.clock.now()).map_err(|error| foreign(&error))?;
        }
        life.outbox.clear();
        life.endpoint.finish_replay();
        life.status = AgentStatus {
            life: life.status.life,
            pending: life.pending.len(),
            set_aside: life.status.set_aside,
            ..AgentStatus::default()
        };
        life.journal = Some(journal);
        // If this state is an old copy, its noise was used before.
        life.draw_secret(config);
        if let Some(Secret(bytes)) = life.secret.clone() {
            life.note(Event::Secret(bytes.to_vec()));
        }
        life.instances.push(instance);
        life.note(Event::Started(instance));
        // Before the coordinator hears of this process: if the machine lost the entry, the coordinator would take
        // the next process for a stranger with an old copy of the state.
        life.sync()?;
        Ok(Some(life))
    }

    /// The processes that used this state, this one last.
    pub(super) fn instances(&self) -> &[u64] {
        &self.instances
    }

    /// The coordinator has answered this process: those before it do not matter any more.
    pub(super) fn was_answered(&mut self) {
        self.instances.drain(..self.instances.len().saturating_sub(1));
    }

    /// Takes over what an operator may change between joins: how long to wait for answers does not reach the
    /// endpoint before the next start, bounds hold from now on.
    pub(super) fn update_bounds(&mut self, told: &Rules) {
        (self.rules.feature_bound, self.rules.reward_bound) = (told.feature_bound, told.reward_bound);
    }

    /// Draws noise from a new secret of the system's from now on, if the agent is private.
    fn draw_secret(&mut self, config: &AgentConfig) {
        let private = self.machine().privacy().is_some() && config.noise == NoiseOrigin::System;
        self.use_secret(private.then(Secret::draw));
    }

    fn use_secret(&mut self, secret: Option<Secret>) {
        if let Some(secret) = &secret {
            self.endpoint.use_noise(secret.noise());
        }
        self.secret = secret;
    }

    /// Looks at an offer before the choice. Returns whether the agent has asked a question whose answer no earlier
    /// choice has waited for.
    pub(super) fn prepare(&mut self, user: UserId, arms: &Arms, now: Tick) -> Result<bool, ChooseError> {
        if self.closed {
            return Err(ChooseError::Closed);
        }
        self.rules.check_arms(arms)?;
        let was_asking = self.machine().is_asking();
        let frame = self.endpoint.prepare(now, user, arms)?;
        self.prepared = true;
        let is_asking = self.machine().is_asking();
        if is_asking
            && !was_asking
            && let Some(question) = self.endpoint.last_question()
        {
            let asked = posse_core::wire::encode_uplink(question);
            self.note(Event::Asked(asked));
        }
        self.post(frame);
        let waited = std::mem::replace(&mut self.prepared_before, true) && was_asking;
        Ok(is_asking && !waited)
    }

    pub(super) fn choose(
        &mut self,
        user: UserId,
        arms: &Arms,
        now: Tick,
        config: &AgentConfig,
    ) -> Result<Chosen, ChooseError> {
        if self.closed {
            return Err(ChooseError::Closed);
        }
        self.rules.check_arms(arms)?;
        self.expire(now, config.default_reward);
        if !std::mem::take(&mut self.prepared) {
            self.prepare(user, arms, now)?;
            self.prepared = false;
        }
        let choice = self.endpoint.choose(user, arms)?;
        self.choices += 1;
        let id = ChoiceId { life: self.endpoint.incarnation(), number: self.choices };
        let expires = config.expire_after.map_or(Tick(0), |after| now.after(crate::clock::span(after)));
        let arm = arms.row(choice.arm).to_vec();
        let chosen = v1::Chosen { id: Some(id.into()), user: user.0, expires: expires.0, arm };
        self.note_chosen(&chosen);
        self.insert(id, Pending { user, arm: chosen.arm, expires });
        self.status.choices += 1;
        while self.pending.len() > config.max_pending {
            let oldest = *self.pending.keys().next().expect("there are some");
            self.give_up(oldest, now, config.default_reward);
        }
        Ok(Chosen { id, arm: choice.arm, propensity: choice.propensity })
    }

    pub(super) fn reward(&mut self, id: ChoiceId, reward: f64, now: Tick) -> Result<(), RewardError> {
        if self.closed {
            return Err(RewardError::Closed);
        }
        if let Some(why) = &self.status.superseded {
            return Err(RewardError::Superseded(why.clone()));
        }
        self.rules.check_reward(reward)?;
        self.learn(id, reward, now)
    }

    /// Learns without asking what is allowed now: a journal may hold what was allowed once.
    fn learn(&mut self, id: ChoiceId, reward: f64, now: Tick) -> Result<(), RewardError> {
        let pending = self.pending.get(&id).ok_or(RewardError::Unknown(id))?;
        let frame = self.endpoint.learn(now, pending.user, &pending.arm, reward)?;
        self.settle(id);
        self.note(Event::Rewarded(v1::Rewarded { id: Some(id.into()), reward }));
        self.status.rewards += 1;
        self.post(frame);
        Ok(())
    }

    /// Gives up what has waited too long. Returns when the next choice will have.
    pub(super) fn expire(&mut self, now: Tick, default_reward: Option<f64>) -> Option<Tick> {
        while let Some(&(expires, id)) = self.expiries.first() {
            if expires > now {
                return Some(expires);
            }
            self.give_up(id, now, default_reward);
        }
        None
    }

    /// When the next choice expires.
    pub(super) fn next_expiry(&self) -> Option<Tick> {
        self.expiries.first().map(|(expires, _)| *expires)
    }

    fn give_up(&mut self, id: ChoiceId, now: Tick, default_reward: Option<f64>) {
        self.status.expired += 1;
        let learned = default_reward.is_some_and(|reward| self.reward(id, reward, now).is_ok());
        if !learned {
            self.note(Event::Forgotten(id.into()));
            self.forget(id, now);
        }
    }

    /// Gives up a choice without a reward. A private agent counts it all the same.
    fn forget(&mut self, id: ChoiceId, now: Tick) {
        let user = self.pending.get(&id).map(|pending| pending.user);
        self.settle(id);
        let frame = user.and_then(|user| self.endpoint.give_up(now, user));
        self.post(frame);
    }

    /// Says hello over a new link.
    pub(super) fn hello(&mut self, now: Tick) {
        self.outbox.clear();
        self.status.connected = false;
        let frame = self.endpoint.hello(now);
        self.note(Event::Greeted(v1::Greeted {}));
        self.post(Some(frame));
    }

    /// Takes in a frame from the coordinator and queues the agent's answer, if there is one. After a gap
    /// between frames this life is over, because its state is older than what the coordinator knows.
    ///
    /// `bytes` is what the frame was decoded from; the journal keeps it.
    pub(super) fn receive(
        &mut self,
        frame: DownFrame,
        bytes: &Bytes,
        now: Tick,
    ) -> Result<(), ProtocolError> {
        self.status.bytes += bytes.len() as u64;
        let (before, greeting) = (self.endpoint.received(), frame.greeting);
        let answer = self.endpoint.receive(now, frame).inspect_err(|error| {
            if matches!(error, ProtocolError::FrameGap { .. }) {
                self.over = Some("the coordinator knows more of this life than its state");
            }
        })?;
        if self.endpoint.received() != before {
            self.unreadable = 0;
        }
        self.note_received(bytes);
        self.status.downlinks += u64::from(self.endpoint.received() != before);
        if greeting > 0 {
            self.status.connected = true;
            self.status.trouble = None;
        }
        self.post(answer);
        Ok(())
    }

    /// Sends again what was not answered in time.
    pub(super) fn tick(&mut self, now: Tick) {
        let frame = self.endpoint.tick(now);
        self.post(frame);
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        self.endpoint.deadline()
    }

    fn post(&mut self, frame: Option<UpFrame>) {
        let Some(frame) = frame else { return };
        if self.outbox.len() >= OUTBOX {
            self.outbox.pop_front();
        }
        self.outbox.push_back(frame);
    }

    /// Nothing waits to be sent or answered.
    pub(super) fn is_settled(&self) -> bool {
        let silent = self.outbox.is_empty() && self.endpoint.deadline().is_none();
        self.status.connected && silent && self.machine().inspect().in_flight.is_none()
    }

    pub(super) fn has_mail(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Everything to send, with the files to sync first and the number of entries in them. Nothing leaves while the
    /// journal has a gap.
    pub(super) fn collect(&mut self) -> (Vec<UpFrame>, Option<Unsynced>) {
        // A batch may still be open.
        self.commit();
        if self.has_gap() && !self.mend() {
            return (Vec::new(), None);
        }
        for frame in &self.outbox {
            self.status.uplinks += u64::from(frame.message.is_some());
            self.status.bytes += frame.cost().bytes;
        }
        (self.outbox.drain(..).collect(), self.journal.as_mut().map(Journal::take_unsynced))
    }

    /// A frame that says nothing but what was received, to ask what waits.
    pub(super) fn question(&self) -> UpFrame {
        let (epoch, received): (Epoch, u64) = self.endpoint.received();
        UpFrame {
            epoch,
            incarnation: self.endpoint.incarnation(),
            acknowledged: received,
            sequence: 0,
            message: None,
            greeting: 0,
        }
    }

    pub(super) fn id(&self) -> AgentId {
        self.rules.agent
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) const fn dimension(&self) -> usize {
        self.shape.dimension()
    }

    pub(super) fn session(&self) -> Vec<u8> {
        self.endpoint.save()
    }

    pub(super) fn machine(&self) -> &dyn posse_core::Agent {
        self.endpoint.agent()
    }

    pub(super) fn status(&self) -> AgentStatus {
        AgentStatus { pending: self.pending.len(), ..self.status.clone() }
    }

    fn insert(&mut self, id: ChoiceId, pending: Pending) {
        if pending.expires > Tick(0) {
            self.expiries.insert((pending.expires, id));
        }
        self.pending.insert(id, pending);
    }

    fn remember(&mut self, chosen: v1::Chosen) {
        let id = ChoiceId::from(chosen.id.unwrap_or_default());
        let pending = Pending { user: UserId(chosen.user), arm: chosen.arm, expires: Tick(chosen.expires) };
        self.choices = self.choices.max(id.number);
        self.insert(id, pending);
    }

    fn settle(&mut self, id: ChoiceId) {
        if let Some(pending) = self.pending.remove(&id) {
            self.expiries.remove(&(pending.expires, id));
        }
    }

    fn replay(&mut self, entry: JournalEntry, now: Tick) -> Result<(), String> {
        let wrong = |error: &dyn std::fmt::Display| error.to_string();
        match entry.event.ok_or("an empty entry")? {
            Event::Greeted(_) => drop(self.endpoint.hello(now)),
            Event::Chosen(chosen) => {
                // Randomised rules count their choices; which arms there were does not matter.
                let mut arm = std::mem::replace(&mut self.one_arm, Arms::new(0));
                arm.clear();
                arm.push(&chosen.arm).map_err(|error| wrong(&error))?;
                self.endpoint.choose(UserId(chosen.user), &arm).map_err(|error| wrong(&error))?;
                self.one_arm = arm;
                self.remember(chosen);
            }
            Event::Rewarded(rewarded) => {
                let id = ChoiceId::from(rewarded.id.unwrap_or_default());
                self.learn(id, rewarded.reward, now).map_err(|error| wrong(&error))?;
            }
            Event::Received(frame) => {
                let frame = DownFrame::from_wire(frame).map_err(|error| wrong(&error))?;
                // There is no journal while one is replayed, so nothing is written.
                self.receive(frame, &Bytes::new(), now).map_err(|error| wrong(&error))?;
            }
            Event::Asked(question) => {
                let question = posse_core::wire::decode_uplink(&question).map_err(|error| wrong(&error))?;
                drop(self.endpoint.prepare_again(question, now));
            }
            Event::Forgotten(id) => self.forget(id.into(), now),
            Event::Started(instance) => self.instances.push(instance),
            Event::Secret(bytes) => {
                self.use_secret(Some(Secret::from_bytes(&bytes).ok_or("a secret of another length")?));
            }
        }
        Ok(())
    }
}

impl From<ChoiceId> for v1::ChoiceId {
    fn from(id: ChoiceId) -> Self {
        Self { life: id.life.0, number: id.number }
    }
}

impl From<v1::ChoiceId> for ChoiceId {
    fn from(id: v1::ChoiceId) -> Self {
        Self { life: Incarnation(id.life), number: id.number }
    }
}
