//! The coordinator's side of a round of secure aggregation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::boxes::{Route, ShareKind};
use super::config::{MOST_PARTICIPANTS, SecureAggregation};
use super::keys::{agree, commit_seed, pair_seed, public_key};
use super::masks::{Sign, apply};
use super::message::{OpenedShare, PublicKeys, SealedShares, SecureDownlink};
use super::participant::recovered;
use super::shamir::SecretShare;
use crate::error::ProtocolError;
use crate::ids::{AgentId, RoundId};

/// The exchange that a round is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Keys,
    Shares,
    Masks,
    Opening,
}

/// A round that is open. It keeps keys, sealed boxes, hashes, the *sum* of masked numbers, and opened shares.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub(super) round: RoundId,
    pub(super) stage: Stage,
    /// The slot of the noise. Known once the participants are.
    pub(super) slot: u64,
    /// Whose answers this exchange still waits for.
    pub(super) waiting: BTreeSet<AgentId>,
    pub(super) peers: BTreeMap<AgentId, PublicKeys>,
    /// The first slot that each participant can use.
    pub(super) slots: BTreeMap<AgentId, u64>,
    /// The boxes that each participant sealed, in the order of their receivers.
    pub(super) boxes: BTreeMap<AgentId, Vec<SealedShares>>,
    pub(super) sum: Vec<u128>,
    pub(super) survivors: BTreeSet<AgentId>,
    /// Shares of the secret that is needed of each agent, by who opened them.
    pub(super) opened: BTreeMap<AgentId, BTreeMap<AgentId, SecretShare>>,
}

/// What an exchange came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Collected {
    /// More answers are needed.
    Nothing,
    /// The next exchange begins, with these messages.
    Next(Vec<(AgentId, SecureDownlink)>),
    /// Too few agents are left.
    TooFew,
    /// The shares of this agent's secret are all as it made them, and do not give the secret: it has made them wrong.
    Cheated(AgentId),
    /// The sum of the survivors' numbers.
    Sum(Vec<u128>),
}

fn refused<T>(why: &'static str) -> Result<T, ProtocolError> {
    Err(ProtocolError::Aggregation(why))
}

impl Collection {
    /// A round that asks `agents` for their keys and adds up as many numbers as `entries` says.
    pub(crate) fn new(round: RoundId, agents: BTreeSet<AgentId>, entries: usize) -> Self {
        Self {
            round,
            stage: Stage::Keys,
            slot: 0,
            waiting: agents,
            peers: BTreeMap::new(),
            slots: BTreeMap::new(),
            boxes: BTreeMap::new(),
            sum: vec![0; entries],
            survivors: BTreeSet::new(),
            opened: BTreeMap::new(),
        }
    }

    pub(crate) const fn round(&self) -> RoundId {
        self.round
    }

    pub(crate) const fn stage(&self) -> Stage {
        self.stage
    }

    pub(crate) const fn slot(&self) -> u64 {
        self.slot
    }

    pub(crate) const fn waiting(&self) -> &BTreeSet<AgentId> {
        &self.waiting
    }

    pub(crate) const fn survivors(&self) -> &BTreeSet<AgentId> {
        &self.survivors
    }

    /// Ends the waiting for agents that have not answered in this exchange, as a deadline does.
    pub(crate) fn stop_waiting(&mut self) {
        self.waiting.clear();
    }

    /// An agent is gone, with its secrets. Numbers of it that arrived stay in the sum.
    pub(crate) fn drop_out(&mut self, agent: AgentId) {
        self.waiting.remove(&agent);
        if self.stage == Stage::Keys {
            self.peers.remove(&agent);
            self.slots.remove(&agent);
        }
        if self.stage == Stage::Shares {
            self.boxes.remove(&agent);
        }
    }

    fn expects(&self, from: AgentId, stage: Stage) -> Result<(), ProtocolError> {
        if self.stage == stage && self.waiting.contains(&from) {
            Ok(())
        } else {
            Err(ProtocolError::Round(self.round))
        }
    }

