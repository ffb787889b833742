//! An agent's own observations and their standing in rounds: which are in the shared model, which are
//! frozen for a round under way, which are new.

use super::history::History;
use super::link::LinkFunction;
use crate::error::DecodeError;
use crate::evidence::Evidence;
use crate::ids::RoundId;
use crate::message::Gradient;
use crate::wire::v1;

/// Own observations, oldest first. Those in the shared model are always the oldest of them.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) history: History,
    /// How many are in the shared model.
    pub(crate) contained: u64,
    /// The newest round that the agent answered.
    pub(crate) round: RoundId,
    /// How many were there when that round collected, until it ends.
    pub(crate) frozen: Option<usize>,
    /// A round was asked for and has not ended.
    pub(crate) requested: bool,
    /// How many observations that no model contains the coordinator was told of (scheduled rounds).
    pub(crate) reported: u64,
}

impl Record {
    pub(crate) const fn new(dimension: usize) -> Self {
        let history = History::new(dimension);
        Self { history, contained: 0, round: RoundId(0), frozen: None, requested: false, reported: 0 }
    }

    /// Answers a round with everything there is so far.
    pub(crate) fn freeze(&mut self, round: RoundId) {
        self.round = round;
        self.frozen = Some(self.history.len());
    }

    /// The evidence of all observations, without rewards.
    pub(crate) fn whole(&self, dimension: usize) -> Evidence {
        let mut evidence = Evidence::none(dimension);
        let mut x = vec![0.0; dimension];
        for index in 0..self.history.len() {
            self.history.read(index, &mut x);
            evidence.add_observation(&x, 0.0);
        }
        evidence
    }

    /// The gradient at a point over what is frozen for a round; `None` if that round is over.
    pub(crate) fn gradient(
        &self,
        link: LinkFunction,
        round: RoundId,
        step: u64,
        point: &[f64],
        curvature: bool,
    ) -> Option<Gradient> {
        let count = self.frozen.filter(|_| round == self.round)?;
        let (gradient, curvature) = if curvature {
            let (gradient, matrix) = self.history.gradient_and_curvature(link, point, count);
            (gradient, Some(matrix))
        } else {
            (self.history.gradient(link, point, count), None)
        };
        Some(Gradient { round, step, gradient, curvature })
    }

    /// A model arrived that contains so many observations. Its round ended what the coordinator had added up, so that
    /// everything beyond it has to be told anew.
    pub(crate) const fn contain(&mut self, contained: u64) {
        self.contained = contained;
        self.reported = 0;
    }

    /// A round is over, with or without a result.
    pub(crate) const fn settle(&mut self) {
        self.frozen = None;
        self.requested = false;
    }

    pub(crate) fn save(&self) -> v1::GlmAgentState {
        let (features, rewards) = self.history.save();
        v1::GlmAgentState {
            features,
            rewards,
            contained: self.contained,
            round: self.round.0,
            frozen: self.frozen.map(|count| count as u64),
            requested: self.requested,
            reported: self.reported,
            ..Default::default()
        }
    }

    pub(crate) fn restored(state: &v1::GlmAgentState, dimension: usize) -> Result<Self, DecodeError> {
        let history = History::restored(dimension, &state.features, &state.rewards)
            .ok_or(DecodeError::invalid("history", "its numbers do not fit together"))?;
        let frozen = state.frozen.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        if frozen.is_some_and(|count| count > history.len()) {
            return Err(DecodeError::invalid("history", "more is frozen than there is"));
        }
        Ok(Self {
            history,
            contained: state.contained,
            round: RoundId(state.round),
            frozen,
            requested: state.requested,
            reported: state.reported,
        })
    }
}
