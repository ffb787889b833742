//! The coordinator of clustered users: keeps what every cluster contributed, sorts clusters into groups, and
//! tells each cluster what its group knows.
//!
//! Uploads are absolute: an upload replaces what its cluster said before, and a group's sums are made anew
//! from its members, in order. So nothing is ever subtracted, a repetition changes nothing, and a cluster
//! that moves to another group takes everything along. Inside a group, who is told what and when is as in
//! [`exchange`](crate::linear::exchange), with a heap for each group.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clustered::config::Plan;
use crate::clustered::fclub::FIRST;
use crate::clustered::merging::{Candidate, Merging};
use crate::clustered::message::{ClusterList, ClusterUpload, GroupSnapshot};
use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance, KnownCluster};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::ids::{AgentId, ClusterId, PhaseId, Tick, Version};
use crate::linear::roster::Roster;
use crate::message::{Downlink, Outgoing, Snapshot, Uplink};
use crate::privacy::repair;
use crate::ridge::Ridge;

/// A cluster of a life of an agent. Lives are counted here.
pub(super) type Key = (AgentId, u64, ClusterId);

/// The coordinator of `fclub`, `fclub-dc`, `cdp-fclub-dc`, `homo`, `homo-dc` and of `async-lin-ucb` where it
/// is private.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(super) name: &'static str,
    pub(super) model: Ridge,
    pub(super) patience: f64,
    pub(super) phases: Option<Phases>,
    /// ρ_s: the least eigenvalue that a release is believed to have. Not set: evidence is exact.
    pub(super) floor: Option<f64>,
    pub(super) version: Version,
    pub(super) lives: u64,
    pub(super) next_group: u64,
    pub(super) seats: BTreeMap<AgentId, u64>,
    /// Agents that were asked to say everything again and have not yet: they hear nothing until then.
    pub(super) away: BTreeSet<AgentId>,
    pub(super) clusters: BTreeMap<Key, Known>,
    pub(super) groups: BTreeMap<u64, Group>,
    pub(super) now: Tick,
    pub(super) repairs: u64,
    /// The sum over all clusters and its information, for whoever asks.
    pub(super) all: OnceCell<(Evidence, f64)>,
}

/// When clusters are sorted into groups again.
#[derive(Debug)]
pub(super) struct Phases {
    pub(super) merging: Merging,
    pub(super) base: u64,
    pub(super) deadline: Option<u64>,
    pub(super) phase: PhaseId,
    /// The next phase begins when so many observations are known.
    pub(super) next: u64,
    pub(super) open: Option<Open>,
}

/// A phase that is beginning.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) opened: Tick,
    pub(super) waiting: BTreeSet<AgentId>,
}

/// What one cluster contributed.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) own: Evidence,
    pub(super) number: u64,
    pub(super) group: u64,
}

/// Clusters that share.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) members: BTreeSet<Key>,
    pub(super) version: Version,
    pub(super) evidence: Arc<Evidence>,
    pub(super) information: f64,
    /// Members whose agents listen.
    pub(super) roster: Roster<Key>,
}

impl Groups {
    pub(crate) fn new(plan: &Plan<'_>, dimension: usize) -> Self {
        let phases = plan.clusters.map(|clusters| Phases {
            merging: clusters.merging(),
            base: clusters.phase_base,
            deadline: clusters.phase_deadline,
            phase: PhaseId(1),
            next: clusters.phase_base,
            open: None,
        });
        Self {
            name: plan.name,
            model: plan.model.model(dimension),
            patience: plan.download.ln(),
            phases,
            floor: plan.privacy.map(|privacy| privacy.calibration(dimension).bounds.matrix),
            version: Version(0),
            lives: 0,
            next_group: 1,
            seats: BTreeMap::new(),
            away: BTreeSet::new(),
            clusters: BTreeMap::new(),
            groups: BTreeMap::new(),
            now: Tick(0),
            repairs: 0,
            all: OnceCell::new(),
        }
    }

    pub(super) fn dimension(&self) -> usize {
        self.model.dimension()
    }

