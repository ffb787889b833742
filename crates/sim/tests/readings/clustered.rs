//! `fclub`, `fclub-dc`, `homo` and `homo-dc`: Algorithms 1 and 2 of Liu et al. (2022) without privacy.
//!
//! Uploads are absolute, so that the coordinator's sums of a group are those of what its clusters said last. Which
//! messages are due follows from determinants and phases; the run's messages are checked as they come.

use std::collections::{BTreeMap, BTreeSet};

use posse_core::{
    AgentId, Algorithm, ClusterConfig, ClusterList, ClusterUpload, Downlink, Evidence, Fclub, FclubDc,
    GroupSnapshot, Homo, HomoDc, Linkage, Threshold, Uplink, UserId, packed,
};
use posse_sim::RunConfig;
use posse_sim::world::{Assignment, Offer};

use super::users::{AGENTS, D, Key, Sums, Users, model, sorted, world};
use super::{linear_bounds, rows};
use crate::support::{Entry, run, small};

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
        let config = self.clusters_config.as_ref().expect("there are phases");
        let known: Vec<_> =
            self.clusters.iter().map(|(key, own)| (*key, own.said.estimate(), own.said.count)).collect();
        for group in sorted(config, &known) {
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
