//! Async-LinUCB, its agent: upload when what was learned alone outweighs what is shared.
//!
//! The same agent runs with Thompson sampling and with perturbed history; only the rule differs. Its
//! coordinator is in [`exchange`](super::exchange).

use crate::settings::Described;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, AgentView, Choice};
use crate::arms::Arms;
use crate::error::{ConfigError, DecodeError, InputError, ProtocolError};
use crate::exchange::JoinPolicy;
use crate::exchange::belief::{Adopted, Belief};
use crate::ids::{AgentId, UserId};
use crate::linear::exchange::{DownloadPolicy, Exchange};
use crate::linear::exchange_relay::ExchangeRelay;
use crate::linear::lin_phe::{Perturbation, PerturbedHistory};
use crate::linear::lin_ts::Thompson;
use crate::linear::rule::Rule;
use crate::message::{Downlink, Uplink};
use crate::privacy::PrivacyConfig;
use crate::random::Seed;
use crate::relay::LinkThresholds;
use crate::trigger::{Threshold, UploadTrigger};
use crate::width::{ModelConfig, NOT_NEGATIVE};
use crate::wire::{self, v1};

/// When agents and the coordinator speak, in the asynchronous protocols.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ProtocolConfig {
    /// γ_U in [1, ∞]: an agent uploads when its buffer multiplied det V(λ) by more. 1 uploads after every
    /// observation, ∞ never. Default 2.
    pub upload_threshold: Threshold,
    /// γ_D in [1, ∞]: an agent is sent a snapshot when det V(λ) of everything exceeds that of its own view
    /// by more. At or below γ_U an upload sets off a download to nearly every agent. Default 4.
    pub download_threshold: Threshold,
    /// When newcomers become known. Default lazy.
    pub join: JoinPolicy,
    /// ≥ 1: the fewest observations that an upload may hold. 1 is as in the papers, 2d or more keeps single
    /// interactions from being read off it. Default 1.
    pub min_upload: u64,
    /// Answer an upload of an agent that is behind with a snapshot at once. Default false.
    pub snapshot_in_receipt: bool,
    /// Agents with thresholds of their own.
    #[serde(rename = "override")]
    pub overrides: Vec<Override>,
}

/// Thresholds of one agent that replace those of the federation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// The agent that these thresholds are for.
    pub agent: AgentId,
    /// γ_U in [1, ∞]: the agent's own threshold for uploads. Not set: that of the federation.
    #[serde(default)]
    pub upload_threshold: Option<Threshold>,
    /// γ_D in [1, ∞]: the agent's own threshold for snapshots. Not set: that of the federation.
    #[serde(default)]
    pub download_threshold: Option<Threshold>,
}

impl Default for ProtocolConfig {
    fn default() -> Self {
        Self {
            upload_threshold: Threshold(2.0),
            download_threshold: Threshold(4.0),
            join: JoinPolicy::Lazy,
            min_upload: 1,
            snapshot_in_receipt: false,
            overrides: Vec::new(),
        }
    }
}

impl ProtocolConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let own = self.overrides.iter();
        let uploads = own.clone().filter_map(|o| o.upload_threshold).chain([self.upload_threshold]);
        let downloads = own.filter_map(|o| o.download_threshold).chain([self.download_threshold]);
        uploads.into_iter().try_for_each(|t| t.check_ratio("upload_threshold"))?;
        downloads.into_iter().try_for_each(|t| t.check_ratio("download_threshold"))?;
        if self.min_upload == 0 {
            return Err(ConfigError::new("min_upload", 0, "it must be at least 1"));
        }
        Ok(())
    }

    pub(crate) fn trigger(&self, agent: AgentId) -> UploadTrigger {
        let own = self.overrides.iter().find(|o| o.agent == agent).and_then(|o| o.upload_threshold);
        UploadTrigger::new(own.unwrap_or(self.upload_threshold), self.min_upload)
    }

    /// The thresholds of the links between agents and coordinator.
    pub(crate) fn thresholds(&self) -> LinkThresholds {
        LinkThresholds { upload: self.upload_threshold, download: self.download_threshold }
    }

    /// The same protocol with other thresholds. Agents keep thresholds of their own where these links are theirs.
    pub(crate) fn on_level(&self, thresholds: LinkThresholds, agents: bool) -> Self {
        Self {
            upload_threshold: thresholds.upload,
            download_threshold: thresholds.download,
            overrides: if agents { self.overrides.clone() } else { Vec::new() },
            ..self.clone()
        }
    }

    /// A relay whose link to its parent has the thresholds `above`.
    pub(crate) fn relay(
        &self,
        name: &'static str,
        model: &ModelConfig,
        dimension: usize,
        above: LinkThresholds,
    ) -> ExchangeRelay {
        let below = self.coordinator(name, model, dimension);
        ExchangeRelay::new(name, model.model(dimension), below, UploadTrigger::new(above.upload, 1))
    }

    pub(crate) fn coordinator(&self, name: &'static str, model: &ModelConfig, dimension: usize) -> Exchange {
        let own = self.overrides.iter().filter_map(|o| Some((o.agent, o.download_threshold?)));
        let policy = DownloadPolicy::Threshold {
            everybody: self.download_threshold,
            own: own.collect(),
            in_receipt: self.snapshot_in_receipt,
        };
        Exchange::new(name, model.model(dimension), policy, self.join)
    }
}

