//! Users whose parameters come from data: clusters in a matrix of who liked what.

use posse_core::settings::Described;
use posse_core::{ConfigError, Seed};
use serde::{Deserialize, Serialize};

use super::World;
use super::clustered::{Assignment, ClusteredConfig};
use super::data::{Loaded, require};
use super::vector::dot;

/// Clusters of users: the parameters of each, and the cluster of every user.
#[derive(Clone, Debug, PartialEq)]
pub struct UserClusters {
    centres: Vec<Vec<f64>>,
    labels: Vec<u64>,
}

impl UserClusters {
    /// Clusters with parameters of `width` features, one after the other, and the cluster of each user.
    ///
    /// Parameters [c; a] must be such that every arm [g/‖g‖; 1]/√2 pays with a probability: ‖c‖ ≤ a and
    /// a + ‖c‖ ≤ √2.
    pub fn new(width: usize, centres: &[f64], labels: Vec<u64>) -> Result<Self, ConfigError> {
        let full = width > 0 && !centres.is_empty() && centres.len().is_multiple_of(width);
        require(full, "centres", centres.len(), "as many features for each cluster")?;
        let centres: Vec<Vec<f64>> = centres.chunks_exact(width).map(<[f64]>::to_vec).collect();
        for centre in &centres {
            let (last, others) = centre.split_last().expect("there is a feature");
            let length = dot(others, others).sqrt();
            let pays = length <= last + 1e-9 && last + length <= std::f64::consts::SQRT_2 + 1e-9;
            require(pays, "centres", length, "parameters with which every arm pays with a probability")?;
        }
        let stray = labels.iter().find(|label| **label >= centres.len() as u64);
        match stray {
            Some(label) => Err(ConfigError::new("cluster", label, "one of the clusters")),
            None => Ok(Self { centres, labels }),
        }
    }

    /// How many users there are.
    #[must_use]
    pub const fn users(&self) -> usize {
        self.labels.len()
    }

    /// The cluster of each user.
    #[must_use]
    pub fn labels(&self) -> &[u64] {
        &self.labels
    }

    /// The parameters of each cluster.
    #[must_use]
    pub fn centres(&self) -> &[Vec<f64>] {
        &self.centres
    }
}

/// Users in clusters found in a matrix of who liked what. Arms and clicks are those of the clustered world:
/// only the users are real.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ClusteredUsersConfig {
    /// The directory of the prepared users, made by `posse data prepare`. It must be set.
    pub data: String,
    /// The content hash of the prepared data, or twelve digits of it; `any` takes whatever is there. It must be set.
    pub hash: String,
    /// n: how many of the users, the first in the data; at least as many as agents. Not set: all of them.
    #[setting(max = 10_000_000)]
    pub users: Option<u64>,
    /// K ≥ 1: how many arms an offer has. Default 10.
    #[setting(max = 1_000_000)]
    pub arms: usize,
    /// How users are divided over agents. Default `shuffled`.
    pub assignment: Assignment,
    /// The users that `data` names, once the caller has attached them.
    #[serde(skip)]
    pub clusters: Loaded<UserClusters>,
}

impl Default for ClusteredUsersConfig {
    fn default() -> Self {
        Self {
            data: String::new(),
            hash: String::new(),
            users: None,
            arms: 10,
            assignment: Assignment::default(),
            clusters: Loaded::default(),
        }
    }
}

impl ClusteredUsersConfig {
    pub(super) fn build(&self, agents: u64, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        let clusters = self.clusters.require(&self.data)?;
        let all = clusters.users() as u64;
        let users = self.users.unwrap_or(all);
        require(users <= all, "users", users, "no more than there are in the data")?;
        require(users >= agents, "users", users, "at least as many as agents")?;
        let labels = clusters.labels[..users as usize].to_vec();
        let like = ClusteredConfig { arms: self.arms, assignment: self.assignment, ..Default::default() };
        like.with_centres(clusters.centres.clone(), labels, agents, seed)
    }
}

#[cfg(test)]
mod tests {
    use posse_core::UserId;

    use super::*;
    use crate::world::tests::{ask, users};

    fn config() -> ClusteredUsersConfig {
        ClusteredUsersConfig { clusters: users().into(), ..Default::default() }
    }

    #[test]
    fn an_arm_pays_what_the_parameters_of_the_users_cluster_say() {
        let mut world = config().build(2, Seed(3)).unwrap();
        for step in 0..200 {
            let offer = ask(&mut *world, step % 2, step);
            let label = users().labels()[offer.user.0 as usize];
            assert_eq!(world.cluster(offer.user), Some(label));
            for (arm, mean) in offer.means.iter().enumerate() {
                assert_eq!(*mean, dot(&users().centres()[label as usize], offer.arms.row(arm)));
                assert!((0.0..=1.0).contains(mean));
            }
        }
    }

    #[test]
    fn the_first_users_come_and_no_others() {
        let world = ClusteredUsersConfig { users: Some(3), ..config() };
        let mut world = world.build(3, Seed(3)).unwrap();
        assert!((0..60).all(|step| ask(&mut *world, step % 3, step).user < UserId(3)));
        assert_eq!(world.cluster(UserId(3)), None);
    }

    #[test]
    fn users_that_do_not_fit_together_are_refused_by_name() {
        let refused = |width, centres: &[f64], labels: &[u64]| {
            UserClusters::new(width, centres, labels.to_vec()).err().map(|error| error.name)
        };
        assert_eq!(refused(2, &[0.5, 0.7], &[0, 0]), None);
        assert_eq!(refused(0, &[], &[]), Some("centres"));
        assert_eq!(refused(2, &[0.5, 0.7, 0.1], &[0]), Some("centres"));
        assert_eq!(refused(2, &[0.8, 0.7], &[0]), Some("centres"), "an arm would pay less than nothing");
        assert_eq!(refused(2, &[0.7, 0.8], &[0]), Some("centres"), "an arm would pay more than one");
        assert_eq!(refused(2, &[f64::NAN, 0.7], &[0]), Some("centres"));
        assert_eq!(refused(2, &[0.5, 0.7], &[1]), Some("cluster"));
        let built = |config: ClusteredUsersConfig| config.build(2, Seed(1)).err().map(|error| error.name);
        assert_eq!(built(ClusteredUsersConfig::default()), Some("data"));
        assert_eq!(built(ClusteredUsersConfig { users: Some(7), ..config() }), Some("users"));
        assert_eq!(built(ClusteredUsersConfig { users: Some(1), ..config() }), Some("users"));
        assert_eq!(built(ClusteredUsersConfig { arms: 0, ..config() }), Some("arms"));
    }
}
