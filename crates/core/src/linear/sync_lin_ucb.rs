//! Sync-LinUCB, also known as DisLinUCB: when one agent has learned enough, all agents share. This is its
//! agent; its coordinator is in [`evidence_rounds`](super::evidence_rounds).

use crate::settings::Described;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, AgentView, Choice};
use crate::arms::Arms;
use crate::error::{ConfigError, DecodeError, InputError, ProtocolError};
use crate::exchange::JoinPolicy;
use crate::exchange::belief::{Belief, InFlight};
use crate::ids::{RoundId, UserId};
use crate::linear::evidence_rounds::EvidenceRounds;
use crate::linear::exchange_lin_ucb::{Robust, check_false_alarm};
use crate::linear::parts::{ListLimits, Listing};
use crate::linear::round_relay::RoundRelay;
use crate::linear::rule::Rule;
use crate::message::{Downlink, Snapshot, Uplink};
use crate::privacy::{PrivacyConfig, SecureAggregation};
use crate::relay::UpperLink;
use crate::time_span::TimeSpan;
use crate::trigger::Threshold;
use crate::width::ModelConfig;
use crate::wire::{self, v1};

const NAME: &str = "sync-lin-ucb";

/// Settings of `sync-lin-ucb`: when an agent has learned enough, a round collects from all agents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct SyncLinUcb {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// D in [0, ∞]: an agent asks for a round when its observations since the last one, times the information
    /// they brought, exceed this. 0 asks after every observation with features, ∞ never. Default 1.
    pub round_threshold: Threshold,
    /// When newcomers become known: rounds go over those that are. Default lazy.
    pub join: JoinPolicy,
    /// How long a round waits for all agents; afterwards it goes on without the missing,
    /// whose evidence joins a later round. Not set: it waits for all agents.
    pub round_deadline: Option<TimeSpan>,
    /// What is promised about privacy. With it, a round begins when the count of observations of an agent has grown enough,
    /// agents share all their sums with noise, and `round_threshold` has no meaning. Not set: nothing is promised.
    pub privacy: Option<PrivacyConfig>,
    /// How agents keep the promise of `privacy` together: their sums leave them under masks, the coordinator sees only sums over
    /// many agents, and each agent adds a part of the noise. Not set: every agent adds all its noise alone.
    pub secure_aggregation: Option<SecureAggregation>,
    /// What the coordinator does about agents that lie. It needs to see the sums of each agent. Default `off`.
    pub robust: Robust,
    /// in (0, 1): with `robust`, the probability with which a judgement sets an honest agent aside whose noise is
    /// normal. Default 1e-6.
    pub false_alarm: f64,
    /// in [1, 1000000]: with `robust` and relays, how many agents one relay may ever speak for, those of all levels below
    /// it together. It bounds what a relay that lies can invent, and how long its messages are. Default 1000.
    pub agents_per_relay: u64,
}

impl Default for SyncLinUcb {
    fn default() -> Self {
        Self {
            model: ModelConfig::default(),
            round_threshold: Threshold(1.0),
            join: JoinPolicy::Lazy,
            round_deadline: None,
            privacy: None,
            secure_aggregation: None,
            robust: Robust::Off,
            false_alarm: 1e-6,
            agents_per_relay: 1000,
        }
    }
}

