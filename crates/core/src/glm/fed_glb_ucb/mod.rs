//! FedGLB-UCB, FedGLB-UCB₁ and FedGLB-UCB₂: settings, and the agent they share.
//!
//! A round finds the minimiser of the loss over the observations of all agents. Between rounds an agent learns
//! on by itself with online Newton steps, except in FedGLB-UCB₁, which waits. The coordinator is in
//! [`model_rounds`](super::model_rounds).

use std::sync::Arc;

use crate::settings::Described;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::config::{Constants, GlmConfig, SolverConfig};
use super::model_relay::ModelRelay;
use super::model_rounds::ModelRounds;
use super::ons::Ons;
use super::projection::norm;
use super::record::Record;
use crate::agent::{Agent, AgentView, Choice};
use crate::arms::Arms;
use crate::error::{ConfigError, DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation, multiply};
use crate::exchange::RoundConfig;
use crate::exchange::belief::Belief;
use crate::federation::Federation;
use crate::ids::UserId;
use crate::message::{Downlink, Fit, Model, Uplink};
use crate::parcel::Parcel;
use crate::relay::UpperLink;
use crate::ridge::Ridge;
use crate::scoring::{check_arms, upper_confidence};
use crate::trigger::Threshold;
use crate::wire::{self, v1};

/// Settings of `fed-glb-ucb`: agents ask for rounds, and learn with online Newton steps between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct FedGlbUcb {
    /// The model and its width.
    #[serde(flatten)]
    pub model: GlmConfig,
    /// D in [0, ∞]: an agent asks for a round when the time since the last one, times the information that its own
    /// observations brought since then, reaches this. 0 asks after every observation, ∞ never. Default 1.
    pub round_threshold: Threshold,
    /// How the time since the last round is counted. Default steps, as printed.
    pub round_clock: RoundClock,
    /// Which agents take part in a round, how long it waits for them and how many must answer.
    #[serde(flatten)]
    pub rounds: RoundConfig,
    /// How the global update is found.
    #[serde(flatten)]
    pub update: SolverConfig,
}

/// How an agent of `fed-glb-ucb` counts the time since the last round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum RoundClock {
    /// t − t_last of Eq. 4: time advances when every agent has acted once, so an agent that acts after the
    /// round of a step has waited for no time at all. An agent whose observations in the model are fewer than
    /// the average has not acted yet in the step of that round, and its next observation belongs to it.
    #[default]
    Steps,
    /// The agent's own observations since the last round, all of them.
    Observations,
}

/// Settings of `fed-glb-ucb-1` and `fed-glb-ucb-2`, whose rounds follow a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ScheduledGlbUcb {
    /// The model and its width.
    #[serde(flatten)]
    pub model: GlmConfig,
    /// ≥ 1: how many observations of all agents together lie between two rounds (NT/B for B rounds). The coordinator
    /// counts them: agents tell it of their own, a tenth of their share of a round at a time. Default 30.
    pub round_every: u64,
    /// Which agents take part in a round, how long it waits for them and how many must answer.
    #[serde(flatten)]
    pub rounds: RoundConfig,
    /// How the global update is found.
    #[serde(flatten)]
    pub update: SolverConfig,
}

impl Default for FedGlbUcb {
    fn default() -> Self {
        Self {
            model: GlmConfig::default(),
            round_threshold: Threshold(1.0),
            round_clock: RoundClock::Steps,
            rounds: RoundConfig::default(),
            update: SolverConfig::default(),
        }
    }
}

impl Default for ScheduledGlbUcb {
    fn default() -> Self {
        Self {
            model: GlmConfig::default(),
            round_every: 30,
            rounds: RoundConfig::default(),
            update: SolverConfig::default(),
        }
    }
}

