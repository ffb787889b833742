//! An open round as a saved state has it.

use std::collections::{BTreeMap, BTreeSet};

use super::collection::{Collection, Stage};
use super::message::OpenedShare;
use crate::error::DecodeError;
use crate::ids::{AgentId, RoundId};
use crate::wire::{self, v1};

impl Collection {
    pub(crate) fn save(&self) -> v1::CollectionState {
        let ids = |ids: &BTreeSet<AgentId>| ids.iter().map(|agent| agent.0).collect();
        v1::CollectionState {
            round: self.round.0,
            stage: self.stage as u32,
            slot: self.slot,
            waiting: ids(&self.waiting),
            peers: self.peers.values().map(wire::keys_to_wire).collect(),
            slots: self.slots.values().copied().collect(),
            boxes: self
                .boxes
                .iter()
                .map(|(agent, boxes)| v1::SealedListState {
                    agent: agent.0,
                    list: Some(wire::boxes_to_wire(boxes)),
                })
                .collect(),
            sum: wire::numbers_to_wire(&self.sum),
            survivors: ids(&self.survivors),
            opened: self
                .opened
                .iter()
                .map(|(agent, shares)| v1::OpenedListState {
                    agent: agent.0,
                    shares: shares
                        .iter()
                        .map(|(opener, share)| {
                            wire::opened_to_wire(&OpenedShare { agent: *opener, share: *share })
                        })
                        .collect(),
                })
                .collect(),
        }
    }

    /// The round that was saved, of sums with so many entries.
    pub(crate) fn restored(state: v1::CollectionState, entries: usize) -> Result<Self, DecodeError> {
        let wrong = |reason| DecodeError::invalid("secure round", reason);
        let stage = match state.stage {
            0 => Stage::Keys,
            1 => Stage::Shares,
            2 => Stage::Masks,
            3 => Stage::Opening,
            _ => return Err(wrong("there is no such exchange")),
        };
        let sum = wire::numbers_from_wire(&state.sum)?;
        if sum.len() != entries || state.slots.len() != state.peers.len() {
            return Err(wrong("its sum or its slots have another length"));
        }
        let mut peers = BTreeMap::new();
        for keys in state.peers {
            let keys = wire::keys_from_wire(keys)?;
            peers.insert(keys.agent, keys);
        }
        if peers.len() != state.slots.len() {
            return Err(wrong("an agent is named twice"));
        }
        let slots = peers.keys().copied().zip(state.slots).collect();
        let mut boxes = BTreeMap::new();
        for list in state.boxes {
            let sealed = wire::boxes_from_wire(list.list.unwrap_or_default())?;
            if !sealed.iter().map(|sealed| &sealed.agent).eq(peers.keys()) {
                return Err(wrong("its boxes are not for its participants"));
            }
            boxes.insert(AgentId(list.agent), sealed);
        }
        let mut opened = BTreeMap::new();
        for list in state.opened {
            let shares = list
                .shares
                .into_iter()
                .map(|share| wire::opened_from_wire(share).map(|opened| (opened.agent, opened.share)));
            opened.insert(AgentId(list.agent), shares.collect::<Result<_, _>>()?);
        }
        let round = Self {
            round: RoundId(state.round),
            stage,
            slot: state.slot,
            waiting: state.waiting.into_iter().map(AgentId).collect(),
            peers,
            slots,
            boxes,
            sum,
            survivors: state.survivors.into_iter().map(AgentId).collect(),
            opened,
        };
        let known = round.boxes.keys().all(|agent| round.peers.contains_key(agent))
            && round.survivors.iter().all(|agent| round.boxes.contains_key(agent))
            && round
                .opened
                .values()
                .flat_map(|shares: &BTreeMap<_, _>| shares.keys())
                .all(|opener| round.survivors.contains(opener));
        if known { Ok(round) } else { Err(wrong("it names agents that do not take part")) }
    }
}
