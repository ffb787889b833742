//! An agent's users: what each observed, and who may be alike. None of it ever leaves the agent.

use std::collections::BTreeMap;

use crate::clustered::graph::Graph;
use crate::error::DecodeError;
use crate::evidence::Evidence;
use crate::ids::{ClusterId, UserId};
use crate::ridge::Ridge;
use crate::wire::{self, v1};

/// F(T) = √((1 + ln(1 + T))/(1 + T)): how far an estimate after T observations may be off, up to a factor.
pub(crate) fn radius(observations: u64) -> f64 {
    let t = observations as f64;
    ((1.0 + libm::log1p(t)) / (1.0 + t)).sqrt()
}

/// Returns ‖a − b‖².
pub(crate) fn distance_squared(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) id: UserId,
    pub(crate) evidence: Evidence,
    pub(crate) cluster: ClusterId,
    /// θ̂ as it was when edges were last looked at.
    pub(crate) estimate: Vec<f64>,
    /// Whether the user was served in the current stage (SCLUB).
    pub(crate) checked: bool,
}

/// All users of an agent, with the graph over them.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    pub(crate) list: Vec<User>,
    index: BTreeMap<UserId, usize>,
    pub(crate) graph: Graph,
    /// A model that is refilled for each estimate, so that none is allocated.
    scratch: Ridge,
}

impl Users {
    pub(crate) fn new(dimension: usize, regularization: f64) -> Self {
        Self {
            list: Vec::new(),
            index: BTreeMap::new(),
            graph: Graph::default(),
            scratch: Ridge::new(dimension, regularization),
        }
    }

    pub(crate) fn find(&self, id: UserId) -> Option<usize> {
        self.index.get(&id).copied()
    }

    /// Adds a user with edges to all users of `cluster`, and returns its index.
    pub(crate) fn add(&mut self, id: UserId, cluster: ClusterId) -> usize {
        let alike: Vec<usize> =
            (0..self.list.len()).filter(|&other| self.list[other].cluster == cluster).collect();
        let place = self.graph.add(&alike);
        self.index.insert(id, place);
        let dimension = self.scratch.dimension();
        self.list.push(User {
            id,
            evidence: Evidence::none(dimension),
            cluster,
            estimate: vec![0.0; dimension],
            checked: false,
        });
        place
    }

    /// Makes the estimate of a user anew.
    pub(crate) fn estimate(&mut self, user: usize) {
        let Self { list, scratch, .. } = self;
        let user = &mut list[user];
        if scratch.refresh([&user.evidence].into_iter()).is_ok() {
            user.estimate = scratch.estimate();
        }
    }

    /// Deletes edges of `user` to users from `first` on whose estimates are further than
    /// scale·(F(T) + F(T')) away; whether there were any.
    pub(crate) fn prune(&mut self, user: usize, first: usize, scale: f64) -> bool {
        let Self { list, graph, .. } = self;
        let own = &list[user];
        let own_radius = radius(own.evidence.count());
        if own.evidence.is_empty() {
            return false;
        }
        graph.prune(user, first, |other| {
            let other = &list[other];
            let far = scale * (own_radius + radius(other.evidence.count()));
            !other.evidence.is_empty() && distance_squared(&own.estimate, &other.estimate) > far * far
        })
    }

    /// Looks at all pairs inside each cluster with new estimates.
    pub(crate) fn prune_all(&mut self, scale: f64) -> bool {
        for user in 0..self.list.len() {
            self.estimate(user);
        }
        // A radius takes a logarithm: one for each user, not one for each pair.
        let Self { list, graph, .. } = self;
        let radii: Vec<f64> = list.iter().map(|user| scale * radius(user.evidence.count())).collect();
        let mut deleted = false;
        for (user, own) in list.iter().enumerate() {
            if own.evidence.is_empty() {
                continue;
            }
            deleted |= graph.prune(user, user + 1, |other| {
                let far = radii[user] + radii[other];
                !list[other].evidence.is_empty()
                    && distance_squared(&own.estimate, &list[other].estimate) > far * far
            });
        }
        deleted
    }

