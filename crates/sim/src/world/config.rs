//! Worlds by name, with their parameters.

use std::sync::Arc;

use posse_core::settings::Described;
use posse_core::{ConfigError, Seed};
use serde::{Deserialize, Serialize};

use super::nonlinear::RewardCurve;
use super::{
    ClassificationConfig, ClusteredArmsConfig, ClusteredConfig, ClusteredUsersConfig, Data, DataName,
    GlmWorldConfig, HeterogeneousConfig, LinearConfig, NonlinearConfig, OutsideWorld, RecommenderConfig,
    World,
};

/// A world by name, with its parameters: the `[environment]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorldConfig {
    /// Rewards linear in the features, with the same parameters for all agents.
    Linear(LinearConfig),
    /// Rewards linear in the features, with shared and local parameters.
    Heterogeneous(HeterogeneousConfig),
    /// Rewards that are clicks or counts: a link function of what is linear in the features.
    Glm(GlmWorldConfig),
    /// An arm for each class of a labelled table.
    Classification(ClassificationConfig),
    /// An arm for each cluster of a labelled table.
    ClusteredArms(ClusteredArmsConfig),
    /// Recorded events: an offer has an item that the user liked among others.
    Recommender(RecommenderConfig),
    /// Users in clusters, rewards 0 or 1.
    Clustered(ClusteredConfig),
    /// Rewards that are a wave along one hidden direction.
    Cosine(NonlinearConfig),
    /// Rewards that are a parabola along one hidden direction.
    Square(NonlinearConfig),
    /// Users in clusters that were found in data, rewards 0 or 1.
    ClusteredUsers(ClusteredUsersConfig),
    /// A world from outside of posse, which no file describes: the program that knows it makes it.
    #[serde(skip_deserializing)]
    Outside(OutsideWorld),
}

impl WorldConfig {
    /// Builds the world for agents `0..agents`, or says which setting is impossible.
    pub fn build(&self, agents: u64, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        if agents == 0 {
            return Err(ConfigError::new("agents", agents, "at least 1"));
        }
        match self {
            Self::Linear(config) => config.build(seed),
            Self::Heterogeneous(config) => config.build(seed),
            Self::Glm(config) => config.build(seed),
            Self::Classification(config) => config.build(agents, seed),
            Self::ClusteredArms(config) => config.build(seed),
            Self::Recommender(config) => config.build(agents, seed),
            Self::Clustered(config) => config.build(agents, seed),
            Self::Cosine(config) => config.build(RewardCurve::Cosine, seed),
            Self::Square(config) => config.build(RewardCurve::Square, seed),
            Self::ClusteredUsers(config) => config.build(agents, seed),
            Self::Outside(world) => world.recipe().build(agents, seed),
        }
    }

    /// The data that this world is made of, if it is.
    #[must_use]
    pub fn data(&self) -> Option<DataName<'_>> {
        let (path, hash) = match self {
            Self::Linear(_)
            | Self::Heterogeneous(_)
            | Self::Glm(_)
            | Self::Clustered(_)
            | Self::Cosine(_)
            | Self::Square(_)
            | Self::Outside(_) => return None,
            Self::Classification(config) => (&config.data, &config.hash),
            Self::ClusteredArms(config) => (&config.data, &config.hash),
            Self::Recommender(config) => (&config.data, &config.hash),
            Self::ClusteredUsers(config) => (&config.data, &config.hash),
        };
        Some(DataName { path, hash })
    }

    /// Puts the data that this world names in its place, and its whole content hash with it; or says that it is of
    /// another kind.
    pub fn attach(&mut self, data: &Data, hash: &str) -> Result<(), ConfigError> {
        match (&mut *self, data) {
            (Self::Classification(config), Data::Table(table)) => {
                config.table = Arc::clone(table).into();
                config.hash = hash.into();
            }
            (Self::ClusteredArms(config), Data::Clusters(clusters)) => {
                config.clusters = Arc::clone(clusters).into();
                config.hash = hash.into();
            }
            (Self::Recommender(config), Data::Interactions(interactions)) => {
                config.interactions = Arc::clone(interactions).into();
                config.hash = hash.into();
            }
            (Self::ClusteredUsers(config), Data::Users(users)) => {
                config.clusters = Arc::clone(users).into();
                config.hash = hash.into();
            }
            _ => {
                let path = self.data().map_or("", |name| name.path);
                let allowed = "data that was prepared for this kind of world";
                return Err(ConfigError::new("data", format!("{path} ({})", data.kind()), allowed));
            }
        }
        Ok(())
    }

    /// Records which content the data of this world had, without the data itself: enough to describe a run that
    /// was made before, not to repeat it. Worlds without data stay as they are.
    pub fn record_hash(&mut self, hash: &str) {
        match self {
            Self::Classification(config) => config.hash = hash.into(),
            Self::ClusteredArms(config) => config.hash = hash.into(),
            Self::Recommender(config) => config.hash = hash.into(),
            Self::ClusteredUsers(config) => config.hash = hash.into(),
            _ => {}
        }
    }

    /// Every kind of world: its name in configuration files, what it is, and its default parameters.
    #[must_use]
    pub fn kinds() -> Vec<(&'static str, &'static str, Self)> {
        vec![
            (
                "linear",
                "linear rewards, the same parameters for all agents",
                Self::Linear(Default::default()),
            ),
            (
                "heterogeneous",
                "linear rewards, some parameters shared and some of each agent's own",
                Self::Heterogeneous(Default::default()),
            ),
            ("glm", "clicks, counts or numbers: a link of linear scores", Self::Glm(Default::default())),
            (
                "classification",
                "an arm for each class of a labelled table, the right one pays",
                Self::Classification(Default::default()),
            ),
            (
                "clustered-arms",
                "an arm for each cluster of a labelled table, paying as its members do",
                Self::ClusteredArms(Default::default()),
            ),
            (
                "recommender",
                "the next item that a user liked, among others that it never did",
                Self::Recommender(Default::default()),
            ),
            (
                "clustered",
                "users in clusters with parameters of their own, rewards 0 or 1",
                Self::Clustered(Default::default()),
            ),
            ("cosine", "cos 3aᵀx: a wave along a direction to be found", Self::Cosine(Default::default())),
            (
                "square",
                "10(aᵀx)²: a parabola along a direction to be found",
                Self::Square(Default::default()),
            ),
            (
                "clustered-users",
                "users in clusters found in who liked what, rewards 0 or 1",
                Self::ClusteredUsers(Default::default()),
            ),
        ]
    }
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self::Linear(LinearConfig::default())
    }
}
