//! A network with the observations it is trained on.

use super::network::Network;
use super::observations::Observations;
use super::training::Training;
use crate::error::{DecodeError, InputError};
use crate::evidence::check_observation;
use crate::wire::v1;

/// Numbers beyond this are refused: in `f32`, products of a few of them must fit.
const LARGEST: f64 = 1e15;

/// `Ok` if a network can be trained on this observation.
pub(crate) fn check_example(dimension: usize, x: &[f64], y: f64) -> Result<(), InputError> {
    check_observation(dimension, x, y)?;
    if y.abs() > LARGEST || x.iter().any(|v| v.abs() > LARGEST) {
        return Err(InputError::Overflow);
    }
    Ok(())
}

#[derive(Clone, Debug)]
pub(crate) struct Learner {
    pub(crate) network: Network,
    observations: Observations,
    training: Training,
    stop: u64,
    /// How often training failed, so that the network stayed as it was.
    failures: u64,
}

impl Learner {
    pub(crate) fn new(network: Network, training: Training, stop: u64) -> Self {
        let observations = Observations::new(network.layout.dimension);
        Self { network, observations, training, stop, failures: 0 }
    }

    /// Keeps an observation, unless training has ended; `made` counts it.
    pub(crate) fn observe(&mut self, x: &[f64], y: f64, made: u64) {
        if made <= self.stop {
            self.observations.push(x, y);
        }
    }

    /// Whether there is anything to train on after `made` observations.
    pub(crate) const fn trains(&self, made: u64) -> bool {
        made <= self.stop && self.observations.len() > 0
    }

    /// Trains from where the network is, unless training has ended.
    pub(crate) fn train(&mut self, start: &Network, steps: u64, made: u64) {
        if self.trains(made) && !self.training.fit(&mut self.network, start, &self.observations, steps) {
            self.failures += 1;
        }
    }

    /// Another network, trained on what is kept from where it is; unchanged if there is nothing to train on or training fails.
    pub(crate) fn trained_from(&self, network: &Network, start: &Network, steps: u64) -> Network {
        let mut trained = network.clone();
        self.training.fit(&mut trained, start, &self.observations, steps);
        trained
    }

    #[cfg(test)]
    pub(crate) const fn kept(&self) -> usize {
        self.observations.len()
    }

    pub(crate) const fn failures(&self) -> u64 {
        self.failures
    }

    pub(crate) fn save(&self) -> v1::LearnerState {
        let (features, rewards) = self.observations.save();
        v1::LearnerState { weights: self.network.parameters(), features, rewards, failures: self.failures }
    }

    pub(crate) fn restored(&self, state: &v1::LearnerState) -> Result<Self, DecodeError> {
        let layout = self.network.layout;
        let network = Network::from_parameters(layout, &state.weights)
            .ok_or(DecodeError::invalid("network", "its parameters do not fit"))?;
        let observations = Observations::restored(layout.dimension, &state.features, &state.rewards)
            .ok_or(DecodeError::invalid("history", "its numbers do not fit together"))?;
        Ok(Self { network, observations, failures: state.failures, ..self.clone() })
    }
}