    /// Deletes the edges between users that `differ`; whether there were any.
    pub(crate) fn prune_by(&mut self, differ: impl Fn(usize, usize) -> bool) -> bool {
        let mut deleted = false;
        for user in 0..self.list.len() {
            deleted |= self.graph.prune(user, user + 1, |other| differ(user, other));
        }
        deleted
    }

    /// The sum over these users.
    pub(crate) fn sum(&self, users: &[usize]) -> Evidence {
        let mut sum = Evidence::none(self.scratch.dimension());
        users.iter().for_each(|&user| sum.add(&self.list[user].evidence));
        sum
    }

    /// The users of a cluster.
    pub(crate) fn of(&self, cluster: ClusterId) -> Vec<usize> {
        (0..self.list.len()).filter(|&user| self.list[user].cluster == cluster).collect()
    }

    /// Observations of the user who has most.
    pub(crate) fn most(&self) -> u64 {
        self.list.iter().map(|user| user.evidence.count()).max().unwrap_or(0)
    }

    pub(crate) fn save(&self) -> (Vec<v1::UserState>, Vec<u64>) {
        let users = self.list.iter().map(|user| v1::UserState {
            user: user.id.0,
            evidence: Some(wire::evidence_to_wire(&user.evidence)),
            cluster: user.cluster.0,
            estimate: user.estimate.clone(),
            checked: user.checked,
        });
        (users.collect(), self.graph.words())
    }

    /// The users that were saved; `self` gives the dimension and the regularisation.
    pub(crate) fn restored(&self, users: Vec<v1::UserState>, edges: &[u64]) -> Result<Self, DecodeError> {
        let graph = Graph::from_words(users.len(), edges)
            .ok_or(DecodeError::invalid("graph", "it is not one of these users"))?;
        let dimension = self.scratch.dimension();
        let mut restored = Self { graph, ..Self::new(dimension, self.scratch.regularization()) };
        for user in users {
            let evidence = wire::evidence_from_wire(user.evidence.unwrap_or_default())?;
            let sound = evidence.dimension() == dimension
                && user.estimate.len() == dimension
                && user.estimate.iter().all(|v| v.is_finite());
            let id = UserId(user.user);
            if !sound || restored.index.insert(id, restored.list.len()).is_some() {
                return Err(DecodeError::invalid("user", "it has another dimension, or was there before"));
            }
            let cluster = ClusterId(user.cluster);
            let (estimate, checked) = (user.estimate, user.checked);
            restored.list.push(User { id, evidence, cluster, estimate, checked });
        }
        Ok(restored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radii_follow_their_formula_and_shrink() {
        assert_eq!(radius(0), 1.0);
        assert!((radius(9) - ((1.0 + libm::log(10.0)) / 10.0).sqrt()).abs() < 1e-15);
        assert!((1..100).all(|t| radius(t + 1) < radius(t)));
    }

    #[test]
    fn a_user_without_observations_stays_with_everybody() {
        let mut users = Users::new(1, 1.0);
        for id in 0..3 {
            users.add(UserId(id), ClusterId(1));
        }
        for (user, reward) in [(0, 1.0), (1, -1.0)] {
            for _ in 0..200 {
                users.list[user].evidence.observe(&[1.0], reward).unwrap();
            }
        }
        assert!(users.prune_all(1.0));
        assert_eq!(users.graph.components(&[0, 1, 2]), [vec![0, 1, 2]], "user 2 holds them together");
        for _ in 0..200 {
            users.list[2].evidence.observe(&[1.0], 1.0).unwrap();
        }
        assert!(users.prune_all(1.0));
        assert_eq!(users.graph.components(&[0, 1, 2]), [vec![0, 2], vec![1]]);
    }
}
