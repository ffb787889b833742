//! The coordinator of clustered users: keeps what every cluster contributed, sorts clusters into groups, and
//! tells each cluster what its group knows.
//!
//! Uploads are absolute: an upload replaces what its cluster said before, and a group's sums are made anew
//! from its members, in order. So nothing is ever subtracted, a repetition changes nothing, and a cluster
//! that moves to another group takes everything along. Inside a group, who is told what and when is as in
//! that of the linear exchange, with a heap for each group.

mod state;
mod uploads;

pub(crate) use uploads::{MAX_MEMBERS, MAX_VARIANCE, check_upload};

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clustered::config::ClusterPlan;
use crate::clustered::fclub::FIRST;
use crate::clustered::message::{ClusterUpload, GroupSnapshot};
use crate::clustered::phases::Phases;
use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance, KnownCluster};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::exchange::roster::Roster;
use crate::ids::{AgentId, ClusterId, PhaseId, Tick, Version};
use crate::message::{Downlink, Outgoing, Snapshot, Uplink};
use crate::privacy::{Budget, repair};
use crate::ridge::Ridge;

/// A cluster of a life of an agent. Lives are counted here.
pub(super) type Key = (AgentId, u64, ClusterId);

/// The coordinator of `fclub`, `fclub-dc`, `cdp-fclub-dc`, `homo`, `homo-dc` and of all linear algorithms that are
/// private.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(super) name: &'static str,
    pub(super) model: Ridge,
    pub(super) patience: f64,
    pub(super) phases: Option<Phases>,
    /// How noise is divided in a private federation. Not set: evidence is exact.
    pub(super) budget: Option<Budget>,
    pub(super) version: Version,
    pub(super) lives: u64,
    pub(super) next_group: u64,
    pub(super) seats: BTreeMap<AgentId, u64>,
    /// Agents that were asked to say everything again and have not yet: they hear nothing until then.
    pub(super) away: BTreeSet<AgentId>,
    pub(super) clusters: BTreeMap<Key, ClusterSums>,
    pub(super) groups: BTreeMap<u64, Group>,
    pub(super) repairs: u64,
    /// The sum over all clusters and its information, computed when a view asks for it and dropped at each
    /// change.
    pub(super) all: OnceCell<(Evidence, f64)>,
}

/// The sums that one cluster of an agent contributed, and the group that it is in.
#[derive(Clone, Debug)]
pub(super) struct ClusterSums {
    pub(super) own: Evidence,
    /// The variance of the noise in it; 0 where it is exact.
    pub(super) variance: f64,
    /// Over how many agents it is.
    pub(super) members: u64,
    pub(super) number: u64,
    pub(super) group: u64,
}

/// The sums of some clusters, as a model may be made of them.
#[derive(Debug)]
pub(super) struct Sum {
    pub(super) evidence: Evidence,
    pub(super) variance: f64,
    /// Noise had made the matrix indefinite, or nearly.
    pub(super) repaired: bool,
}

/// Clusters that share their evidence.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) members: BTreeSet<Key>,
    pub(super) version: Version,
    pub(super) evidence: Arc<Evidence>,
    pub(super) variance: f64,
    pub(super) information: f64,
    /// The members whose agents listen, with what each was sent. Orphaned members are not in it.
    pub(super) roster: Roster<Key>,
}

impl Groups {
    pub(crate) fn new(plan: &ClusterPlan<'_>, dimension: usize) -> Self {
        let phases = plan.clusters.map(|clusters| Phases {
            merging: clusters.merging(),
            base: clusters.phase_base,
            deadline: clusters.phase_deadline,
            phase: PhaseId(1),
            next: clusters.phase_base,
            in_rounds: false,
            open: None,
        });
        let phases = phases.or_else(|| plan.rounds.map(Phases::rounds));
        Self {
            name: plan.name,
            model: plan.model.model(dimension),
            patience: plan.download.ln(),
            phases,
            budget: plan.budget(dimension),
            version: Version(0),
            lives: 0,
            next_group: 1,
            seats: BTreeMap::new(),
            away: BTreeSet::new(),
            clusters: BTreeMap::new(),
            groups: BTreeMap::new(),
            repairs: 0,
            all: OnceCell::new(),
        }
    }

    pub(super) fn dimension(&self) -> usize {
        self.model.dimension()
    }

