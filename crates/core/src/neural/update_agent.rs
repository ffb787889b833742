//! The agent of private FN-UCB: it learns by itself, shares a few updates of a network, and uses the shared network while that
//! predicts better than its own.

use std::collections::VecDeque;
use std::sync::Arc;

use prost::Message;

use super::fn_agent::fingerprint;
use super::fn_ucb::FnUcb;
use super::learner::{Learner, check_example};
use super::message::{NetworkEvidence, NetworkModel, NetworkPart, NetworkState};
use super::network::{Network, Scratch};
use super::scoring::{GradientMemory, Scoring};
use super::sparse::Sparse;
use super::statistic::Statistic;
use crate::agent::{Agent, AgentView, Choice};
use crate::arms::Arms;
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::ids::{AgentId, Incarnation, RoundId, UserId, Version};
use crate::message::{Downlink, Uplink};
use crate::privacy::updates::UpdateReleases;
use crate::privacy::{NoiseSource, PrivacyConfig, PrivacyReport};
use crate::random::Seed;
use crate::scoring::check_arms;
use crate::wire::{self, v1};

const NAME: &str = "fn-ucb";

/// Over how many of an agent's newest observations the shared network is compared with its own predictions.
const COMPARED: usize = 50;

/// An agent that shares updates with noise.
///
/// Statistics of gradients never leave it. An update is a function of everything that it saw, cut to a length, so the promise
/// holds for all of it at once, and choices may look at raw observations.
#[derive(Debug)]
pub(crate) struct UpdateAgent {
    config: FnUcb,
    /// The network at θ₀, the same for all agents of a federation.
    start: Network,
    fingerprint: u64,
    /// The agent's own network, and what it is trained on.
    learner: Learner,
    /// The statistic of everything that this agent observed.
    statistic: Statistic,
    releases: UpdateReleases,
    /// What the coordinator said last; its weights are differences from θ₀.
    shared: Arc<NetworkState>,
    /// θ₀ with those differences.
    network: Network,
    version: Version,
    recent: VecDeque<Compared>,
    /// Interactions, with those that never got a reward.
    made: u64,
    choices: u64,
    /// Interactions that are in what the coordinator holds.
    contained: u64,
    /// Interactions that there were at the last release.
    released: u64,
    round: RoundId,
    /// Interactions in the update that was sent for the newest round, until it ends.
    frozen: Option<u64>,
    requested: bool,
}

/// An observation with the squares of two errors: of what the agent predicted from its own data before it learned it, and of what
/// the shared network predicts.
#[derive(Clone, Debug, PartialEq)]
struct Compared {
    x: Vec<f64>,
    y: f64,
    own: f64,
    shared: f64,
}

/// What a federation that shares updates knows before its first round.
pub(super) fn no_updates() -> NetworkState {
    NetworkState::from_parts(0, Vec::new(), Vec::new(), Vec::new(), 0.0, Vec::new())
        .expect("no numbers fit together")
}

fn square(x: f64) -> f64 {
    x * x
}

impl UpdateAgent {
    pub(crate) fn new(
        config: &FnUcb,
        privacy: &PrivacyConfig,
        dimension: usize,
        id: AgentId,
        seed: Seed,
    ) -> Self {
        let start = config.neural.start(dimension, seed);
        let parameters = start.layout.parameters();
        Self {
            fingerprint: fingerprint(&start),
            learner: config.neural.learner(&start),
            statistic: config.neural.none(parameters),
            releases: UpdateReleases::new(privacy, parameters, config.update_bound, id, seed),
            shared: Arc::new(no_updates()),
            network: start.clone(),
            start,
            config: config.clone(),
            version: Version(0),
            recent: VecDeque::new(),
            made: 0,
            choices: 0,
            contained: 0,
            released: 0,
            round: RoundId(0),
            frozen: None,
            requested: false,
        }
    }

    /// Whether the shared network predicts the agent's newest observations better than the agent did by itself.
    pub(crate) fn follows_shared(&self) -> bool {
        let sum = |error: fn(&Compared) -> f64| self.recent.iter().map(error).sum::<f64>();
        self.version > Version(0) && sum(|c| c.shared) < sum(|c| c.own)
    }

