//! LinUCB: each agent has one ridge model, chooses by upper confidence bounds and sends nothing. One such
//! learner for all agents is the centralised reference; with another rule it is linear Thompson sampling.

use std::sync::Arc;

use crate::settings::Described;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, AgentView, Choice, LinearView};
use crate::arms::Arms;
use crate::buffer::Buffer;
use crate::error::{ConfigError, DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation};
use crate::ids::{AgentId, UserId};
use crate::linear::lin_ts::Thompson;
use crate::linear::rule::Rule;
use crate::message::{Downlink, Uplink};
use crate::random::Seed;
use crate::ridge::Ridge;
use crate::width::{ModelConfig, NOT_NEGATIVE};
use crate::wire::{self, v1};

/// Settings of `lin-ucb` and `central-lin-ucb`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct LinUcb {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
}

impl LinUcb {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()
    }

    pub(crate) fn agent(&self, name: &'static str, dimension: usize) -> LinearLearner {
        LinearLearner::new(name, &self.model, Rule::Ucb(self.model.width()), dimension)
    }
}

/// Settings of `lin-ts`: Thompson sampling by agents that learn alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct LinTs {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// ≥ 0: multiplies the width to give the standard deviation of the sampled model: 0 is greedy, 1 is theory
    /// up to a logarithm. Default 0.3.
    pub sampling_scale: f64,
}

impl Default for LinTs {
    fn default() -> Self {
        Self { model: ModelConfig::default(), sampling_scale: 0.3 }
    }
}

impl LinTs {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        let scale = self.sampling_scale;
        ConfigError::require(scale >= 0.0 && scale.is_finite(), "sampling_scale", scale, NOT_NEGATIVE)
    }

    pub(crate) fn agent(&self, id: AgentId, dimension: usize, seed: Seed) -> LinearLearner {
        let rule = Rule::Thompson(Thompson::new(self.sampling_scale, self.model.width(), id, seed));
        LinearLearner::new("lin-ts", &self.model, rule, dimension)
    }
}

/// An agent that learns alone.
#[derive(Clone, Debug)]
pub(crate) struct LinearLearner {
    name: &'static str,
    evidence: Buffer,
    /// Always empty: the agent sends nothing, and views need something to refer to.
    nothing: Arc<Evidence>,
    model: Ridge,
    rule: Rule,
    choices: u64,
}

impl LinearLearner {
    fn new(name: &'static str, model: &ModelConfig, rule: Rule, dimension: usize) -> Self {
        Self {
            name,
            evidence: Buffer::new(dimension),
            nothing: Evidence::nothing(dimension),
            model: model.model(dimension),
            rule,
            choices: 0,
        }
    }
}

impl Agent for LinearLearner {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        let choice = self.rule.choose(&self.model, self.evidence.count(), arms, self.choices)?;
        self.choices += 1;
        Ok(choice)
    }

    fn foresee(&self, _user: UserId, arms: &Arms) -> Option<usize> {
        self.rule.foresee(&self.model, self.evidence.count(), arms, self.choices)
    }

    fn choose_foreseen(&mut self) {
        self.choices += 1;
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_observation(self.model.dimension(), arm, reward)?;
        self.evidence.observe(arm, reward);
        self.model.append(arm, reward);
        if self.model.is_worn() {
            self.model.repair([self.evidence.settle()].into_iter());
        }
        Ok(None)
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        Err(ProtocolError::Unexpected { algorithm: self.name, message: message.kind() })
    }

    fn inspect(&self) -> AgentView<'_> {
        AgentView::alone(self.evidence.count(), self.model.information()).with_linear(LinearView {
            base: &self.nothing,
            in_flight: None,
            buffer: self.evidence.evidence(),
            model: &self.model,
        })
    }

    fn save(&self) -> Vec<u8> {
        v1::LinearAgentState {
            choices: self.choices,
            local_model: Some(self.model.save()),
            local_evidence: Some(wire::evidence_to_wire(self.evidence.evidence())),
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::LinearAgentState = wire::decode(state)?;
        let evidence = wire::evidence_from_wire(state.local_evidence.unwrap_or_default())?;
        if evidence.dimension() != self.model.dimension() {
            return Err(DecodeError::invalid("evidence", "it has another dimension"));
        }
        self.model.restore(&state.local_model.unwrap_or_default())?;
        self.evidence = Buffer::of(evidence);
        self.choices = state.choices;
        Ok(())
    }
}