    pub(crate) fn take_keys(
        &mut self,
        from: AgentId,
        slot: u64,
        keys: PublicKeys,
    ) -> Result<(), ProtocolError> {
        self.expects(from, Stage::Keys)?;
        if keys.agent != from {
            return refused("keys in the name of another agent");
        }
        // A secret agreed on with such a key does not depend on the other side, so everybody could compute it.
        let probe = [9; 32];
        if agree(&probe, &keys.sealing).is_none() || agree(&probe, &keys.masking).is_none() {
            return refused("a key that fits every secret");
        }
        self.waiting.remove(&from);
        self.peers.insert(from, keys);
        self.slots.insert(from, slot);
        if self.peers.len() as u64 == MOST_PARTICIPANTS {
            self.waiting.clear();
        }
        Ok(())
    }

    pub(crate) fn take_shares(
        &mut self,
        from: AgentId,
        boxes: Vec<SealedShares>,
    ) -> Result<(), ProtocolError> {
        self.expects(from, Stage::Shares)?;
        if !boxes.iter().map(|sealed| &sealed.agent).eq(self.peers.keys()) {
            return refused("not one box for each participant, in their order");
        }
        let fits = |sealed: &SealedShares| {
            let length = if sealed.agent == from { 0 } else { 2 * SecretShare::BYTES + 16 };
            sealed.sealed.len() == length
        };
        if !boxes.iter().all(fits) {
            return refused("a box that does not hold two shares");
        }
        self.waiting.remove(&from);
        self.boxes.insert(from, boxes);
        Ok(())
    }

