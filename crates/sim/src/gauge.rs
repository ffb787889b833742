//! What is measured of the machines now and then: how well users are sorted, and what privacy cost.

use std::collections::{BTreeMap, BTreeSet};

use posse_core::{AgentId, ClusterId, PrivacyReport};
use serde::{Deserialize, Serialize};

use crate::curve::moments;
use crate::observer::Stage;
use crate::tally::Tally;
use crate::world::World;

/// How well users are sorted into clusters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clustering {
    /// Clusters of users who share their evidence, over all agents.
    pub clusters: u64,
    /// Hubert and Arabie's adjusted Rand index against the true clusters: 1 if they agree, about 0 if they
    /// have nothing to do with each other. Over users who came at least once.
    pub rand_index: f64,
}

/// Measures at the moments of a [`Curve`](crate::Curve).
pub(crate) struct Gauge {
    /// Interactions after which a look is due, the next one last.
    due: Vec<u64>,
}

impl Gauge {
    pub(crate) fn new(horizon: u64) -> Self {
        let mut due = moments(horizon);
        due.reverse();
        Self { due }
    }

    /// Whether a look is due after so many interactions.
    pub(crate) fn is_due(&self, interactions: u64) -> bool {
        self.due.last().is_some_and(|due| *due <= interactions)
    }

    /// Goes on to the next planned moment.
    pub(crate) fn looked(&mut self) {
        self.due.pop();
    }

    /// Updates `tally` as [`look`] does if the next planned moment has come.
    pub(crate) fn look_if_due(&mut self, tally: &mut Tally, stage: &dyn Stage, world: &dyn World) {
        if self.is_due(tally.interactions) {
            self.looked();
            look(tally, stage, world);
        }
    }
}

/// Writes into `tally` what is measured now and then only: the clustering, repairs, failed trainings and
/// privacy.
pub(crate) fn look(tally: &mut Tally, stage: &dyn Stage, world: &dyn World) {
    tally.clustering = clustering(stage, world);
    tally.repairs = stage.coordinator().repairs();
    let agents = stage.agents();
    let failed =
        agents.iter().filter_map(|agent| stage.agent(*agent)).map(posse_core::Agent::failed_trainings);
    tally.failed_trainings = failed.sum();
    tally.set_aside = if stage.relays().is_empty() {
        agents.iter().filter(|agent| stage.coordinator().suspicion(**agent).is_some()).count() as u64
    } else {
        stage.coordinator().set_aside()
    };
    let reports = agents.into_iter().filter_map(|agent| stage.agent(agent)?.privacy());
    let now = reports.reduce(|all, other| all.and(&other));
    tally.privacy = now.map(|report| Box::new(PrivacyReport { repairs: tally.repairs, ..report }));
}

fn clustering(stage: &dyn Stage, world: &dyn World) -> Option<Clustering> {
    let known = stage.coordinator().clusters();
    let groups: BTreeMap<(AgentId, ClusterId), u64> =
        known.iter().filter(|c| !c.orphan).map(|c| ((c.agent, c.cluster), c.group)).collect();
    let mut pairs = Vec::new();
    for agent in stage.agents() {
        for cluster in stage.agent(agent)?.clusters() {
            // A cluster that the coordinator does not know is a group of its own.
            let label = match groups.get(&(agent, cluster.cluster)) {
                Some(group) => (u64::MAX, *group),
                None => (agent.0, cluster.cluster.0),
            };
            for user in cluster.users {
                pairs.push((label, world.cluster(user)?));
            }
        }
    }
    if pairs.is_empty() {
        return None;
    }
    let clusters = pairs.iter().map(|(label, _)| *label).collect::<BTreeSet<_>>().len() as u64;
    Some(Clustering { clusters, rand_index: rand_index(&pairs) })
}

/// (Σ C(n_ij, 2) − E) / (½(Σ C(a_i, 2) + Σ C(b_j, 2)) − E), E = Σ C(a_i, 2)·Σ C(b_j, 2)/C(n, 2).
fn rand_index<A: Ord + Copy, B: Ord + Copy>(pairs: &[(A, B)]) -> f64 {
    let choose = |n: u64| (n * n.saturating_sub(1) / 2) as f64;
    let (mut both, mut one, mut other) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (a, b) in pairs {
        *both.entry((*a, *b)).or_insert(0) += 1;
        *one.entry(*a).or_insert(0) += 1;
        *other.entry(*b).or_insert(0) += 1;
    }
    let together: f64 = both.into_values().map(choose).sum();
    let (one, other): (f64, f64) =
        (one.into_values().map(choose).sum(), other.into_values().map(choose).sum());
    let all = choose(pairs.len() as u64);
    let expected = if all == 0.0 { 0.0 } else { one * other / all };
    let most = 0.5 * (one + other);
    // All alone or all together on both sides: they agree.
    if most == expected { 1.0 } else { (together - expected) / (most - expected) }
}

#[cfg(test)]
mod tests {
    use super::rand_index;

    #[test]
    fn the_index_is_one_for_the_same_partition_and_small_for_unrelated_ones() {
        let same: Vec<(u64, u64)> = (0..30).map(|user| (user % 3, 7 - user % 3)).collect();
        assert_eq!(rand_index(&same), 1.0);
        let unrelated: Vec<(u64, u64)> = (0..30).map(|user| (user % 3, user / 10)).collect();
        assert!(rand_index(&unrelated).abs() < 0.1);
        assert_eq!(rand_index(&[(0, 0)]), 1.0);
        assert_eq!(rand_index(&[(0, 0), (0, 1)]), 0.0, "together, but they should not be");
    }

    /// The example of Hubert and Arabie's index in every textbook: rows (1,1), (1,2), … give 0.24242….
    #[test]
    fn the_index_of_a_known_table() {
        let one = [0, 0, 0, 1, 1, 1];
        let other = [0, 0, 1, 1, 2, 2];
        let pairs: Vec<(i32, i32)> = one.into_iter().zip(other).collect();
        assert!((rand_index(&pairs) - 8.0 / 33.0).abs() < 1e-12);
    }
}
