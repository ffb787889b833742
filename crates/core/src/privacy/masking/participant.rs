//! An agent's side of a round of secure aggregation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::boxes::{HeldShares, Kind, Route};
use super::config::{MOST_PARTICIPANTS, SecureAggregation};
use super::keys::{Bytes32, agree, commit_seed, pair_seed, public_key};
use super::masks::{Sign, apply, bits_of};
use super::message::{OpenedShare, PublicKeys, SealedShares};
use super::shamir::{SecretShare, combine, split};
use crate::error::{DecodeError, ProtocolError};
use crate::ids::{AgentId, RoundId};
use crate::privacy::sampler::Bits;
use crate::wire::{self, v1};

/// One round as a participant lives through it: keys, shares, masks, opening, each once.
///
/// The coordinator brings everything that it hears from others, and may lie. Every method refuses what breaks the
/// protocol, and then nothing has changed.
#[derive(Clone, Debug)]
pub(crate) struct Participant {
    id: AgentId,
    round: RoundId,
    secrets: Secrets,
    /// The keys of all participants in order; empty before the agent has shared its secrets with them.
    peers: Arc<Vec<PublicKeys>>,
    /// The shares that the agent holds, by whose secrets they are of.
    held: BTreeMap<AgentId, HeldShares>,
    /// The agents with which it has masks in common, itself included; empty before it has sent numbers.
    masked_with: BTreeSet<AgentId>,
    opened: bool,
}

/// What only the agent knows, drawn anew in every round.
#[derive(Clone, PartialEq, Eq)]
struct Secrets {
    sealing: Bytes32,
    masking: Bytes32,
    seed: Bytes32,
    /// Decides the polynomials of its shares.
    polynomials: Bytes32,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(…)")
    }
}

/// The shares that a survivor opens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opening {
    pub(crate) seeds: Vec<OpenedShare>,
    pub(crate) keys: Vec<OpenedShare>,
}

fn refused<T>(why: &'static str) -> Result<T, ProtocolError> {
    Err(ProtocolError::Aggregation(why))
}

/// Whether ids are in order and none comes twice.
fn is_sorted(ids: impl Iterator<Item = AgentId> + Clone) -> bool {
    ids.clone().zip(ids.skip(1)).all(|(one, next)| one < next)
}

