//! An agent's life: its endpoint, the choices that wait for rewards, and the journal that brings both back.
//!
//! The journal holds every event since the last saved state. The endpoint is deterministic, so replaying
//! them gives it back with the same bits. Events are written when they happen, which outlives a crash of the
//! process, and synced before any frame leaves, which outlives a crash of the machine: whatever the
//! coordinator was told, the agent remembers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::sync::Arc;

use posse_core::session::{DownFrame, Endpoint, UpFrame};
use posse_core::{
    AgentId, Algorithm, Arms, Epoch, Federation, Incarnation, InputError, ProtocolError, Seed, Shape, Tick,
    UserId,
};
use prost::Message;
use serde::{Deserialize, Serialize};
use tracing::{error, warn};

use super::noise::Secret;
use super::{AgentConfig, AgentError, ChoiceId, Chosen, NoiseOrigin, RewardError};
use crate::clock::Clock;
use crate::log::{FileLog, Log, LogError};
use crate::v1::journal_entry::Event;
use crate::v1::{self, JournalEntry, RuntimeState};

/// Bytes of journal after which the state is saved.
const SAVE_EVERY: u64 = 4 << 20;
/// Frames that may wait; the newest is the one that counts.
const OUTBOX: usize = 4;

/// The rules of a federation, as an agent was told them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Who the agent is.
    pub agent: AgentId,
    /// How agents choose and share.
    pub algorithm: Algorithm,
    /// Features that mean the same to everybody.
    pub dimension: u64,
    /// What the algorithm may assume.
    pub agents: u64,
    /// What the algorithm may assume.
    pub horizon: u64,
    /// Where randomised rules draw from.
    pub seed: u64,
    /// Microseconds after which an unanswered frame is sent again.
    pub resend_after: u64,
}

/// How an agent is doing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentStatus {
    /// Its life.
    pub life: u64,
    /// The coordinator has answered the last hello.
    pub connected: bool,
    /// What went wrong last, until it is right again.
    pub trouble: Option<String>,
    /// Choices that wait for rewards.
    pub pending: usize,
    /// Choices made since the start.
    pub choices: u64,
    /// Rewards learned since the start.
    pub rewards: u64,
    /// Choices given up since the start.
    pub expired: u64,
    /// Frames with messages sent since the start, repetitions included.
    pub uplinks: u64,
    /// Messages received since the start.
    pub downlinks: u64,
    /// Bytes of frames since the start, both ways.
    pub bytes: u64,
}

struct Pending {
    user: UserId,
    arm: Vec<f64>,
    /// 0 is never.
    expires: Tick,
}

pub(super) struct Life {
    rules: Rules,
    shape: Shape,
    endpoint: Endpoint,
    /// What privacy noise follows from, where there is any.
    secret: Option<Secret>,
    choices: u64,
    /// The offer of the next choice was prepared for already.
    prepared: bool,
    pending: BTreeMap<ChoiceId, Pending>,
    expiries: BTreeSet<(Tick, ChoiceId)>,
    journal: Option<FileLog>,
    /// The journal is meant to be there and could not be written.
    broken: bool,
    outbox: VecDeque<UpFrame>,
    /// The coordinator knows more of this life than we do: it cannot go on.
    pub(super) outlived: bool,
    pub(super) status: AgentStatus,
    one_arm: Arms,
}

impl Rules {
    /// Whether both are of the same agent in the same federation. How long to wait for answers is no rule
    /// of the game: an operator may change it.
    pub(super) fn are_those_of(&self, told: &Self) -> bool {
        *self == Self { resend_after: self.resend_after, ..told.clone() }
    }

    fn endpoint(&self, life: Incarnation, local: usize) -> Result<(Endpoint, Shape), AgentError> {
        let shape = Shape { shared: self.dimension as usize, local };
        let federation = Federation { agents: self.agents, horizon: self.horizon, seed: Seed(self.seed) };
        let machine = self.algorithm.agent(self.agent, shape, &federation)?;
        Ok((Endpoint::new(self.agent, life, machine, self.resend_after), shape))
    }
}

