//! What all readings of clustered algorithms share: sums of users, the graph that tells users apart, and the world.

use std::collections::{BTreeMap, BTreeSet};

use posse_core::{ClusterConfig, Evidence, Linkage, ModelConfig, UserId, packed};
use posse_sim::world::{Assignment, ClusteredConfig, WorldConfig};

use super::{Pair, add_outer, add_vector, regularized, solve};

pub(super) const D: usize = 4;
pub(super) const AGENTS: u64 = 3;

pub(super) fn model() -> ModelConfig {
    ModelConfig { regularization: 1.0, noise: 0.5, width_scale: 0.3, ..ModelConfig::default() }
}

/// F(T) = √((1 + ln(1 + T))/(1 + T)).
pub(super) fn radius(count: u64) -> f64 {
    let t = count as f64;
    ((1.0 + libm::log(1.0 + t)) / (1.0 + t)).sqrt()
}

/// Σxxᵀ, Σyx and how many.
#[derive(Clone)]
pub(super) struct Sums {
    pub(super) pair: Pair,
    pub(super) count: u64,
}

impl Sums {
    pub(super) fn none() -> Self {
        Self { pair: Pair::none(D), count: 0 }
    }

    pub(super) fn observe(&mut self, x: &[f64], y: f64) {
        add_outer(&mut self.pair.v, x);
        add_vector(&mut self.pair.b, y, x);
        self.count += 1;
    }

    pub(super) fn of<'s>(parts: impl Iterator<Item = &'s Self>) -> Self {
        let mut sum = Self::none();
        parts.for_each(|part| sum.add(part));
        sum
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.pair.add(&other.pair);
        self.count += other.count;
    }

    pub(super) fn ln_det(&self) -> f64 {
        self.pair.ln_det(model().regularization)
    }

    pub(super) fn estimate(&self) -> Vec<f64> {
        solve(&regularized(&self.pair.v, model().regularization), &self.pair.b)
    }

    pub(super) fn is(&self, evidence: &Evidence) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
        let gram = |i: usize, j: usize| evidence.gram()[packed(i.max(j)) + i.min(j)];
        self.count == evidence.count()
            && (0..D).all(|i| close(self.pair.b[i], evidence.moment()[i]))
            && (0..D).all(|i| (0..D).all(|j| close(self.pair.v[i][j], gram(i, j))))
    }
}

pub(super) fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

/// A user of an agent. Edges lead to users that nothing has told it apart from.
pub(super) struct User {
    pub(super) sums: Sums,
    pub(super) cluster: u64,
    edges: BTreeSet<UserId>,
}

/// The users of one agent.
#[derive(Default)]
pub(super) struct Users(pub(super) BTreeMap<UserId, User>);

impl Users {
    pub(super) fn of(&self, cluster: u64) -> Vec<UserId> {
        self.0.iter().filter(|(_, user)| user.cluster == cluster).map(|(id, _)| *id).collect()
    }

    pub(super) fn sum(&self, users: &[UserId]) -> Sums {
        Sums::of(users.iter().map(|user| &self.0[user].sums))
    }

    /// The cluster of a user. Users who were never seen belong to the cluster with most observations, of equals the oldest.
    pub(super) fn cluster_of(&self, user: UserId, clusters: impl Iterator<Item = (u64, u64)>) -> Option<u64> {
        let known = self.0.get(&user).map(|user| user.cluster);
        known.or_else(|| clusters.min_by_key(|(id, count)| (u64::MAX - count, *id)).map(|(id, _)| id))
    }

    pub(super) fn observe(&mut self, id: UserId, cluster: u64, x: &[f64], y: f64) {
        if !self.0.contains_key(&id) {
            let alike: BTreeSet<UserId> = self.of(cluster).into_iter().collect();
            for other in &alike {
                self.0.get_mut(other).expect("it is a user").edges.insert(id);
            }
            self.0.insert(id, User { sums: Sums::none(), cluster, edges: alike });
        }
        self.0.get_mut(&id).expect("it is a user now").sums.observe(x, y);
    }

    /// Deletes the edges of a user to users who are too far away.
    pub(super) fn prune(&mut self, id: UserId, scale: f64) {
        let own = &self.0[&id];
        let differs = |other: &&UserId| {
            let other = &self.0[*other];
            distance(&own.sums.estimate(), &other.sums.estimate())
                > scale * (radius(own.sums.count) + radius(other.sums.count))
        };
        let gone: Vec<UserId> = own.edges.iter().filter(differs).copied().collect();
        for other in gone {
            self.0.get_mut(&other).expect("it is a user").edges.remove(&id);
            self.0.get_mut(&id).expect("it is a user").edges.remove(&other);
        }
    }

    /// Users of a cluster that still hang together.
    pub(super) fn parts(&self, cluster: u64) -> Vec<Vec<UserId>> {
        let mut left: BTreeSet<UserId> = self.of(cluster).into_iter().collect();
        let mut parts = Vec::new();
        while let Some(first) = left.pop_first() {
            let (mut part, mut open) = (vec![first], vec![first]);
            while let Some(next) = open.pop() {
                for other in &self.0[&next].edges {
                    if left.remove(other) {
                        part.push(*other);
                        open.push(*other);
                    }
                }
            }
            parts.push(part);
        }
        parts
    }
}

pub(super) fn world(assignment: Assignment) -> WorldConfig {
    let (users, clusters) = (12, 3);
    WorldConfig::Clustered(ClusteredConfig { users, clusters, dimension: D, arms: 6, assignment })
}

/// A cluster of an agent.
pub(super) type Key = (u64, u64);

/// Algorithm 2, the coordinator's part: clusters whose estimates are near enough, for how often their users came, form groups.
pub(super) fn sorted(config: &ClusterConfig, known: &[(Key, Vec<f64>, u64)]) -> Vec<BTreeSet<Key>> {
    let distance_if_alike = |a: &Key, b: &Key| {
        let find = |key: &Key| known.iter().find(|(other, ..)| other == key).expect("it is one of them");
        let ((_, one, t), (_, other, u)) = (find(a), find(b));
        let (apart, spread) = (distance(one, other), radius(*t) + radius(*u));
        (spread < config.merge_gate.0 && apart < config.merge_scale.0 * spread).then_some(apart)
    };
    let mut groups: Vec<BTreeSet<Key>> = known.iter().map(|(key, ..)| BTreeSet::from([*key])).collect();
    let mut pairs = Vec::new();
    for (place, (a, ..)) in known.iter().enumerate() {
        for (b, ..) in &known[place + 1..] {
            // In print, clusters of the same server are not compared.
            if config.linkage == Linkage::Complete || a.0 != b.0 {
                pairs.extend(distance_if_alike(a, b).map(|apart| (apart, *a, *b)));
            }
        }
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (_, a, b) in pairs {
        let of = |key: &Key| groups.iter().position(|group| group.contains(key)).expect("all have one");
        let (one, other) = (of(&a), of(&b));
        let all_alike =
            || groups[one].iter().all(|a| groups[other].iter().all(|b| distance_if_alike(a, b).is_some()));
        if one != other && (config.linkage == Linkage::Transitive || all_alike()) {
            let joined = std::mem::take(&mut groups[other]);
            groups[one].extend(joined);
        }
    }
    groups.into_iter().filter(|group| !group.is_empty()).collect()
}
