//! Data that a world is made of: named by the configuration, loaded by the caller.
//!
//! The simulator reads no files. A configuration names prepared data by path and hash; the caller
//! loads it and [attaches](super::WorldConfig::attach) it. A world whose data is not attached is refused.

use std::fmt;
use std::sync::Arc;

use posse_core::ConfigError;

use super::clustered_arms::ArmClusters;
use super::clustered_users::UserClusters;
use super::recommender::Interactions;
use super::table::LabelledTable;

/// Prepared data as a configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataName<'c> {
    /// Path of the prepared directory.
    pub path: &'c str,
    /// The content hash that the prepared data must have.
    pub hash: &'c str,
}

/// Prepared data in memory, shared by all runs that use it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Data {
    /// A labelled table, for [`ClassificationConfig`](super::ClassificationConfig).
    Table(Arc<LabelledTable>),
    /// Clusters of rows, for [`ClusteredArmsConfig`](super::ClusteredArmsConfig).
    Clusters(Arc<ArmClusters>),
    /// Recorded interactions, for [`RecommenderConfig`](super::RecommenderConfig).
    Interactions(Arc<Interactions>),
    /// Users with their clusters, for [`ClusteredUsersConfig`](super::ClusteredUsersConfig).
    Users(Arc<UserClusters>),
}

impl Data {
    /// The kind of data as manifests name it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "table",
            Self::Clusters(_) => "clusters",
            Self::Interactions(_) => "recommender",
            Self::Users(_) => "users",
        }
    }
}

/// The place in a configuration where its data goes. It is no part of what the configuration says: two
/// configurations that name the same data are equal, loaded or not.
pub struct Loaded<T>(Option<Arc<T>>);

impl<T> Loaded<T> {
    /// Returns the data, or an error that names `path` if no data was attached.
    pub(super) fn require(&self, path: &str) -> Result<&Arc<T>, ConfigError> {
        let allowed = "the directory of a prepared data set; `posse data` makes them";
        self.0.as_ref().ok_or_else(|| ConfigError::new("data", path, allowed))
    }
}

impl<T> From<Arc<T>> for Loaded<T> {
    fn from(data: Arc<T>) -> Self {
        Self(Some(data))
    }
}

impl<T> Default for Loaded<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Clone for Loaded<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> PartialEq for Loaded<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> fmt::Debug for Loaded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// `Ok` if `holds`; otherwise a complaint about the value of `name`.
pub(super) fn require(
    holds: bool,
    name: &'static str,
    value: impl fmt::Display,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::new(name, value, allowed)) }
}