impl FedGlbUcb {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.rounds.check()?;
        self.update.check()?;
        self.round_threshold.check_not_negative("round_threshold")
    }

    pub(crate) fn agent(&self, dimension: usize, federation: &Federation) -> FedGlbAgent {
        let (threshold, clock) = (self.round_threshold.0, self.round_clock);
        let when = When::Urgent { threshold, clock, agents: federation.agents.max(1) };
        FedGlbAgent::new("fed-glb-ucb", &self.model, when, true, dimension, federation)
    }

    pub(crate) fn coordinator(&self, dimension: usize) -> ModelRounds {
        ModelRounds::minimising("fed-glb-ucb", &self.model, &self.rounds, &self.update, dimension)
    }

    pub(crate) fn relay(&self, dimension: usize, above: UpperLink) -> ModelRelay {
        ModelRelay::new(&self.coordinator(dimension), &self.rounds, above)
    }
}

impl ScheduledGlbUcb {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.rounds.check()?;
        self.update.check()?;
        check_schedule(self.round_every)
    }

    /// An agent that learns between rounds (FedGLB-UCB₂) or does not (₁).
    pub(crate) fn agent(
        &self,
        name: &'static str,
        learns_alone: bool,
        dimension: usize,
        federation: &Federation,
    ) -> FedGlbAgent {
        let when = When::Scheduled(Schedule::new(self.round_every, federation));
        FedGlbAgent::new(name, &self.model, when, learns_alone, dimension, federation)
    }

    pub(crate) fn coordinator(&self, name: &'static str, dimension: usize) -> ModelRounds {
        ModelRounds::minimising(name, &self.model, &self.rounds, &self.update, dimension)
            .on_schedule(self.round_every)
    }

    pub(crate) fn relay(&self, name: &'static str, dimension: usize, above: UpperLink) -> ModelRelay {
        ModelRelay::new(&self.coordinator(name, dimension), &self.rounds, above)
    }
}

pub(crate) fn check_schedule(round_every: u64) -> Result<(), ConfigError> {
    if round_every == 0 {
        return Err(ConfigError::new("round_every", 0, "it must be at least 1"));
    }
    Ok(())
}

/// When an agent asks for a round.
#[derive(Clone, Copy, Debug)]
enum When {
    /// When the time since the last round, times the information it brought, reaches `threshold`.
    Urgent {
        threshold: f64,
        clock: RoundClock,
        agents: u64,
    },
    Scheduled(Schedule),
}

/// Rounds after fixed numbers of observations of all agents together, which the coordinator adds up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// An agent tells of its observations when there are so many that it has not told of.
    stride: u64,
}

impl Schedule {
    /// Reports ten times a round, if all agents are equally busy. A round then begins late by a tenth of its
    /// observations at most, whichever agents make them.
    pub(crate) fn new(every: u64, federation: &Federation) -> Self {
        Self { stride: (every / (10 * federation.agents.max(1))).max(1) }
    }

    /// Tells how many observations no model contains, if they are news by a stride or more.
    pub(crate) fn report(self, unshared: u64, reported: &mut u64) -> Option<Uplink> {
        if unshared < reported.saturating_add(self.stride) {
            return None;
        }
        *reported = unshared;
        Some(Uplink::RoundRequest { observations: unshared })
    }
}

/// An agent that shares in rounds of minimisation.
#[derive(Clone, Debug)]
pub(crate) struct FedGlbAgent {
    name: &'static str,
    constants: Constants,
    /// δ/N: each agent's share of the failure probability.
    delta: f64,
    when: When,
    /// Shared evidence and own observations, with the predictions of the iterate for rewards.
    view: Belief,
    record: Record,
    local: BetweenRounds,
}

/// How an agent learns between rounds.
#[derive(Clone, Debug)]
enum BetweenRounds {
    /// It learns by online Newton steps.
    Online(Ons),
    /// It chooses with the model of the last round.
    Frozen { model: Ridge, width: f64 },
}

