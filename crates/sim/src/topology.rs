//! Who speaks to whom: every agent to the coordinator, or through levels of relays.

use posse_core::settings::Described;
use posse_core::{ConfigError, LevelConfig, Relaying, Threshold, TimeSpan};
use serde::{Deserialize, Serialize};

use crate::network::{LinkModel, NetworkConfig, Preset};

/// The `[topology]` table of an experiment: relays between agents and the coordinator, which is then the root.
///
/// Relays of one depth have equally many children, up to one; agents belong to the deepest relays in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct TopologyConfig {
    /// in [1, 6]: levels of links between an agent and the root. 1: agents speak to the root, without relays.
    /// 2: relays between them. 3: relays of relays. Default 1.
    pub levels: u64,
    /// ≥ 1: how many relays are children of the root, and of each relay that has relays for children. Default 10.
    pub fan_out: u64,
    /// Divide the thresholds of the algorithm over the levels: each has γ^(1/levels), so that an agent is about
    /// as far behind as without relays. Otherwise every level has γ. Default true.
    pub split: bool,
    /// γ in [1, ∞]: both thresholds of the links between relays and their parents, while those of agents are the
    /// algorithm's own. Not set: see `split`.
    pub relay_threshold: Option<Threshold>,
    /// in [0, 1]: the probability, at each interaction, that some relay restarts from its log. Default 0.
    pub relay_restart: f64,
    /// in [0, 1]: the probability, at each interaction, that some agent goes to another relay, where it begins a new life
    /// and without what it had not shared. Default 0.
    pub relay_change: f64,
    /// Levels with links or thresholds of their own.
    #[serde(rename = "level")]
    pub own: Vec<LevelLinks>,
}

/// What is special about the links of one level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(deny_unknown_fields)]
pub struct LevelLinks {
    /// ≥ 1: the level, counted from the root: 1 are the root's links.
    pub level: u64,
    /// γ_U in [1, ∞]: the threshold for uploads over these links.
    #[serde(default)]
    pub upload_threshold: Option<Threshold>,
    /// γ_D in [1, ∞]: the threshold for snapshots over these links.
    #[serde(default)]
    pub download_threshold: Option<Threshold>,
    /// The kind of network. Not set: that of `[network]`.
    #[serde(default)]
    pub preset: Option<Preset>,
    /// The shortest time that a message needs. Not set: that of the preset.
    #[serde(default)]
    pub latency: Option<TimeSpan>,
    /// The longest time that a message may need beyond `latency`. Not set: that of the preset.
    #[serde(default)]
    pub jitter: Option<TimeSpan>,
    /// in [0, 1): the share of messages that are lost. Not set: that of the preset.
    #[serde(default)]
    pub loss: Option<f64>,
}

impl Default for TopologyConfig {
    fn default() -> Self {
        Self {
            levels: 1,
            fan_out: 10,
            split: true,
            relay_threshold: None,
            relay_restart: 0.0,
            relay_change: 0.0,
            own: Vec::new(),
        }
    }
}

/// The most relays that a run may have.
const MOST_RELAYS: u64 = 1_000_000;

