//! Saves and restores the state of a relay of networks, an open round included.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use super::NetworkRelay;
use super::round::OpenNetworkRelayRound;
use crate::error::DecodeError;
use crate::exchange::shares::Shares;
use crate::ids::{AgentId, RoundId, Version};
use crate::message::{NetworkModel, NetworkPart};
use crate::neural::open_round::OpenNetworkRound;
use crate::neural::seat_width::SeatWidth;
use crate::neural::statistic::Statistic;
use crate::wire::{self, v1};

fn numbers(sum: Option<&Vec<f64>>) -> Option<v1::Diagonal> {
    sum.map(|entries| v1::Diagonal { entries: entries.clone() })
}

impl NetworkRelay {
    pub(super) fn encode(&self) -> Vec<u8> {
        let shared = NetworkModel {
            authoritative: false,
            version: self.version,
            contains: 0,
            shared: std::sync::Arc::clone(&self.shared),
        };
        let seats = self.shares.children.iter().map(|(child, share)| {
            let bare = || v1::NetworkSeatState { agent: child.0, contained: *share, ..Default::default() };
            self.widths.get(child).map_or_else(bare, |width| width.save(child.0, *share))
        });
        let mut state = v1::NetworkRelayState {
            shared: Some(wire::network_to_wire(&shared)),
            parent_version: self.parent_version.0,
            parent_round: self.parent_round.0,
            round: self.round.0,
            requested: self.requested,
            start: self.start,
            seats: seats.collect(),
            contained: self.shares.parent,
            since: self.shares.since.0,
            inverses: numbers(self.inverses.as_ref()),
            ..Default::default()
        };
        if let Some(open) = &self.open {
            state.open = true;
            (state.opened, state.step) = (open.round.opened.0, open.round.step);
            (state.waiting, state.parts, state.averages) = open.round.save();
            (state.answered, state.asked) = (open.answered, open.asked);
            (state.void, state.hurried) = (open.void, open.hurried);
            state.departed = open.departed.iter().map(|child| child.0).collect();
            let seat = |(child, own): (&AgentId, &Statistic)| v1::NetworkSeatState {
                agent: child.0,
                own: Some(own.save()),
                ..Default::default()
            };
            state.after = open.after.iter().map(seat).collect();
            state.inverses_after = numbers(open.inverses_after.as_ref());
        }
        state.encode_to_vec()
    }

    pub(super) fn decode(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let mut state: v1::NetworkRelayState = wire::decode(state)?;
        let shared = wire::network_from_wire(state.shared.take().unwrap_or_default())?;
        self.check_model(&shared)
            .map_err(|_| DecodeError::invalid("network", "it does not fit this federation"))?;
        let none = self.config.neural.none(self.layout.parameters());
        let (mut children, mut widths) = (BTreeMap::new(), BTreeMap::new());
        for seat in std::mem::take(&mut state.seats) {
            let child = AgentId(seat.agent);
            children.insert(child, seat.contained);
            if !self.is_private() {
                widths.insert(child, SeatWidth::restored(seat, &none)?);
            }
        }
        let inverses = self.inverses_of(state.inverses.take())?;
        let open = if state.open { Some(self.open_round(&mut state, &none)?) } else { None };
        (self.version, self.shared) = (shared.version, shared.shared);
        (self.parent_version, self.parent_round) =
            (Version(state.parent_version), RoundId(state.parent_round));
        (self.round, self.requested, self.start) = (RoundId(state.round), state.requested, state.start);
        self.shares = Shares { children, parent: state.contained, since: Version(state.since) };
        (self.widths, self.inverses, self.open) = (widths, inverses, open);
        Ok(())
    }

    /// A sum of inverses of this federation's size, or of no agents at all.
    fn inverses_of(&self, kept: Option<v1::Diagonal>) -> Result<Option<Vec<f64>>, DecodeError> {
        let length = Statistic::scalars(self.config.neural.statistic, self.layout.parameters());
        let fits = |entries: &[f64]| {
            (entries.is_empty() || entries.len() == length) && entries.iter().all(|v| v.is_finite())
        };
        match kept.map(|kept| kept.entries) {
            Some(entries) if !fits(&entries) => {
                Err(DecodeError::invalid("widths", "they do not fit the network"))
            }
            entries => Ok(entries),
        }
    }

    fn open_round(
        &self,
        state: &mut v1::NetworkRelayState,
        none: &Statistic,
    ) -> Result<OpenNetworkRelayRound, DecodeError> {
        let kept = (
            std::mem::take(&mut state.waiting),
            std::mem::take(&mut state.parts),
            std::mem::take(&mut state.averages),
        );
        let check = |part: &NetworkPart| self.check(part);
        let round = OpenNetworkRound::restored((state.opened, state.step), kept, self.layout, check)?;
        let mut after = BTreeMap::new();
        for seat in std::mem::take(&mut state.after) {
            after.insert(AgentId(seat.agent), none.restored(seat.own.unwrap_or_default())?);
        }
        let departed: BTreeSet<AgentId> = state.departed.iter().map(|child| AgentId(*child)).collect();
        Ok(OpenNetworkRelayRound {
            round,
            answered: state.answered,
            asked: state.asked,
            void: state.void,
            hurried: state.hurried,
            departed,
            after,
            inverses_after: self.inverses_of(state.inverses_after.take())?,
        })
    }
}
