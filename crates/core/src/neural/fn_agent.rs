//! The agent of FN-UCB: it chooses with what the last round gave and what it learned since.

use std::sync::Arc;

use prost::Message;

use super::config::NeuralConfig;
use super::diagonal::diagonal_of_inverse;
use super::fn_ucb::{AlphaRule, FnUcb, TrainingData, TrainingMode, Trigger};
use super::learner::{Learner, check_example};
use super::message::{NetworkModel, NetworkPart, NetworkState, Weights};
use super::network::{Network, Scratch};
use super::rows::{Row, wrap};
use super::scoring::{GradientMemory, Scoring};
use super::sparse::Sparse;
use super::statistic::{Precondition, Statistic, diagonal_growth};
use super::widths::widths;
use crate::agent::{Agent, AgentView, Choice};
use crate::arms::Arms;
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::ids::{RoundId, UserId, Version};
use crate::message::{Downlink, Uplink};
use crate::random::Seed;
use crate::scoring::check_arms;
use crate::wire::{self, v1};

const NAME: &str = "fn-ucb";

/// An agent that shares in rounds of networks.
#[derive(Clone, Debug)]
pub(crate) struct FnAgent {
    config: FnUcb,
    /// The network at θ₀, the same for all agents of a federation.
    start: Network,
    fingerprint: u64,
    learner: Learner,
    /// What the coordinator said last, and the network in it.
    shared: Arc<NetworkState>,
    network: Network,
    version: Version,
    /// Own observations that are in the shared statistic.
    contained: u64,
    /// Own observations that are not, oldest first.
    rows: Vec<Row>,
    /// The shared statistic with the first `applied` rows, made when it is needed.
    model: Option<Statistic>,
    applied: usize,
    /// By how much those rows raised the information.
    fresh: f64,
    /// The diagonal of the shared statistic, made when a trigger needs it.
    diagonal: Option<Vec<f64>>,
    /// The newest observation, if networks are trained on those of rounds only.
    latest: Option<(Vec<f64>, f64)>,
    made: u64,
    choices: u64,
    /// The newest round answered, and how many rows were sent for it, until it ends.
    round: RoundId,
    frozen: Option<usize>,
    requested: bool,
    /// It has asked not to wait any longer for the others of the round it answered.
    hurried: bool,
    /// A round to be answered once there are so many rows.
    owed: Option<(RoundId, u64)>,
    probing: Option<Probing>,
    memory: GradientMemory,
}

/// What the ratio of uncertainties is taken of.
#[derive(Clone, Debug)]
struct Probing {
    gradients: Vec<Sparse>,
    /// The statistic of everything that this agent observed.
    own: Statistic,
}

impl Probing {
    fn new(config: &FnUcb, start: &Network, seed: Seed) -> Self {
        let (dimension, mut scratch) = (start.layout.dimension, Scratch::default());
        let probe = |index: usize| {
            let mut stream = seed.stream("network-probe", index as u64, 0);
            let mut x: Vec<f64> = (0..dimension).map(|_| stream.normal()).collect();
            let length = x.iter().map(|v| v * v).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            x.iter_mut().for_each(|v| *v /= length);
            let mut phi = Sparse::default();
            start.gradient(&x, &mut scratch, &mut phi);
            phi
        };
        let gradients = (0..config.probes).map(probe).collect();
        Self { gradients, own: config.neural.none(start.layout.parameters()) }
    }

    /// Returns the smallest over the largest uncertainty among the probe arms.
    fn ratio(&self) -> f64 {
        let squares = self.gradients.iter().map(|phi| self.own.square(phi));
        let (low, high) = squares.fold((f64::INFINITY, 0.0_f64), |(low, high), s| (low.min(s), high.max(s)));
        if high > 0.0 { (low / high).sqrt().clamp(0.0, 1.0) } else { 1.0 }
    }
}

/// What a federation knows before its first round.
pub(crate) fn nothing_known(config: &FnUcb, parameters: usize, agents: usize) -> NetworkState {
    let mut none = config.neural.none(parameters);
    // As it would be if it had been told.
    none.fold();
    let mut alone = vec![none.clone(); if config.less_communication { 1 } else { agents.max(1) }];
    NetworkState {
        count: 0,
        widths: widths(alone.iter_mut(), config.less_communication),
        statistic: none,
        weights: Vec::new(),
        alpha: config.scheduled_alpha(0),
    }
}

