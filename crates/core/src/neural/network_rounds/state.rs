//! Saves and restores the state of the networks' coordinator, an open round included.

use std::sync::Arc;

use prost::Message;

use super::{NetworkRounds, NetworkSeat};
use crate::error::DecodeError;
use crate::ids::{AgentId, RoundId, Version};
use crate::neural::message::{NetworkPart, NetworkState};
use crate::neural::open_round::OpenNetworkRound;
use crate::neural::seat_width::SeatWidth;
use crate::wire::{self, v1};

impl NetworkRounds {
    pub(super) fn encode(&self) -> Vec<u8> {
        let seat = |(agent, seat): (&AgentId, &NetworkSeat)| seat.width.save(agent.0, seat.contained);
        let mut shared = self.shared.statistic.save();
        shared.information = self.information;
        let mut state = v1::NetworkCoordinatorState {
            version: self.version.0,
            count: self.shared.count,
            shared: Some(shared),
            weights: self.shared.weights.clone(),
            alpha: self.shared.alpha,
            widths: widths_to_wire(&self.shared),
            averaged: self.averaged,
            start: self.start,
            seats: self.seats.iter().map(seat).collect(),
            round: self.round.0,
            ..Default::default()
        };
        if let Some(open) = &self.open {
            state.open = true;
            state.opened = open.opened.0;
            state.step = open.step;
            (state.waiting, state.parts, state.averages) = open.save();
        }
        state.encode_to_vec()
    }

    pub(super) fn decode(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::NetworkCoordinatorState = wire::decode(state)?;
        let none = self.config.neural.none(self.layout.parameters());
        let mut statistic = none.restored(state.shared.unwrap_or_default())?;
        let information = std::mem::replace(&mut statistic.information, 0.0);
        let widths = state.widths.into_iter().map(|width| Arc::new(width.entries)).collect();
        statistic.fold();
        let shared = NetworkState::from_parts(
            state.count,
            statistic.told().to_vec(),
            statistic.vector,
            state.weights,
            state.alpha,
            widths,
        )
        .map_err(|_| DecodeError::invalid("network", "its numbers do not fit together"))?;
        let mut seats = std::collections::BTreeMap::new();
        for seat in state.seats {
            let (agent, contained) = (AgentId(seat.agent), seat.contained);
            let width = SeatWidth::restored(seat, &none)?;
            seats.insert(agent, NetworkSeat { contained, width });
        }
        let open = if state.open {
            let kept = (state.waiting, state.parts, state.averages);
            let check = |part: &NetworkPart| self.check(part);
            Some(OpenNetworkRound::restored((state.opened, state.step), kept, self.layout, check)?)
        } else {
            None
        };
        self.version = Version(state.version);
        self.shared = Arc::new(shared);
        self.information = information;
        self.averaged = state.averaged;
        (self.start, self.seats, self.open) = (state.start, seats, open);
        self.round = RoundId(state.round);
        Ok(())
    }
}

fn widths_to_wire(shared: &NetworkState) -> Vec<v1::Diagonal> {
    shared.widths.iter().map(|entries| v1::Diagonal { entries: entries.to_vec() }).collect()
}
