//! Off-policy evaluation: what would a policy have earned, if all we have is a log of another one?
//!
//! A log row has the reward of the action that was taken and the probability with which it was taken. With the
//! probability that the policy in question would have taken it, and perhaps a model of the rewards, each
//! [`Estimator`] gives a value with an interval. [`evaluate`] does this for a federated policy that learned from
//! the earlier part of a log; [`replay`] lets it learn while the log passes by; [`evaluate_own`] takes any policy whose
//! probabilities are in a file.

mod estimate;
mod federation;
mod judge;
mod own;
mod policy;
mod reward_model;
mod ridge_model;
mod stumps;

pub use estimate::{
    Estimate, Estimator, Interval, JudgedRow, clip, effective_sample_size, estimate, usual_limit, warning,
};
pub use judge::{Findings, Judging, Named};
pub use own::{OwnPolicy, evaluate_own, read_policy};
pub use policy::{Assignment, Evaluation, EvaluationSettings, Replay, evaluate, replay};
pub use reward_model::{ModelKind, RewardModel, fit_reward_model};

#[cfg(test)]
mod tests;
