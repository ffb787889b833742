//! Kernel UCB and kernel Thompson sampling: an agent that learns alone from a history that stops growing.

use prost::Message;

use super::regression::KernelRegression;
use crate::agent::{Agent, AgentView, Choice};
use crate::arm_draws::ArmDraws;
use crate::arms::{Arms, best};
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::evidence::check_observation;
use crate::ids::UserId;
use crate::message::{Downlink, Uplink};
use crate::scoring::check_arms;
use crate::wire::{self, v1};

/// A sampled mean has at least this variance.
const SMALLEST_VARIANCE: f64 = 1e-6;

/// The rule by which the learner chooses.
#[derive(Clone, Debug)]
pub(super) enum KernelRule {
    /// The largest mean + √(λν·variance).
    Ucb,
    /// The largest of independent draws from N(mean, max(λν·variance, 1e-6)).
    Thompson(ArmDraws),
}

/// An agent that learns alone.
#[derive(Clone, Debug)]
pub(crate) struct KernelLearner {
    name: &'static str,
    rule: KernelRule,
    regression: KernelRegression,
    /// λν: multiplies the variance of an arm to give its squared width.
    variance_scale: f64,
    max_history: usize,
    choices: u64,
    /// Observations made, also those that came after the history was full.
    observations: u64,
    /// Memory for the scores of an offer.
    scores: Vec<f64>,
}

impl KernelLearner {
    pub(super) fn new(
        name: &'static str,
        rule: KernelRule,
        regression: KernelRegression,
        variance_scale: f64,
        max_history: usize,
    ) -> Self {
        Self {
            name,
            rule,
            regression,
            variance_scale,
            max_history,
            choices: 0,
            observations: 0,
            scores: Vec::new(),
        }
    }
}

impl Agent for KernelLearner {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.regression.dimension(), arms)?;
        let Self { rule, regression, variance_scale, choices, scores, .. } = self;
        scores.clear();
        regression.score(arms, |index, belief| {
            let variance = *variance_scale * belief.variance;
            scores.push(match rule {
                KernelRule::Ucb => belief.mean + variance.sqrt(),
                KernelRule::Thompson(draws) => {
                    let deviation = variance.max(SMALLEST_VARIANCE).sqrt();
                    belief.mean + deviation * draws.normal(*choices, arms.row(index))
                }
            });
        });
        let arm = best(scores.iter().copied())?;
        *choices += 1;
        let propensity = matches!(rule, KernelRule::Ucb).then_some(1.0);
        Ok(Choice { arm, propensity })
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_observation(self.regression.dimension(), arm, reward)?;
        if self.regression.len() < self.max_history {
            self.regression.append(arm, reward)?;
        }
        self.observations += 1;
        Ok(None)
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        Err(ProtocolError::Unexpected { algorithm: self.name, message: message.kind() })
    }

    fn inspect(&self) -> AgentView<'_> {
        AgentView::alone(self.observations, self.regression.information())
    }

    fn save(&self) -> Vec<u8> {
        let (features, rewards) = self.regression.save();
        v1::KernelAgentState {
            choices: self.choices,
            features,
            rewards,
            observations: self.observations,
            dimension: self.regression.dimension() as u64,
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::KernelAgentState = wire::decode(state)?;
        let d = self.regression.dimension();
        let kept = state.rewards.len();
        let expected = state.observations.min(self.max_history as u64);
        if state.dimension != d as u64 || state.features.len() != kept * d || kept as u64 != expected {
            return Err(DecodeError::invalid("history", "it does not fit this federation"));
        }
        let mut regression = self.regression.forgotten();
        for (x, y) in state.features.chunks_exact(d).zip(state.rewards) {
            let added = check_observation(d, x, y).and_then(|()| regression.append(x, y));
            added.map_err(|_| DecodeError::invalid("history", "no model fits it"))?;
        }
        (self.regression, self.observations, self.choices) = (regression, state.observations, state.choices);
        Ok(())
    }
}