    fn scoring(&self) -> Scoring<'_> {
        let follows = self.follows_shared();
        Scoring {
            config: &self.config,
            start: &self.start,
            predicts: if follows { &self.network } else { &self.learner.network },
            shared: &self.start,
            statistic: &self.statistic,
            widths: &[],
            alpha: if follows { 1.0 } else { self.config.scheduled_alpha(self.made) },
        }
    }

    /// What the agent expects of an arm by its own data alone.
    fn own_mean(&self, x: &[f64], phi: &Sparse, scratch: &mut Scratch) -> f64 {
        let alpha = self.config.scheduled_alpha(self.made);
        (1.0 - alpha) * self.statistic.mean(phi) + alpha * self.learner.network.value(x, scratch)
    }

    fn request_if_due(&mut self) -> Option<Uplink> {
        let asks = !self.requested && self.frozen.is_none() && self.releases.is_due(self.made, self.released);
        self.requested |= asks;
        asks.then_some(Uplink::NetworkRequest { observations: self.made - self.contained })
    }

    /// Answers a round, with an update if the agent has learned enough since its last one and may still release any.
    fn answer(&mut self, round: RoundId) -> Uplink {
        self.round = round;
        let gives = self.releases.is_worth_a_round(self.made, self.released);
        let (mut weights, mut count) = (Vec::new(), 0);
        if gives {
            let trained = self.learner.trained_from(&self.network, &self.start, self.config.update_steps);
            let (after, before) = (trained.parameters(), self.network.parameters());
            let update: Vec<f64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
            weights = self.releases.release(&update).expect("it was asked whether there is one left");
            count = self.made - self.contained;
            (self.frozen, self.released) = (Some(count), self.made);
        }
        Uplink::NetworkPart(NetworkPart {
            round,
            start: self.fingerprint,
            evidence: NetworkEvidence::Diagonal { squares: Vec::new(), moment: Vec::new(), count },
            weights,
            alpha: 0.0,
            trained: gives,
            sum: None,
        })
    }

    /// The network that a shared state stands for.
    fn network_of(&self, shared: &NetworkState) -> Option<Network> {
        if shared.weights.is_empty() {
            return Some(self.start.clone());
        }
        let start = self.start.parameters();
        if start.len() != shared.weights.len() || shared.parameters() != 0 {
            return None;
        }
        let moved: Vec<f64> = start.iter().zip(&shared.weights).map(|(a, b)| a + b).collect();
        Network::from_parameters(self.start.layout, &moved).filter(Network::is_sound)
    }

    fn adopt(&mut self, model: &NetworkModel) -> Result<(), ProtocolError> {
        let network = self
            .network_of(&model.shared)
            .ok_or(ProtocolError::Model("its parameters are not those of a network"))?;
        if model.contains > self.made {
            return Err(ProtocolError::Sequence { expected: self.made, got: model.contains });
        }
        self.network = network;
        self.shared = Arc::clone(&model.shared);
        self.version = model.version;
        self.contained = model.contains;
        self.compare_again();
        self.settle();
        if model.authoritative {
            self.round = RoundId(0);
        }
        Ok(())
    }

    /// Judges another shared network by the newest observations.
    fn compare_again(&mut self) {
        let mut scratch = Scratch::default();
        for compared in &mut self.recent {
            compared.shared = square(self.network.value(&compared.x, &mut scratch) - compared.y);
        }
    }

    /// A round is over, with or without a result.
    const fn settle(&mut self) {
        (self.frozen, self.requested) = (None, false);
    }
}

