//! The machines of a federation with relays, level by level.

use super::Algorithm;
use crate::agent::{Agent, Shape};
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::federation::Federation;
use crate::ids::AgentId;
use crate::relay::{LevelConfig, LinkThresholds, Relay, Relaying, UpperLink};

/// An algorithm spread over levels of links, from those of the root (level 0) down to those of the agents.
///
/// One level is a federation without relays. With more, relays of depth 1 are children of the root, those of depth
/// 2 are theirs, and so on; agents are children of the deepest relays.
#[derive(Clone, Debug)]
pub struct Levels(Vec<Level>);

/// The settings by which the two ends of the links of one level are made.
#[derive(Clone, Debug)]
struct Level {
    algorithm: Algorithm,
    thresholds: Option<LinkThresholds>,
}

impl Levels {
    /// Spreads `algorithm` over as many levels as there are `configs`, at least one. Fails if there are several and
    /// the algorithm cannot be relayed, with the reason.
    pub fn new(
        algorithm: &Algorithm,
        federation: &Federation,
        configs: &[LevelConfig],
    ) -> Result<Self, ConfigError> {
        let levels = configs.len();
        if levels <= 1 {
            return Ok(Self(vec![Level { algorithm: algorithm.clone(), thresholds: None }]));
        }
        configs.iter().try_for_each(LevelConfig::check)?;
        let whole = match algorithm.with_recipe(|recipe| recipe.relaying(federation)) {
            Relaying::No(reason) => return Err(ConfigError::new("name", algorithm.name(), reason)),
            Relaying::ByRounds | Relaying::ByParts => {
                return Ok(Self(vec![Level { algorithm: algorithm.clone(), thresholds: None }; levels]));
            }
            Relaying::ByThresholds(whole) => whole,
        };
        let level = |(place, config): (usize, &LevelConfig)| {
            let thresholds = config.resolve(whole, levels);
            let algorithm = algorithm.with_recipe(|recipe| recipe.on_level(thresholds, place + 1 == levels));
            algorithm.map(|algorithm| Level { algorithm, thresholds: Some(thresholds) })
        };
        let made: Option<Vec<Level>> = configs.iter().enumerate().map(level).collect();
        let refused = || ConfigError::new("name", algorithm.name(), "it names thresholds and takes none");
        Ok(Self(made.ok_or_else(refused)?))
    }

    /// How many levels of links there are: one more than levels of relays.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.len()
    }

    /// The settings of the links of a level, from 0 for the root's.
    #[must_use]
    pub fn algorithm(&self, level: usize) -> &Algorithm {
        &self.0[level.min(self.0.len() - 1)].algorithm
    }

    /// The coordinator at the root.
    pub fn coordinator(&self, shape: Shape) -> Result<Box<dyn Coordinator>, ConfigError> {
        let (algorithm, levels) = (&self.0[0].algorithm, self.0.len());
        if levels <= 1 {
            return algorithm.coordinator(shape);
        }
        algorithm.check(shape)?;
        Ok(algorithm.with_recipe(|recipe| recipe.root(shape, levels)))
    }

    /// A relay `depth` links below the root, from 1 to one less than there are levels.
    pub fn relay(&self, depth: usize, shape: Shape) -> Result<Box<dyn Relay>, ConfigError> {
        let refused = || ConfigError::new("levels", self.0.len(), "there is no relay at this depth");
        let (Some(above), Some(below)) =
            (depth.checked_sub(1).and_then(|d| self.0.get(d)), self.0.get(depth))
        else {
            return Err(refused());
        };
        below.algorithm.check(shape)?;
        let above = UpperLink { depth, levels: self.0.len(), thresholds: above.thresholds };
        below.algorithm.with_recipe(|recipe| recipe.relay(shape, above)).ok_or_else(refused)
    }

    /// An agent, child of a relay of the last level or, without relays, of the root.
    pub fn agent(
        &self,
        id: AgentId,
        shape: Shape,
        federation: &Federation,
    ) -> Result<Box<dyn Agent>, ConfigError> {
        self.algorithm(self.0.len() - 1).agent(id, shape, federation)
    }
}