    /// The sums of some members, with `instead` in the place of one. If they carry noise, eigenvalues below its reach
    /// are raised to it.
    pub(super) fn sum<'m>(
        &self,
        members: impl Iterator<Item = &'m Key>,
        instead: Option<(Key, &ClusterUpload)>,
    ) -> Sum {
        let (mut evidence, mut variance) = (Evidence::none(self.dimension()), 0.0);
        for key in members {
            let known = &self.clusters[key];
            let replaced = instead.filter(|(other, _)| other == key);
            let (own, noise) = replaced
                .map_or((&known.own, known.variance), |(_, upload)| (&upload.evidence, upload.variance));
            if !own.is_empty() {
                evidence.add(own);
                variance += noise;
            }
        }
        let d = self.dimension();
        let repaired = match &self.budget {
            Some(budget) if !evidence.is_empty() => repair(evidence.gram_mut(), d, budget.floor(variance)),
            _ => false,
        };
        Sum { evidence, variance, repaired }
    }

    /// Makes a group's sums anew, unless no model fits them.
    pub(super) fn renew(&mut self, group: u64) {
        let Some(own) = self.groups.get(&group) else { return };
        let sum = self.sum(own.members.iter(), None);
        self.all.take();
        if self.model.refresh([&sum.evidence].into_iter()).is_ok() {
            self.commit(group, sum);
        }
    }

    /// The model was just made from these sums.
    pub(super) fn commit(&mut self, group: u64, sum: Sum) {
        self.version = self.version.next();
        self.repairs += u64::from(sum.repaired);
        let own = self.groups.get_mut(&group).expect("the caller has it");
        (own.version, own.information) = (self.version, self.model.information());
        (own.evidence, own.variance) = (Arc::new(sum.evidence), sum.variance);
    }

    /// What a group knows for one of its members, remembered as sent.
    pub(super) fn snapshot_to(&mut self, key: Key) -> Outgoing {
        let &ClusterSums { number: contains, group, .. } = &self.clusters[&key];
        let members = self.groups[&group].members.iter();
        let contributed = members.map(|member| &self.clusters[member]).filter(|own| !own.own.is_empty());
        let members = contributed.fold(0, |sum: u64, own| sum.saturating_add(own.members));
        let group = self.groups.get_mut(&group).expect("every cluster has a group");
        let Group { version, information, variance, .. } = *group;
        group.roster.set(key, information, self.patience, version, contains);
        let evidence = Arc::clone(&group.evidence);
        let snapshot = Snapshot { authoritative: false, version, contains, information, evidence };
        Outgoing::to(key.0, Downlink::Group(GroupSnapshot { cluster: key.2, members, snapshot, variance }))
    }

    pub(super) fn of_life(&self, agent: AgentId, life: u64) -> impl Iterator<Item = Key> {
        let range = (agent, life, ClusterId(0))..=(agent, life, ClusterId(u64::MAX));
        self.clusters.range(range).map(|(key, _)| *key)
    }

    /// Gives a new cluster a place: in `group`, else in the one group of a federation without phases, else in
    /// a new group of its own.
    pub(super) fn seat(&mut self, key: Key, group: Option<u64>) -> u64 {
        let one_group = self.phases.as_ref().is_none_or(|phases| phases.in_rounds);
        let everybody = self.groups.keys().next().copied().filter(|_| one_group);
        let group = group.or(everybody).unwrap_or_else(|| {
            let made = Group {
                members: BTreeSet::new(),
                version: Version(0),
                evidence: Arc::new(Evidence::none(self.model.dimension())),
                variance: 0.0,
                information: 0.0,
                roster: Roster::default(),
            };
            self.groups.insert(self.next_group, made);
            self.next_group += 1;
            self.next_group - 1
        });
        let own = Evidence::none(self.dimension());
        self.clusters.insert(key, ClusterSums { own, variance: 0.0, members: 1, number: 0, group });
        let seat = self.groups.get_mut(&group).expect("it was just found or made");
        seat.members.insert(key);
        seat.roster.set(key, 0.0, self.patience, Version(0), 0);
        group
    }

    /// Notes that an agent listens for a cluster again and has to be sent everything.
    pub(super) fn listen(&mut self, key: Key) {
        let ClusterSums { number, group, .. } = self.clusters[&key];
        let group = self.groups.get_mut(&group).expect("every cluster has a group");
        group.roster.set(key, 0.0, self.patience, Version(0), number);
    }

    /// Returns whether the agent of this cluster is in the life that made the cluster, and listens.
    pub(super) fn is_heard(&self, key: Key) -> bool {
        self.seats.get(&key.0) == Some(&key.1) && !self.away.contains(&key.0)
    }

    /// Takes a cluster out of its group, which is gone if that was all of it.
    pub(super) fn remove(&mut self, key: Key) -> u64 {
        let known = self.clusters.remove(&key).expect("the caller has it");
        let group = self.groups.get_mut(&known.group).expect("every cluster has a group");
        group.members.remove(&key);
        group.roster.remove(key);
        if group.members.is_empty() {
            self.groups.remove(&known.group);
        }
        self.all.take();
        known.group
    }

    /// Stops sending to the clusters of an ended life. What they contributed stays in their groups.
    fn orphan(&mut self, agent: AgentId, life: u64) {
        for key in self.of_life(agent, life).collect::<Vec<_>>() {
            let known = &self.clusters[&key];
            if known.own.is_empty() {
                self.remove(key);
            } else {
                self.groups.get_mut(&known.group).expect("every cluster has a group").roster.remove(key);
            }
        }
    }
}

