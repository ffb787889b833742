//! `cdp-fclub-dc`: Algorithms 1 to 4 of Liu et al. (2022) with what the page changes for the promise. Releases and splits are due by
//! counts and by released sums only, and a part of a cluster that split begins with the released sums of its users.
//!
//! Noise is too small to see here, so that the reading can follow who is told apart. How much noise a promise needs is followed elsewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use posse_core::{
    AgentId, Algorithm, CdpFclubDc, ClusterConfig, ClusterList, ClusterUpload, Downlink, Evidence,
    GroupSnapshot, Linkage, PrivacyConfig, Threshold, Uplink, UserId,
};
use posse_sim::RunConfig;
use posse_sim::world::{Assignment, Offer};

use super::noise::{Noisy, cut, full, same, smallest};
use super::users::{AGENTS, D, Key, Sums, distance, model, radius, sorted, world};
use super::{dot, regularized, rows, solve};
use crate::support::{Entry, run, small};

struct User {
    sums: Sums,
    /// The sums of the last release that tells users apart, and how many there were.
    released: Option<Sums>,
    releases: u64,
    cluster: u64,
    edges: BTreeSet<UserId>,
    /// 0 for the agent's first user, then 1, 2, …
    place: usize,
}

struct Cluster {
    /// Released sums of its users from before it split off.
    baseline: Option<Sums>,
    /// What its users observed since then.
    stream: Sums,
    /// What the coordinator has of it.
    said: Sums,
    uploads: u64,
    /// The sums of its group as it was told them.
    told: Sums,
    group: u64,
}

impl Cluster {
    fn new(baseline: Option<Sums>, group: u64) -> Self {
        let (stream, said, told) = (Sums::none(), Sums::none(), Sums::none());
        Self { baseline, stream, said, uploads: 0, told, group }
    }
}

struct Federation {
    config: ClusterConfig,
    privacy: PrivacyConfig,
    noise: Noisy,
    ln_download: f64,
    users: Vec<BTreeMap<UserId, User>>,
    clusters: BTreeMap<Key, Cluster>,
    /// What each cluster is to be told next.
    due: BTreeMap<Key, VecDeque<Sums>>,
    next_group: u64,
    phase: u32,
    next_phase: u64,
    answering: BTreeSet<u64>,
    splits: u32,
    merges: u32,
    unasked: u32,
    after_a_split: u32,
}

impl Federation {
    fn new(config: ClusterConfig, privacy: PrivacyConfig, download: f64) -> Self {
        Self {
            config,
            noise: Noisy::of_a_tree(&privacy, D, privacy.vector_noise * privacy.reward_bound),
            privacy,
            ln_download: libm::log(download),
            users: (0..AGENTS).map(|_| BTreeMap::new()).collect(),
            clusters: (0..AGENTS).map(|agent| ((agent, 1), Cluster::new(None, agent))).collect(),
            due: BTreeMap::new(),
            next_group: AGENTS,
            phase: 1,
            next_phase: 2,
            answering: BTreeSet::new(),
            splits: 0,
            merges: 0,
            unasked: 0,
            after_a_split: 0,
        }
    }

    fn of(&self, key: Key) -> impl Iterator<Item = (&UserId, &User)> {
        self.users[key.0 as usize].iter().filter(move |(_, user)| user.cluster == key.1)
    }

    /// Observations of all users of a cluster: a public number.
    fn total(&self, key: Key) -> u64 {
        self.of(key).map(|(_, user)| user.sums.count).sum()
    }

    fn cluster_of(&self, agent: u64, user: UserId) -> u64 {
        let known = self.users[agent as usize].get(&user).map(|user| user.cluster);
        let mine = self.clusters.keys().filter(|key| key.0 == agent);
        known.unwrap_or_else(|| mine.min_by_key(|key| (u64::MAX - self.total(**key), key.1)).expect("one").1)
    }

    fn is_due(&self, key: Key) -> bool {
        let (total, said) = (self.total(key), self.clusters[&key].said.count);
        total >= self.privacy.first_release && grown(total, said, self.privacy.release_growth)
    }

    fn group_sums(&self, group: u64) -> Sums {
        Sums::of(self.clusters.values().filter(|cluster| cluster.group == group).map(|cluster| &cluster.said))
    }

    fn tell(&mut self, key: Key) {
        let now = self.group_sums(self.clusters[&key].group);
        self.due.entry(key).or_default().push_back(now);
    }

