//! FedLinUCB (He, Wang, Min and Gu, 2022): push when due, pull in the same exchange.
//!
//! Between exchanges an agent chooses with what it last downloaded; its own fresh observations decide only when
//! the next exchange is due. The coordinator never sends to an agent that did not ask, which suits agents that
//! are connected now and then.

use crate::settings::Described;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, AgentView, Choice};
use crate::arms::Arms;
use crate::error::{ConfigError, DecodeError, InputError, ProtocolError};
use crate::exchange::JoinPolicy;
use crate::exchange::belief::Belief;
use crate::federation::Federation;
use crate::ids::UserId;
use crate::linear::async_lin_ucb::{receive_into, upload_if_due};
use crate::linear::exchange::{DownloadPolicy, Exchange};
use crate::linear::exchange_relay::ExchangeRelay;
use crate::linear::rule::Rule;
use crate::message::{Downlink, Uplink};
use crate::privacy::PrivacyConfig;
use crate::relay::LinkThresholds;
use crate::ridge::Ridge;
use crate::trigger::{Threshold, UploadTrigger};
use crate::width::ModelConfig;
use crate::wire::{self, v1};

const NAME: &str = "fed-lin-ucb";

/// Settings of `fed-lin-ucb`: agents push and pull in one exchange, and hear nothing in between.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct FedLinUcb {
    /// The model. Its width is the paper's β, times `width_scale`, unless `fixed_width` is set; the form
    /// of `width` has no effect.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// γ in [1, ∞]: an exchange is due when fresh observations multiplied the determinant by more. Not set:
    /// 1 + 1/M² for M agents, the paper's choice.
    pub upload_threshold: Option<Threshold>,
    /// What is promised about privacy. With it, an exchange is due when the count of observations has grown enough, and the
    /// width is that of sums with noise. Not set: nothing is promised.
    pub privacy: Option<PrivacyConfig>,
}

impl FedLinUcb {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.privacy.as_ref().map_or(Ok(()), PrivacyConfig::check_for_sums)?;
        self.upload_threshold.map_or(Ok(()), |t| t.check_ratio("upload_threshold"))
    }

    pub(crate) fn threshold(&self, federation: &Federation) -> Threshold {
        let m = federation.agents.max(1) as f64;
        self.upload_threshold.unwrap_or(Threshold(1.0 + 1.0 / (m * m)))
    }

    /// β = √λ·S + (√(1+Mα) + M√(2α))·(σ√(d·ln((1 + T/(min(α,1)λ))/δ)) + √λ·S), for features of norm 1.
    fn beta(&self, dimension: usize, federation: &Federation) -> f64 {
        let m = federation.agents.max(1) as f64;
        let alpha = self.threshold(federation).0 - 1.0;
        let ModelConfig { regularization, noise, confidence, norm_bound, .. } = self.model;
        let prior = regularization.sqrt() * norm_bound;
        let horizon = federation.horizon as f64;
        // At α = 0 every observation is exchanged at once and the ratio is that of one agent.
        let smallest = if alpha > 0.0 { alpha.min(1.0) } else { 1.0 };
        let log = libm::log((1.0 + horizon / (smallest * regularization)) / confidence);
        let spread = (1.0 + m * alpha).sqrt() + m * (2.0 * alpha).sqrt();
        prior + spread * (noise * (dimension as f64 * log).sqrt() + prior)
    }

    pub(crate) fn agent(&self, dimension: usize, federation: &Federation) -> FedAgent {
        let beta = self.beta(dimension, federation);
        FedAgent {
            view: Belief::new(self.model.model(dimension)),
            downloaded: self.model.model(dimension),
            rule: Rule::Ucb(self.model.width().or_fixed_at(beta)),
            trigger: UploadTrigger::new(self.threshold(federation), 1),
            choices: 0,
        }
    }

    pub(crate) fn coordinator(&self, dimension: usize) -> Exchange {
        Exchange::new(NAME, self.model.model(dimension), DownloadPolicy::AfterUpload, JoinPolicy::Lazy)
    }

    /// A relay that answers each upload with all it knows, and exchanges with its parent when that is due.
    pub(crate) fn relay(&self, dimension: usize, above: LinkThresholds) -> ExchangeRelay {
        let trigger = UploadTrigger::new(above.upload, 1);
        ExchangeRelay::new(NAME, self.model.model(dimension), self.coordinator(dimension), trigger)
    }
}

/// An agent that chooses with what it last downloaded.
#[derive(Clone, Debug)]
pub(crate) struct FedAgent {
    view: Belief,
    /// The model of the base alone.
    downloaded: Ridge,
    rule: Rule,
    trigger: UploadTrigger,
    choices: u64,
}

impl Agent for FedAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        let choice = self.rule.choose(&self.downloaded, self.view.base().count(), arms, self.choices)?;
        self.choices += 1;
        Ok(choice)
    }

    fn foresee(&self, _user: UserId, arms: &Arms) -> Option<usize> {
        self.rule.foresee(&self.downloaded, self.view.base().count(), arms, self.choices)
    }

    fn choose_foreseen(&mut self) {
        self.choices += 1;
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        self.view.learn(arm, reward)?;
        Ok(upload_if_due(&mut self.view, self.trigger))
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        let (changed, answer) = receive_into(&mut self.view, self.trigger, NAME, message)?;
        if changed {
            self.downloaded.refresh_to(self.view.base()).expect("a view accepts only what has a model");
        }
        Ok(answer)
    }

    fn rest(&mut self) {
        self.view.rest();
    }

    fn inspect(&self) -> AgentView<'_> {
        self.view.inspect_with(&self.downloaded)
    }

    fn save(&self) -> Vec<u8> {
        v1::LinearAgentState {
            choices: self.choices,
            view: Some(self.view.save()),
            frozen: Some(self.downloaded.save()),
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::LinearAgentState = wire::decode(state)?;
        let view = self.view.restored(state.view.unwrap_or_default())?;
        self.downloaded.restore(&state.frozen.unwrap_or_default())?;
        self.view = view;
        self.choices = state.choices;
        Ok(())
    }
}