impl Life {
    /// A new life.
    pub(super) fn begin(config: &AgentConfig, rules: Rules, life: Incarnation) -> Result<Self, AgentError> {
        let mut new = Self::new(config, rules, life)?;
        new.draw_secret(config);
        if let Some(directory) = &config.state {
            let mut journal = FileLog::open_journal(directory)?;
            journal.replay()?;
            new.journal = Some(journal);
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
            choices: 0,
            prepared: false,
            pending: BTreeMap::new(),
            expiries: BTreeSet::new(),
            journal: None,
            broken: false,
            outbox: VecDeque::new(),
            outlived: false,
            status: AgentStatus { life: life.0, ..AgentStatus::default() },
        })
    }

    /// The life that the state in the configured directory belongs to, if there is one that can go on.
    pub(super) fn resume(config: &AgentConfig, clock: &Clock) -> Result<Option<Self>, AgentError> {
        let Some(directory) = &config.state else { return Ok(None) };
        let mut journal = FileLog::open_journal(directory)?;
        let replay = journal.replay()?;
        let Some(state) = &replay.state else { return Ok(None) };
        if replay.lost_entries > 0 {
            warn!(entries = replay.lost_entries, "the end of the agent's journal is lost: a new life begins");
            return Ok(None);
        }
        let foreign = |error: &dyn std::fmt::Display| AgentError::Foreign(error.to_string());
        let state = RuntimeState::decode(&state[..]).map_err(|error| foreign(&error))?;
        let rules: Rules = serde_json::from_slice(&state.rules).map_err(|error| foreign(&error))?;
        let mut life = Self::new(config, rules, Incarnation(0))?;
        life.use_secret(Secret::from_bytes(&state.secret));
        life.endpoint.restore(&state.endpoint).map_err(|error| foreign(&error))?;
        life.status.life = life.endpoint.incarnation().0;
        life.choices = state.choices;
        for chosen in state.pending {
            life.remember(chosen);
        }
        for bytes in &replay.entries {
            let entry = JournalEntry::decode(&bytes[..]).map_err(|error| foreign(&error))?;
            life.replay(entry, clock.now()).map_err(|error| foreign(&error))?;
        }
        life.outbox.clear();
        life.status =
            AgentStatus { life: life.status.life, pending: life.pending.len(), ..Default::default() };
        life.journal = Some(journal);
        // If this state is an old copy, its noise was used before.
        life.draw_secret(config);
        if let Some(Secret(bytes)) = life.secret.clone() {
            life.note(Event::Secret(bytes.to_vec()));
        }
        Ok(Some(life))
    }

    /// A new life after this one cannot go on. Choices that wait still do.
    pub(super) fn begin_again(&mut self, config: &AgentConfig, life: Incarnation) -> Result<(), AgentError> {
        let (endpoint, _) = self.rules.endpoint(life, config.local_features)?;
        self.endpoint = endpoint;
        self.draw_secret(config);
        self.outbox.clear();
        self.outlived = false;
        self.status.life = life.0;
        self.save()?;
        Ok(())
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

    /// Looks at an offer before the choice. Returns whether a question has no answer yet.
    pub(super) fn prepare(&mut self, user: UserId, arms: &Arms, now: Tick) -> Result<bool, InputError> {
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
        Ok(is_asking)
    }

    pub(super) fn choose(
        &mut self,
        user: UserId,
        arms: &Arms,
        now: Tick,
        config: &AgentConfig,
    ) -> Result<Chosen, InputError> {
        self.expire(now, config.default_reward);
        if !std::mem::take(&mut self.prepared) {
            self.prepare(user, arms, now)?;
            self.prepared = false;
        }
        let choice = self.endpoint.choose(user, arms)?;
        self.choices += 1;
        let id = ChoiceId { life: self.endpoint.incarnation(), number: self.choices };
        let expires = config.expire_after.map_or(Tick(0), |after| now.after(after.as_micros() as u64));
        let arm = arms.row(choice.arm);
        if self.journal.is_some() {
            let chosen =
                v1::Chosen { id: Some(id.into()), user: user.0, expires: expires.0, arm: arm.to_vec() };
            self.note(Event::Chosen(chosen));
        }
        self.insert(id, Pending { user, arm: arm.to_vec(), expires });
        self.status.choices += 1;
        while self.pending.len() > config.most_pending {
            let oldest = *self.pending.keys().next().expect("there are some");
            self.give_up(oldest, now, config.default_reward);
        }
        Ok(Chosen { id, arm: choice.arm, propensity: choice.propensity })
    }

    pub(super) fn reward(&mut self, id: ChoiceId, reward: f64, now: Tick) -> Result<(), RewardError> {
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

    fn give_up(&mut self, id: ChoiceId, now: Tick, default_reward: Option<f64>) {
        self.status.expired += 1;
        let learned = default_reward.is_some_and(|reward| self.reward(id, reward, now).is_ok());
        if !learned {
            self.settle(id);
            self.note(Event::Forgotten(id.into()));
        }
    }

    /// Says hello over a new link.
    pub(super) fn hello(&mut self, now: Tick) {
        self.outbox.clear();
        self.status.connected = false;
        let frame = self.endpoint.hello(now);
        self.note(Event::Greeted(v1::Greeted {}));
        self.post(Some(frame));
    }

    /// Takes in a frame.
    pub(super) fn receive(&mut self, frame: DownFrame, now: Tick) -> Result<(), ProtocolError> {
        self.status.bytes += frame.cost().bytes;
        let (before, greeting) = (self.endpoint.received(), frame.greeting);
        let kept = self.journal.is_some().then(|| frame.to_wire());
        let answer = self.endpoint.receive(now, frame).inspect_err(|error| {
            self.outlived = matches!(error, ProtocolError::FrameGap { .. });
        })?;
        if let Some(frame) = kept {
            self.note(Event::Received(frame));
        }
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

    /// Everything to send, with the file to sync first. Nothing leaves while the journal is broken.
    pub(super) fn collect(&mut self) -> (Vec<UpFrame>, Option<(Arc<File>, u64)>) {
        if self.broken {
            self.mend();
        }
        if self.broken {
            return (Vec::new(), None);
        }
        for frame in &self.outbox {
            self.status.uplinks += u64::from(frame.message.is_some());
            self.status.bytes += frame.cost().bytes;
        }
        (self.outbox.drain(..).collect(), self.journal.as_ref().map(FileLog::handle))
    }

    /// The file of [`collect`](Self::collect) is synced.
    pub(super) fn synced(&mut self, entries: u64) {
        if let Some(journal) = &self.journal {
            journal.note_synced(entries);
            if journal.bytes_since_snapshot() > SAVE_EVERY
                && let Err(cause) = self.save()
            {
                self.fail(&cause);
            }
        }
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

    /// Saves everything, to begin a new journal.
    pub(super) fn close(&mut self) -> Result<(), LogError> {
        let saved = self.save();
        self.journal = None;
        saved
    }

    pub(super) fn forget_journal(&mut self) {
        self.journal = None;
    }

    fn save(&mut self) -> Result<(), LogError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let pending = self.pending.iter().map(|(id, pending)| v1::Chosen {
            id: Some((*id).into()),
            user: pending.user.0,
            expires: pending.expires.0,
            arm: pending.arm.clone(),
        });
        let state = RuntimeState {
            endpoint: self.endpoint.save(),
            choices: self.choices,
            pending: pending.collect(),
            rules: serde_json::to_vec(&self.rules).expect("settings have string keys"),
            secret: self.secret.as_ref().map_or_else(Vec::new, |secret| secret.0.to_vec()),
        };
        journal.snapshot(&state.encode_to_vec())?;
        journal.truncate()
    }

    fn note(&mut self, event: Event) {
        let Some(journal) = self.journal.as_mut().filter(|_| !self.broken) else { return };
        let entry = JournalEntry { event: Some(event) }.encode_to_vec();
        if let Err(cause) = journal.append(&[entry]) {
            self.fail(&cause);
        }
    }

    /// The journal has a gap from here on: only a whole saved state can mend it.
    fn fail(&mut self, cause: &LogError) {
        error!(%cause, "the agent's state cannot be written: nothing is sent until it can");
        self.broken = true;
        self.status.trouble = Some(cause.to_string());
    }

    fn mend(&mut self) {
        match self.save() {
            Ok(()) => {
                self.broken = false;
                self.status.trouble = None;
            }
            Err(cause) => self.status.trouble = Some(cause.to_string()),
        }
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
                self.reward(id, rewarded.reward, now).map_err(|error| wrong(&error))?;
            }
            Event::Received(frame) => {
                let frame = DownFrame::from_wire(frame).map_err(|error| wrong(&error))?;
                self.receive(frame, now).map_err(|error| wrong(&error))?;
            }
            Event::Asked(question) => {
                let question = posse_core::wire::decode_uplink(&question).map_err(|error| wrong(&error))?;
                drop(self.endpoint.prepare_again(question, now));
            }
            Event::Forgotten(id) => self.settle(id.into()),
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