impl SyncLinUcb {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.privacy.as_ref().map_or(Ok(()), PrivacyConfig::check_for_sums)?;
        self.check_secure_aggregation()?;
        check_false_alarm(self.false_alarm)?;
        if self.robust != Robust::Off && self.privacy.is_some() {
            let allowed = "sums with noise cannot be held against each other: leave out `privacy`";
            return Err(ConfigError::new("robust", "trimmed", allowed));
        }
        if !(1..=1_000_000).contains(&self.agents_per_relay) {
            let allowed = "it must lie between 1 and 1000000";
            return Err(ConfigError::new("agents_per_relay", self.agents_per_relay, allowed));
        }
        self.round_threshold.check_not_negative("round_threshold")
    }

    fn check_secure_aggregation(&self) -> Result<(), ConfigError> {
        let Some(secure) = &self.secure_aggregation else { return Ok(()) };
        secure.check()?;
        let Some(privacy) = &self.privacy else {
            return Err(ConfigError::new("secure_aggregation", "set", "it needs a `privacy` to keep"));
        };
        // A choice by raw observations would need a model of the agent's own.
        if privacy.raw_buffer {
            return Err(ConfigError::new("raw_buffer", true, "it must be false with secure_aggregation"));
        }
        Ok(())
    }

    pub(crate) fn agent(&self, dimension: usize) -> SyncAgent {
        SyncAgent {
            view: Belief::new(self.model.model(dimension)),
            rule: Rule::Ucb(self.model.width()),
            threshold: self.round_threshold.0,
            requested: false,
            round: RoundId(0),
            choices: 0,
        }
    }

    pub(crate) fn coordinator(&self, dimension: usize) -> EvidenceRounds {
        let trust = self.robust.trust(&self.model, self.false_alarm);
        EvidenceRounds::new(self.model.model(dimension), self.join, self.round_deadline, trust)
    }

    /// The coordinator of a federation with so many levels of links, whose relays send lists of parts.
    pub(crate) fn root(&self, dimension: usize, levels: usize) -> EvidenceRounds {
        self.coordinator(dimension).with_relays(ListLimits::of_children(0, levels, self.agents_per_relay))
    }

    pub(crate) fn relay(&self, dimension: usize, above: UpperLink) -> RoundRelay {
        let patience = self.round_deadline.map(|deadline| above.patience(deadline));
        let listing = (self.robust != Robust::Off).then(|| {
            let children = ListLimits::of_children(above.depth, above.levels, self.agents_per_relay);
            Listing::new(children, self.agents_per_relay)
        });
        RoundRelay::new(self.model.model(dimension), self.join, patience, listing)
    }
}

/// An agent that shares in rounds.
#[derive(Clone, Debug)]
pub(crate) struct SyncAgent {
    view: Belief,
    rule: Rule,
    threshold: f64,
    /// A round was asked for and has not ended.
    requested: bool,
    /// The newest round that the agent answered.
    round: RoundId,
    choices: u64,
}

impl Agent for SyncAgent {
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
        let urgency = self.view.buffer().count() as f64 * self.view.fresh_information();
        if self.requested || self.view.is_sending() || urgency <= self.threshold {
            return Ok(None);
        }
        self.requested = true;
        Ok(Some(Uplink::RoundRequest { observations: 0 }))
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        match message {
            Downlink::Collect { round, .. } if round > self.round => {
                self.round = round;
                Ok(Some(Uplink::RoundEvidence { round, evidence: self.view.freeze() }))
            }
            Downlink::Commit { round, included, version, evidence } => {
                if version <= self.view.version() {
                    return Ok(None);
                }
                let fate = if included && round == self.round { InFlight::Arrived } else { InFlight::Unsent };
                self.view.replace_base(version, &evidence, fate)?;
                self.requested = false;
                Ok(None)
            }
            Downlink::Snapshot(Snapshot { authoritative, version, contains, information, evidence }) => {
                if !(information.is_finite() && information >= 0.0) {
                    return Err(ProtocolError::Evidence("the information is not a finite number"));
                }
                if authoritative {
                    // Rounds of a lost history are over; what was frozen for them is unsent, unless the
                    // end of its round was not lost and only word of it was.
                    let arrived = self.round > RoundId(0) && contains == self.round.0;
                    let fate = if arrived { InFlight::Arrived } else { InFlight::Unsent };
                    self.view.replace_base(version, &evidence, fate)?;
                    self.requested = false;
                    self.round = RoundId(0);
                } else if version > self.view.version() {
                    let fate = InFlight::Underway;
                    self.view.replace_base(version, &evidence, fate)?;
                }
                Ok(None)
            }
            Downlink::Collect { .. } => Ok(None),
            other => Err(ProtocolError::Unexpected { algorithm: NAME, message: other.kind() }),
        }
    }

    fn rest(&mut self) {
        self.view.rest();
    }

    fn inspect(&self) -> AgentView<'_> {
        self.view.inspect()
    }

    fn save(&self) -> Vec<u8> {
        v1::LinearAgentState {
            choices: self.choices,
            view: Some(self.view.save()),
            requested: self.requested,
            round: self.round.0,
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::LinearAgentState = wire::decode(state)?;
        self.view = self.view.restored(state.view.unwrap_or_default())?;
        self.choices = state.choices;
        self.requested = state.requested;
        self.round = RoundId(state.round);
        Ok(())
    }
}
