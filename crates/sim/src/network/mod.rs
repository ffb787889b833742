//! How messages travel, and what goes wrong with machines.

mod faults;
mod link;

use posse_core::settings::Described;
use posse_core::{ConfigError, TimeSpan};
use serde::{Deserialize, Serialize};

pub use faults::FaultConfig;
pub use link::LinkModel;
pub(crate) use link::Links;

/// A kind of network that people know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
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

/// The `[network]` table of an experiment. Times are written with their unit: `"40ms"`.
///
/// What is not set comes from the preset. Setting anything about the link leaves the papers' model: then
/// messages travel in frames with acknowledgements, and all of them are counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct NetworkConfig {
    /// The kind of network, which gives what is not set. Default ideal.
    pub preset: Preset,
    /// Time from one interaction to the next, over all agents. Default 10 ms.
    pub interval: TimeSpan,
    /// Time from a choice to its reward. Default 0: at once.
    pub reward_delay: TimeSpan,
    /// The longest time that an agent waits for the answer to a question before it chooses. Where messages are
    /// delivered at once it always has the answer. Default 50 ms; at 0 every answer comes after the choice.
    pub wait: TimeSpan,
    /// Time after which an unanswered message is sent again. Default: four times the slowest way, at least
    /// 50 ms.
    pub resend_after: Option<TimeSpan>,
    /// The shortest time that a message needs.
    pub latency: Option<TimeSpan>,
    /// The longest time that a message may need beyond `latency`; the extra time is uniform. If it exceeds
    /// the interval between interactions, messages overtake each other.
    pub jitter: Option<TimeSpan>,
    /// in [0, 1): the share of messages that are lost.
    pub loss: Option<f64>,
    /// in [0, 1): the share of messages that arrive twice.
    pub repeat: Option<f64>,
    /// in [0, 1): the share of messages that arrive a second late.
    pub straggle: Option<f64>,
    /// Each agent is cut off from the coordinator once in every interval of this length, for
    /// `partition_length`.
    pub partition_every: Option<TimeSpan>,
    /// How long an agent stays cut off each time.
    pub partition_length: Option<TimeSpan>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            preset: Preset::Ideal,
            interval: TimeSpan::from_millis(10),
            wait: TimeSpan::from_millis(50),
            reward_delay: TimeSpan::ZERO,
            resend_after: None,
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
        let Self { interval, resend_after, wait, .. } = Self::default();
        let untouched = Self { preset: self.preset, interval, resend_after, wait, ..self.clone() };
        self.preset == Preset::Ideal && untouched == Self::default()
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        const SHARE: &str = "it must be a share: at least 0 and less than 1";
        let share = |v: f64| (0.0..1.0).contains(&v);
        let require = ConfigError::require;
        let times = [
            ("interval", Some(self.interval)),
            ("reward_delay", Some(self.reward_delay)),
            ("wait", Some(self.wait)),
            ("resend_after", self.resend_after),
            ("latency", self.latency),
            ("jitter", self.jitter),
            ("partition_every", self.partition_every),
            ("partition_length", self.partition_length),
        ];
        for (name, value) in times {
            value.map_or(Ok(()), |span| check_span(name, span))?;
        }
        for (name, value) in [("interval", Some(self.interval)), ("resend_after", self.resend_after)] {
            if value == Some(TimeSpan::ZERO) {
                return Err(ConfigError::new(name, TimeSpan::ZERO, "it must be longer than nothing"));
            }
        }
        for (name, value) in [("loss", self.loss), ("repeat", self.repeat), ("straggle", self.straggle)] {
            value.map_or(Ok(()), |v| require(share(v), name, v, SHARE))?;
        }
        let link = self.link();
        let heals = link.partition_every == TimeSpan::ZERO || link.partition_length < link.partition_every;
        if heals {
            return Ok(());
        }
        let allowed = "it must be shorter than partition_every";
        Err(ConfigError::new("partition_length", link.partition_length, allowed))
    }

    /// The model of the links: the numbers of the preset, replaced by those that are set.
    #[must_use]
    pub fn link(&self) -> LinkModel {
        let preset = LinkModel::preset(self.preset);
        LinkModel {
            latency: self.latency.unwrap_or(preset.latency),
            jitter: self.jitter.unwrap_or(preset.jitter),
            loss: self.loss.unwrap_or(preset.loss),
            repeat: self.repeat.unwrap_or(preset.repeat),
            straggle: self.straggle.unwrap_or(preset.straggle),
            partition_every: self.partition_every.unwrap_or(preset.partition_every),
            partition_length: self.partition_length.unwrap_or(preset.partition_length),
        }
    }

    /// How long a message may be unanswered before it is sent again.
    #[must_use]
    pub fn resend_after(&self) -> TimeSpan {
        let link = self.link();
        let slowest = link.latency.as_micros() + link.jitter.as_micros();
        let patient = || TimeSpan::from_micros((4 * slowest).max(50_000));
        self.resend_after.unwrap_or_else(patient)
    }
}

/// The longest time that a simulation can add to its clock again and again without an overflow.
const LONGEST: TimeSpan = TimeSpan::from_secs(1_000_000);

pub(crate) fn check_span(name: &'static str, span: TimeSpan) -> Result<(), ConfigError> {
    if span <= LONGEST { Ok(()) } else { Err(ConfigError::new(name, span, "it must be at most 1000000s")) }
}
