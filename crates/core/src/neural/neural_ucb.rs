//! Neural UCB and Neural TS: every agent has a network of its own and learns alone.

use crate::settings::Described;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::config::{NeuralConfig, check_not_negative};
use super::learner::{Learner, check_example};
use super::network::{Network, Scratch};
use super::sparse::Sparse;
use super::statistic::Statistic;
use crate::agent::{Agent, AgentView, Choice};
use crate::arm_draws::ArmDraws;
use crate::arms::{Arms, best};
use crate::error::{ConfigError, DecodeError, InputError, ProtocolError};
use crate::ids::{AgentId, UserId};
use crate::message::{Downlink, Uplink};
use crate::random::Seed;
use crate::scoring::check_arms;
use crate::wire::{self, v1};

/// Settings of `neural-ucb` and `neural-ts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct NeuralUcb {
    /// The network and its training.
    #[serde(flatten)]
    pub neural: NeuralConfig,
    /// ν ≥ 0: an arm's width is √(λν·φᵀV⁻¹φ). Default 0.01, which is ν_b = 0.1 of `fn-ucb`.
    pub exploration: f64,
}

impl Default for NeuralUcb {
    fn default() -> Self {
        Self { neural: NeuralConfig::default(), exploration: 0.01 }
    }
}

impl NeuralUcb {
    pub(crate) fn check(&self, dimension: usize) -> Result<(), ConfigError> {
        self.neural.check(dimension)?;
        check_not_negative("exploration", self.exploration)
    }

    /// An agent that takes the largest upper bound, or with `samples` draws from each arm's distribution.
    pub(crate) fn agent(
        &self,
        name: &'static str,
        samples: bool,
        id: AgentId,
        dimension: usize,
        seed: Seed,
    ) -> NeuralAgent {
        let start = self.neural.start(dimension, seed);
        NeuralAgent {
            name,
            learner: self.neural.learner(&start),
            statistic: self.neural.none(start.layout.parameters()),
            start,
            config: self.neural.clone(),
            variance: self.neural.regularization * self.exploration,
            draws: samples.then(|| ArmDraws::new(id, seed)),
            made: 0,
            choices: 0,
        }
    }
}

/// An agent with a network of its own.
#[derive(Clone, Debug)]
pub(crate) struct NeuralAgent {
    name: &'static str,
    start: Network,
    learner: Learner,
    statistic: Statistic,
    config: NeuralConfig,
    /// λν: multiplies φᵀV⁻¹φ to give the squared width of an arm's score.
    variance: f64,
    /// Where the draws of Thompson sampling come from. Not set: upper confidence bounds, which draw nothing.
    draws: Option<ArmDraws>,
    made: u64,
    choices: u64,
}

impl Agent for NeuralAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.start.layout.dimension, arms)?;
        let (mut scratch, mut phi) = (Scratch::default(), Sparse::default());
        let mut score = |arm: usize| {
            let features = arms.row(arm);
            let value = self.learner.network.gradient(features, &mut scratch, &mut phi);
            let width = (self.variance * self.statistic.square(&phi)).sqrt();
            match &self.draws {
                None => value + width,
                Some(draws) => value + width * draws.normal(self.choices, features),
            }
        };
        let arm = best((0..arms.len()).map(&mut score))?;
        self.choices += 1;
        let propensity = self.draws.is_none().then_some(1.0);
        Ok(Choice { arm, propensity })
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_example(self.start.layout.dimension, arm, reward)?;
        let mut phi = Sparse::default();
        self.learner.network.gradient(arm, &mut Scratch::default(), &mut phi);
        if !phi.is_sound() {
            return Err(InputError::Overflow);
        }
        self.statistic.learn(&phi, reward);
        self.made += 1;
        self.learner.observe(arm, reward, self.made);
        self.learner.train(&self.start, self.config.training_steps, self.made);
        Ok(None)
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        Err(ProtocolError::Unexpected { algorithm: self.name, message: message.kind() })
    }

    fn is_laborious(&self, _message: Option<&Downlink>) -> bool {
        true
    }

    fn inspect(&self) -> AgentView<'_> {
        AgentView::alone(self.made, self.statistic.information)
    }

    fn failed_trainings(&self) -> u64 {
        self.learner.failures()
    }

    fn save(&self) -> Vec<u8> {
        v1::NeuralAgentState {
            choices: self.choices,
            observations: self.made,
            learner: Some(self.learner.save()),
            statistic: Some(self.statistic.save()),
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::NeuralAgentState = wire::decode(state)?;
        let learner = self.learner.restored(&state.learner.unwrap_or_default())?;
        let none = self.config.none(self.start.layout.parameters());
        self.statistic = none.restored(state.statistic.unwrap_or_default())?;
        self.learner = learner;
        (self.made, self.choices) = (state.observations, state.choices);
        Ok(())
    }
}
