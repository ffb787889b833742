//! A federation's place among levels of relays: the machines of its two ends, and what it tells those that join it.

use posse_core::{Algorithm, ConfigError, LevelConfig, Levels, LinkThresholds, Relay, Relaying, UpperLink};

use super::{FederationConfig, ParentConfig};

impl FederationConfig {
    /// The algorithm as this machine tells it to those that join it: with the thresholds of the links below it.
    pub(crate) fn told(&self) -> Result<Algorithm, ConfigError> {
        let level = self.parent.as_ref().map_or(0, |parent| parent.depth(self.levels));
        Ok(self.spread(&self.algorithm)?.algorithm(level as usize).clone())
    }

    /// `Ok` if a parent that tells its children this algorithm can be the parent of this relay.
    #[cfg(feature = "agent")]
    pub(crate) fn check_parent(&self, dimension: u64, told: &Algorithm) -> Result<(), ConfigError> {
        let wrong = |name, value: &dyn std::fmt::Display| {
            Err(ConfigError::new(name, value, "it must be that of the parent's federation"))
        };
        let Some(parent) = &self.parent else { return Ok(()) };
        if dimension != self.dimension {
            return wrong("dimension", &self.dimension);
        }
        if told.name() != self.algorithm.name() {
            return wrong("algorithm", &self.algorithm.name());
        }
        let above = (parent.depth(self.levels) as usize).saturating_sub(1);
        let expected = self.spread(&self.algorithm)?.algorithm(above).clone();
        // With levels, thresholds are the same in all files. Without, each machine has its own, and rounds their own deadlines.
        let plain = |algorithm: &Algorithm| {
            let once = LinkThresholds {
                upload: posse_core::Threshold::NEVER,
                download: posse_core::Threshold::NEVER,
            };
            algorithm.with_recipe(|recipe| recipe.on_level(once, false))
        };
        let same = if self.levels > 1 { expected == *told } else { plain(&expected) == plain(told) };
        if same {
            return Ok(());
        }
        let allowed = "its settings, and `levels`, must be those of the parent's federation";
        Err(ConfigError::new("algorithm", self.algorithm.name(), allowed))
    }

    /// The algorithm with its thresholds divided over all levels. Fails with the reason if there are several and the
    /// algorithm has no relays.
    pub(super) fn spread(&self, algorithm: &Algorithm) -> Result<Levels, ConfigError> {
        Levels::new(algorithm, &self.federation(), &vec![LevelConfig::default(); self.levels as usize])
    }

    /// The machine of a relay. Fails with the reason if the algorithm has none.
    pub(super) fn relay(
        &self,
        algorithm: &Algorithm,
        parent: &ParentConfig,
    ) -> Result<Box<dyn Relay>, ConfigError> {
        algorithm.check(self.shape())?;
        let refused = |reason| ConfigError::new("algorithm", algorithm.name(), reason);
        let relaying = algorithm.with_recipe(|recipe| recipe.relaying(&self.federation()));
        if let Relaying::No(reason) = relaying {
            return Err(refused(reason));
        }
        if relaying == Relaying::ByParts && self.levels == 1 {
            let allowed =
                "with robust it must say how many levels of links there are, at the root and at every relay";
            return Err(ConfigError::new("levels", self.levels, allowed));
        }
        if self.levels > 1 {
            let depth = parent.depth(self.levels) as usize;
            let mut levels = vec![LevelConfig::default(); self.levels as usize];
            levels[depth - 1].upload_threshold = parent.upload_threshold;
            return Levels::new(algorithm, &self.federation(), &levels)?.relay(depth, self.shape());
        }
        let thresholds = match relaying {
            Relaying::ByThresholds(whole) => {
                Some(LinkThresholds { upload: parent.upload_threshold.unwrap_or(whole.upload), ..whole })
            }
            _ => None,
        };
        let above = UpperLink { depth: 1, levels: 2, thresholds };
        let relay = algorithm.with_recipe(|recipe| recipe.relay(self.shape(), above));
        relay.ok_or_else(|| refused("it has no relay"))
    }
}

/// What the replay of a log depends on in the settings of a parent. Its address may change.
pub(super) fn upwards(parent: Option<&ParentConfig>) -> String {
    let Some(parent) = parent else { return "none".into() };
    let text = |value: Option<String>| value.unwrap_or_else(|| "not set".into());
    let threshold = text(parent.upload_threshold.map(|threshold| threshold.0.to_string()));
    format!("upload_threshold {threshold}, depth {}", text(parent.depth.map(|depth| depth.to_string())))
}

