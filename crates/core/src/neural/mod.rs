//! The neural family: a network predicts rewards, its gradients are the features of a linear model, and the
//! width of that model says where to explore.

pub(crate) mod config;
pub(crate) mod diagonal;
pub(crate) mod downdate;
pub(crate) mod fn_agent;
pub(crate) mod fn_ucb;
pub(crate) mod inverse;
pub(crate) mod learner;
pub(crate) mod message;
pub(crate) mod network;
pub(crate) mod network_relay;
pub(crate) mod network_rounds;
pub(crate) mod neural_ucb;
pub(crate) mod observations;
pub(crate) mod open_round;
#[cfg(test)]
pub(crate) mod plain;
pub(crate) mod pooled;
pub(crate) mod product;
pub(crate) mod quotients;
pub(crate) mod rows;
pub(crate) mod scoring;
pub(crate) mod seat_width;
pub(crate) mod sparse;
pub(crate) mod statistic;
pub(crate) mod training;
pub(crate) mod update_agent;
pub(crate) mod update_rounds;
pub(crate) mod widths;

pub use config::NeuralConfig;
pub use fn_ucb::{AlphaRule, FeaturePoint, FnUcb, TrainingData, TrainingMode, Trigger};
pub use message::{NetworkEvidence, NetworkModel, NetworkPart, NetworkState, NetworkSum, Weights, WidthSum};
pub use network::NetworkKind;
pub use neural_ucb::NeuralUcb;
pub use statistic::Precondition;
