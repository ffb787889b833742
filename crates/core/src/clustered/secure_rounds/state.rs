//! The coordinator of secure rounds as a saved state has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use super::{OpenSecureRound, SecureRounds, SecureSeat};
use crate::error::DecodeError;
use crate::ids::{AgentId, RoundId, Tick, Version};
use crate::privacy::masking::Collection;
use crate::wire::{self, v1};

impl SecureRounds {
    pub(super) fn encode(&self) -> Vec<u8> {
        let life = |agent: u64, life: u64, newest: u64, slots: &[u64]| v1::SecureSeatState {
            agent,
            life,
            newest,
            slots: slots.to_vec(),
        };
        let seat =
            |(agent, seat): (&AgentId, &SecureSeat)| life(agent.0, seat.life, seat.newest.0, &seat.slots);
        let masked = |open: &OpenSecureRound| {
            open.lives.iter().map(|(agent, number)| life(agent.0, *number, 0, &[])).collect()
        };
        v1::SecureCoordinatorState {
            version: self.version.0,
            evidence: Some(wire::evidence_to_wire(&self.evidence)),
            variance: self.variance,
            model: Some(self.model.save()),
            seats: self.agents.iter().map(seat).collect(),
            ended: self.ended.iter().map(|(number, slots)| life(0, *number, 0, slots)).collect(),
            lives: self.lives,
            round: self.round.0,
            slot: self.slot,
            totals: wire::numbers_to_wire(&self.totals),
            repairs: self.repairs,
            wanted: self.wanted,
            cheats: self.cheats.iter().map(|agent| agent.0).collect(),
            open: self.open.as_ref().map(|open| open.collection.save()),
            opened: self.open.as_ref().map_or(0, |open| open.opened.0),
            masked: self.open.as_ref().map_or_else(Vec::new, masked),
        }
        .encode_to_vec()
    }

    pub(super) fn decode(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::SecureCoordinatorState = wire::decode(state)?;
        let wrong = |reason| DecodeError::invalid("secure rounds", reason);
        let evidence = wire::evidence_from_wire(state.evidence.unwrap_or_default())?;
        let totals = wire::numbers_from_wire(&state.totals)?;
        if evidence.dimension() != self.evidence.dimension() || totals.len() != self.totals.len() {
            return Err(wrong("its sums have another dimension"));
        }
        let last = self.shared.slots();
        let lives = state.seats.iter().chain(&state.ended);
        if state.slot > last || !lives.flat_map(|seat| &seat.slots).all(|slot| (1..=last).contains(slot)) {
            return Err(wrong("it has slots that do not exist"));
        }
        let variance = wire::variance(state.variance)?;
        let open = match state.open {
            Some(open) => Some(OpenSecureRound {
                opened: Tick(state.opened),
                collection: Collection::restored(open, self.totals.len())?,
                lives: state.masked.iter().map(|seat| (AgentId(seat.agent), seat.life)).collect(),
            }),
            None => None,
        };
        self.model.restore(&state.model.unwrap_or_default())?;
        // From here on nothing fails.
        let seat = |seat: v1::SecureSeatState| {
            let own = SecureSeat { life: seat.life, newest: RoundId(seat.newest), slots: seat.slots };
            (AgentId(seat.agent), own)
        };
        self.agents = state.seats.into_iter().map(seat).collect();
        self.ended =
            state.ended.into_iter().map(|ended| (ended.life, ended.slots)).collect::<BTreeMap<_, _>>();
        (self.evidence, self.totals, self.variance) = (Arc::new(evidence), totals, variance);
        (self.version, self.round, self.slot) = (Version(state.version), RoundId(state.round), state.slot);
        (self.lives, self.repairs, self.wanted) = (state.lives, state.repairs, state.wanted);
        self.cheats = state.cheats.into_iter().map(AgentId).collect();
        self.open = open;
        Ok(())
    }
}