#[cfg(test)]
mod tests {
    use posse_core::{AsyncLinUcb, FclubDc, LinUcb, Threshold};

    use super::*;

    fn linear(threshold: f64) -> Algorithm {
        let mut algorithm = AsyncLinUcb::default();
        algorithm.protocol.upload_threshold = Threshold(threshold);
        algorithm.protocol.download_threshold = Threshold(threshold);
        Algorithm::AsyncLinUcb(algorithm)
    }

    fn root(levels: u64) -> FederationConfig {
        FederationConfig { levels, ..FederationConfig::new("x", linear(8.0), 3) }
    }

    fn relay(levels: u64, depth: Option<u64>) -> FederationConfig {
        let parent = ParentConfig {
            coordinator: "http://127.0.0.1:7447".into(),
            agent: Some(1),
            depth,
            ..ParentConfig::default()
        };
        FederationConfig { parent: Some(parent), ..root(levels) }
    }

    #[test]
    fn children_are_told_the_thresholds_of_their_own_level() {
        assert_eq!(root(1).told().unwrap(), linear(8.0), "as they are written");
        for config in [root(3), relay(3, Some(1)), relay(3, None)] {
            config.check().unwrap();
            let Algorithm::AsyncLinUcb(told) = config.told().unwrap() else { panic!("another algorithm") };
            assert!((told.protocol.upload_threshold.0 - 2.0).abs() < 1e-12, "the third root of 8");
            assert_eq!(told.protocol.upload_threshold, told.protocol.download_threshold);
        }
    }

    #[test]
    #[cfg(feature = "agent")]
    fn a_parent_with_other_settings_is_refused_by_name() {
        let told = |config: FederationConfig| config.told().unwrap();
        let refused = |told: &Algorithm, dimension| {
            relay(3, Some(2)).check_parent(dimension, told).map_err(|error| error.name)
        };
        assert_eq!(refused(&told(relay(3, Some(1))), 3), Ok(()));
        assert_eq!(refused(&told(root(3)), 4), Err("dimension"));
        assert_eq!(refused(&Algorithm::LinUcb(LinUcb::default()), 3), Err("algorithm"));
        assert_eq!(refused(&told(root(2)), 3), Err("algorithm"), "it divides over other levels");
        // Without levels, thresholds are each machine's own, and the rest is not.
        assert_eq!(relay(1, None).check_parent(3, &linear(2.0)), Ok(()));
        let Algorithm::AsyncLinUcb(mut other) = linear(8.0) else { panic!("another algorithm") };
        other.model.regularization = 7.0;
        assert!(relay(1, None).check_parent(3, &Algorithm::AsyncLinUcb(other)).is_err());
    }

    #[test]
    fn levels_that_make_no_sense_are_refused_by_name() {
        let refused = |config: FederationConfig| config.check().unwrap_err().name;
        assert_eq!(refused(root(0)), "levels");
        assert_eq!(refused(root(7)), "levels");
        assert_eq!(refused(relay(1, Some(1))), "depth");
        assert_eq!(refused(relay(2, Some(2))), "depth");
        assert_eq!(refused(relay(2, Some(0))), "depth");
        let mut low = relay(2, None);
        low.parent.as_mut().unwrap().upload_threshold = Some(Threshold(0.5));
        assert_eq!(refused(low), "upload_threshold");
        let clusters = Algorithm::FclubDc(FclubDc::default());
        let error = FederationConfig { algorithm: clusters, ..root(2) }.check().unwrap_err();
        assert!(error.allowed.contains("clusters of all agents"), "{error}");
    }

    #[test]
    fn what_a_replay_depends_on_may_not_change() {
        let directory = tempfile::tempdir().unwrap();
        let begun = relay(3, Some(1));
        super::super::config::check_unchanged(&begun, directory.path()).unwrap();
        let changed = |config: FederationConfig| {
            super::super::config::check_unchanged(&config, directory.path()).unwrap_err().to_string()
        };
        assert!(changed(relay(2, Some(1))).contains("levels"));
        assert!(changed(relay(3, Some(2))).contains("depth 1 "), "{}", changed(relay(3, Some(2))));
        assert!(changed(root(3)).contains("parent"));
        let mut moved = begun;
        moved.parent.as_mut().unwrap().coordinator = "https://elsewhere:7447".into();
        super::super::config::check_unchanged(&moved, directory.path()).unwrap();
    }
}