/// Returns a number that differs, almost surely, between networks with different parameters.
pub(super) fn fingerprint(network: &Network) -> u64 {
    network.parameters().iter().fold(0xcbf2_9ce4_8422_2325, |hash, value| {
        (hash ^ value.to_bits()).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}

impl FnAgent {
    pub(crate) fn new(config: &FnUcb, dimension: usize, seed: Seed) -> Self {
        let start = config.neural.start(dimension, seed);
        let parameters = start.layout.parameters();
        let probing = (config.alpha == AlphaRule::Ratio).then(|| Probing::new(config, &start, seed));
        Self {
            config: config.clone(),
            fingerprint: fingerprint(&start),
            learner: config.neural.learner(&start),
            shared: Arc::new(nothing_known(config, parameters, 1)),
            network: start.clone(),
            start,
            version: Version(0),
            contained: 0,
            rows: Vec::new(),
            model: None,
            applied: 0,
            fresh: 0.0,
            diagonal: None,
            latest: None,
            made: 0,
            choices: 0,
            round: RoundId(0),
            frozen: None,
            requested: false,
            hurried: false,
            owed: None,
            probing,
            memory: GradientMemory::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn unshared(&self) -> &[Row] {
        &self.rows
    }

    #[cfg(test)]
    pub(crate) const fn trained_on(&self) -> usize {
        self.learner.kept()
    }

    const fn neural(&self) -> &NeuralConfig {
        &self.config.neural
    }

    /// Brings the model up to all rows.
    fn catch_up(&mut self) {
        if self.applied == self.rows.len() {
            return;
        }
        let mut model = self.model.take().unwrap_or_else(|| self.shared.statistic.clone());
        for row in &self.rows[self.applied..] {
            self.fresh += model.learn(&row.phi, row.reward);
        }
        self.applied = self.rows.len();
        self.model = Some(model);
    }

    /// The shared statistic is another one, or rows are gone from the front.
    fn forget_model(&mut self) {
        (self.model, self.applied, self.fresh, self.diagonal) = (None, 0, 0.0, None);
    }

    fn scoring(&self) -> Scoring<'_> {
        Scoring {
            config: &self.config,
            start: &self.start,
            predicts: if self.config.averaging { &self.network } else { &self.learner.network },
            shared: &self.network,
            statistic: self.model.as_ref().unwrap_or(&self.shared.statistic),
            widths: &self.shared.widths,
            alpha: self.shared.alpha,
        }
    }

    /// Whether what was learned since the last round is worth one.
    fn is_due(&mut self) -> bool {
        let threshold = self.config.round_threshold.0;
        if threshold == 0.0 {
            // Any gradient at all raises the information.
            return self.rows.iter().any(|row| !row.phi.is_empty());
        }
        if threshold.is_infinite() {
            return false;
        }
        self.rows.len() as f64 * self.trigger_information() > threshold
    }

    /// By how much the observations since the last round raised the information that the trigger measures.
    fn trigger_information(&mut self) -> f64 {
        if self.config.trigger == Trigger::Whole || self.neural().statistic == Precondition::Diagonal {
            self.catch_up();
            return self.fresh;
        }
        let shared = &self.shared;
        let diagonal = self.diagonal.get_or_insert_with(|| {
            let inverse = shared.statistic.told();
            // What a coordinator tells is positive definite up to rounding; if that fails, its prior is.
            let unknown = || vec![self.config.neural.regularization; shared.parameters()];
            diagonal_of_inverse(inverse, shared.parameters()).unwrap_or_else(unknown)
        });
        diagonal_growth(diagonal, self.rows.iter().map(|row| &row.phi))
    }

    /// Answers a round with everything there is.
    fn answer(&mut self, round: RoundId) -> Uplink {
        (self.round, self.owed, self.frozen) = (round, None, Some(self.rows.len()));
        if let Some((x, y)) = self.latest.take() {
            self.learner.observe(&x, y, self.made);
        }
        let trained = self.learner.trains(self.made);
        if self.config.training != TrainingMode::Independent {
            // An agent past its training stop submits the average as it is: its own last network would hold the
            // average back for ever.
            self.learner.network = self.network.clone();
        }
        self.learner.train(&self.start, self.config.steps_after(0), self.made);
        let alpha = match &self.probing {
            Some(probing) => probing.ratio(),
            None => self.config.scheduled_alpha(self.made),
        };
        let parameters = self.start.layout.parameters();
        Uplink::NetworkPart(NetworkPart {
            round,
            start: self.fingerprint,
            evidence: wrap(self.neural().statistic, &self.rows, parameters),
            weights: self.learner.network.parameters(),
            alpha,
            trained,
            sum: None,
        })
    }

    /// Trains the network from the average of a round, and returns the trained weights to send.
    fn train_on(&mut self, average: &Weights) -> Result<Option<Uplink>, ProtocolError> {
        if average.round != self.round || self.frozen.is_none() {
            return Ok(None);
        }
        let network = Network::from_parameters(self.start.layout, &average.weights)
            .ok_or(ProtocolError::Model("its parameters are not those of a network"))?;
        self.learner.network = network;
        self.learner.train(&self.start, self.config.steps_after(average.step), self.made);
        let weights = Arc::new(self.learner.network.parameters());
        Ok(Some(Uplink::Weights(Weights { weights, ..average.clone() })))
    }

    /// Takes over what the coordinator knows; what it does not contain stays.
    fn adopt(&mut self, model: &NetworkModel) -> Result<(), ProtocolError> {
        let (expected, got) = (self.start.layout.parameters(), model.shared.parameters());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        if model.shared.statistic.kind() != self.neural().statistic || model.shared.widths.is_empty() {
            return Err(ProtocolError::Model("its matrices are of another kind"));
        }
        if model.contains > self.made {
            return Err(ProtocolError::Sequence { expected: self.made, got: model.contains });
        }
        let taken = model.contains.saturating_sub(self.contained) as usize;
        if taken > self.rows.len() || (model.contains < self.contained && !model.authoritative) {
            let expected = self.contained + self.rows.len() as u64;
            return Err(ProtocolError::Sequence { expected, got: model.contains });
        }
        let network = match model.shared.weights.as_slice() {
            [] => self.start.clone(),
            weights => Network::from_parameters(self.start.layout, weights)
                .ok_or(ProtocolError::Model("its parameters are not those of a network"))?,
        };
        self.network = network;
        self.shared = Arc::clone(&model.shared);
        self.version = model.version;
        self.contained = model.contains;
        self.rows.drain(..taken);
        self.forget_model();
        self.settle();
        if model.authoritative {
            self.round = RoundId(0);
        }
        Ok(())
    }

    /// A round is over, with or without a result.
    const fn settle(&mut self) {
        (self.frozen, self.requested, self.hurried, self.owed) = (None, false, false, None);
    }

    /// By how much the rows that are not in flight raise the information, once the others are known.
    fn fresh_information(&self) -> f64 {
        let frozen = self.frozen.unwrap_or(0);
        let mut model = self.shared.statistic.clone();
        for row in &self.rows[..frozen] {
            model.learn(&row.phi, row.reward);
        }
        self.rows[frozen..].iter().map(|row| model.learn(&row.phi, row.reward)).sum()
    }
}

impl Agent for FnAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.start.layout.dimension, arms)?;
        if self.shared.alpha < 1.0 {
            self.catch_up();
        }
        let mut memory = std::mem::take(&mut self.memory);
        let choice = self.scoring().choose(arms, &mut memory);
        self.memory = memory;
        let choice = choice?;
        self.choices += 1;
        Ok(choice)
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_example(self.start.layout.dimension, arm, reward)?;
        let mut memory = std::mem::take(&mut self.memory);
        self.scoring().gradient(arm, &mut memory.scratch, &mut memory.phi);
        // A copy has no more room than it needs.
        let phi = memory.phi.clone();
        self.memory = memory;
        if !phi.is_sound() {
            return Err(InputError::Overflow);
        }
        self.made += 1;
        match self.config.training_data {
            TrainingData::All => self.learner.observe(arm, reward, self.made),
            TrainingData::Rounds => self.latest = Some((arm.to_vec(), reward)),
        }
        if let Some(probing) = &mut self.probing {
            probing.own.learn(&phi, reward);
        }
        self.rows.push(Row { phi, reward });
        let said = match self.owed {
            Some((round, observations)) if self.rows.len() as u64 >= observations => Some(self.answer(round)),
            Some(_) => None,
            // The round that this agent has answered is still waiting for others, and there is news already: agents
            // are not equally busy, and waiting on would leave the busy ones without training.
            None if self.frozen.is_some() => {
                let hurries = self.config.lockstep && !self.hurried;
                self.hurried |= hurries;
                hurries.then_some(Uplink::NetworkRequest { observations: self.rows.len() as u64 })
            }
            None => {
                let asks = !self.requested && self.is_due();
                self.requested |= asks;
                asks.then_some(Uplink::NetworkRequest { observations: self.rows.len() as u64 })
            }
        };
        Ok(said)
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        let said = match message {
            Downlink::NetworkCollect { round, observations } => {
                if round <= self.round {
                    return Ok(None);
                }
                if self.config.lockstep && (self.rows.len() as u64) < observations {
                    self.owed = Some((round, observations));
                    None
                } else {
                    Some(self.answer(round))
                }
            }
            Downlink::Average(average) => self.train_on(&average)?,
            Downlink::Network(model) => {
                if model.authoritative || model.version > self.version {
                    self.adopt(&model)?;
                }
                None
            }
            Downlink::Abort { round } => {
                if round >= self.round {
                    self.settle();
                }
                None
            }
            other => return Err(ProtocolError::Unexpected { algorithm: NAME, message: other.kind() }),
        };
        Ok(said)
    }

    fn is_laborious(&self, message: Option<&Downlink>) -> bool {
        match message {
            None | Some(Downlink::Average(_)) => true,
            Some(Downlink::NetworkCollect { observations, .. }) => {
                !self.config.lockstep || self.rows.len() as u64 >= *observations
            }
            Some(_) => false,
        }
    }

    fn inspect(&self) -> AgentView<'_> {
        let frozen = self.frozen.unwrap_or(0) as u64;
        AgentView {
            version: self.version,
            shared: self.shared.count,
            in_flight: self.frozen.map(|count| (self.round.0, count as u64)),
            ..AgentView::alone(self.rows.len() as u64 - frozen, self.fresh_information())
        }
    }

    fn failed_trainings(&self) -> u64 {
        self.learner.failures()
    }

    fn save(&self) -> Vec<u8> {
        let shared = NetworkModel {
            authoritative: false,
            version: self.version,
            contains: self.contained,
            shared: Arc::clone(&self.shared),
        };
        let (owed_round, owed_observations) = self.owed.map_or((0, 0), |(round, count)| (round.0, count));
        v1::NeuralAgentState {
            choices: self.choices,
            observations: self.made,
            learner: Some(self.learner.save()),
            shared: Some(wire::network_to_wire(&shared)),
            rows: self.rows.iter().map(Row::save).collect(),
            round: self.round.0,
            frozen: self.frozen.map(|count| count as u64),
            requested: self.requested,
            hurried: self.hurried,
            latest_features: self.latest.as_ref().map(|(x, _)| x.clone()).unwrap_or_default(),
            latest_reward: self.latest.as_ref().map_or(0.0, |(_, y)| *y),
            owed_round,
            owed_observations,
            own: self.probing.as_ref().map(|probing| probing.own.save()),
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::NeuralAgentState = wire::decode(state)?;
        let invalid = |reason| DecodeError::invalid("network", reason);
        let parameters = self.start.layout.parameters();
        let learner = self.learner.restored(&state.learner.unwrap_or_default())?;
        let model = wire::network_from_wire(state.shared.unwrap_or_default())?;
        let kind = self.neural().statistic;
        if model.shared.parameters() != parameters || model.shared.statistic.kind() != kind {
            return Err(invalid("it does not fit this federation"));
        }
        let network = match model.shared.weights.as_slice() {
            [] => self.start.clone(),
            weights => Network::from_parameters(self.start.layout, weights)
                .ok_or(invalid("its parameters do not fit"))?,
        };
        let rows: Vec<Row> =
            state.rows.into_iter().map(|row| Row::restored(row, parameters)).collect::<Result<_, _>>()?;
        let frozen = state.frozen.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        if frozen.is_some_and(|count| count > rows.len()) {
            return Err(invalid("more is frozen than there is"));
        }
        let dimension = self.start.layout.dimension;
        let latest = match state.latest_features {
            x if x.is_empty() => None,
            x => {
                check_example(dimension, &x, state.latest_reward)
                    .map_err(|_| invalid("its newest observation does not fit"))?;
                Some((x, state.latest_reward))
            }
        };
        if let Some(probing) = &mut self.probing {
            let none = self.config.neural.none(parameters);
            probing.own = none.restored(state.own.unwrap_or_default())?;
        }
        (self.learner, self.latest, self.hurried) = (learner, latest, state.hurried);
        (self.network, self.shared) = (network, model.shared);
        (self.version, self.contained) = (model.version, model.contains);
        (self.rows, self.made, self.choices) = (rows, state.observations, state.choices);
        (self.round, self.frozen, self.requested) = (RoundId(state.round), frozen, state.requested);
        self.owed = (state.owed_round > 0).then_some((RoundId(state.owed_round), state.owed_observations));
        self.forget_model();
        Ok(())
    }
}
