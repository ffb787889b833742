//! The saved state of the coordinator of clustered users.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;

use crate::clustered::groups::{ClusterSums, Group, Groups};
use crate::clustered::phases::OpenPhase;
use crate::error::DecodeError;
use crate::evidence::Evidence;
use crate::exchange::roster::Roster;
use crate::ids::{AgentId, ClusterId, PhaseId, Tick, Version};
use crate::wire::{self, v1};

impl Groups {
    pub(super) fn encode(&self) -> Vec<u8> {
        let clusters = self.clusters.iter().map(|(key, known)| {
            let seat = self.groups[&known.group].roster.get(*key);
            v1::ClusterState {
                agent: key.0.0,
                life: key.1,
                cluster: key.2.0,
                own: Some(wire::evidence_to_wire(&known.own)),
                number: known.number,
                group: known.group,
                information: seat.map_or(0.0, |seat| seat.information),
                variance: known.variance,
                members: known.members,
                version: seat.map_or(0, |seat| seat.version.0),
            }
        });
        let group = |(group, own): (&u64, &Group)| v1::GroupState {
            group: *group,
            version: own.version.0,
            evidence: Some(wire::evidence_to_wire(&own.evidence)),
            information: own.information,
        };
        let seat = |(agent, life): (&AgentId, &u64)| v1::GroupSeatState { agent: agent.0, life: *life };
        let mut state = v1::GroupsState {
            version: self.version.0,
            lives: self.lives,
            next_group: self.next_group,
            seats: self.seats.iter().map(seat).collect(),
            clusters: clusters.collect(),
            groups: self.groups.iter().map(group).collect(),
            repairs: self.repairs,
            dimension: self.dimension() as u64,
            away: self.away.iter().map(|agent| agent.0).collect(),
            ..Default::default()
        };
        if let Some(phases) = &self.phases {
            (state.phase, state.next_phase) = (phases.phase.0, phases.next);
            if let Some(open) = &phases.open {
                state.collecting = true;
                state.waiting = open.waiting.iter().map(|agent| agent.0).collect();
                state.opened = open.opened.0;
            }
        }
        state.encode_to_vec()
    }

    pub(super) fn decode(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::GroupsState = wire::decode(state)?;
        let dimension = self.dimension();
        if state.dimension != dimension as u64 {
            return Err(DecodeError::invalid("groups", "they have another dimension"));
        }
        let seats: BTreeMap<AgentId, u64> =
            state.seats.iter().map(|seat| (AgentId(seat.agent), seat.life)).collect();
        let away: BTreeSet<AgentId> = state.away.into_iter().map(AgentId).collect();
        let mut groups = BTreeMap::new();
        for group in state.groups {
            let evidence = self.evidence(group.evidence, false)?;
            if !group.information.is_finite() {
                return Err(DecodeError::invalid("group", "its information is not finite"));
            }
            let made = Group {
                members: BTreeSet::new(),
                version: Version(group.version),
                evidence: Arc::new(evidence),
                variance: 0.0,
                information: group.information,
                roster: Roster::default(),
            };
            groups.insert(group.group, made);
        }
        let mut clusters = BTreeMap::new();
        for cluster in state.clusters {
            let key = (AgentId(cluster.agent), cluster.life, ClusterId(cluster.cluster));
            let own = self.evidence(cluster.own, self.budget.is_some())?;
            let variance = wire::variance(cluster.variance)?;
            let group = groups.get_mut(&cluster.group);
            let group = group.ok_or(DecodeError::invalid("cluster", "its group is missing"))?;
            if !cluster.information.is_finite() {
                return Err(DecodeError::invalid("cluster", "its information is not finite"));
            }
            group.members.insert(key);
            group.variance += variance;
            if seats.get(&key.0) == Some(&key.1) && !away.contains(&key.0) {
                let version = Version(cluster.version);
                group.roster.set(key, cluster.information, self.patience, version, cluster.number);
            }
            let (members, number, group) = (cluster.members.max(1), cluster.number, cluster.group);
            clusters.insert(key, ClusterSums { own, variance, members, number, group });
        }
        let largest = groups.keys().next_back().copied().unwrap_or(0);
        if groups.values().any(|group| group.members.is_empty()) || largest >= state.next_group {
            return Err(DecodeError::invalid("groups", "one of them cannot be"));
        }
        if let Some(phases) = &mut self.phases {
            phases.phase = PhaseId(state.phase);
            phases.next = state.next_phase;
            phases.open = state.collecting.then(|| OpenPhase {
                opened: Tick(state.opened),
                waiting: state.waiting.iter().map(|agent| AgentId(*agent)).collect(),
            });
        }
        (self.seats, self.away) = (seats, away);
        (self.groups, self.clusters) = (groups, clusters);
        self.version = Version(state.version);
        (self.lives, self.next_group, self.repairs) = (state.lives, state.next_group, state.repairs);
        self.all = OnceCell::new();
        Ok(())
    }

    fn evidence(&self, part: Option<v1::Evidence>, released: bool) -> Result<Evidence, DecodeError> {
        let part = part.unwrap_or_default();
        let evidence = if released {
            wire::released_from_wire(part, Some(self.dimension()))?
        } else {
            wire::evidence_from_wire(part)?
        };
        if evidence.dimension() == self.dimension() {
            Ok(evidence)
        } else {
            Err(DecodeError::invalid("evidence", "it has another dimension"))
        }
    }
}
