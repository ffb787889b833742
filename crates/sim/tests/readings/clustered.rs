//! `fclub`, `fclub-dc`, `homo` and `homo-dc`: Algorithms 1 and 2 of Liu et al. (2022) without privacy; `club`, `sclub` and
//! `user-lin-ucb`, which say nothing.
//!
//! Uploads are absolute, so that the coordinator's sums of a group are those of what its clusters said last. Which
//! messages are due follows from determinants and phases; the run's messages are checked as they come.

use std::collections::{BTreeMap, BTreeSet};

use posse_core::{
    AgentId, Algorithm, Club, ClusterConfig, ClusterList, ClusterUpload, Downlink, Evidence, Fclub, FclubDc,
    GroupSnapshot, Homo, HomoDc, Linkage, ModelConfig, Sclub, Threshold, Uplink, UserId, UserLinUcb, packed,
};
use posse_sim::RunConfig;
use posse_sim::world::{Assignment, ClusteredConfig, Offer, WorldConfig};

use super::{Pair, Reading, add_outer, add_vector, follow, linear_bounds, regularized, rows, solve};
use crate::support::{Entry, run, small};

const D: usize = 4;
const AGENTS: u64 = 3;

fn model() -> ModelConfig {
    ModelConfig { regularization: 1.0, noise: 0.5, width_scale: 0.3, ..ModelConfig::default() }
}

/// F(T) = √((1 + ln(1 + T))/(1 + T)).
fn radius(count: u64) -> f64 {
    let t = count as f64;
    ((1.0 + libm::log(1.0 + t)) / (1.0 + t)).sqrt()
}

/// Σxxᵀ, Σyx and how many.
#[derive(Clone)]
struct Sums {
    pair: Pair,
    count: u64,
}

impl Sums {
    fn none() -> Self {
        Self { pair: Pair::none(D), count: 0 }
    }

    fn observe(&mut self, x: &[f64], y: f64) {
        add_outer(&mut self.pair.v, x);
        add_vector(&mut self.pair.b, y, x);
        self.count += 1;
    }

    fn of<'s>(parts: impl Iterator<Item = &'s Self>) -> Self {
        let mut sum = Self::none();
        parts.for_each(|part| sum.add(part));
        sum
    }

    fn add(&mut self, other: &Self) {
        self.pair.add(&other.pair);
        self.count += other.count;
    }

    fn ln_det(&self) -> f64 {
        self.pair.ln_det(model().regularization)
    }

    fn estimate(&self) -> Vec<f64> {
        solve(&regularized(&self.pair.v, model().regularization), &self.pair.b)
    }

    fn is(&self, evidence: &Evidence) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
        let gram = |i: usize, j: usize| evidence.gram()[packed(i.max(j)) + i.min(j)];
        self.count == evidence.count()
            && (0..D).all(|i| close(self.pair.b[i], evidence.moment()[i]))
            && (0..D).all(|i| (0..D).all(|j| close(self.pair.v[i][j], gram(i, j))))
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

/// A user of an agent. Edges lead to users that nothing has told it apart from.
struct User {
    sums: Sums,
    cluster: u64,
    edges: BTreeSet<UserId>,
}

/// The users of one agent.
#[derive(Default)]
struct Users(BTreeMap<UserId, User>);

impl Users {
    fn of(&self, cluster: u64) -> Vec<UserId> {
        self.0.iter().filter(|(_, user)| user.cluster == cluster).map(|(id, _)| *id).collect()
    }

    fn sum(&self, users: &[UserId]) -> Sums {
        Sums::of(users.iter().map(|user| &self.0[user].sums))
    }

    /// The cluster of a user. Users who were never seen belong to the cluster with most observations, of equals the oldest.
    fn cluster_of(&self, user: UserId, clusters: impl Iterator<Item = (u64, u64)>) -> Option<u64> {
        let known = self.0.get(&user).map(|user| user.cluster);
        known.or_else(|| clusters.min_by_key(|(id, count)| (u64::MAX - count, *id)).map(|(id, _)| id))
    }