impl Agent for UpdateAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.start.layout.dimension, arms)?;
        let choice = self.scoring().choose(arms, &mut GradientMemory::default())?;
        self.choices += 1;
        Ok(choice)
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_example(self.start.layout.dimension, arm, reward)?;
        let (mut scratch, mut phi) = (Scratch::default(), Sparse::default());
        self.start.gradient(arm, &mut scratch, &mut phi);
        if !phi.is_sound() {
            return Err(InputError::Overflow);
        }
        let own = square(self.own_mean(arm, &phi, &mut scratch) - reward);
        let shared = square(self.network.value(arm, &mut scratch) - reward);
        self.recent.push_back(Compared { x: arm.to_vec(), y: reward, own, shared });
        if self.recent.len() > COMPARED {
            self.recent.pop_front();
        }
        self.statistic.learn(&phi, reward);
        self.made += 1;
        self.learner.observe(arm, reward, self.made);
        self.learner.train(&self.start, self.config.neural.training_steps, self.made);
        Ok(self.request_if_due())
    }

    fn give_up(&mut self, _user: UserId) -> Option<Uplink> {
        self.made += 1;
        self.request_if_due()
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        match message {
            Downlink::NetworkCollect { round, .. } if round <= self.round => Ok(None),
            Downlink::NetworkCollect { round, .. } => Ok(Some(self.answer(round))),
            Downlink::Network(model) => {
                if model.authoritative || model.version > self.version {
                    self.adopt(&model)?;
                }
                Ok(None)
            }
            Downlink::Abort { round } => {
                if round >= self.round {
                    self.settle();
                }
                Ok(None)
            }
            other => Err(ProtocolError::Unexpected { algorithm: NAME, message: other.kind() }),
        }
    }

    fn inspect(&self) -> AgentView<'_> {
        let unsent = (self.made - self.contained).saturating_sub(self.frozen.unwrap_or(0));
        // Statistics are never sent, so all of their information is the agent's own.
        let information = if unsent > 0 { self.statistic.information } else { 0.0 };
        AgentView {
            version: self.version,
            shared: self.shared.count,
            in_flight: self.frozen.map(|count| (self.round.0, count)),
            ..AgentView::alone(unsent, information)
        }
    }

    fn privacy(&self) -> Option<PrivacyReport> {
        Some(self.releases.report(self.made))
    }

    fn failed_trainings(&self) -> u64 {
        self.learner.failures()
    }

    fn use_noise(&mut self, noise: Box<dyn NoiseSource>) {
        self.releases.intake.noise = noise;
    }

    fn begin_life(&mut self, life: Incarnation) {
        self.releases.intake.begin_life(life);
    }

    fn save(&self) -> Vec<u8> {
        let shared = NetworkModel {
            authoritative: false,
            version: self.version,
            contains: self.contained,
            shared: Arc::clone(&self.shared),
        };
        v1::NeuralAgentState {
            choices: self.choices,
            observations: self.made,
            learner: Some(self.learner.save()),
            statistic: Some(self.statistic.save()),
            shared: Some(wire::network_to_wire(&shared)),
            round: self.round.0,
            frozen: self.frozen,
            requested: self.requested,
            privacy: Some(self.releases.save()),
            released: self.released,
            recent_features: self.recent.iter().flat_map(|compared| &compared.x).copied().collect(),
            recent_rewards: self.recent.iter().map(|compared| compared.y).collect(),
            recent_errors: self.recent.iter().map(|compared| compared.own).collect(),
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::NeuralAgentState = wire::decode(state)?;
        let invalid = |reason| DecodeError::invalid("network", reason);
        let dimension = self.start.layout.dimension;
        let learner = self.learner.restored(&state.learner.unwrap_or_default())?;
        let none = self.config.neural.none(self.start.layout.parameters());
        let statistic = none.restored(state.statistic.unwrap_or_default())?;
        let model = wire::network_from_wire(state.shared.unwrap_or_default())?;
        let network = self.network_of(&model.shared).ok_or(invalid("its parameters do not fit"))?;
        let (rewards, errors) = (state.recent_rewards, state.recent_errors);
        let fits = rewards.len() <= COMPARED
            && rewards.len() == errors.len()
            && rewards.len() * dimension == state.recent_features.len()
            && state.recent_features.iter().chain(&rewards).chain(&errors).all(|v| v.is_finite());
        let counts = model.contains <= state.observations
            && state.released <= state.observations
            && state.frozen.is_none_or(|count| count <= state.observations - model.contains);
        if !fits || !counts {
            return Err(invalid("its numbers do not fit together"));
        }
        self.releases.restore(&state.privacy.unwrap_or_default())?;
        // From here on nothing fails.
        let rows = state.recent_features.chunks(dimension).zip(rewards.iter().zip(&errors));
        self.recent =
            rows.map(|(x, (y, own))| Compared { x: x.to_vec(), y: *y, own: *own, shared: 0.0 }).collect();
        (self.learner, self.statistic, self.network) = (learner, statistic, network);
        (self.shared, self.version, self.contained) = (model.shared, model.version, model.contains);
        (self.made, self.choices) = (state.observations, state.choices);
        (self.released, self.round) = (state.released, RoundId(state.round));
        (self.frozen, self.requested) = (state.frozen, state.requested);
        self.compare_again();
        Ok(())
    }
}
