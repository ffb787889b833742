//! When clusters are sorted into groups again, and how.

use std::collections::BTreeSet;

use crate::clustered::groups::{ClusterSums, Groups, Key};
use crate::clustered::merging::{Candidate, Linkage, Merging};
use crate::clustered::width::{Noisy, noise_radius};
use crate::ids::{AgentId, PhaseId, Tick};
use crate::message::{Downlink, Outgoing};
use crate::time_span::TimeSpan;

/// When clusters are sorted into groups again.
#[derive(Debug)]
pub(super) struct Phases {
    pub(super) merging: Merging,
    pub(super) base: u64,
    pub(super) deadline: Option<TimeSpan>,
    pub(super) phase: PhaseId,
    /// The next phase begins when so many observations are known.
    pub(super) next: u64,
    /// A phase is a round: it begins with the upload of any agent, collects from the others, and ends with the sums of all.
    pub(super) in_rounds: bool,
    pub(super) open: Option<OpenPhase>,
}

/// A phase that has begun and waits for the clusters of agents.
#[derive(Clone, Debug)]
pub(super) struct OpenPhase {
    pub(super) opened: Tick,
    pub(super) waiting: BTreeSet<AgentId>,
}

impl Phases {
    /// Rounds over agents that are all in one group.
    pub(super) const fn rounds(deadline: Option<TimeSpan>) -> Self {
        // Nothing is sorted into groups, so that nothing is ever compared.
        let merging = Merging { linkage: Linkage::Complete, scale: 0.0, gate: 0.0 };
        Self { merging, base: 2, deadline, phase: PhaseId(1), next: u64::MAX, in_rounds: true, open: None }
    }
}

impl Groups {
    /// How a cluster looks to those that may be like it.
    fn candidate(&mut self, key: Key) -> Candidate {
        let sum = self.sum([key].iter(), None);
        let fits = self.model.refresh([&sum.evidence].into_iter()).is_ok();
        let estimate = if fits { self.model.estimate() } else { vec![0.0; self.dimension()] };
        let noise = self.budget.as_ref().map_or(0.0, |budget| {
            let sums = Noisy::of(&sum.evidence, sum.variance);
            noise_radius(budget, sums, &estimate, self.model.regularization())
        });
        Candidate { agent: key.0.0, estimate, count: sum.evidence.count(), noise }
    }

    /// The group that a newcomer without observations fits into.
    pub(super) fn place(&mut self, key: Key) -> Option<u64> {
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
        let newcomer =
            Candidate { agent: key.0.0, estimate: vec![0.0; self.dimension()], count: 0, noise: 0.0 };
        merging.place(&newcomer, groups.iter().map(Vec::as_slice)).map(|index| ids[index])
    }

    /// Begins a phase if enough observations have come in, and asks all agents for their clusters.
    pub(super) fn start_if_due(&mut self, now: Tick) -> Vec<Outgoing> {
        let known: u64 = self.clusters.values().map(|cluster| cluster.own.count()).sum();
        let Some(phases) = &mut self.phases else { return Vec::new() };
        if phases.open.is_some() || known < phases.next || self.seats.is_empty() {
            return Vec::new();
        }
        while known >= phases.next {
            phases.phase = PhaseId(phases.phase.0 + 1);
            if phases.in_rounds {
                phases.next = u64::MAX;
                break;
            }
            let length = phases.base.saturating_pow(u32::try_from(phases.phase.0).unwrap_or(u32::MAX));
            phases.next = phases.next.saturating_add(length);
        }
        let waiting = self.seats.keys().copied().collect();
        phases.open = Some(OpenPhase { opened: now, waiting });
        vec![Outgoing::to_everyone(Downlink::Regroup { phase: phases.phase, anew: false })]
    }

    /// When all have answered: sorts clusters into groups, and tells the members of every group that is not
    /// as it was.
    pub(super) fn finish_if_complete(&mut self, now: Tick) -> Vec<Outgoing> {
        let Some(phases) = &mut self.phases else { return Vec::new() };
        if phases.open.take_if(|open| open.waiting.is_empty()).is_none() {
            return Vec::new();
        }
        let merging = phases.merging;
        if phases.in_rounds {
            let listening: Vec<Key> =
                self.clusters.keys().copied().filter(|key| self.is_heard(*key)).collect();
            let mut outgoing: Vec<Outgoing> =
                listening.into_iter().map(|key| self.snapshot_to(key)).collect();
            outgoing.extend(self.start_if_due(now));
            return outgoing;
        }
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
        outgoing.extend(self.start_if_due(now));
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
            *seat = ClusterSums { group, ..known };
            if !self.is_heard(key) {
                self.groups.get_mut(&group).expect("it was just made").roster.remove(key);
            }
        }
        if let Some(group) = formed {
            self.renew(group);
        }
    }
}