impl Coordinator for Groups {
    fn join(&mut self, now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        if entrance == Entrance::Returning {
            if !self.seats.contains_key(&agent) {
                self.lives += 1;
                self.seats.insert(agent, self.lives);
            }
            self.away.insert(agent);
            for key in self.of_life(agent, self.seats[&agent]).collect::<Vec<_>>() {
                let group = self.clusters[&key].group;
                self.groups.get_mut(&group).expect("every cluster has a group").roster.remove(key);
            }
            let phase = self.phases.as_ref().map_or(PhaseId(0), |phases| phases.phase);
            return vec![Outgoing::to(agent, Downlink::Regroup { phase, anew: true })];
        }
        let mut outgoing = self.leave(now, agent);
        self.lives += 1;
        self.seats.insert(agent, self.lives);
        let key = (agent, self.lives, FIRST);
        let place = self.place(key);
        let group = self.seat(key, place);
        if self.groups[&group].version > Version(0) {
            outgoing.push(self.snapshot_to(key));
        }
        outgoing
    }

    fn leave(&mut self, now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.away.remove(&agent);
        if let Some(life) = self.seats.remove(&agent) {
            self.orphan(agent, life);
        }
        if let Some(open) = self.phases.as_mut().and_then(|phases| phases.open.as_mut()) {
            open.waiting.remove(&agent);
        }
        self.finish_if_complete(now)
    }

    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError> {
        let life = *self.seats.get(&from).ok_or(ProtocolError::UnknownAgent(from))?;
        let mut outgoing = match message {
            Uplink::Cluster(upload) => {
                let outgoing = self.receive_upload(from, life, upload)?;
                // An upload outside of a round calls for one.
                let calls = |phases: &&mut Phases| phases.in_rounds && phases.open.is_none();
                if let Some(phases) = self.phases.as_mut().filter(calls) {
                    phases.next = 0;
                }
                outgoing
            }
            Uplink::Clusters(list) => self.receive_list(now, from, life, list)?,
            other => {
                return Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() });
            }
        };
        outgoing.extend(self.start_if_due(now));
        Ok(outgoing)
    }

    fn tick(&mut self, now: Tick) -> Vec<Outgoing> {
        if self.deadline().is_some_and(|deadline| deadline <= now)
            && let Some(open) = self.phases.as_mut().and_then(|phases| phases.open.as_mut())
        {
            open.waiting.clear();
        }
        self.finish_if_complete(now)
    }

    fn deadline(&self) -> Option<Tick> {
        let phases = self.phases.as_ref()?;
        Some(phases.open.as_ref()?.opened.after(phases.deadline?))
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.phases.as_ref()?.open.as_ref().map(|open| &open.waiting)
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        let (evidence, information) = self.all.get_or_init(|| {
            let mut sum = Evidence::none(self.dimension());
            self.clusters.values().for_each(|cluster| sum.add(&cluster.own));
            let mut model = self.model.clone();
            let exact = self.budget.is_none() && model.refresh([&sum].into_iter()).is_ok();
            (sum, if exact { model.information() } else { 0.0 })
        });
        let (version, agents) = (self.version, self.seats.len());
        CoordinatorView::of(version, evidence, *information, agents)
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        let life = *self.seats.get(&agent)?;
        let mine = || self.of_life(agent, life).map(|key| (key, &self.clusters[&key]));
        let uploads = mine().map(|(_, cluster)| cluster.number).sum();
        // Of its clusters, the one furthest behind its group.
        let behind = mine().filter_map(|(key, cluster)| {
            let group = &self.groups[&cluster.group];
            Some(group.information - group.roster.get(key)?.information)
        });
        let information = self.inspect().information - behind.fold(0.0, f64::max);
        Some(AgentStanding { uploads, version: self.version, information })
    }

    fn clusters(&self) -> Vec<KnownCluster> {
        let known = |(key, cluster): (&Key, &ClusterSums)| {
            let orphan = self.seats.get(&key.0) != Some(&key.1);
            let (group, uploads, count) = (cluster.group, cluster.number, cluster.own.count());
            KnownCluster { agent: key.0, orphan, cluster: key.2, group, uploads, count }
        };
        self.clusters.iter().map(known).collect()
    }

    fn repairs(&self) -> u64 {
        self.repairs
    }

    fn save(&self) -> Vec<u8> {
        self.encode()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        self.decode(state)
    }
}
