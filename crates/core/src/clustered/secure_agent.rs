//! An agent of synchronous rounds under secure aggregation: what it learned leaves it under masks, in sums with others.
//!
//! Its coordinator is in [`secure_rounds`](super::secure_rounds), the protocol in [`masking`](crate::privacy::masking).

use std::collections::BTreeMap;

use prost::Message;

use crate::agent::{Agent, AgentView, Choice};
use crate::arms::Arms;
use crate::clustered::width::{Noisy, PrivateWidth};
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation};
use crate::exchange::belief::{Belief, InFlight};
use crate::federation::Federation;
use crate::ids::{AgentId, Incarnation, RoundId, UserId};
use crate::message::{Downlink, SecureDownlink, SecureOutcome, SecureUplink, Uplink};
use crate::privacy::masking::{Participant, SecureAggregation};
use crate::privacy::shared_sums::SharedSums;
use crate::privacy::{NoiseSource, PrivacyConfig, PrivacyReport, smallest_eigenvalue};
use crate::ridge::Ridge;
use crate::scoring::{check_arms, upper_confidence};
use crate::width::ModelConfig;
use crate::wire::{self, v1};

/// What an agent under secure aggregation is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecurePlan<'c> {
    pub(crate) name: &'static str,
    pub(crate) model: &'c ModelConfig,
    pub(crate) privacy: &'c PrivacyConfig,
    pub(crate) secure: &'c SecureAggregation,
}

/// An agent that masks what it sends. The coordinator sees only the sum over many agents.
#[derive(Debug)]
pub(crate) struct SecureAgent {
    name: &'static str,
    id: AgentId,
    width: PrivateWidth,
    /// The model over the sums of all agents, with noise. Choices look at nothing else.
    chooser: Ridge,
    group: Noisy,
    /// The sums of all agents, what is on its way, and what is not.
    view: Belief,
    sums: SharedSums,
    /// Interactions of each user that were learned from.
    users: BTreeMap<UserId, u64>,
    /// Own observations in the sums of all agents.
    included: u64,
    /// Own observations that the agent helped to open in a round that then failed. Their sum may be known, so that they are never sent
    /// again.
    withheld: u64,
    /// A round was asked for and has not ended.
    requested: bool,
    /// The newest round that the agent heard of.
    round: RoundId,
    /// Its part in the open round, and the slot of that round once it is known.
    part: Option<Participant>,
    slot: u64,
    choices: u64,
}

impl SecureAgent {
    pub(crate) fn new(plan: &SecurePlan<'_>, id: AgentId, dimension: usize, federation: &Federation) -> Self {
        let model = plan.model.model(dimension);
        let sums = SharedSums::new(plan.privacy, plan.secure, dimension, id, federation.seed);
        Self {
            name: plan.name,
            id,
            width: PrivateWidth::new(plan.model, plan.privacy, sums.budget().clone(), dimension),
            chooser: model.clone(),
            group: Noisy { variance: 0.0, lowest: 0.0, count: 0 },
            view: Belief::new(model),
            sums,
            users: BTreeMap::new(),
            included: 0,
            withheld: 0,
            requested: false,
            round: RoundId(0),
            part: None,
            slot: 0,
            choices: 0,
        }
    }

    /// Observations that are in no sum.
    fn fresh(&self) -> u64 {
        self.view.buffer().count() + self.view.in_flight().map_or(0, Evidence::count)
    }

    fn request_if_due(&mut self) -> Option<Uplink> {
        let sent = self.included + self.withheld;
        if self.requested || self.part.is_some() || !self.sums.is_due(sent + self.fresh(), sent) {
            return None;
        }
        self.requested = true;
        Some(Uplink::RoundRequest { observations: 0 })
    }

    /// The open round, if the message is of it. Messages of rounds that are over come late and change nothing.
    fn part_in(&mut self, round: RoundId) -> Result<Option<&mut Participant>, ProtocolError> {
        if round > self.round {
            return Err(ProtocolError::Round(round));
        }
        Ok(self.part.as_mut().filter(|part| part.round() == round))
    }

    fn take_call(&mut self, call: &SecureDownlink) -> Result<Option<SecureUplink>, ProtocolError> {
        let secure = *self.sums.secure();
        match call {
            SecureDownlink::Begin { round } => {
                if *round <= self.round {
                    return Ok(None);
                }
                self.end_round(false);
                self.round = *round;
                let part = self.sums.participant(self.id, *round);
                let keys = part.keys();
                self.part = Some(part);
                Ok(Some(SecureUplink::Keys { round: *round, slot: self.sums.next_slot(), keys }))
            }
            SecureDownlink::Peers { round, slot, peers } => {
                let may_use = self.sums.may_use(*slot);
                let Some(part) = self.part_in(*round)? else { return Ok(None) };
                if !may_use {
                    // Others have fallen behind, or all slots are used. The agent stays out of this round.
                    self.part = None;
                    return Ok(None);
                }
                let boxes = part.share(peers, &secure)?;
                self.slot = *slot;
                Ok(Some(SecureUplink::Shares { round: *round, boxes }))
            }
            SecureDownlink::Boxes { round, boxes } => {
                let entries = self.sums.entries();
                let Some(part) = self.part_in(*round)? else { return Ok(None) };
                // The masks first: numbers are made only for boxes that are right, because making them changes the state.
                let masks = part.masks(boxes, &secure, entries)?;
                let numbers = self.sums.numbers(self.slot);
                let sums =
                    numbers.iter().zip(masks).map(|(number, mask)| number.wrapping_add(mask)).collect();
                if !self.view.buffer().is_empty() {
                    self.view.send_inside();
                }
                Ok(Some(SecureUplink::Masked { round: *round, sums }))
            }
            SecureDownlink::Open { round, survivors } => {
                let slot = self.slot;
                let Some(part) = self.part_in(*round)? else { return Ok(None) };
                let opening = part.open(survivors, &secure)?;
                self.sums.open(slot);
                Ok(Some(SecureUplink::Opened { round: *round, seeds: opening.seeds, keys: opening.keys }))
            }
            SecureDownlink::Outcome(outcome) => self.take_in(outcome).map(|()| None),
        }
    }

