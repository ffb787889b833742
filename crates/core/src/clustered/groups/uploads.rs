//! What the coordinator of clustered users does with uploads: checks them, adds them up, answers.

use std::collections::BTreeSet;

use crate::clustered::groups::{Groups, Key};
use crate::clustered::message::{ClusterList, ClusterUpload};
use crate::clustered::phases::Phases;
use crate::error::ProtocolError;
use crate::ids::{AgentId, ClusterId, PhaseId, Tick, Version};
use crate::message::{Downlink, Outgoing};

/// The largest variance of noise, and the most agents, that sums can be of.
pub(crate) const MAX_VARIANCE: f64 = 1e250;
pub(crate) const MAX_MEMBERS: u64 = 1 << 53;

impl Groups {
    /// Adds snapshots for every cluster of a group that is too far behind.
    pub(super) fn push(&mut self, group: u64, outgoing: &mut Vec<Outgoing>) {
        let information = self.groups[&group].information;
        let mut due = Vec::new();
        while let Some((_, seat)) =
            self.groups.get_mut(&group).and_then(|group| group.roster.first_due(information))
        {
            let key = seat.agent;
            due.push((key, self.snapshot_to(key)));
        }
        due.sort_by_key(|(key, _)| *key);
        outgoing.extend(due.into_iter().map(|(_, message)| message));
    }

    fn check(&self, upload: &ClusterUpload) -> Result<(), ProtocolError> {
        check_upload(self.dimension(), self.budget.is_some(), upload)?;
        let one_group = self.phases.as_ref().is_none_or(|phases| phases.in_rounds);
        if upload.members > 1 && !(one_group && self.budget.is_some()) {
            return Err(ProtocolError::Evidence("groups compare the clusters of single agents"));
        }
        Ok(())
    }

    pub(super) fn receive_upload(
        &mut self,
        from: AgentId,
        life: u64,
        upload: ClusterUpload,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        let key = (from, life, upload.cluster);
        let known = self.clusters.get(&key).ok_or(ProtocolError::Cluster(upload.cluster))?;
        let (expected, got) = (known.number.saturating_add(1), upload.number);
        if expected != got {
            return Err(ProtocolError::Sequence { expected, got });
        }
        self.check(&upload)?;
        if upload.evidence.count() < known.own.count() {
            return Err(ProtocolError::Evidence("fewer observations than before"));
        }
        let group = known.group;
        let before = self.groups[&group].version;
        let sum = self.sum(self.groups[&group].members.iter(), Some((key, &upload)));
        self.model.refresh([&sum.evidence].into_iter())?;
        // From here on nothing fails.
        self.all.take();
        self.commit(group, sum);
        let known = self.clusters.get_mut(&key).expect("it was there");
        (known.number, known.own, known.variance) = (upload.number, upload.evidence, upload.variance);
        known.members = upload.members;
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
        if self.budget.is_some() {
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
    pub(super) fn receive_list(
        &mut self,
        now: Tick,
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
            if self.budget.is_none() {
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
            (known.number, known.own, known.variance) = (upload.number, upload.evidence, upload.variance);
            known.members = upload.members;
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
        outgoing.extend(self.finish_if_complete(now));
        Ok(outgoing)
    }
}

/// `Ok` if an upload can be one of a federation with so many features, whose sums carry noise if it is private.
pub(crate) fn check_upload(
    dimension: usize,
    private: bool,
    upload: &ClusterUpload,
) -> Result<(), ProtocolError> {
    let (expected, got) = (dimension, upload.evidence.dimension());
    if expected != got {
        return Err(ProtocolError::Dimension { expected, got });
    }
    if upload.released != private {
        return Err(ProtocolError::Evidence("noise is where none belongs, or missing"));
    }
    if upload.evidence.is_empty() {
        return Err(ProtocolError::Evidence("an upload without observations"));
    }
    if !(upload.information.is_finite() && upload.information >= 0.0) {
        return Err(ProtocolError::Evidence("the information is not a finite number"));
    }
    if !(0.0..=MAX_VARIANCE).contains(&upload.variance) || (upload.variance > 0.0 && !upload.released) {
        return Err(ProtocolError::Evidence("the variance of its noise cannot be"));
    }
    if !(1..=MAX_MEMBERS).contains(&upload.members) {
        return Err(ProtocolError::Evidence("sums of no agent, or of more than can be counted"));
    }
    upload.evidence.check_release()?;
    if upload.released { Ok(()) } else { upload.evidence.check() }
}