impl FedGlbAgent {
    fn new(
        name: &'static str,
        config: &GlmConfig,
        when: When,
        learns_alone: bool,
        dimension: usize,
        federation: &Federation,
    ) -> Self {
        let constants = config.constants();
        let model = Ridge::new(dimension, constants.ridge());
        let local = if learns_alone {
            BetweenRounds::Online(Ons::new(
                dimension,
                0.5 * constants.lambda * constants.radius * constants.radius,
            ))
        } else {
            let width = constants.practical(constants.batch_radius(0, 0.0, 0.0));
            BetweenRounds::Frozen { model: model.clone(), width }
        };
        Self {
            name,
            constants,
            delta: constants.confidence / federation.agents.max(1) as f64,
            when,
            view: Belief::new(model),
            record: Record::new(dimension),
            local,
        }
    }

    /// Takes in own observations from number `first` on, again.
    fn replay(&mut self, first: usize) {
        let mut x = vec![0.0; self.view.dimension()];
        for index in first..self.record.history.len() {
            let y = self.record.history.read(index, &mut x);
            self.observe(&x, y);
        }
    }

    fn observe(&mut self, x: &[f64], y: f64) {
        match &mut self.local {
            BetweenRounds::Online(ons) => ons.step(&self.constants, &mut self.view, x, y),
            BetweenRounds::Frozen { .. } => self.view.observe(x, 0.0),
        }
    }

    /// Returns the message that the last observation makes due, if any.
    fn speak(&mut self) -> Option<Uplink> {
        match self.when {
            When::Urgent { threshold, clock, agents } => {
                let own = self.view.buffer().count();
                // ⌈n/N⌉ is the step in which the last round was, if agents take turns.
                let was_due = self.record.contained < self.view.base().count().div_ceil(agents);
                let waited = match clock {
                    RoundClock::Steps => own.saturating_sub(u64::from(was_due)),
                    RoundClock::Observations => own,
                };
                let due = waited as f64 * self.view.fresh_information() >= threshold;
                let asks = due && !self.record.requested && self.record.frozen.is_none();
                self.record.requested |= asks;
                asks.then_some(Uplink::RoundRequest { observations: 0 })
            }
            When::Scheduled(schedule) => {
                let unshared = (self.record.history.len() as u64).saturating_sub(self.record.contained);
                schedule.report(unshared, &mut self.record.reported)
            }
        }
    }

    /// Takes over the coordinator's model and plays what it does not contain on top of it.
    fn adopt(&mut self, model: &Model) -> Result<(), ProtocolError> {
        let Fit::Minimised { gap, information, unit_information } = model.fit else {
            return Err(ProtocolError::Model("it was not minimised"));
        };
        let (expected, got) = (self.view.dimension(), model.estimate.len());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let own = self.record.history.len() as u64;
        if model.contains > own {
            return Err(ProtocolError::Sequence { expected: own, got: model.contains });
        }
        let sound = gap >= 0.0 && information >= 0.0 && unit_information >= 0.0;
        if !sound || !model.estimate.iter().all(|v| v.is_finite()) {
            return Err(ProtocolError::Model("not all numbers are finite"));
        }
        let count = model.evidence.count();
        let radius = self.constants.batch_radius(count, gap, information);
        match &mut self.local {
            BetweenRounds::Online(ons) => {
                self.view.start_over(model.version, &model.evidence)?;
                let length = norm(&model.estimate);
                ons.iterate = model.estimate.to_vec();
                ons.squares = super::projection::dot(&model.estimate, model.evidence.moment());
                ons.potential = 0.5 * self.constants.smallest * radius * radius;
                ons.shift = self.constants.batch_shift(count, gap, unit_information, length);
            }
            BetweenRounds::Frozen { model: chooses, width } => {
                let base = anchored(&model.evidence, self.constants.ridge(), &model.estimate);
                self.view.start_over(model.version, &base)?;
                chooses.refresh_to(&base).expect("the view has just accepted it");
                *width = self.constants.practical(radius);
            }
        }
        self.record.contain(model.contains);
        self.record.settle();
        if model.authoritative {
            self.record.round = crate::ids::RoundId(0);
        }
        self.replay(usize::try_from(model.contains).expect("no more than are stored"));
        Ok(())
    }
}