    /// Clusters of a group that are behind by more than D are told, the others are not.
    fn tell_those_behind(&mut self, group: u64) {
        let now = self.group_sums(group).ln_det();
        let members = self.clusters.iter().filter(|(_, cluster)| cluster.group == group);
        for key in members.map(|(key, _)| *key).collect::<Vec<_>>() {
            let knows = self.due.get(&key).and_then(VecDeque::back).unwrap_or(&self.clusters[&key].told);
            if now - knows.ln_det() > self.ln_download {
                self.unasked += 1;
                self.tell(key);
            }
        }
    }

    fn assert_settled(&self, step: u64) {
        assert!(self.answering.is_empty(), "step {step}: a phase is not over");
        assert!(self.due.values().all(VecDeque::is_empty), "step {step}: somebody was not told");
        for key in self.clusters.keys() {
            assert!(!self.is_due(*key), "step {step}: {key:?} has to say something");
        }
    }

    /// By released sums alone: what a cluster's users observed since does not count.
    fn scores(&self, offer: &Offer) -> Vec<f64> {
        let told = &self.clusters[&(offer.agent.0, self.cluster_of(offer.agent.0, offer.user))].told;
        let lowest = if told.count == 0 { 0.0 } else { smallest(&told.pair.v) };
        let width = self.noise.width(&model(), &self.privacy, 0.0, lowest, told.count);
        let v = regularized(&told.pair.v, model().regularization);
        let theta = solve(&v, &told.pair.b);
        rows(offer).map(|x| dot(x, &theta) + width * dot(x, &solve(&v, x)).sqrt()).collect()
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let (agent, id) = (offer.agent.0, offer.user);
        let cluster = self.cluster_of(agent, id);
        let alike: BTreeSet<UserId> = self.of((agent, cluster)).map(|(id, _)| *id).collect();
        let users = &mut self.users[agent as usize];
        if !users.contains_key(&id) {
            alike.iter().for_each(|other| _ = users.get_mut(other).expect("it is a user").edges.insert(id));
            let place = users.len();
            let sums = Sums::none();
            users.insert(id, User { sums, released: None, releases: 0, cluster, edges: alike, place });
        }
        let x: Vec<f64> = x.iter().map(|x| cut(*x, 1.0)).collect();
        let y = cut(reward - self.privacy.reward_centre, self.privacy.reward_bound);
        users.get_mut(&id).expect("it is a user now").sums.observe(&x, y);
        self.clusters.get_mut(&(agent, cluster)).expect("it is a cluster").stream.observe(&x, y);
    }

    fn take(&mut self, agent: u64, upload: &ClusterUpload) {
        let key = (agent, upload.cluster.0);
        let total = self.total(key);
        let cluster = self.clusters.get_mut(&key).expect("it is a cluster");
        cluster.uploads += 1;
        let mut said = cluster.baseline.clone().unwrap_or_else(Sums::none);
        // A part says first what was released of its users before it split off, and adds what they observe from then on.
        if cluster.baseline.is_none() || cluster.uploads > 1 {
            said.add(&cluster.stream);
            self.after_a_split += u32::from(cluster.baseline.is_some());
        }
        said.count = total;
        assert!(is(&said, &upload.evidence), "{key:?} says something else");
        assert!(upload.released && upload.information == 0.0 && upload.number == cluster.uploads, "{key:?}");
        cluster.said = said;
    }

    fn uploaded(&mut self, agent: u64, upload: &ClusterUpload) {
        let key = (agent, upload.cluster.0);
        assert!(self.is_due(key), "{key:?} says something that is not due");
        self.take(agent, upload);
        self.tell(key);
        self.tell_those_behind(self.clusters[&key].group);
        self.begin_phase_if_due();
    }

    fn begin_phase_if_due(&mut self) {
        let known: u64 = self.clusters.values().map(|cluster| cluster.said.count).sum();
        if self.answering.is_empty() && known >= self.next_phase {
            while known >= self.next_phase {
                self.phase += 1;
                self.next_phase += self.config.phase_base.pow(self.phase);
            }
            self.answering = (0..AGENTS).collect();
        }
    }