    fn observe(&mut self, id: UserId, cluster: u64, x: &[f64], y: f64) {
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
    fn prune(&mut self, id: UserId, scale: f64) {
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
    fn parts(&self, cluster: u64) -> Vec<Vec<UserId>> {
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

/// A local cluster of an agent.
struct Cluster {
    /// S_{ℓ,j} and what was not uploaded yet.
    synchronised: Sums,
    buffer: Sums,
    /// What the coordinator has of it.
    said: Sums,
    /// The number of the last upload, and what it brought, until it is confirmed.
    uploads: u64,
    in_flight: Option<Sums>,
    group: u64,
}

type Key = (u64, u64);

struct Federation {
    clusters_config: Option<ClusterConfig>,
    ln_upload: f64,
    ln_download: f64,
    users: Vec<Users>,
    clusters: BTreeMap<Key, Cluster>,
    next_group: u64,
    phase: u32,
    next_phase: u64,
    /// Agents that have not answered the call of a phase yet.
    answering: BTreeSet<u64>,
    /// Clusters whose group is another one than before, and that have not heard of it yet.
    renewed: BTreeSet<Key>,
    /// Lists have come since the last choice: what groups knew in between may still be on its way.
    regrouping: bool,
    splits: u32,
    merges: u32,
    downloads: u32,
}

impl Federation {
    fn new(clusters_config: Option<ClusterConfig>, upload: f64, download: f64) -> Self {
        // Without observations F is 1: clusters begin together if pairs that are known so badly are compared.
        let apart = clusters_config.as_ref().is_some_and(|config| config.merge_gate.0 <= 2.0);
        let cluster = |agent| Cluster {
            synchronised: Sums::none(),
            buffer: Sums::none(),
            said: Sums::none(),
            uploads: 0,
            in_flight: None,
            group: if apart { agent } else { 0 },
        };
        Self {
            clusters_config,
            ln_upload: libm::log(upload),
            ln_download: libm::log(download),
            users: (0..AGENTS).map(|_| Users::default()).collect(),
            clusters: (0..AGENTS).map(|agent| ((agent, 1), cluster(agent))).collect(),
            next_group: AGENTS,
            phase: 1,
            next_phase: 2,
            answering: BTreeSet::new(),
            renewed: BTreeSet::new(),
            regrouping: false,
            splits: 0,
            merges: 0,
            downloads: 0,
        }
    }

    fn cluster_of(&self, agent: u64, user: UserId) -> u64 {
        let users = &self.users[agent as usize];
        let count = |id: u64| users.sum(&users.of(id)).count;
        let mine = self.clusters.keys().filter(|key| key.0 == agent).map(|key| (key.1, count(key.1)));
        users.cluster_of(user, mine).expect("there is always a cluster")
    }

    fn members(&self, group: u64) -> BTreeSet<Key> {
        self.clusters.iter().filter(|(_, cluster)| cluster.group == group).map(|(key, _)| *key).collect()
    }

    fn group_sums(&self, group: u64) -> Sums {
        Sums::of(self.clusters.values().filter(|cluster| cluster.group == group).map(|cluster| &cluster.said))
    }

    /// Before a choice everything that was due has happened.
    fn assert_settled(&self, step: u64) {
        assert!(self.answering.is_empty() && self.renewed.is_empty(), "step {step}: a phase is not over");
        for (key, cluster) in &self.clusters {
            let behind = self.group_sums(cluster.group).ln_det() - cluster.synchronised.ln_det();
            assert!(behind <= self.ln_download + 1e-9, "step {step}: {key:?} is behind by {behind}");
            let mut all = cluster.synchronised.clone();
            all.add(&cluster.buffer);
            let ahead = all.ln_det() - cluster.synchronised.ln_det();
            assert!(
                cluster.buffer.count == 0 || ahead < self.ln_upload + 1e-9,
                "step {step}: {key:?} {ahead}"
            );
        }
    }

    fn scores(&self, offer: &Offer) -> Vec<f64> {
        let cluster = &self.clusters[&(offer.agent.0, self.cluster_of(offer.agent.0, offer.user))];
        let mut all = cluster.synchronised.clone();
        all.add(&cluster.buffer);
        linear_bounds(&all.pair, &model(), 0.0, rows(offer))
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let agent = offer.agent.0;
        let cluster = self.cluster_of(agent, offer.user);
        self.users[agent as usize].observe(offer.user, cluster, x, reward);
        self.clusters.get_mut(&(agent, cluster)).expect("it is a cluster").buffer.observe(x, reward);
    }

    /// An upload replaces what its cluster said before.
    fn take(&mut self, agent: u64, upload: &ClusterUpload) {
        let users = &self.users[agent as usize];
        let own = users.sum(&users.of(upload.cluster.0));
        assert!(own.is(&upload.evidence), "cluster {} of agent {agent}", upload.cluster.0);
        let cluster = self.clusters.get_mut(&(agent, upload.cluster.0)).expect("it is a cluster");
        let news = std::mem::replace(&mut cluster.buffer, Sums::none());
        cluster.synchronised.add(&news);
        cluster.said = own;
        cluster.uploads += 1;
        assert_eq!(cluster.uploads, upload.number);
        cluster.in_flight = Some(news);
    }

    fn uploaded(&mut self, agent: u64, upload: &ClusterUpload) {
        let cluster = &self.clusters[&(agent, upload.cluster.0)];
        let mut all = cluster.synchronised.clone();
        all.add(&cluster.buffer);
        let ahead = all.ln_det() - cluster.synchronised.ln_det();
        assert!(
            cluster.buffer.count > 0 && ahead >= self.ln_upload - 1e-9,
            "an upload that is not due: {ahead}"
        );
        self.take(agent, upload);
        self.begin_phase_if_due();
    }

    /// Phase s has base^s interactions; it begins when the coordinator knows of all before it.
    fn begin_phase_if_due(&mut self) {
        let Some(config) = &self.clusters_config else { return };
        let known: u64 = self.clusters.values().map(|cluster| cluster.said.count).sum();
        if !self.answering.is_empty() || known < self.next_phase {
            return;
        }
        while known >= self.next_phase {
            self.phase += 1;
            self.next_phase += config.phase_base.pow(self.phase);
        }
        self.answering = (0..AGENTS).collect();
    }

    /// Algorithm 2, an agent's part: edges are deleted, and clusters that fell apart are others from now on.
    fn listed(&mut self, agent: u64, list: &ClusterList) {
        assert!(self.answering.remove(&agent), "agent {agent} was not asked");
        self.regrouping = true;
        let scale = self.clusters_config.as_ref().expect("there are phases").edge_scale.0;
        let users = &mut self.users[agent as usize];
        for user in users.0.keys().copied().collect::<Vec<_>>() {
            users.prune(user, scale);
        }
        let mine: Vec<u64> = self.clusters.keys().filter(|key| key.0 == agent).map(|key| key.1).collect();
        for old in mine {
            let parts = self.users[agent as usize].parts(old);
            if parts.len() < 2 {
                continue;
            }
            self.splits += 1;
            self.clusters.remove(&(agent, old));
            for part in parts {
                let own = self.users[agent as usize].sum(&part);
                let named = list.uploads.iter().find(|upload| own.is(&upload.evidence));
                let id = named.expect("every part is told of").cluster.0;
                part.iter().for_each(|user| {
                    self.users[agent as usize].0.get_mut(user).expect("it is a user").cluster = id;
                });
                let fresh = Cluster {
                    synchronised: Sums::none(),
                    buffer: own,
                    said: Sums::none(),
                    uploads: 0,
                    in_flight: None,
                    group: self.next_group,
                };
                self.next_group += 1;
                assert!(self.clusters.insert((agent, id), fresh).is_none(), "its number is new");
            }
        }
        let with_news = |key: &&Key| key.0 == agent && self.clusters[*key].buffer.count > 0;
        let expected: BTreeSet<u64> = self.clusters.keys().filter(with_news).map(|key| key.1).collect();
        assert_eq!(expected, list.uploads.iter().map(|upload| upload.cluster.0).collect());
        list.uploads.iter().for_each(|upload| self.take(agent, upload));
        if self.answering.is_empty() {
            self.merge();
            self.begin_phase_if_due();
        }
    }

    /// Algorithm 2, the coordinator's part: clusters that are alike form groups.
    fn merge(&mut self) {
        let config = self.clusters_config.clone().expect("there are phases");
        let keys: Vec<Key> = self.clusters.keys().copied().collect();
        let at = |key: &Key| (self.clusters[key].said.estimate(), radius(self.clusters[key].said.count));
        let distance_if_alike = |a: &Key, b: &Key| {
            let ((one, r), (other, s)) = (at(a), at(b));
            let apart = distance(&one, &other);
            (r + s < config.merge_gate.0 && apart < config.merge_scale.0 * (r + s)).then_some(apart)
        };
        let mut groups: Vec<BTreeSet<Key>> = keys.iter().map(|key| BTreeSet::from([*key])).collect();
        let mut pairs = Vec::new();
        for (place, a) in keys.iter().enumerate() {
            for b in &keys[place + 1..] {
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
            let all_alike = || {
                groups[one].iter().all(|a| groups[other].iter().all(|b| distance_if_alike(a, b).is_some()))
            };
            if one != other && (config.linkage == Linkage::Transitive || all_alike()) {
                let joined = std::mem::take(&mut groups[other]);
                groups[one].extend(joined);
            }
        }
        for group in groups.into_iter().filter(|group| !group.is_empty()) {
            let first = *group.first().expect("it is not empty");
            if self.members(self.clusters[&first].group) == group {
                continue;
            }
            self.merges += u32::from(group.len() > 1);
            for key in &group {
                self.clusters.get_mut(key).expect("it is a cluster").group = self.next_group;
            }
            self.next_group += 1;
            self.renewed.extend(group);
        }
    }

    /// A cluster hears the sums of its group.
    fn downloaded(&mut self, agent: u64, told: &GroupSnapshot) {
        let key = (agent, told.cluster.0);
        let Some(cluster) = self.clusters.get(&key) else {
            assert!(self.regrouping, "{key:?} is no cluster");
            return;
        };
        self.downloads += 1;
        let now = self.group_sums(cluster.group);
        let is_current = now.is(&told.snapshot.evidence);
        let behind = now.ln_det() - cluster.synchronised.ln_det();
        // The sums of a group that changed are news for all its clusters.
        let is_renewed = is_current && self.renewed.remove(&key);
        if !is_renewed && !self.regrouping {
            assert!(is_current, "{key:?} hears something else than what its group said");
            assert!(behind > self.ln_download - 1e-9, "{key:?} is not behind: {behind}");
        }
        let cluster = self.clusters.get_mut(&key).expect("it was there");
        cluster.synchronised = sums(&told.snapshot.evidence);
        if told.snapshot.contains >= cluster.uploads {
            cluster.in_flight = None;
        } else if let Some(news) = &cluster.in_flight {
            cluster.synchronised.add(news);
        }
    }
}

fn sums(evidence: &Evidence) -> Sums {
    let mut sums = Sums::none();
    for i in 0..D {
        sums.pair.b[i] = evidence.moment()[i];
        for j in 0..D {
            sums.pair.v[i][j] = evidence.gram()[packed(i.max(j)) + i.min(j)];
        }
    }
    sums.count = evidence.count();
    sums
}

fn world(assignment: Assignment) -> WorldConfig {
    let (users, clusters) = (12, 3);
    WorldConfig::Clustered(ClusteredConfig { users, clusters, dimension: D, arms: 6, assignment })
}

/// Follows a run to its end.
fn follow_federation(seed: u64, algorithm: Algorithm, mut reading: Federation) -> Federation {
    let config = RunConfig { world: world(Assignment::Shuffled), ..small(seed, AGENTS, 3000, algorithm) };
    let mut world = config.world.build(AGENTS, config.seed).unwrap();
    let (mut offer, mut chosen, mut now) = (Offer::new(), 0, 0);
    for entry in run(&config).0.0 {
        match entry {
            Entry::Chose { step, agent, arm } => {
                (now, reading.regrouping) = (step, false);
                reading.assert_settled(step);
                offer.agent = AgentId(agent);
                world.offer(step, &mut offer);
                let scores = reading.scores(&offer);
                let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                assert!(scores[arm] >= best - 1e-9, "step {step}: {} is not {best}", scores[arm]);
                chosen = arm;
            }
            Entry::Learned { reward, .. } => reading.learn(&offer, offer.arms.row(chosen), reward),
            Entry::Up { agent, message: Uplink::Cluster(upload) } => reading.uploaded(agent, &upload),
            Entry::Up { agent, message: Uplink::Clusters(list) } => reading.listed(agent, &list),
            Entry::Down { agent, message: Downlink::Group(told) } => reading.downloaded(agent, &told),
            Entry::Down { agent, message: Downlink::ClusterReceipt { cluster, number, .. } } => {
                if let Some(own) =
                    reading.clusters.get_mut(&(agent, cluster.0)).filter(|own| own.uploads == number)
                {
                    own.in_flight = None;
                }
            }
            Entry::Down { message: Downlink::Regroup { .. }, .. } => {}
            other => panic!("step {now}: {other:?} is not of this algorithm"),
        }
    }
    reading
}

#[test]
fn fclub_dc_is_algorithms_1_and_2() {
    for (linkage, gate) in [(Linkage::Complete, 0.5), (Linkage::Transitive, f64::INFINITY)] {
        let clusters = ClusterConfig { linkage, merge_gate: Threshold(gate), ..ClusterConfig::default() };
        let algorithm = FclubDc {
            model: model(),
            clusters: clusters.clone(),
            upload_threshold: Threshold(1.1),
            download_threshold: Threshold(1.3),
        };
        let reading = Federation::new(Some(clusters), 1.1, 1.3);
        let done = follow_federation(23, Algorithm::FclubDc(algorithm), reading);
        assert!(
            done.splits > 0 && done.merges > 0 && done.downloads > 50,
            "{linkage:?}: {} {} {}",
            done.splits,
            done.merges,
            done.downloads
        );
    }
}

#[test]
fn fclub_shares_every_interaction() {
    let clusters = ClusterConfig { merge_gate: Threshold(0.5), ..ClusterConfig::default() };
    let algorithm = Fclub { model: model(), clusters: clusters.clone() };
    let done = follow_federation(24, Algorithm::Fclub(algorithm), Federation::new(Some(clusters), 1.0, 1.0));
    assert!(done.splits > 0 && done.merges > 0 && done.downloads > 500);
}

#[test]
fn homo_and_homo_dc_have_one_group_for_ever() {
    let homo = Algorithm::Homo(Homo { model: model() });
    let done = follow_federation(25, homo, Federation::new(None, 1.0, 1.0));
    assert_eq!(done.downloads, 3000 * (AGENTS as u32 - 1));
    let (upload_threshold, download_threshold) = (Threshold(1.05), Threshold(1.2));
    let dc = Algorithm::HomoDc(HomoDc { model: model(), upload_threshold, download_threshold });
    let done = follow_federation(26, dc, Federation::new(None, 1.05, 1.2));
    assert!((20..3000).contains(&done.downloads), "{}", done.downloads);
}

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