    /// The sums of some members, with `instead` in the place of one; made positive definite if they carry
    /// noise, which is counted.
    fn sum<'m>(
        &self,
        members: impl Iterator<Item = &'m Key>,
        instead: Option<(Key, &Evidence)>,
    ) -> (Evidence, bool) {
        let mut sum = Evidence::none(self.dimension());
        let mut contributors = 0;
        for key in members {
            let own =
                instead.filter(|(other, _)| other == key).map_or(&self.clusters[key].own, |(_, own)| own);
            if !own.is_empty() {
                sum.add(own);
                contributors += 1;
            }
        }
        let d = self.dimension();
        let repaired = match self.floor {
            Some(floor) if contributors > 0 => repair(sum.gram_mut(), d, floor * f64::from(contributors)),
            _ => false,
        };
        (sum, repaired)
    }

    /// Makes a group's sums anew, unless no model fits them.
    pub(super) fn renew(&mut self, group: u64) {
        let Some(own) = self.groups.get(&group) else { return };
        let (sum, repaired) = self.sum(own.members.iter(), None);
        self.all.take();
        if self.model.refresh([&sum].into_iter()).is_ok() {
            self.commit(group, sum, repaired);
        }
    }

    /// The model was just made from these sums.
    fn commit(&mut self, group: u64, sum: Evidence, repaired: bool) {
        self.version = self.version.next();
        self.repairs += u64::from(repaired);
        let own = self.groups.get_mut(&group).expect("the caller has it");
        (own.version, own.information) = (self.version, self.model.information());
        own.evidence = Arc::new(sum);
    }

    /// What a group knows for one of its members, remembered as sent.
    fn snapshot_to(&mut self, key: Key) -> Outgoing {
        let &Known { number: contains, group, .. } = &self.clusters[&key];
        let members = self.groups[&group].members.iter();
        let members = members.filter(|member| !self.clusters[*member].own.is_empty()).count() as u64;
        let group = self.groups.get_mut(&group).expect("every cluster has a group");
        let Group { version, information, .. } = *group;
        group.roster.set(key, information, self.patience, version, contains);
        let evidence = Arc::clone(&group.evidence);
        let snapshot = Snapshot { authoritative: false, version, contains, information, evidence };
        Outgoing::to(key.0, Downlink::Group(GroupSnapshot { cluster: key.2, members, snapshot }))
    }

    /// Snapshots for everybody in a group who is too far behind.
    fn push(&mut self, group: u64, outgoing: &mut Vec<Outgoing>) {
        let information = self.groups[&group].information;
        let mut due = Vec::new();
        while let Some(seat) = self.groups[&group].roster.first_due(information) {
            let key = seat.agent;
            due.push((key, self.snapshot_to(key)));
        }
        due.sort_by_key(|(key, _)| *key);
        outgoing.extend(due.into_iter().map(|(_, message)| message));
    }

    fn check(&self, upload: &ClusterUpload) -> Result<(), ProtocolError> {
        let (expected, got) = (self.dimension(), upload.evidence.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        if upload.released != self.floor.is_some() {
            return Err(ProtocolError::Evidence("noise is where none belongs, or missing"));
        }
        if upload.evidence.is_empty() {
            return Err(ProtocolError::Evidence("an upload without observations"));
        }
        if !(upload.information.is_finite() && upload.information >= 0.0) {
            return Err(ProtocolError::Evidence("the information is not a finite number"));
        }
        upload.evidence.check_release()?;
        if upload.released { Ok(()) } else { upload.evidence.check() }
    }

    fn receive_upload(
        &mut self,
        from: AgentId,
        life: u64,
        upload: ClusterUpload,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        let key = (from, life, upload.cluster);
        let known = self.clusters.get(&key).ok_or(ProtocolError::Cluster(upload.cluster))?;
        let (expected, got) = (known.number + 1, upload.number);
        if expected != got {
            return Err(ProtocolError::Sequence { expected, got });
        }
        self.check(&upload)?;
        if upload.evidence.count() < known.own.count() {
            return Err(ProtocolError::Evidence("fewer observations than before"));
        }
        let group = known.group;
        let before = self.groups[&group].version;
        let (sum, repaired) = self.sum(self.groups[&group].members.iter(), Some((key, &upload.evidence)));
        self.model.refresh([&sum].into_iter())?;
        // From here on nothing fails.
        self.all.take();
        self.commit(group, sum, repaired);
        let known = self.clusters.get_mut(&key).expect("it was there");
        (known.number, known.own) = (upload.number, upload.evidence);
        let mut outgoing = Vec::new();
        self.answer(key, upload.based_on, upload.information, before, &mut outgoing);
        self.push(group, &mut outgoing);
        Ok(outgoing)
    }

    /// Tells a cluster that its upload is in the sums of its group, which were at `before`.
    fn answer(
        &mut self,
        key: Key,
        based_on: Version,
        information: f64,
        before: Version,
        outgoing: &mut Vec<Outgoing>,
    ) {
        if self.floor.is_some() {
            // What is exact here may not enter its base: it is told the sums with noise.
            outgoing.push(self.snapshot_to(key));
            return;
        }
        let (number, group) = (self.clusters[&key].number, self.clusters[&key].group);
        let group = self.groups.get_mut(&group).expect("every cluster has a group");
        let in_sync = group.roster.get(key).is_some_and(|seat| seat.version == before) && based_on == before;
        let (has, version) =
            if in_sync { (group.information, group.version) } else { (information, based_on) };
        group.roster.set(key, has.min(group.information), self.patience, version, number);
        let version = in_sync.then_some(group.version);
        outgoing.push(Outgoing::to(key.0, Downlink::ClusterReceipt { cluster: key.2, number, version }));
    }

    /// All clusters of an agent, in place of those it had.
    fn receive_list(
        &mut self,
        from: AgentId,
        life: u64,
        list: ClusterList,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        let ids = list.kept.iter().copied().chain(list.uploads.iter().map(|upload| upload.cluster));
        let named: BTreeSet<ClusterId> = ids.collect();
        if named.len() != list.kept.len() + list.uploads.len() {
            return Err(ProtocolError::Evidence("a cluster is named twice"));
        }
        if self.phases.as_ref().map_or(PhaseId(0), |phases| phases.phase) < list.phase {
            return Err(ProtocolError::Evidence("a phase that has not begun"));
        }
        for upload in &list.uploads {
            self.check(upload)?;
            if self.floor.is_none() {
                self.model.refresh([&upload.evidence].into_iter())?;
            }
        }
        // From here on nothing fails.
        let mut touched = BTreeSet::new();
        let gone = self.of_life(from, life).filter(|key| !named.contains(&key.2)).collect::<Vec<_>>();
        for key in gone {
            touched.insert(self.remove(key));
        }
        let was_away = self.away.remove(&from);
        for &cluster in &list.kept {
            let key = (from, life, cluster);
            if !self.clusters.contains_key(&key) {
                touched.insert(self.seat(key, None));
            } else if was_away {
                self.listen(key);
            }
        }
        let mut answers = Vec::new();
        for upload in list.uploads {
            let key = (from, life, upload.cluster);
            let group = match self.clusters.get(&key) {
                Some(known) => known.group,
                None => self.seat(key, None),
            };
            if was_away {
                self.listen(key);
            }
            let before = self.groups[&group].version;
            let known = self.clusters.get_mut(&key).expect("it has a seat");
            (known.number, known.own) = (upload.number, upload.evidence);
            touched.insert(group);
            answers.push((key, upload.based_on, upload.information, before));
        }
        touched.iter().for_each(|group| self.renew(*group));
        let mut outgoing = Vec::new();
        for (key, based_on, information, before) in answers {
            self.answer(key, based_on, information, before, &mut outgoing);
        }
        for group in touched {
            if self.groups.contains_key(&group) {
                self.push(group, &mut outgoing);
            }
        }
        if let Some(Phases { phase, open: Some(open), .. }) = &mut self.phases
            && *phase == list.phase
        {
            open.waiting.remove(&from);
        }
        outgoing.extend(self.finish_if_complete());
        Ok(outgoing)
    }

    fn of_life(&self, agent: AgentId, life: u64) -> impl Iterator<Item = Key> {
        let range = (agent, life, ClusterId(0))..=(agent, life, ClusterId(u64::MAX));
        self.clusters.range(range).map(|(key, _)| *key)
    }

    /// Gives a new cluster a place: in this group, in the one for everybody, or in one of its own.
    fn seat(&mut self, key: Key, group: Option<u64>) -> u64 {
        let everybody = self.groups.keys().next().copied().filter(|_| self.phases.is_none());
        let group = group.or(everybody).unwrap_or_else(|| {
            let made = Group {
                members: BTreeSet::new(),
                version: Version(0),
                evidence: Arc::new(Evidence::none(self.model.dimension())),
                information: 0.0,
                roster: Roster::default(),
            };
            self.groups.insert(self.next_group, made);
            self.next_group += 1;
            self.next_group - 1
        });
        let own = Evidence::none(self.dimension());
        self.clusters.insert(key, Known { own, number: 0, group });
        let seat = self.groups.get_mut(&group).expect("it was just found or made");
        seat.members.insert(key);
        seat.roster.set(key, 0.0, self.patience, Version(0), 0);
        group
    }

    /// Somebody listens for a cluster again, and has heard nothing.
    fn listen(&mut self, key: Key) {
        let Known { number, group, .. } = self.clusters[&key];
        let group = self.groups.get_mut(&group).expect("every cluster has a group");
        group.roster.set(key, 0.0, self.patience, Version(0), number);
    }

    /// Whether somebody listens for a cluster.
    pub(super) fn is_heard(&self, key: Key) -> bool {
        self.seats.get(&key.0) == Some(&key.1) && !self.away.contains(&key.0)
    }

    /// Takes a cluster out of its group, which is gone if that was all of it.
    fn remove(&mut self, key: Key) -> u64 {
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

    /// Nobody listens for the clusters of this life any more; what they contributed stays.
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

    /// How a cluster looks to those that may be like it.
    fn candidate(&mut self, key: Key) -> Candidate {
        let (sum, _) = self.sum([key].iter(), None);
        let fits = self.model.refresh([&sum].into_iter()).is_ok();
        let estimate = if fits { self.model.estimate() } else { vec![0.0; self.dimension()] };
        Candidate { agent: key.0.0, estimate, count: sum.count() }
    }

    /// The group that a newcomer without observations fits into.
    fn place(&mut self, key: Key) -> Option<u64> {
        let merging = self.phases.as_ref()?.merging;
        // Without observations a radius is 1, and so is the sum of two at least.
        if merging.gate <= 1.0 {
            return None;
        }
        let ids: Vec<u64> = self.groups.keys().copied().collect();
        let members: Vec<Vec<Key>> =
            ids.iter().map(|id| self.groups[id].members.iter().copied().collect()).collect();
        let groups: Vec<Vec<Candidate>> = members
            .into_iter()
            .map(|keys| keys.into_iter().map(|key| self.candidate(key)).collect())
            .collect();
        let newcomer = Candidate { agent: key.0.0, estimate: vec![0.0; self.dimension()], count: 0 };
        merging.place(&newcomer, groups.iter().map(Vec::as_slice)).map(|index| ids[index])
    }

    /// Begins a phase if enough is known, and asks everybody for their clusters.
    fn start_if_due(&mut self) -> Vec<Outgoing> {
        let known: u64 = self.clusters.values().map(|cluster| cluster.own.count()).sum();
        let Some(phases) = &mut self.phases else { return Vec::new() };
        if phases.open.is_some() || known < phases.next || self.seats.is_empty() {
            return Vec::new();
        }
        while known >= phases.next {
            phases.phase = PhaseId(phases.phase.0 + 1);
            let length = phases.base.saturating_pow(u32::try_from(phases.phase.0).unwrap_or(u32::MAX));
            phases.next = phases.next.saturating_add(length);
        }
        let waiting = self.seats.keys().copied().collect();
        phases.open = Some(Open { opened: self.now, waiting });
        vec![Outgoing::to_everyone(Downlink::Regroup { phase: phases.phase, anew: false })]
    }

    /// When all have answered: sorts clusters into groups, and tells the members of every group that is not
    /// as it was.
    fn finish_if_complete(&mut self) -> Vec<Outgoing> {
        let Some(phases) = &mut self.phases else { return Vec::new() };
        if phases.open.take_if(|open| open.waiting.is_empty()).is_none() {
            return Vec::new();
        }
        let merging = phases.merging;
        let keys: Vec<Key> = self.clusters.keys().copied().collect();
        let candidates: Vec<Candidate> = keys.iter().map(|key| self.candidate(*key)).collect();
        let mut outgoing = Vec::new();
        for group in merging.groups(&candidates) {
            let members: BTreeSet<Key> = group.into_iter().map(|index| keys[index]).collect();
            let first = *members.first().expect("a group is not empty");
            if self.groups[&self.clusters[&first].group].members == members {
                continue;
            }
            self.form(&members);
            let listening: Vec<Key> = members.iter().copied().filter(|key| self.is_heard(*key)).collect();
            outgoing.extend(listening.into_iter().map(|key| self.snapshot_to(key)));
        }
        outgoing.extend(self.start_if_due());
        outgoing
    }

    /// Makes a new group of these clusters, which leave the groups they were in.
    fn form(&mut self, members: &BTreeSet<Key>) {
        let mut formed = None;
        for &key in members {
            let known = self.clusters[&key].clone();
            self.remove(key);
            let group = self.seat(key, formed);
            formed = Some(group);
            let seat = self.clusters.get_mut(&key).expect("it was just seated");
            *seat = Known { group, ..known };
            if !self.is_heard(key) {
                self.groups.get_mut(&group).expect("it was just made").roster.remove(key);
            }
        }
        if let Some(group) = formed {
            self.renew(group);
        }
    }
}

impl Coordinator for Groups {
    fn join(&mut self, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
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
        let mut outgoing = self.leave(agent);
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

    fn leave(&mut self, agent: AgentId) -> Vec<Outgoing> {
        self.away.remove(&agent);
        if let Some(life) = self.seats.remove(&agent) {
            self.orphan(agent, life);
        }
        if let Some(open) = self.phases.as_mut().and_then(|phases| phases.open.as_mut()) {
            open.waiting.remove(&agent);
        }
        self.finish_if_complete()
    }

    fn receive(&mut self, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError> {
        let life = *self.seats.get(&from).ok_or(ProtocolError::UnknownAgent(from))?;
        let mut outgoing = match message {
            Uplink::Cluster(upload) => self.receive_upload(from, life, upload)?,
            Uplink::Clusters(list) => self.receive_list(from, life, list)?,
            other => {
                return Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() });
            }
        };
        outgoing.extend(self.start_if_due());
        Ok(outgoing)
    }

    fn tick(&mut self, now: Tick) -> Vec<Outgoing> {
        self.now = self.now.max(now);
        if self.deadline().is_some_and(|deadline| deadline <= now)
            && let Some(open) = self.phases.as_mut().and_then(|phases| phases.open.as_mut())
        {
            open.waiting.clear();
        }
        self.finish_if_complete()
    }

    fn deadline(&self) -> Option<Tick> {
        let phases = self.phases.as_ref()?;
        Some(phases.open.as_ref()?.opened.after(phases.deadline?))
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        let (evidence, information) = self.all.get_or_init(|| {
            let mut sum = Evidence::none(self.dimension());
            self.clusters.values().for_each(|cluster| sum.add(&cluster.own));
            let mut model = self.model.clone();
            let exact = self.floor.is_none() && model.refresh([&sum].into_iter()).is_ok();
            (sum, if exact { model.information() } else { 0.0 })
        });
        let (version, agents) = (self.version, self.seats.len());
        CoordinatorView { version, evidence, information: *information, agents }
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
        let known = |(key, cluster): (&Key, &Known)| {
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