    /// Releases the sums of users that are due by their counts, and deletes edges between users whose releases differ.
    fn tell_apart(&mut self, agent: u64) {
        let users = &mut self.users[agent as usize];
        for user in users.values_mut() {
            let before = user.released.as_ref().map_or(0, |sums| sums.count);
            let due = user.sums.count >= self.privacy.edge_first
                && grown(user.sums.count, before, self.privacy.edge_growth);
            if due && user.releases < self.privacy.edge_releases {
                (user.released, user.releases) = (Some(user.sums.clone()), user.releases + 1);
            }
        }
        let ids: Vec<UserId> = users.keys().copied().collect();
        for (place, a) in ids.iter().enumerate() {
            for b in &ids[place + 1..] {
                let (Some(one), Some(other)) = (&users[a].released, &users[b].released) else { continue };
                let far = self.config.edge_scale.0 * (radius(one.count) + radius(other.count));
                if distance(&one.estimate(), &other.estimate()) > far {
                    users.get_mut(a).expect("it is a user").edges.remove(b);
                    users.get_mut(b).expect("it is a user").edges.remove(a);
                }
            }
        }
    }

    /// Users of a cluster whose releases hang together. Those without a release go with the largest part.
    fn parts(&self, key: Key) -> Vec<Vec<UserId>> {
        let known = |user: &User| user.released.is_some();
        let mut left: BTreeSet<UserId> =
            self.of(key).filter(|(_, user)| known(user)).map(|(id, _)| *id).collect();
        let mut parts = Vec::new();
        while let Some(first) = left.pop_first() {
            let (mut part, mut open) = (vec![first], vec![first]);
            while let Some(next) = open.pop() {
                for other in &self.users[key.0 as usize][&next].edges {
                    if left.remove(other) {
                        part.push(*other);
                        open.push(*other);
                    }
                }
            }
            parts.push(part);
        }
        let first = |part: &Vec<UserId>| part.iter().map(|id| self.users[key.0 as usize][id].place).min();
        parts.sort_by_key(first);
        parts
    }

    fn listed(&mut self, agent: u64, list: &ClusterList) {
        assert!(self.answering.remove(&agent), "agent {agent} was not asked");
        self.tell_apart(agent);
        let mut touched = BTreeSet::new();
        for old in self.clusters.keys().filter(|key| key.0 == agent).copied().collect::<Vec<_>>() {
            let parts = self.parts(old);
            if parts.len() < 2 {
                continue;
            }
            self.splits += 1;
            let unknown: Vec<UserId> =
                self.of(old).filter(|(_, user)| user.released.is_none()).map(|(id, _)| *id).collect();
            touched.insert(self.clusters.remove(&old).expect("it was listed").group);
            for part in &parts {
                let users = &self.users[agent as usize];
                let released = part.iter().filter_map(|id| users[id].released.as_ref());
                let baseline = Sums::of(released);
                let says_so = |upload: &&ClusterUpload| same(&baseline.pair, &full(&upload.evidence));
                let id = list.uploads.iter().find(says_so).expect("every part is told of").cluster.0;
                let fresh = Cluster::new(Some(baseline), self.next_group);
                self.next_group += 1;
                assert!(self.clusters.insert((agent, id), fresh).is_none(), "its number is new");
                let is_largest = parts.iter().all(|other| other.len() <= part.len());
                let others = if is_largest { &unknown[..] } else { &[] };
                for user in part
                    .iter()
                    .chain(others)
                    .filter(|user| {
                        // Of several that are largest the first has them.
                        self.users[agent as usize][*user].cluster == old.1
                    })
                    .copied()
                    .collect::<Vec<_>>()
                {
                    self.users[agent as usize].get_mut(&user).expect("it is a user").cluster = id;
                }
            }
        }
        let says = |key: &&Key| {
            let cluster = &self.clusters[*key];
            key.0 == agent && (self.is_due(**key) || (cluster.baseline.is_some() && cluster.uploads == 0))
        };
        let expected: BTreeSet<u64> = self.clusters.keys().filter(says).map(|key| key.1).collect();
        assert_eq!(expected, list.uploads.iter().map(|upload| upload.cluster.0).collect());
        list.uploads.iter().for_each(|upload| self.take(agent, upload));
        for upload in &list.uploads {
            let key = (agent, upload.cluster.0);
            self.tell(key);
            touched.insert(self.clusters[&key].group);
        }
        touched.into_iter().for_each(|group| self.tell_those_behind(group));
        if self.answering.is_empty() {
            self.merge();
            self.begin_phase_if_due();
        }
    }