/// Settings of `async-lin-ucb`: upper confidence bounds, with agents that upload when they have learned
/// enough.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct AsyncLinUcb {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// When agents upload and when the coordinator sends snapshots.
    #[serde(flatten)]
    pub protocol: ProtocolConfig,
    /// What is promised about privacy. With it, an agent uploads all its sums with noise, when their count
    /// has grown enough, and `upload_threshold`, `min_upload`, `snapshot_in_receipt` and `override` have no
    /// meaning. Not set: nothing is promised.
    pub privacy: Option<PrivacyConfig>,
}

/// Settings of `async-lin-ts`: Thompson sampling with the protocol of `async-lin-ucb`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct AsyncLinTs {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// When agents upload and when the coordinator sends snapshots.
    #[serde(flatten)]
    pub protocol: ProtocolConfig,
    /// ≥ 0: multiplies the width to give the standard deviation of the sampled model: 0 is greedy, 1 is theory
    /// up to a logarithm. Default 0.3.
    pub sampling_scale: f64,
    /// What is promised about privacy, as in `async-lin-ucb`. Not set: nothing is promised.
    pub privacy: Option<PrivacyConfig>,
}

impl Default for AsyncLinTs {
    fn default() -> Self {
        Self {
            model: ModelConfig::default(),
            protocol: ProtocolConfig::default(),
            sampling_scale: 0.3,
            privacy: None,
        }
    }
}

/// Settings of `async-lin-phe`: perturbed history with the protocol of `async-lin-ucb`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct AsyncLinPhe {
    /// The model; its width is not used.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// When agents upload and when the coordinator sends snapshots.
    #[serde(flatten)]
    pub protocol: ProtocolConfig,
    /// a ≥ 0: how many coins are added to each past reward, in distribution. Default 2.
    pub perturbations: f64,
    /// How the perturbation of unseen rewards is drawn. Default exact.
    pub perturbation: Perturbation,
}

impl Default for AsyncLinPhe {
    fn default() -> Self {
        Self {
            model: ModelConfig::default(),
            protocol: ProtocolConfig::default(),
            perturbations: 2.0,
            perturbation: Perturbation::Exact,
        }
    }
}

impl AsyncLinUcb {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.protocol.check()?;
        self.privacy.as_ref().map_or(Ok(()), PrivacyConfig::check_for_sums)
    }

    pub(crate) fn agent(&self, id: AgentId, dimension: usize) -> AsyncAgent {
        let rule = Rule::Ucb(self.model.width());
        AsyncAgent::new("async-lin-ucb", &self.model, self.protocol.trigger(id), rule, dimension)
    }
}

impl AsyncLinTs {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.protocol.check()?;
        self.privacy.as_ref().map_or(Ok(()), PrivacyConfig::check_for_sums)?;
        let scale = self.sampling_scale;
        ConfigError::require(scale >= 0.0 && scale.is_finite(), "sampling_scale", scale, NOT_NEGATIVE)
    }

    pub(crate) fn agent(&self, id: AgentId, dimension: usize, seed: Seed) -> AsyncAgent {
        let rule = Rule::Thompson(Thompson::new(self.sampling_scale, self.model.width(), id, seed));
        AsyncAgent::new("async-lin-ts", &self.model, self.protocol.trigger(id), rule, dimension)
    }
}

