//! What a relay of private sums does with what its parent says.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Awaits, OpenReleaseRound, ReleaseRelay, Told};
use crate::clustered::fclub::FIRST;
use crate::clustered::groups::MAX_VARIANCE;
use crate::clustered::message::GroupSnapshot;
use crate::error::ProtocolError;
use crate::ids::{AgentId, PhaseId, Tick, Version};
use crate::message::{Downlink, Outgoing, Snapshot, Uplink};
use crate::relay::Passed;
use crate::ridge::Ridge;

impl ReleaseRelay {
    pub(super) fn regroup(&mut self, now: Tick, phase: PhaseId, anew: bool) -> Result<Passed, ProtocolError> {
        if anew {
            // The parent lost part of its history, and counts versions and uploads from the beginning.
            (self.parent_version, self.parent_phase) = (Version(0), phase);
            (self.number, self.sent, self.arrived, self.in_flight) = (0, 0, 0, None);
            // The parent has lost its open round, too. What it says next is for all children.
            (self.open, self.awaits) = (None, Some(Awaits::End));
            let list = Uplink::Clusters(self.list(phase, true));
            return Ok(Passed { up: vec![list], down: Vec::new() });
        }
        if !self.in_rounds {
            let message = Downlink::Regroup { phase, anew };
            return Err(ProtocolError::Unexpected { algorithm: self.name, message: message.kind() });
        }
        if phase <= self.parent_phase {
            return Ok(Passed::default());
        }
        (self.parent_phase, self.phase) = (phase, PhaseId(self.phase.0 + 1));
        let waiting = self.children.keys().copied().collect();
        self.open = Some(OpenReleaseRound { opened: now, waiting });
        let ask = Outgoing::to_everyone(Downlink::Regroup { phase: self.phase, anew: false });
        Ok(Passed { up: self.answer_if_complete(), down: vec![ask] })
    }

    /// Takes over what the parent says is known, unless it is older than what is here.
    pub(super) fn adopt(&mut self, group: &GroupSnapshot) -> Result<Passed, ProtocolError> {
        let Snapshot { authoritative, version, contains, information, evidence } = &group.snapshot;
        if *authoritative || group.cluster != FIRST {
            return Err(ProtocolError::Evidence("the sums of another group"));
        }
        if !(0.0..=MAX_VARIANCE).contains(&group.variance) {
            return Err(ProtocolError::Evidence("the variance of its noise cannot be"));
        }
        if !(information.is_finite() && *information >= 0.0) {
            return Err(ProtocolError::Evidence("the information is not a finite number"));
        }
        let (expected, got) = (self.dimension, evidence.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        if *contains > self.number {
            return Err(ProtocolError::Sequence { expected: self.number, got: *contains });
        }
        Ridge::check(evidence, self.regularization)?;
        let acknowledged = self.number - u64::from(self.in_flight.is_some());
        if *version < self.parent_version || *contains < acknowledged {
            return Ok(Passed::default());
        }
        let carried = self.in_flight.take_if(|_| *contains == self.number);
        if *version > self.parent_version || carried.is_some() {
            (self.parent_version, self.version) = (*version, self.version.next());
            self.told = Told {
                members: group.members,
                evidence: Arc::clone(evidence),
                variance: group.variance,
                information: *information,
            };
        }
        let is_receipt = carried.is_some();
        let mut hearing = self.arrive(carried);
        if self.is_for_all(is_receipt) {
            // Those that have these sums, too: a relay among them waits for the end.
            hearing = self.children.keys().copied().collect();
        }
        hearing.retain(|child| self.children.get(child).is_some_and(|seat| !seat.away));
        let mut down: Vec<Outgoing> = hearing.into_iter().map(|child| self.snapshot_to(child)).collect();
        down.extend(self.push());
        Ok(Passed { up: self.upload_if_due(), down })
    }

    /// The parent has the upload that carried these releases. Returns the children that can be told so.
    fn arrive(&mut self, carried: Option<BTreeMap<AgentId, u64>>) -> Vec<AgentId> {
        let Some(carried) = carried else { return Vec::new() };
        self.arrived = self.sent;
        let mut heard = Vec::new();
        for (child, number) in carried {
            if let Some(seat) = self.children.get_mut(&child).filter(|seat| seat.contained < number) {
                seat.contained = number;
                heard.push(child);
            }
        }
        heard
    }

    /// Returns whether what the parent says now is for all children: a round has ended, or did so without this relay. The
    /// receipt of the relay's answer is none: the sums lack what others have to say.
    fn is_for_all(&mut self, is_receipt: bool) -> bool {
        if self.open.is_some() {
            return true;
        }
        match self.awaits.take() {
            Some(Awaits::Receipt) if is_receipt => {
                self.awaits = Some(Awaits::End);
                false
            }
            awaited => awaited.is_some(),
        }
    }

    /// Snapshots for every child that is too far behind.
    pub(super) fn push(&mut self) -> Vec<Outgoing> {
        let mut due = Vec::new();
        while let Some(child) = self.roster.first_due(self.told.information).map(|(_, seat)| seat.agent) {
            due.push((child, self.snapshot_to(child)));
        }
        due.sort_by_key(|(child, _)| *child);
        due.into_iter().map(|(_, message)| message).collect()
    }

    /// What the root knows, for one child, remembered as sent.
    pub(super) fn snapshot_to(&mut self, child: AgentId) -> Outgoing {
        let contains = self.children.get(&child).map_or(0, |seat| seat.contained);
        let Told { members, evidence, variance, information } = self.told.clone();
        self.roster.set(child, information, self.patience, self.version, contains);
        let version = self.version;
        let snapshot = Snapshot { authoritative: false, version, contains, information, evidence };
        Outgoing::to(child, Downlink::Group(GroupSnapshot { cluster: FIRST, members, snapshot, variance }))
    }
}