impl Participant {
    /// The agent `id` in a round, with secrets from `bits`, which must be different in every round.
    pub(crate) fn new(id: AgentId, round: RoundId, bits: &mut Bits<'_>) -> Self {
        let mut draw = || {
            let mut bytes = [0; 32];
            bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&bits().to_le_bytes()));
            bytes
        };
        let secrets = Secrets { sealing: draw(), masking: draw(), seed: draw(), polynomials: draw() };
        Self {
            id,
            round,
            secrets,
            peers: Arc::default(),
            held: BTreeMap::new(),
            masked_with: BTreeSet::new(),
            opened: false,
        }
    }

    pub(crate) const fn round(&self) -> RoundId {
        self.round
    }

    /// Whether the agent has sent its numbers.
    pub(crate) fn has_masked(&self) -> bool {
        !self.masked_with.is_empty()
    }

    /// Whether the agent has opened its shares, so that the sum with its numbers may be known.
    pub(crate) const fn has_opened(&self) -> bool {
        self.opened
    }

    /// What the agent publishes of its secrets.
    pub(crate) fn keys(&self) -> PublicKeys {
        PublicKeys {
            agent: self.id,
            sealing: public_key(&self.secrets.sealing),
            masking: public_key(&self.secrets.masking),
            seed: commit_seed(&self.secrets.seed, self.round, self.id),
        }
    }

    fn route(&self, from: AgentId, to: AgentId) -> Route {
        Route { round: self.round, from, to }
    }

    /// Shares the agent's secrets with all participants, itself included.
    pub(crate) fn share(
        &mut self,
        peers: &Arc<Vec<PublicKeys>>,
        secure: &SecureAggregation,
    ) -> Result<Vec<SealedShares>, ProtocolError> {
        if !self.peers.is_empty() {
            return refused("the participants of a round do not change");
        }
        if (peers.len() as u64) < secure.survivors || peers.len() as u64 > MOST_PARTICIPANTS {
            return refused("too few or too many participants");
        }
        if !is_sorted(peers.iter().map(|peer| peer.agent)) {
            return refused("participants are not in order");
        }
        if !peers.contains(&self.keys()) {
            return refused("the agent's own keys are not among the participants'");
        }
        let threshold = secure.threshold(peers.len());
        let mut bits = bits_of(&self.secrets.polynomials);
        let seeds = split(&self.secrets.seed, threshold, peers.len(), &mut bits);
        let keys = split(&self.secrets.masking, threshold, peers.len(), &mut bits);
        let mut boxes = Vec::with_capacity(peers.len());
        let mut held = BTreeMap::new();
        for (peer, (seed, key)) in peers.iter().zip(seeds.into_iter().zip(keys)) {
            let (route, shares) = (self.route(self.id, peer.agent), HeldShares { seed, key });
            let sealed = if peer.agent == self.id {
                held.insert(self.id, shares);
                Vec::new()
            } else {
                let Some(shared) = agree(&self.secrets.sealing, &peer.sealing) else {
                    return refused("a participant's key fits every secret");
                };
                route.seal(&shared, shares)
            };
            boxes.push(SealedShares {
                agent: peer.agent,
                sealed,
                seed: route.commit(Kind::Seed, seed),
                key: route.commit(Kind::Key, key),
            });
        }
        (self.peers, self.held) = (Arc::clone(peers), held);
        Ok(boxes)
    }

    /// The sum of the agent's masks, for so many numbers: its own mask, and those in common with the senders of these boxes. The
    /// caller adds its numbers and sends the result.
    ///
    /// Shares in a box that cannot be opened, or that are not those that their sender published hashes of, are left out: the agent
    /// cannot help to recover that sender, and others may be able to.
    pub(crate) fn masks(
        &mut self,
        boxes: &[SealedShares],
        secure: &SecureAggregation,
        entries: usize,
    ) -> Result<Vec<u128>, ProtocolError> {
        if self.peers.is_empty() || self.has_masked() {
            return refused("boxes before keys, or a second time");
        }
        if boxes.len() < secure.threshold(self.peers.len()) {
            return refused("too few participants have shared their secrets");
        }
        if !is_sorted(boxes.iter().map(|sealed| sealed.agent)) {
            return refused("boxes are not in order");
        }
        let mut masks = vec![0; entries];
        apply(&mut masks, &self.secrets.seed, Sign::Plus);
        let mut held = self.held.clone();
        let mut masked_with = BTreeSet::new();
        for sealed in boxes {
            let from = sealed.agent;
            let place = self.peers.binary_search_by_key(&from, |peer| peer.agent);
            let Some(peer) = place.ok().map(|place| &self.peers[place]) else {
                return refused("a box of an agent that does not take part");
            };
            masked_with.insert(from);
            if from == self.id {
                continue;
            }
            let Some(shared) = agree(&self.secrets.masking, &peer.masking) else {
                return refused("a participant's key fits every secret");
            };
            let seed = pair_seed(&shared, self.round, self.id, from);
            apply(&mut masks, &seed, Sign::of_pair(self.id, from));
            held.extend(self.shares_in(sealed, peer).map(|shares| (from, shares)));
        }
        if !masked_with.contains(&self.id) {
            return refused("the agent's own shares are missing");
        }
        (self.held, self.masked_with) = (held, masked_with);
        Ok(masks)
    }

    fn shares_in(&self, sealed: &SealedShares, peer: &PublicKeys) -> Option<HeldShares> {
        let route = self.route(sealed.agent, self.id);
        let shares = route.open(&agree(&self.secrets.sealing, &peer.sealing)?, &sealed.sealed)?;
        let honest = route.commit(Kind::Seed, shares.seed) == sealed.seed
            && route.commit(Kind::Key, shares.key) == sealed.key;
        honest.then_some(shares)
    }

    /// Opens one share of every agent that has shared its secrets: of its seed if it is a survivor, else of its key.
    ///
    /// Only once in a round, whatever the coordinator says later: with both shares of an agent, its numbers would be bare.
    pub(crate) fn open(
        &mut self,
        survivors: &[AgentId],
        secure: &SecureAggregation,
    ) -> Result<Opening, ProtocolError> {
        if !self.has_masked() || self.opened {
            return refused("shares are opened once, after the masks");
        }
        if survivors.len() < secure.threshold(self.peers.len()) {
            return refused("too few survivors");
        }
        if !is_sorted(survivors.iter().copied()) {
            return refused("survivors are not in order");
        }
        if !survivors.iter().all(|survivor| self.masked_with.contains(survivor)) {
            return refused("a survivor has shared no secrets");
        }
        if !survivors.contains(&self.id) {
            return refused("only survivors open shares");
        }
        let mut opening = Opening { seeds: Vec::new(), keys: Vec::new() };
        for &agent in &self.masked_with {
            let Some(shares) = self.held.get(&agent) else { continue };
            if survivors.binary_search(&agent).is_ok() {
                opening.seeds.push(OpenedShare { agent, share: shares.seed });
            } else {
                opening.keys.push(OpenedShare { agent, share: shares.key });
            }
        }
        self.opened = true;
        Ok(opening)
    }

    pub(crate) fn save(&self) -> v1::ParticipantState {
        let Secrets { sealing, masking, seed, polynomials } = self.secrets;
        v1::ParticipantState {
            round: self.round.0,
            secrets: [sealing, masking, seed, polynomials].concat(),
            peers: self.peers.iter().map(wire::keys_to_wire).collect(),
            held: self
                .held
                .iter()
                .map(|(agent, shares)| v1::HeldSharesState {
                    agent: agent.0,
                    seed: shares.seed.to_bytes(),
                    key: shares.key.to_bytes(),
                })
                .collect(),
            masked_with: self.masked_with.iter().map(|agent| agent.0).collect(),
            opened: self.opened,
        }
    }

    pub(crate) fn restored(id: AgentId, state: v1::ParticipantState) -> Result<Self, DecodeError> {
        let wrong = DecodeError::invalid("participant", "its secrets or shares have another length");
        if state.secrets.len() != 128 {
            return Err(wrong);
        }
        let secret = |place: usize| {
            let mut bytes = [0; 32];
            bytes.copy_from_slice(&state.secrets[32 * place..32 * (place + 1)]);
            bytes
        };
        let secrets =
            Secrets { sealing: secret(0), masking: secret(1), seed: secret(2), polynomials: secret(3) };
        let mut held = BTreeMap::new();
        for shares in &state.held {
            let share = |bytes: &[u8]| SecretShare::from_bytes(bytes).ok_or(wrong.clone());
            let both = HeldShares { seed: share(&shares.seed)?, key: share(&shares.key)? };
            held.insert(AgentId(shares.agent), both);
        }
        let peers = state.peers.into_iter().map(wire::keys_from_wire).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            id,
            round: RoundId(state.round),
            secrets,
            peers: Arc::new(peers),
            held,
            masked_with: state.masked_with.into_iter().map(AgentId).collect(),
            opened: state.opened,
        })
    }
}

/// The secret that opened shares give, each with the number of its opener.
pub(super) fn recovered(shares: &[(u64, SecretShare)], threshold: usize) -> Option<Bytes32> {
    combine(shares.get(..threshold)?)
}
