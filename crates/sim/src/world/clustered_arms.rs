//! A labelled table cut into clusters, each of which is an arm (Filippi et al., 2010).

use std::sync::Arc;

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Domain, Seed, Shape};
use serde::{Deserialize, Serialize};

use super::data::{Loaded, require};
use super::vector::dot;
use super::{Luck, Offer, Rewards, World};

/// Clusters of rows: where each lies, and which share of its rows has the wanted label.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmClusters {
    width: usize,
    centroids: Vec<f64>,
    shares: Vec<f64>,
}

impl ArmClusters {
    /// Clusters with centroids of `width` features, one after the other, and the share of each.
    pub fn new(width: usize, centroids: Vec<f64>, shares: Vec<f64>) -> Result<Self, ConfigError> {
        let full =
            width > 0 && !shares.is_empty() && width.checked_mul(shares.len()) == Some(centroids.len());
        require(full, "centroids", centroids.len(), "as many features for each cluster")?;
        let finite = centroids.iter().all(|x| x.is_finite());
        require(finite, "centroids", "not finite", "finite numbers")?;
        match shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            Some(share) => Err(ConfigError::new("share", share, "from 0 to 1")),
            None => Ok(Self { width, centroids, shares }),
        }
    }

    /// The share of wanted rows in each cluster.
    #[must_use]
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// The features of each cluster.
    pub fn centroids(&self) -> impl Iterator<Item = &[f64]> {
        self.centroids.chunks_exact(self.width)
    }
}

/// The same arms at every step: the centroids of clusters of a labelled table. Pulling one pays 1 if a
/// random row of its cluster has the wanted label, so an arm's mean is the share of such rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ClusteredArmsConfig {
    /// The directory of the prepared clusters, made by `posse data prepare`. It must be set.
    pub data: String,
    /// The content hash of the prepared data, or twelve digits of it; `any` takes whatever is there. It must be set.
    pub hash: String,
    /// Whether all arms are divided by the length of the longest, so that ‖x‖ ≤ 1. Default false.
    pub unit: bool,
    /// The clusters that `data` names, once the caller has attached them.
    #[serde(skip)]
    pub clusters: Loaded<ArmClusters>,
}

impl ClusteredArmsConfig {
    pub(super) fn build(&self, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        let mut clusters = ArmClusters::clone(self.clusters.require(&self.data)?);
        if self.unit {
            let longest = clusters.centroids().map(|x| dot(x, x).sqrt()).fold(0.0, f64::max);
            if longest > 0.0 {
                clusters.centroids.iter_mut().for_each(|x| *x /= longest);
            }
        }
        Ok(Box::new(ClusteredArms { clusters: Arc::new(clusters), members: seed.domain("members") }))
    }
}

struct ClusteredArms {
    clusters: Arc<ArmClusters>,
    /// Which member a pull meets.
    members: Domain,
}

impl World for ClusteredArms {
    fn shape(&self, _: AgentId) -> Shape {
        Shape::shared(self.clusters.width)
    }

    fn offer(&mut self, step: u64, offer: &mut Offer) {
        offer.clear(self.clusters.width);
        for (x, &share) in self.clusters.centroids().zip(&self.clusters.shares) {
            offer.push(x, share);
        }
        offer.luck = Luck::Coin(self.members.stream(offer.agent.0, step).uniform());
    }

    fn rewards(&self) -> Option<Rewards> {
        Some(Rewards::Clicks)
    }

    fn parameters(&self, _: AgentId) -> Option<Vec<f64>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tests::{ask, clusters};

    fn config(unit: bool) -> ClusteredArmsConfig {
        ClusteredArmsConfig { unit, clusters: clusters().into(), ..ClusteredArmsConfig::default() }
    }

    #[test]
    fn a_pull_pays_one_as_often_as_the_share_of_its_cluster() {
        let mut world = config(false).build(Seed(1)).unwrap();
        let mut sums = [0.0; 3];
        for step in 0..20_000 {
            let offer = ask(&mut *world, step % 3, step);
            for (arm, sum) in sums.iter_mut().enumerate() {
                let reward = offer.reward(arm);
                assert!(reward == 0.0 || reward == 1.0);
                *sum += reward;
            }
            assert_eq!(offer.means, [0.25, 1.0, 0.0]);
        }
        assert!((sums[0] / 20_000.0 - 0.25).abs() < 0.02, "{sums:?}");
        assert_eq!(sums[1..], [20_000.0, 0.0]);
    }

    #[test]
    fn unit_arms_point_the_same_way_and_are_no_longer_than_one() {
        let (plain, unit) = (
            ask(&mut *config(false).build(Seed(1)).unwrap(), 0, 0),
            ask(&mut *config(true).build(Seed(1)).unwrap(), 0, 0),
        );
        let lengths: Vec<f64> =
            (0..3).map(|arm| dot(unit.arms.row(arm), unit.arms.row(arm)).sqrt()).collect();
        let longest = lengths.iter().copied().fold(0.0, f64::max);
        assert!((longest - 1.0).abs() < 1e-12, "{lengths:?}");
        let ratio = plain.arms.row(0)[0] / unit.arms.row(0)[0];
        for arm in 0..3 {
            for (plain, unit) in plain.arms.row(arm).iter().zip(unit.arms.row(arm)) {
                assert!((plain - ratio * unit).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn clusters_that_do_not_fit_together_are_refused_by_name() {
        let refused = |width, centroids: &[f64], shares: &[f64]| {
            ArmClusters::new(width, centroids.to_vec(), shares.to_vec()).err().map(|error| error.name)
        };
        assert_eq!(refused(2, &[1.0, 2.0], &[0.5]), None);
        assert_eq!(refused(2, &[1.0], &[0.5]), Some("centroids"));
        assert_eq!(refused(2, &[], &[]), Some("centroids"));
        assert_eq!(refused(1, &[f64::NAN], &[0.5]), Some("centroids"));
        assert_eq!(refused(1, &[1.0], &[1.5]), Some("share"));
        assert_eq!(refused(1, &[1.0], &[f64::NAN]), Some("share"));
    }
}
