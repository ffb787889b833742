//! Saves and restores the state of a relay of models, an open round included.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use super::ModelRelay;
use super::round::{Asking, OpenModelRelayRound};
use crate::error::DecodeError;
use crate::evidence::packed;
use crate::exchange::shares::{SentParts, Shares};
use crate::ids::{AgentId, RoundId, Tick, Version};
use crate::wire::{self, v1};

fn counts(map: &BTreeMap<AgentId, u64>) -> Vec<v1::GlmPart> {
    map.iter().map(|(agent, count)| v1::GlmPart { agent: agent.0, count: *count }).collect()
}

fn counts_of(parts: &[v1::GlmPart]) -> BTreeMap<AgentId, u64> {
    parts.iter().map(|part| (AgentId(part.agent), part.count)).collect()
}

fn ids(set: &BTreeSet<AgentId>) -> Vec<u64> {
    set.iter().map(|agent| agent.0).collect()
}

fn set_of(ids: &[u64]) -> BTreeSet<AgentId> {
    ids.iter().map(|&id| AgentId(id)).collect()
}

impl ModelRelay {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut state = v1::ModelRelayState {
            shared: Some(wire::model_to_wire(&self.shared)),
            information: self.information,
            parent_version: self.parent_version.0,
            parent_round: self.parent_round.0,
            round: self.round.0,
            requested: self.requested,
            reported: counts(&self.reported),
            told: self.told,
            children: counts(&self.shares.children),
            contained: self.shares.parent,
            since: self.shares.since.0,
            orphaned: self.orphaned,
            silent: ids(&self.silent),
            ..Default::default()
        };
        if let Some(open) = &self.open {
            state.open = true;
            state.opened = open.opened.0;
            state.waiting = ids(&open.waiting);
            state.whole = open.sent.whole;
            state.parts = counts(&open.sent.parts);
            state.gone = open.sent.gone;
            state.sum = Some(wire::evidence_to_wire(&open.sum));
            (state.answered, state.void) = (open.answered, open.void);
            if let Some(asking) = &open.asking {
                state.step = Some(asking.step);
                state.gradient.clone_from(&asking.gradient);
                state.curvature = asking.curvature.clone().map(|entries| v1::Packed { entries });
            }
        }
        state.encode_to_vec()
    }

    pub(super) fn decode(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::ModelRelayState = wire::decode(state)?;
        let shared = wire::model_from_wire(state.shared.clone().unwrap_or_default())?;
        let foreign = |_| DecodeError::invalid("model", "it does not fit this federation");
        self.check_model(&shared).map_err(foreign)?;
        if !state.information.is_finite() {
            return Err(DecodeError::invalid("relay", "its information is not finite"));
        }
        let open = if state.open { Some(self.open_round(&state)?) } else { None };
        (self.shared, self.information) = (shared, state.information);
        (self.parent_version, self.parent_round) =
            (Version(state.parent_version), RoundId(state.parent_round));
        (self.round, self.requested) = (RoundId(state.round), state.requested);
        (self.reported, self.told) = (counts_of(&state.reported), state.told);
        self.shares = Shares {
            children: counts_of(&state.children),
            parent: state.contained,
            since: Version(state.since),
        };
        (self.orphaned, self.silent, self.open) = (state.orphaned, set_of(&state.silent), open);
        Ok(())
    }

    fn open_round(&self, state: &v1::ModelRelayState) -> Result<OpenModelRelayRound, DecodeError> {
        let dimension = self.dimension();
        let sum = wire::evidence_from_wire(state.sum.clone().unwrap_or_default())?;
        let curvature = state.curvature.clone().map(|matrix| matrix.entries);
        let asking = state.step.map(|step| Asking { step, gradient: state.gradient.clone(), curvature });
        let fits = |asking: &Asking| {
            let matrix = asking.curvature.as_deref();
            asking.gradient.len() == dimension && matrix.is_none_or(|m| m.len() == packed(dimension))
        };
        if sum.dimension() != dimension || !asking.as_ref().is_none_or(fits) {
            return Err(DecodeError::invalid("round", "it does not fit this federation"));
        }
        Ok(OpenModelRelayRound {
            opened: Tick(state.opened),
            waiting: set_of(&state.waiting),
            sent: SentParts { whole: state.whole, parts: counts_of(&state.parts), gone: state.gone },
            sum,
            answered: state.answered,
            void: state.void,
            asking,
        })
    }
}