    pub(crate) fn take_masked(&mut self, from: AgentId, numbers: &[u128]) -> Result<(), ProtocolError> {
        self.expects(from, Stage::Masks)?;
        if numbers.len() != self.sum.len() {
            return refused("not as many numbers as the sum has");
        }
        self.waiting.remove(&from);
        self.survivors.insert(from);
        self.sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.wrapping_add(*number));
        Ok(())
    }

    /// Takes in opened shares. Each must be the one that its maker published a hash of: if not, the opener is at fault.
    pub(crate) fn take_opened(
        &mut self,
        from: AgentId,
        seeds: &[OpenedShare],
        keys: &[OpenedShare],
    ) -> Result<(), ProtocolError> {
        self.expects(from, Stage::Opening)?;
        let kinds = seeds
            .iter()
            .map(|seed| (ShareKind::Seed, seed))
            .chain(keys.iter().map(|key| (ShareKind::Key, key)));
        let mut named = BTreeSet::new();
        for (kind, OpenedShare { agent, share }) in kinds.clone() {
            let needed = if self.survivors.contains(agent) { ShareKind::Seed } else { ShareKind::Key };
            if kind != needed || !named.insert(*agent) {
                return refused("a share that was not asked for");
            }
            let Some(sealed) =
                self.boxes.get(agent).and_then(|boxes| boxes.iter().find(|sealed| sealed.agent == from))
            else {
                return refused("a share of an agent that made none");
            };
            let route = Route { round: self.round, from: *agent, to: from };
            let published = if kind == ShareKind::Seed { sealed.seed } else { sealed.key };
            if route.commit(kind, *share) != published {
                return refused("a share that is not the one its maker published");
            }
        }
        self.waiting.remove(&from);
        for (_, OpenedShare { agent, share }) in kinds {
            self.opened.entry(*agent).or_default().insert(from, *share);
        }
        Ok(())
    }

    /// Goes on to the next exchange if this one has all its answers.
    pub(crate) fn advance(&mut self, secure: &SecureAggregation, next_slot: u64) -> Collected {
        if self.stage == Stage::Opening {
            return self.finish(secure);
        }
        if !self.waiting.is_empty() {
            return Collected::Nothing;
        }
        let arrived = match self.stage {
            Stage::Keys => self.peers.len(),
            Stage::Shares => self.boxes.len(),
            Stage::Masks | Stage::Opening => self.survivors.len(),
        };
        if (self.peers.len() as u64) < secure.survivors || arrived < secure.threshold(self.peers.len()) {
            return Collected::TooFew;
        }
        let round = self.round;
        match self.stage {
            Stage::Keys => {
                self.stage = Stage::Shares;
                self.slot = self.agreed_slot(secure).max(next_slot);
                self.waiting = self.peers.keys().copied().collect();
                let peers = Arc::new(self.peers.values().copied().collect::<Vec<_>>());
                let slot = self.slot;
                self.to_waiting(|_| SecureDownlink::Peers { round, slot, peers: Arc::clone(&peers) })
            }
            Stage::Shares => {
                self.stage = Stage::Masks;
                self.waiting = self.boxes.keys().copied().collect();
                self.to_waiting(|to| SecureDownlink::Boxes { round, boxes: self.boxes_for(to) })
            }
            Stage::Masks | Stage::Opening => {
                self.stage = Stage::Opening;
                self.waiting = self.survivors.clone();
                let survivors = Arc::new(self.survivors.iter().copied().collect::<Vec<_>>());
                self.to_waiting(|_| SecureDownlink::Open { round, survivors: Arc::clone(&survivors) })
            }
        }
    }

    fn to_waiting(&self, message: impl Fn(AgentId) -> SecureDownlink) -> Collected {
        Collected::Next(self.waiting.iter().map(|agent| (*agent, message(*agent))).collect())
    }

    /// The slot that all but as many participants as may collude can use: those alone cannot use up slots by claiming to be
    /// ahead.
    fn agreed_slot(&self, secure: &SecureAggregation) -> u64 {
        let mut slots: Vec<u64> = self.slots.values().copied().collect();
        slots.sort_unstable();
        let place = slots.len().saturating_sub(1 + secure.colluders as usize);
        slots.get(place).copied().unwrap_or(0)
    }

    /// What all participants that are still there sealed for `to`.
    fn boxes_for(&self, to: AgentId) -> Vec<SealedShares> {
        let of = |(from, boxes): (&AgentId, &Vec<SealedShares>)| {
            let sealed = boxes.iter().find(|sealed| sealed.agent == to)?;
            Some(SealedShares { agent: *from, ..sealed.clone() })
        };
        self.boxes.iter().filter_map(of).collect()
    }

    /// Takes the masks out of the sum, once there are enough shares of every secret that this needs.
    fn finish(&mut self, secure: &SecureAggregation) -> Collected {
        let threshold = secure.threshold(self.peers.len());
        let enough = |agent| self.opened.get(agent).is_some_and(|shares| shares.len() >= threshold);
        if !self.boxes.keys().all(enough) {
            return if self.waiting.is_empty() { Collected::TooFew } else { Collected::Nothing };
        }
        let places: BTreeMap<AgentId, u64> = self.peers.keys().copied().zip(1..).collect();
        let mut sum = self.sum.clone();
        for (agent, keys) in self.peers.iter().filter(|(agent, _)| self.boxes.contains_key(agent)) {
            let shares: Vec<(u64, SecretShare)> =
                self.opened[agent].iter().map(|(opener, share)| (places[opener], *share)).collect();
            let Some(secret) = recovered(&shares, threshold) else { return Collected::Cheated(*agent) };
            if self.survivors.contains(agent) {
                if commit_seed(&secret, self.round, *agent) != keys.seed {
                    return Collected::Cheated(*agent);
                }
                apply(&mut sum, &secret, Sign::Minus);
                continue;
            }
            if public_key(&secret) != keys.masking {
                return Collected::Cheated(*agent);
            }
            for survivor in &self.survivors {
                let shared = agree(&secret, &self.peers[survivor].masking);
                let shared = shared.expect("keys for which there is nothing to agree on were refused");
                let seed = pair_seed(&shared, self.round, *agent, *survivor);
                apply(&mut sum, &seed, Sign::of_pair(*survivor, *agent).opposite());
            }
        }
        Collected::Sum(sum)
    }
}
