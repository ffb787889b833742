//! `club`, `sclub` and `user-lin-ucb`: agents that tell their own users apart and say nothing.

use std::collections::{BTreeMap, BTreeSet};

use posse_core::{Algorithm, Club, Sclub, Threshold, UserId, UserLinUcb};
use posse_sim::RunConfig;
use posse_sim::world::{Assignment, Offer};

use super::users::{AGENTS, D, Sums, Users, distance, model, radius, world};
use super::{Reading, follow, linear_bounds, rows};
use crate::support::small;

/// CLUB after Gentile et al. (2014), and a learner for each user.
struct Alone {
    /// `None`: every user has a cluster of its own.
    edge_scale: Option<f64>,
    users: Vec<Users>,
    next: u64,
}

impl Alone {
    fn clusters(&self, agent: usize) -> Vec<(u64, u64)> {
        let ids: BTreeSet<u64> = self.users[agent].0.values().map(|user| user.cluster).collect();
        ids.into_iter().map(|id| (id, self.users[agent].sum(&self.users[agent].of(id)).count)).collect()
    }

    fn cluster_of(&self, agent: usize, user: UserId) -> Option<u64> {
        let others = if self.edge_scale.is_some() { self.clusters(agent) } else { Vec::new() };
        self.users[agent].cluster_of(user, others.into_iter())
    }
}

impl Reading for Alone {
    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        let agent = offer.agent.0 as usize;
        let users = &self.users[agent];
        let sums = self.cluster_of(agent, offer.user).map_or_else(Sums::none, |id| users.sum(&users.of(id)));
        linear_bounds(&sums.pair, &model(), 0.0, rows(offer))
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let agent = offer.agent.0 as usize;
        let cluster = self.cluster_of(agent, offer.user).unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        self.users[agent].observe(offer.user, cluster, x, reward);
        let Some(scale) = self.edge_scale else { return };
        self.users[agent].prune(offer.user, scale);
        let parts = self.users[agent].parts(cluster);
        if parts.len() > 1 {
            for part in parts {
                self.next += 1;
                for user in part {
                    self.users[agent].0.get_mut(&user).expect("it is a user").cluster = self.next;
                }
            }
        }
    }
}

fn users_only(seed: u64, algorithm: Algorithm) -> RunConfig {
    RunConfig { world: world(Assignment::Shuffled), ..small(seed, AGENTS, 1500, algorithm) }
}

fn nobody() -> Vec<Users> {
    (0..AGENTS).map(|_| Users::default()).collect()
}

#[test]
fn club_and_user_lin_ucb_are_what_their_papers_say() {
    for edge_scale in [Some(1.0), Some(1.6), None] {
        let algorithm = match edge_scale {
            Some(scale) => Algorithm::Club(Club { model: model(), edge_scale: Threshold(scale) }),
            None => Algorithm::UserLinUcb(UserLinUcb { model: model() }),
        };
        let mut reading = Alone { edge_scale, users: nobody(), next: 0 };
        assert_eq!(follow(&users_only(27, algorithm), &mut reading, 1e-9), 0);
        let clusters: usize = (0..AGENTS as usize).map(|agent| reading.clusters(agent).len()).sum();
        assert!(clusters > AGENTS as usize, "{edge_scale:?}: nobody was told apart");
    }
}

/// SCLUB after Li et al. (2019), with the agent's own time.
struct Stages {
    edge_scale: f64,
    frequency_scale: f64,
    agents: Vec<Staged>,
    splits: u32,
    merges: u32,
}

struct Staged {
    users: Users,
    /// Users who were served in this stage.
    checked: BTreeSet<UserId>,
    /// θ̂ and T of each cluster when the stage began, or when it was made by a merge.
    then: BTreeMap<u64, (Vec<f64>, u64)>,
    time: u64,
    stage: u32,
    left: u64,
    next: u64,
}

impl Staged {
    fn sum(&self, cluster: u64) -> Sums {
        self.users.sum(&self.users.of(cluster))
    }

    fn clusters(&self) -> impl Iterator<Item = (u64, u64)> {
        self.then.keys().map(|id| (*id, self.sum(*id).count)).collect::<Vec<_>>().into_iter()
    }
}

