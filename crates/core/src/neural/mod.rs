//! The neural family: a network predicts rewards, its gradients are the features of a linear model, and the
//! width of that model says where to explore.

pub(crate) mod network;
pub(crate) mod observations;
#[cfg(test)]
pub(crate) mod plain;
pub(crate) mod sparse;
pub(crate) mod statistic;
pub(crate) mod training;

pub use network::NetworkKind;
pub use statistic::Precondition;