    /// The round that the agent takes part in is over, if there is one. What it sent is in the sums, or it waits for another
    /// round, or it must never be sent again.
    fn end_round(&mut self, included: bool) {
        self.requested = false;
        let Some(part) = self.part.take().filter(Participant::has_masked) else { return };
        let sent = self.view.in_flight().map_or(0, Evidence::count);
        if included {
            self.included += sent;
            self.sums.settle();
        } else if part.has_opened() {
            self.withheld += sent;
            self.sums.settle();
        } else {
            self.sums.give_back();
            self.view.thaw();
            return;
        }
        let (version, base) = (self.view.version(), self.view.base().clone());
        self.view
            .replace_base(version, &base, InFlight::Arrived)
            .expect("the base is the one that the agent has accepted before");
    }

    fn take_in(&mut self, outcome: &SecureOutcome) -> Result<(), ProtocolError> {
        let SecureOutcome { authoritative, round, included, version, variance, evidence, .. } = outcome;
        let own = self.part.as_ref().map(Participant::round);
        let ends = *authoritative || own.is_some_and(|own| own <= *round);
        if *version > self.view.version() || *authoritative {
            self.view.replace_base(*version, evidence, InFlight::Underway)?;
            self.chooser.refresh_to(evidence).expect("a base is factorised before it is accepted");
            self.group = Noisy::of(evidence, *variance);
            if !evidence.is_empty() {
                let lowest = smallest_eigenvalue(evidence.gram(), evidence.dimension());
                self.sums.intake.signal_to_noise = Some(lowest / self.sums.budget().matrix_bound(*variance));
            }
        }
        if ends {
            self.end_round(*included && own == Some(*round));
        } else if *round >= self.round {
            self.requested = false;
        }
        if *authoritative {
            // Rounds of a lost history are over, and their numbers may come again.
            self.round = RoundId(0);
            self.requested = false;
        }
        Ok(())
    }

    fn count_user(&mut self, user: UserId) -> bool {
        let count = self.users.entry(user).or_default();
        let admitted = self.sums.intake.admits(*count);
        *count += u64::from(admitted);
        admitted
    }
}

impl Agent for SecureAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.chooser.dimension(), arms)?;
        let choice = upper_confidence(&self.chooser, self.width.of(self.group), arms)?;
        self.choices += 1;
        Ok(choice)
    }

    fn learn(&mut self, user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_observation(self.chooser.dimension(), arm, reward)?;
        let (arm, reward) = self.sums.intake.clip(arm, reward)?;
        if !self.count_user(user) {
            return Ok(None);
        }
        self.sums.add(&arm, reward);
        self.view.observe(&arm, reward);
        Ok(self.request_if_due())
    }

    fn give_up(&mut self, user: UserId) -> Option<Uplink> {
        if !self.count_user(user) {
            return None;
        }
        self.sums.add_nothing();
        self.view.observe(&vec![0.0; self.chooser.dimension()], 0.0);
        self.request_if_due()
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        match message {
            Downlink::Secure(call) => Ok(self.take_call(&call)?.map(Uplink::Secure)),
            Downlink::Abort { round } => {
                if self.part.as_ref().is_none_or(|part| part.round() == round) {
                    self.end_round(false);
                }
                Ok(None)
            }
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
        }
    }

    fn rest(&mut self) {
        self.view.rest();
    }

    fn inspect(&self) -> AgentView<'_> {
        let mut view = self.view.inspect_with(&self.chooser);
        view.withheld = self.withheld;
        view
    }

    fn privacy(&self) -> Option<PrivacyReport> {
        Some(self.sums.report(self.users.values().copied().max().unwrap_or(0)))
    }

    fn use_noise(&mut self, noise: Box<dyn NoiseSource>) {
        self.sums.intake.noise = noise;
    }

    fn begin_life(&mut self, life: Incarnation) {
        self.sums.intake.begin_life(life);
    }

    fn save(&self) -> Vec<u8> {
        v1::SecureAgentState {
            choices: self.choices,
            view: Some(self.view.save()),
            chooser: Some(self.chooser.save()),
            variance: self.group.variance,
            users: self
                .users
                .iter()
                .map(|(user, count)| v1::UserCountState { user: user.0, count: *count })
                .collect(),
            included: self.included,
            withheld: self.withheld,
            requested: self.requested,
            round: self.round.0,
            part: self.part.as_ref().map(Participant::save),
            sums: Some(self.sums.save()),
            slot: self.slot,
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::SecureAgentState = wire::decode(state)?;
        let view = self.view.restored(state.view.unwrap_or_default())?;
        let mut chooser = self.chooser.clone();
        chooser.restore(&state.chooser.unwrap_or_default())?;
        let group = Noisy::of(view.base(), wire::variance(state.variance)?);
        let part = state.part.map(|part| Participant::restored(self.id, part)).transpose()?;
        self.sums.restore(state.sums.unwrap_or_default())?;
        // From here on nothing fails.
        (self.view, self.chooser, self.group, self.part) = (view, chooser, group, part);
        self.users = state.users.iter().map(|entry| (UserId(entry.user), entry.count)).collect();
        (self.included, self.withheld) = (state.included, state.withheld);
        (self.requested, self.round) = (state.requested, RoundId(state.round));
        (self.slot, self.choices) = (state.slot, state.choices);
        Ok(())
    }
}
