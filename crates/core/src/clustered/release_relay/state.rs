//! The saved state of a relay of private sums.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use super::{Awaits, OpenReleaseRound, ReleaseRelay, ReleaseSeat, Releases, Told};
use crate::clustered::fclub::FIRST;
use crate::clustered::message::GroupSnapshot;
use crate::error::DecodeError;
use crate::exchange::roster::Roster;
use crate::ids::{AgentId, PhaseId, Tick, Version};
use crate::message::Snapshot;
use crate::ridge::Ridge;
use crate::wire::{self, v1};

impl Releases {
    fn save(&self) -> v1::ReleasesState {
        let evidence = Some(wire::evidence_to_wire(&self.evidence));
        v1::ReleasesState { evidence, variance: self.variance, members: self.members }
    }

    fn restored(state: Option<v1::ReleasesState>, dimension: usize) -> Result<Self, DecodeError> {
        let state = state.unwrap_or_default();
        let evidence = wire::released_from_wire(state.evidence.unwrap_or_default(), Some(dimension))?;
        Ok(Self { evidence, variance: wire::variance(state.variance)?, members: state.members })
    }
}

impl ReleaseRelay {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Told { members, evidence, variance, information } = &self.told;
        let snapshot = Snapshot {
            authoritative: false,
            version: self.version,
            contains: 0,
            information: *information,
            evidence: Arc::clone(evidence),
        };
        let told = GroupSnapshot { cluster: FIRST, members: *members, snapshot, variance: *variance };
        let child = |(child, seat): (&AgentId, &ReleaseSeat)| {
            let listening = self.roster.get(*child);
            v1::ReleaseSeatState {
                agent: child.0,
                release: Some(seat.release.save()),
                number: seat.number,
                contained: seat.contained,
                away: seat.away,
                information: listening.map_or(0.0, |listening| listening.information),
                version: listening.map_or(0, |listening| listening.version.0),
            }
        };
        let carried = self.in_flight.iter().flatten();
        v1::ReleaseRelayState {
            told: Some(wire::group_to_wire(&told)),
            parent_version: self.parent_version.0,
            children: self.children.iter().map(child).collect(),
            departed: Some(self.departed.save()),
            number: self.number,
            sent: self.sent,
            arrived: self.arrived,
            in_flight: self.in_flight.is_some(),
            carried: carried
                .map(|(child, number)| v1::CarriedRelease { agent: child.0, number: *number })
                .collect(),
            news: self.news,
            parent_phase: self.parent_phase.0,
            phase: self.phase.0,
            open: self.open.is_some(),
            opened: self.open.as_ref().map_or(0, |open| open.opened.0),
            waiting: self.open.iter().flat_map(|open| &open.waiting).map(|child| child.0).collect(),
            awaits_receipt: self.awaits == Some(Awaits::Receipt),
            awaits_end: self.awaits.is_some(),
        }
        .encode_to_vec()
    }

    pub(super) fn decode(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::ReleaseRelayState = wire::decode(state)?;
        let told = wire::group_from_wire(state.told.unwrap_or_default())?;
        if told.snapshot.evidence.dimension() != self.dimension {
            return Err(DecodeError::invalid("release", "it has another dimension"));
        }
        Ridge::check(&told.snapshot.evidence, self.regularization)
            .map_err(|_| DecodeError::invalid("release", "no model fits its sums"))?;
        let departed = Releases::restored(state.departed, self.dimension)?;
        let (mut children, mut roster) = (BTreeMap::new(), Roster::default());
        for seat in state.children {
            let child = AgentId(seat.agent);
            if !seat.information.is_finite() {
                return Err(DecodeError::invalid("relay", "its information is not finite"));
            }
            let (number, contained, away) = (seat.number, seat.contained, seat.away);
            let release = Releases::restored(seat.release, self.dimension)?;
            children.insert(child, ReleaseSeat { release, number, contained, away });
            if !away {
                roster.set(child, seat.information, self.patience, Version(seat.version), contained);
            }
        }
        let released = children.values().map(|child: &ReleaseSeat| &child.release);
        Releases::check_sum(self.dimension, released.chain([&departed]))
            .map_err(|_| DecodeError::invalid("release", "its sums are larger than numbers can be"))?;
        let carried = state.carried.iter().map(|carried| (AgentId(carried.agent), carried.number)).collect();
        self.version = told.snapshot.version;
        self.told = Told {
            members: told.members,
            evidence: told.snapshot.evidence,
            variance: told.variance,
            information: told.snapshot.information,
        };
        self.parent_version = Version(state.parent_version);
        (self.children, self.roster, self.departed) = (children, roster, departed);
        (self.number, self.sent, self.arrived) = (state.number, state.sent, state.arrived);
        (self.in_flight, self.news) = (state.in_flight.then_some(carried), state.news);
        (self.parent_phase, self.phase) = (PhaseId(state.parent_phase), PhaseId(state.phase));
        self.open = state.open.then(|| OpenReleaseRound {
            opened: Tick(state.opened),
            waiting: state.waiting.iter().map(|child| AgentId(*child)).collect(),
        });
        self.awaits = match (state.awaits_receipt, state.awaits_end) {
            (true, _) => Some(Awaits::Receipt),
            (false, true) => Some(Awaits::End),
            (false, false) => None,
        };
        Ok(())
    }
}