impl Reading for Stages {
    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        let own = &self.agents[offer.agent.0 as usize];
        let cluster = own.users.cluster_of(offer.user, own.clusters());
        let sums = cluster.map_or_else(Sums::none, |id| own.sum(id));
        linear_bounds(&sums.pair, &model(), 0.0, rows(offer))
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let (alpha, alpha_p, user) = (self.edge_scale, self.frequency_scale, offer.user);
        let own = &mut self.agents[offer.agent.0 as usize];
        if own.left == 0 {
            // A stage of 2^s interactions begins.
            own.stage += 1;
            own.left = 1 << own.stage;
            own.checked.clear();
            for id in own.then.keys().copied().collect::<Vec<_>>() {
                let sum = own.sum(id);
                own.then.insert(id, (sum.estimate(), sum.count));
            }
        }
        (own.time, own.left) = (own.time + 1, own.left - 1);
        let cluster = own.users.cluster_of(user, own.clusters()).unwrap_or_else(|| {
            own.then.insert(1, (vec![0.0; D], 0));
            own.next = 1;
            1
        });
        own.users.observe(user, cluster, x, reward);
        own.checked.insert(user);
        // Split: the user leaves if it is far from its cluster, or comes more or less often than one of its users.
        let t = own.time;
        let often = |count: u64| count as f64 / t as f64;
        let mine = own.users.0[&user].sums.clone();
        let (theta, count) = own.then[&cluster].clone();
        let others: Vec<UserId> = own.users.of(cluster).into_iter().filter(|other| *other != user).collect();
        let far = distance(&mine.estimate(), &theta) > alpha * (radius(mine.count) + radius(count));
        let uneven = others.iter().any(|other| {
            let other = own.users.0[other].sums.count;
            (often(mine.count) - often(other)).abs() > 2.0 * alpha_p * radius(t)
        });
        if (far || uneven) && !others.is_empty() {
            self.splits += 1;
            own.next += 1;
            own.users.0.get_mut(&user).expect("it is a user").cluster = own.next;
            own.then.insert(own.next, (theta, count));
        }
        // Merge: clusters whose users were all served, the lowest first, until none are alike.
        loop {
            let served = |id: &u64| own.users.of(*id).iter().all(|user| own.checked.contains(user));
            let ready: Vec<u64> = own.then.keys().copied().filter(served).collect();
            let alike = |a: u64, b: u64| {
                let (one, other) = (own.sum(a), own.sum(b));
                let each = |id: u64, sum: &Sums| often(sum.count) / own.users.of(id).len() as f64;
                distance(&one.estimate(), &other.estimate())
                    < 0.5 * alpha * (radius(one.count) + radius(other.count))
                    && (each(a, &one) - each(b, &other)).abs() < alpha_p * radius(t)
            };
            let pairs =
                || ready.iter().flat_map(|a| ready.iter().filter(move |b| a < b).map(move |b| (*a, *b)));
            let Some((a, b)) = pairs().find(|(a, b)| alike(*a, *b)) else { break };
            self.merges += 1;
            for user in own.users.of(b) {
                own.users.0.get_mut(&user).expect("it is a user").cluster = a;
            }
            own.then.remove(&b);
            let sum = own.sum(a);
            own.then.insert(a, (sum.estimate(), sum.count));
        }
    }
}

#[test]
fn sclub_is_what_its_paper_says() {
    let (mut splits, mut merges) = (0, 0);
    for (edge_scale, frequency_scale) in [(1.0, 1.0), (1.5, 0.25), (3.0, 0.25)] {
        let algorithm = Algorithm::Sclub(Sclub {
            model: model(),
            edge_scale: Threshold(edge_scale),
            frequency_scale: Threshold(frequency_scale),
            merge: true,
        });
        let staged = || Staged {
            users: Users::default(),
            checked: BTreeSet::new(),
            then: BTreeMap::new(),
            time: 0,
            stage: 0,
            left: 0,
            next: 0,
        };
        let agents = (0..AGENTS).map(|_| staged()).collect();
        let mut reading = Stages { edge_scale, frequency_scale, agents, splits: 0, merges: 0 };
        assert_eq!(follow(&users_only(28, algorithm), &mut reading, 1e-9), 0);
        (splits, merges) = (splits + reading.splits, merges + reading.merges);
    }
    assert!(splits > 20 && merges > 5, "{splits} splits, {merges} merges");
}
