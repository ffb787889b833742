//! How messages travel, and what goes wrong with machines.

mod faults;
mod link;

use posse_core::{ConfigError, TimeSpan};
use serde::{Deserialize, Serialize};

pub use faults::FaultConfig;
pub use link::LinkModel;
pub(crate) use link::Links;

/// A kind of network that people know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// The papers' model: every message arrives, and is answered, before the next interaction.
    #[default]
    Ideal,
    /// 3 ms one way, up to 5 ms more, 0.5 % lost.
    Wifi,
    /// 40 ms one way, up to 40 ms more, 1 % lost.
    Cellular,
    /// 300 ms one way, up to 30 ms more, 0.5 % lost.
    Satellite,
    /// 20 ms one way, up to 200 ms more, 20 % lost, 10 % doubled, 10 % late by a second, and each agent
    /// cut off for a tenth of every 5 s.
    Hostile,
}

/// The `[network]` table of an experiment. Times are in milliseconds.
///
/// What is not set comes from the preset. Setting anything about the link leaves the papers' model: then
/// messages travel in frames with acknowledgements, and all of them are counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkConfig {
    /// The kind of network. Default ideal.
    pub preset: Preset,
    /// Time from one interaction to the next, over all agents. Default 10.
    pub interval: f64,
    /// Time from a choice to its reward. Default 0: at once.
    pub reward_delay: f64,
    /// The longest time that an agent waits for the answer to a question before it chooses. Where messages are
    /// delivered at once it always has the answer. Default 50; at 0 every answer comes after the choice.
    pub wait: f64,
    /// Time after which an unanswered message is sent again. Default: four times the slowest way, at least
    /// 50.
    pub resend: Option<f64>,
    /// The shortest time that a message needs.
    pub latency: Option<f64>,
    /// The longest time that a message may need beyond `latency`; the extra time is uniform. If it exceeds
    /// the interval between interactions, messages overtake each other.
    pub jitter: Option<f64>,
    /// The share of messages that are lost.
    pub loss: Option<f64>,
    /// The share of messages that arrive twice.
    pub repeat: Option<f64>,
    /// The share of messages that arrive a second late.
    pub straggle: Option<f64>,
    /// Each agent is cut off from the coordinator once in every interval of this length, for
    /// `partition_length`.
    pub partition_every: Option<f64>,
    /// …How long an agent stays cut off each time.
    pub partition_length: Option<f64>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            preset: Preset::Ideal,
            interval: 10.0,
            wait: 50.0,
            reward_delay: 0.0,
            resend: None,
            latency: None,
            jitter: None,
            loss: None,
            repeat: None,
            straggle: None,
            partition_every: None,
            partition_length: None,
        }
    }
}

impl NetworkConfig {
    /// A network with the numbers of a preset and all other settings at their defaults.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        Self { preset, ..Self::default() }
    }

    /// Whether this is the papers' model: every message arrives at once, and none is lost.
    #[must_use]
    pub fn is_ideal(&self) -> bool {
        let Self { interval, resend, wait, .. } = Self::default();
        let untouched = Self { preset: self.preset, interval, resend, wait, ..self.clone() };
        self.preset == Preset::Ideal && untouched == Self::default()
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        const TIME: &str = "it must be a time in milliseconds, zero or more";
        const SHARE: &str = "it must be a share: at least 0 and less than 1";
        let time = |v: f64| (0.0..=1e9).contains(&v);
        let share = |v: f64| (0.0..1.0).contains(&v);
        let require = ConfigError::require;
        let positive = self.interval > 0.0 && time(self.interval);
        require(positive, "interval", self.interval, "it must be a positive time in milliseconds")?;
        let times = [
            ("reward_delay", Some(self.reward_delay)),
            ("wait", Some(self.wait)),
            ("latency", self.latency),
            ("jitter", self.jitter),
            ("partition_every", self.partition_every),
            ("partition_length", self.partition_length),
        ];
        for (name, value) in times {
            value.map_or(Ok(()), |v| require(time(v), name, v, TIME))?;
        }
        if let Some(resend) = self.resend {
            let allowed = "it must be a positive time in milliseconds";
            require(resend > 0.0 && time(resend), "resend", resend, allowed)?;
        }
        for (name, value) in [("loss", self.loss), ("repeat", self.repeat), ("straggle", self.straggle)] {
            value.map_or(Ok(()), |v| require(share(v), name, v, SHARE))?;
        }
        let link = self.link();
        let cut = link.partition_length as f64 / 1000.0;
        let allowed = "it must be shorter than partition_every";
        let heals = link.partition_every == 0 || link.partition_length < link.partition_every;
        require(heals, "partition_length", cut, allowed)
    }

    /// The model of the links: the numbers of the preset, replaced by those that are set.
    #[must_use]
    pub fn link(&self) -> LinkModel {
        let preset = LinkModel::preset(self.preset);
        let time = |value: Option<f64>, otherwise| value.map_or(otherwise, microseconds);
        LinkModel {
            latency: time(self.latency, preset.latency),
            jitter: time(self.jitter, preset.jitter),
            loss: self.loss.unwrap_or(preset.loss),
            repeat: self.repeat.unwrap_or(preset.repeat),
            straggle: self.straggle.unwrap_or(preset.straggle),
            partition_every: time(self.partition_every, preset.partition_every),
            partition_length: time(self.partition_length, preset.partition_length),
        }
    }

    /// How long a message may be unanswered before it is sent again.
    #[must_use]
    pub fn resend_after(&self) -> TimeSpan {
        let link = self.link();
        let patient = || TimeSpan::from_micros((4 * (link.latency + link.jitter)).max(50_000));
        self.resend.map_or_else(patient, span)
    }
}

pub(crate) fn microseconds(milliseconds: f64) -> u64 {
    (milliseconds * 1000.0).round() as u64
}

pub(crate) fn span(milliseconds: f64) -> TimeSpan {
    TimeSpan::from_micros(microseconds(milliseconds))
}
