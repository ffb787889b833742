//! Saves and restores the state of the networks' coordinator, an open round included.

use std::sync::Arc;

use prost::Message;

use super::{NetworkRounds, NetworkSeat, OpenNetworkRound};
use crate::error::DecodeError;
use crate::ids::{AgentId, RoundId, Tick, Version};
use crate::neural::message::NetworkState;
use crate::wire::{self, v1};

impl NetworkRounds {
    pub(super) fn encode(&self) -> Vec<u8> {
        let seat = |(agent, seat): (&AgentId, &NetworkSeat)| v1::NetworkSeatState {
            agent: agent.0,
            contained: seat.contained,
            own: Some(seat.own.save()),
        };
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
            state.waiting = open.waiting.iter().map(|agent| agent.0).collect();
            let part = |(agent, part): (&AgentId, &_)| v1::NetworkPartState {
                agent: agent.0,
                part: Some(wire::part_to_wire(part)),
            };
            state.parts = open.parts.iter().map(part).collect();
            state.step = open.step;
            let network = |(agent, weights): (&AgentId, &Vec<f64>)| v1::NetworkAverageState {
                agent: agent.0,
                weights: weights.clone(),
            };
            state.averages = open.networks.iter().map(network).collect();
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
            let own = none.restored(seat.own.unwrap_or_default())?;
            seats.insert(AgentId(seat.agent), NetworkSeat { contained: seat.contained, own });
        }
        let mut open = None;
        if state.open {
            let mut parts = std::collections::BTreeMap::new();
            for part in state.parts {
                let agent = AgentId(part.agent);
                let part = wire::part_from_wire(part.part.unwrap_or_default())?;
                self.check(&part).map_err(|_| DecodeError::invalid("round", "a part does not fit"))?;
                parts.insert(agent, part);
            }
            let mut networks = std::collections::BTreeMap::new();
            for network in state.averages {
                self.check_network(&network.weights)
                    .map_err(|_| DecodeError::invalid("round", "a network does not fit"))?;
                networks.insert(AgentId(network.agent), network.weights);
            }
            let waiting = state.waiting.into_iter().map(AgentId).collect();
            open = Some(OpenNetworkRound {
                opened: Tick(state.opened),
                waiting,
                parts,
                step: state.step,
                networks,
            });
        }
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