impl TopologyConfig {
    /// Whether agents speak to the coordinator without relays.
    #[must_use]
    pub const fn is_flat(&self) -> bool {
        self.levels <= 1
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=6).contains(&self.levels) {
            return Err(ConfigError::new("levels", self.levels, "it must lie between 1 and 6"));
        }
        if self.fan_out == 0 {
            return Err(ConfigError::new("fan_out", 0, "it must be at least 1"));
        }
        if self.relays().iter().any(|count| *count > MOST_RELAYS) {
            let allowed = "that is more than a million relays: use fewer levels or a smaller one";
            return Err(ConfigError::new("fan_out", self.fan_out, allowed));
        }
        for (name, share) in [("relay_restart", self.relay_restart), ("relay_change", self.relay_change)] {
            ConfigError::require((0.0..=1.0).contains(&share), name, share, "it must lie between 0 and 1")?;
        }
        // Also where there are no relays: a mistake must not wait for the day when there are.
        if let Some(Threshold(threshold)) = self.relay_threshold {
            let allowed = "it must be at least 1; inf means never";
            ConfigError::require(threshold >= 1.0, "relay_threshold", threshold, allowed)?;
        }
        if let Some(own) = self.own.iter().find(|own| !(1..=self.levels).contains(&own.level)) {
            return Err(ConfigError::new("level", own.level, "levels are counted from 1 at the root"));
        }
        self.own.iter().try_for_each(|own| own.network(&NetworkConfig::default()).check())
    }

    /// How many relays there are at each depth, those below the root first.
    pub(crate) fn relays(&self) -> Vec<u64> {
        (1..self.levels).map(|depth| self.fan_out.saturating_pow(depth as u32)).collect()
    }

    /// The thresholds of each level, from the root's. `relaying` are those of the algorithm.
    pub(crate) fn thresholds(&self, relaying: &Relaying) -> Vec<LevelConfig> {
        let whole = match relaying {
            Relaying::ByThresholds(whole) if !self.split || self.relay_threshold.is_some() => {
                LevelConfig { upload_threshold: Some(whole.upload), download_threshold: Some(whole.download) }
            }
            _ => LevelConfig::default(),
        };
        let level = |level: u64| {
            let own = self.own.iter().find(|own| own.level == level);
            let of_relays = self.relay_threshold.filter(|_| level < self.levels);
            LevelConfig {
                upload_threshold: own
                    .and_then(|own| own.upload_threshold)
                    .or(of_relays)
                    .or(whole.upload_threshold),
                download_threshold: own
                    .and_then(|own| own.download_threshold)
                    .or(of_relays)
                    .or(whole.download_threshold),
            }
        };
        (1..=self.levels).map(level).collect()
    }

    /// The network of a level, counted from 0 for the root's links.
    pub(crate) fn network(&self, level: usize, whole: &NetworkConfig) -> NetworkConfig {
        let own = self.own.iter().find(|own| own.level == level as u64 + 1);
        own.map_or_else(|| whole.clone(), |own| own.network(whole))
    }

    /// Whether the papers' model does not do: a level has links that are not perfect, relays restart, or agents change them.
    pub(crate) fn has_trouble(&self) -> bool {
        let perfect = |own: &LevelLinks| own.network(&NetworkConfig::default()).link() == LinkModel::PERFECT;
        let moves = self.relay_restart > 0.0 || self.relay_change > 0.0;
        !self.is_flat() && (moves || !self.own.iter().all(perfect))
    }
}

impl LevelLinks {
    fn network(&self, whole: &NetworkConfig) -> NetworkConfig {
        // A preset of its own leaves behind what was set for the links of another.
        let base = match self.preset {
            Some(preset) => NetworkConfig { preset, interval: whole.interval, ..NetworkConfig::default() },
            None => whole.clone(),
        };
        NetworkConfig {
            latency: self.latency.or(base.latency),
            jitter: self.jitter.or(base.jitter),
            loss: self.loss.or(base.loss),
            ..base
        }
    }
}

#[cfg(test)]
mod tests {
    use posse_core::LinkThresholds;

    use super::*;

    fn gammas(topology: &TopologyConfig) -> Vec<Option<f64>> {
        let whole = LinkThresholds { upload: Threshold(5.0), download: Threshold(4.0) };
        let levels = topology.thresholds(&Relaying::ByThresholds(whole));
        levels.into_iter().map(|level| level.upload_threshold.map(|t| t.0)).collect()
    }

    #[test]
    fn thresholds_are_split_repeated_or_set_for_relays() {
        let topology = TopologyConfig { levels: 3, ..Default::default() };
        assert_eq!(gammas(&topology), [None, None, None], "each level takes its root");
        let repeated = TopologyConfig { split: false, ..topology.clone() };
        assert_eq!(gammas(&repeated), [Some(5.0); 3]);
        let set = TopologyConfig { relay_threshold: Some(Threshold(1.2)), ..topology };
        assert_eq!(gammas(&set), [Some(1.2), Some(1.2), Some(5.0)]);
        assert_eq!(set.relays(), [10, 100]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let base = TopologyConfig::default();
        let refused = |topology: TopologyConfig| topology.check().unwrap_err().name;
        assert_eq!(refused(TopologyConfig { levels: 0, ..base.clone() }), "levels");
        assert_eq!(refused(TopologyConfig { fan_out: 0, ..base.clone() }), "fan_out");
        assert_eq!(refused(TopologyConfig { levels: 4, fan_out: 200, ..base.clone() }), "fan_out");
        let own = |level, loss| LevelLinks {
            level,
            upload_threshold: None,
            download_threshold: None,
            preset: None,
            latency: None,
            jitter: None,
            loss,
        };
        assert_eq!(refused(TopologyConfig { levels: 2, own: vec![own(3, None)], ..base.clone() }), "level");
        assert_eq!(refused(TopologyConfig { levels: 2, own: vec![own(1, Some(1.5))], ..base }), "loss");
    }
}
