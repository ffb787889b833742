//! Settings that the whole family shares.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use super::learner::Learner;
use super::network::{Layout, Network, NetworkKind};
use super::statistic::{Precondition, Statistic};
use super::training::Training;
use crate::error::ConfigError;
use crate::random::Seed;
use crate::width::{NOT_NEGATIVE, POSITIVE};
use crate::wire::MAX_DIMENSION;

/// A network, how it is trained, and the statistics of its gradients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct NeuralConfig {
    /// The architecture and start of the network. Default plain.
    pub network: NetworkKind,
    /// m ≥ 1: units of a hidden layer, even for the tangent network. Default 20.
    pub hidden_width: usize,
    /// in [1, 64]: hidden layers. Default 1.
    pub hidden_layers: usize,
    /// η > 0: the step of gradient descent; for the tangent network the numerator of c/(mλ + mnL). Too
    /// large a step diverges, and the network stays as it was. Default 0.03; published 0.01.
    pub learning_rate: f64,
    /// J: steps of full-batch gradient descent whenever the network is trained. Default 30.
    pub training_steps: u64,
    /// The network is not trained any more once an agent has made more observations than this. Default 2000.
    pub training_stop: u64,
    /// λ > 0: the ridge of the statistics, and the weight decay of training. Default 0.1.
    pub regularization: f64,
    /// Whether the statistics hold the whole matrix of p₀ × p₀ numbers or its diagonal. Default full.
    pub statistic: Precondition,
    /// The most parameters p₀ for which whole matrices are kept: 4096 are 67 megabytes each. Default 4096.
    pub max_full_parameters: usize,
}

impl Default for NeuralConfig {
    fn default() -> Self {
        Self {
            network: NetworkKind::Plain,
            hidden_width: 20,
            hidden_layers: 1,
            learning_rate: 0.03,
            training_steps: 30,
            training_stop: 2000,
            regularization: 0.1,
            statistic: Precondition::Full,
            max_full_parameters: 4096,
        }
    }
}

impl NeuralConfig {
    pub(crate) fn check(&self, dimension: usize) -> Result<(), ConfigError> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        let require = ConfigError::require;
        if self.hidden_width == 0 {
            return Err(ConfigError::new("hidden_width", 0, "it must be at least 1"));
        }
        if self.network == NetworkKind::Tangent && !self.hidden_width.is_multiple_of(2) {
            let allowed = "the tangent network has two halves: it must be even";
            return Err(ConfigError::new("hidden_width", self.hidden_width, allowed));
        }
        if !(1..=64).contains(&self.hidden_layers) {
            return Err(ConfigError::new(
                "hidden_layers",
                self.hidden_layers,
                "it must lie between 1 and 64",
            ));
        }
        require(positive(self.learning_rate), "learning_rate", self.learning_rate, POSITIVE)?;
        require(positive(self.regularization), "regularization", self.regularization, POSITIVE)?;
        let parameters = self.parameters(dimension);
        if self.statistic == Precondition::Full && parameters > self.max_full_parameters.min(MAX_DIMENSION) {
            let value = format!("{} ({parameters} parameters)", self.hidden_width);
            let allowed = "whole matrices of so many parameters are refused: use a smaller network, \
                           statistic = \"diagonal\", or a larger max_full_parameters (16384 at most)";
            return Err(ConfigError::new("hidden_width", value, allowed));
        }
        if parameters > 1 << 24 {
            let value = format!("{} ({parameters} parameters)", self.hidden_width);
            return Err(ConfigError::new(
                "hidden_width",
                value,
                "more than 16 777 216 parameters are refused",
            ));
        }
        Ok(())
    }

    /// p₀: parameters of the network for arms of so many features.
    #[must_use]
    pub fn parameters(&self, dimension: usize) -> usize {
        self.layout(dimension).parameters()
    }

    pub(crate) const fn layout(&self, dimension: usize) -> Layout {
        Layout { kind: self.network, dimension, width: self.hidden_width, layers: self.hidden_layers }
    }

    /// Returns the network with the parameters θ₀ that all agents of a federation with this seed start from.
    pub(crate) fn start(&self, dimension: usize, seed: Seed) -> Network {
        Network::start(self.layout(dimension), &mut seed.stream("network-start", 0, 0))
    }

    pub(crate) fn learner(&self, start: &Network) -> Learner {
        let training = Training { rate: self.learning_rate, regularization: self.regularization };
        Learner::new(start.clone(), training, self.training_stop)
    }

    pub(crate) fn none(&self, parameters: usize) -> Statistic {
        Statistic::new(self.statistic, parameters, self.regularization)
    }
}

pub(crate) fn check_not_negative(name: &'static str, value: f64) -> Result<(), ConfigError> {
    ConfigError::require(value >= 0.0 && value.is_finite(), name, value, NOT_NEGATIVE)
}