    fn merge(&mut self) {
        let known = self
            .clusters
            .iter()
            .map(|(key, own)| (*key, own.said.estimate(), own.said.count))
            .collect::<Vec<_>>();
        for group in sorted(&self.config, &known) {
            let first = self.clusters[group.first().expect("it is not empty")].group;
            let before =
                self.clusters.iter().filter(|(_, cluster)| cluster.group == first).map(|(key, _)| *key);
            if before.collect::<BTreeSet<_>>() == group {
                continue;
            }
            self.merges += u32::from(group.len() > 1);
            for key in &group {
                self.clusters.get_mut(key).expect("it is a cluster").group = self.next_group;
            }
            self.next_group += 1;
            group.into_iter().for_each(|key| self.tell(key));
        }
    }

    fn downloaded(&mut self, agent: u64, told: &GroupSnapshot) {
        let key = (agent, told.cluster.0);
        let expected = self.due.get_mut(&key).and_then(VecDeque::pop_front);
        let expected = expected.unwrap_or_else(|| panic!("{key:?} is told something unasked"));
        assert!(is(&expected, &told.snapshot.evidence), "{key:?} is told something else");
        // It may have been divided while the message was on its way.
        if let Some(cluster) = self.clusters.get_mut(&key) {
            cluster.told = expected;
        }
    }
}

/// Whether `total` is larger than `before` by a factor, and by one at least.
fn grown(total: u64, before: u64, factor: f64) -> bool {
    (total - before) as f64 >= libm::ceil((factor - 1.0) * before as f64).max(1.0)
}

fn is(sums: &Sums, evidence: &Evidence) -> bool {
    sums.count == evidence.count() && same(&sums.pair, &full(evidence))
}

#[test]
fn cdp_fclub_dc_decides_by_counts_and_releases_alone() {
    for (seed, linkage) in [(60, Linkage::Complete), (61, Linkage::Complete), (62, Linkage::Transitive)] {
        let clusters = ClusterConfig {
            linkage,
            edge_scale: Threshold(1.0),
            merge_gate: Threshold(0.5),
            ..ClusterConfig::default()
        };
        let privacy = PrivacyConfig {
            epsilon: 1e30,
            reward_centre: 0.5,
            reward_bound: 0.5,
            first_release: 20,
            edge_first: 30,
            edge_growth: 1.5,
            private_width: 1.0,
            ..PrivacyConfig::default()
        };
        let download_threshold = Threshold(1.3);
        let algorithm = CdpFclubDc {
            model: model(),
            clusters: clusters.clone(),
            download_threshold,
            privacy: privacy.clone(),
        };
        let config = small(seed, AGENTS, 3000, Algorithm::CdpFclubDc(algorithm));
        let config = RunConfig { world: world(Assignment::Shuffled), ..config };
        let mut reading = Federation::new(clusters, privacy, 1.3);
        let mut world = config.world.build(AGENTS, config.seed).unwrap();
        let (mut offer, mut chosen) = (Offer::new(), 0);
        for entry in run(&config).0.0 {
            match entry {
                Entry::Chose { step, agent, arm } => {
                    reading.assert_settled(step);
                    offer.agent = AgentId(agent);
                    world.offer(step, &mut offer);
                    let scores = reading.scores(&offer);
                    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    assert!(scores[arm] >= best - 1e-6, "step {step}: {} is not {best}", scores[arm]);
                    chosen = arm;
                }
                Entry::Learned { reward, .. } => reading.learn(&offer, offer.arms.row(chosen), reward),
                Entry::Up { agent, message: Uplink::Cluster(upload) } => reading.uploaded(agent, &upload),
                Entry::Up { agent, message: Uplink::Clusters(list) } => reading.listed(agent, &list),
                Entry::Down { agent, message: Downlink::Group(told) } => reading.downloaded(agent, &told),
                Entry::Down { message: Downlink::Regroup { anew: false, .. }, .. } => {}
                other => panic!("{other:?} is not of this algorithm"),
            }
        }
        let Federation { splits, merges, unasked, after_a_split, .. } = reading;
        assert!(
            splits > 1 && merges > 0 && unasked > 5 && after_a_split > 3,
            "{linkage:?}: {splits} splits, {merges} merges, {unasked} told unasked, {after_a_split} later"
        );
    }
}