impl AsyncLinPhe {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.protocol.check()?;
        let a = self.perturbations;
        ConfigError::require(a >= 0.0 && a.is_finite(), "perturbations", a, NOT_NEGATIVE)
    }

    pub(crate) fn agent(&self, id: AgentId, dimension: usize, seed: Seed) -> AsyncAgent {
        let rule = PerturbedHistory::new(self.perturbations, self.perturbation, dimension, id, seed);
        let rule = Rule::PerturbedHistory(rule);
        AsyncAgent::new("async-lin-phe", &self.model, self.protocol.trigger(id), rule, dimension)
    }
}

/// An agent of the asynchronous protocol.
#[derive(Clone, Debug)]
pub(crate) struct AsyncAgent {
    name: &'static str,
    view: Belief,
    trigger: UploadTrigger,
    rule: Rule,
    choices: u64,
}

impl AsyncAgent {
    fn new(
        name: &'static str,
        model: &ModelConfig,
        trigger: UploadTrigger,
        rule: Rule,
        dimension: usize,
    ) -> Self {
        Self { name, view: Belief::new(model.model(dimension)), trigger, rule, choices: 0 }
    }

    /// The next upload, if it is due and none is on its way.
    fn upload(&mut self) -> Option<Uplink> {
        upload_if_due(&mut self.view, self.trigger)
    }
}

/// The next upload, if it is due and none is on its way.
pub(crate) fn upload_if_due(view: &mut Belief, trigger: UploadTrigger) -> Option<Uplink> {
    let due = trigger.fires(view.fresh_information(), view.buffer().count());
    (due && !view.is_sending()).then(|| Uplink::Evidence(view.send()))
}

/// What every agent of the asynchronous protocol does with a message about its view: whether the base
/// changed, and what to answer.
pub(crate) fn receive_into(
    view: &mut Belief,
    trigger: UploadTrigger,
    name: &'static str,
    message: Downlink,
) -> Result<(bool, Option<Uplink>), ProtocolError> {
    match message {
        Downlink::Receipt { number, version } => {
            let news = view.acknowledge(number, version);
            Ok((false, if news { upload_if_due(view, trigger) } else { None }))
        }
        Downlink::Snapshot(snapshot) => Ok(match view.adopt(&snapshot)? {
            Adopted::Stale => (false, None),
            // New evidence never makes an upload due that was not; only rounding could say so.
            Adopted::Yes => (true, None),
            Adopted::WithUpload => (true, upload_if_due(view, trigger)),
            Adopted::Again(upload) => (true, Some(Uplink::Evidence(upload))),
        }),
        other => Err(ProtocolError::Unexpected { algorithm: name, message: other.kind() }),
    }
}

impl Agent for AsyncAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        let choice = self.rule.choose(self.view.model(), self.view.count(), arms, self.choices)?;
        self.choices += 1;
        Ok(choice)
    }

    fn foresee(&self, _user: UserId, arms: &Arms) -> Option<usize> {
        self.rule.foresee(self.view.model(), self.view.count(), arms, self.choices)
    }

    fn choose_foreseen(&mut self) {
        self.choices += 1;
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        self.view.learn(arm, reward)?;
        if let Rule::PerturbedHistory(rule) = &mut self.rule {
            rule.observe(arm, self.view.parts());
        }
        Ok(self.upload())
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        let (changed, answer) = receive_into(&mut self.view, self.trigger, self.name, message)?;
        if let (true, Rule::PerturbedHistory(rule)) = (changed, &mut self.rule) {
            rule.recompute(self.view.parts());
        }
        Ok(answer)
    }

    fn rest(&mut self) {
        self.view.rest();
    }

    fn inspect(&self) -> AgentView<'_> {
        self.view.inspect()
    }

    fn save(&self) -> Vec<u8> {
        let (root, recent) = match &self.rule {
            Rule::PerturbedHistory(rule) => rule.save(),
            _ => Default::default(),
        };
        v1::LinearAgentState {
            choices: self.choices,
            view: Some(self.view.save()),
            history_features: recent,
            root,
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::LinearAgentState = wire::decode(state)?;
        let view = self.view.restored(state.view.unwrap_or_default())?;
        if let Rule::PerturbedHistory(rule) = &mut self.rule {
            rule.restore(state.root, state.history_features)?;
        }
        self.view = view;
        self.choices = state.choices;
        Ok(())
    }
}