/// Evidence whose ridge estimate is exactly `theta`.
fn anchored(evidence: &Evidence, ridge: f64, theta: &[f64]) -> Arc<Evidence> {
    let mut anchored = evidence.clone();
    anchored.set_moment(&multiply(evidence.gram(), ridge, theta));
    Arc::new(anchored)
}

impl Agent for FedGlbAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.view.dimension(), arms)?;
        match &self.local {
            BetweenRounds::Online(ons) => {
                let width = ons.width(&self.constants, &self.view, self.delta);
                upper_confidence(self.view.model(), width, arms)
            }
            BetweenRounds::Frozen { model, width } => upper_confidence(model, *width, arms),
        }
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_observation(self.view.dimension(), arm, reward)?;
        self.constants.link.check_reward(reward)?;
        self.record.history.push(arm, reward);
        self.observe(arm, reward);
        Ok(self.speak())
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        match message {
            Downlink::Collect { round, whole } => {
                if round <= self.record.round {
                    return Ok(None);
                }
                self.record.freeze(round);
                let fresh = self.view.freeze().without_moment();
                let evidence = match whole {
                    true => Parcel::wrap(&self.record.whole(self.view.dimension())),
                    false => fresh,
                };
                Ok(Some(Uplink::RoundEvidence { round, evidence }))
            }
            Downlink::GradientRequest { round, step, point, curvature } => {
                let (expected, got) = (self.view.dimension(), point.len());
                if expected != got {
                    return Err(ProtocolError::Dimension { expected, got });
                }
                let link = self.constants.link;
                Ok(self.record.gradient(link, round, step, &point, curvature).map(Uplink::Gradient))
            }
            Downlink::Model(model) => {
                if model.authoritative || model.version > self.view.version() {
                    self.adopt(&model)?;
                }
                Ok(None)
            }
            Downlink::Abort { round } => {
                if round >= self.record.round {
                    self.record.settle();
                    self.view.thaw();
                }
                Ok(None)
            }
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
        }
    }

    fn inspect(&self) -> AgentView<'_> {
        match &self.local {
            BetweenRounds::Online(_) => self.view.inspect(),
            BetweenRounds::Frozen { model, .. } => self.view.inspect_with(model),
        }
    }

    fn save(&self) -> Vec<u8> {
        let mut state = v1::GlmAgentState { view: Some(self.view.save()), ..self.record.save() };
        match &self.local {
            BetweenRounds::Online(ons) => {
                state.iterate.clone_from(&ons.iterate);
                (state.squares, state.potential, state.shift) = (ons.squares, ons.potential, ons.shift);
            }
            BetweenRounds::Frozen { model, width } => {
                (state.model, state.width) = (Some(model.save()), *width);
            }
        }
        state.encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::GlmAgentState = wire::decode(state)?;
        let dimension = self.view.dimension();
        let record = Record::restored(&state, dimension)?;
        let local = match &self.local {
            BetweenRounds::Online(_) => {
                let numbers = [state.squares, state.potential, state.shift];
                let finite = state.iterate.iter().chain(&numbers).all(|v| v.is_finite());
                if state.iterate.len() != dimension || !finite {
                    return Err(DecodeError::invalid("iterate", "it does not fit this federation"));
                }
                let (squares, potential, shift) = (state.squares, state.potential, state.shift);
                BetweenRounds::Online(Ons { iterate: state.iterate, squares, potential, shift })
            }
            BetweenRounds::Frozen { model, .. } => {
                let mut model = model.clone();
                model.restore(&state.model.unwrap_or_default())?;
                BetweenRounds::Frozen { model, width: state.width }
            }
        };
        self.view = self.view.restored(state.view.unwrap_or_default())?;
        (self.record, self.local) = (record, local);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
