//! Messages of secure aggregation.

use std::sync::Arc;

use super::{evidence_from_wire, evidence_to_wire, required, v1, variance};
use crate::error::DecodeError;
use crate::ids::{AgentId, RoundId, Version};
use crate::message::{OpenedShare, PublicKeys, SealedShares, SecureDownlink, SecureOutcome, SecureUplink};
use crate::privacy::SecretShare;

const KEYS: &str = "secure keys";

fn bytes_from_wire(bytes: &[u8]) -> Result<[u8; 32], DecodeError> {
    bytes.try_into().map_err(|_| DecodeError::invalid(KEYS, "keys and hashes have 32 bytes"))
}

pub(crate) fn keys_to_wire(keys: &PublicKeys) -> v1::PublicKeys {
    v1::PublicKeys {
        agent: keys.agent.0,
        sealing: keys.sealing.to_vec(),
        masking: keys.masking.to_vec(),
        seed: keys.seed.to_vec(),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "as all functions that read messages")]
pub(crate) fn keys_from_wire(keys: v1::PublicKeys) -> Result<PublicKeys, DecodeError> {
    Ok(PublicKeys {
        agent: AgentId(keys.agent),
        sealing: bytes_from_wire(&keys.sealing)?,
        masking: bytes_from_wire(&keys.masking)?,
        seed: bytes_from_wire(&keys.seed)?,
    })
}

pub(crate) fn boxes_to_wire(boxes: &[SealedShares]) -> v1::SealedList {
    let sealed = |sealed: &SealedShares| v1::SealedShares {
        agent: sealed.agent.0,
        sealed: sealed.sealed.clone(),
        seed: sealed.seed.to_vec(),
        key: sealed.key.to_vec(),
    };
    v1::SealedList { boxes: boxes.iter().map(sealed).collect() }
}

pub(crate) fn boxes_from_wire(list: v1::SealedList) -> Result<Vec<SealedShares>, DecodeError> {
    let sealed = |sealed: v1::SealedShares| {
        Ok(SealedShares {
            agent: AgentId(sealed.agent),
            seed: bytes_from_wire(&sealed.seed)?,
            key: bytes_from_wire(&sealed.key)?,
            sealed: sealed.sealed,
        })
    };
    list.boxes.into_iter().map(sealed).collect()
}

pub(crate) fn opened_to_wire(opened: &OpenedShare) -> v1::OpenedShare {
    v1::OpenedShare { agent: opened.agent.0, share: opened.share.to_bytes() }
}

#[allow(clippy::needless_pass_by_value, reason = "as all functions that read messages")]
pub(crate) fn opened_from_wire(opened: v1::OpenedShare) -> Result<OpenedShare, DecodeError> {
    let share = SecretShare::from_bytes(&opened.share);
    let share = share.ok_or(DecodeError::invalid("share", "five numbers below 2^61 - 1 are needed"))?;
    Ok(OpenedShare { agent: AgentId(opened.agent), share })
}

pub(crate) fn numbers_to_wire(numbers: &[u128]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

pub(crate) fn numbers_from_wire(bytes: &[u8]) -> Result<Vec<u128>, DecodeError> {
    let chunks = bytes.chunks_exact(16);
    if !chunks.remainder().is_empty() {
        return Err(DecodeError::invalid("masked sums", "numbers have sixteen bytes"));
    }
    Ok(chunks.map(|number| u128::from_le_bytes(number.try_into().expect("sixteen bytes"))).collect())
}

pub(super) fn uplink_to_wire(message: &SecureUplink) -> v1::SecureUplink {
    use v1::secure_uplink::Step;
    let step = match message {
        SecureUplink::Keys { slot, keys, .. } => {
            Step::Keys(v1::SecureKeys { slot: *slot, keys: Some(keys_to_wire(keys)) })
        }
        SecureUplink::Shares { boxes, .. } => Step::Shares(boxes_to_wire(boxes)),
        SecureUplink::Masked { sums, .. } => Step::Masked(numbers_to_wire(sums)),
        SecureUplink::Opened { seeds, keys, .. } => Step::Opened(v1::SecureOpened {
            seeds: seeds.iter().map(opened_to_wire).collect(),
            keys: keys.iter().map(opened_to_wire).collect(),
        }),
    };
    v1::SecureUplink { round: message.round().0, step: Some(step) }
}

pub(super) fn uplink_from_wire(message: v1::SecureUplink) -> Result<SecureUplink, DecodeError> {
    use v1::secure_uplink::Step;
    let round = RoundId(message.round);
    Ok(match required(message.step)? {
        Step::Keys(v1::SecureKeys { slot, keys }) => {
            SecureUplink::Keys { round, slot, keys: keys_from_wire(required(keys)?)? }
        }
        Step::Shares(list) => SecureUplink::Shares { round, boxes: boxes_from_wire(list)? },
        Step::Masked(bytes) => SecureUplink::Masked { round, sums: numbers_from_wire(&bytes)? },
        Step::Opened(v1::SecureOpened { seeds, keys }) => {
            let shares = |list: Vec<v1::OpenedShare>| -> Result<Vec<OpenedShare>, DecodeError> {
                list.into_iter().map(opened_from_wire).collect()
            };
            SecureUplink::Opened { round, seeds: shares(seeds)?, keys: shares(keys)? }
        }
    })
}

pub(super) fn downlink_to_wire(message: &SecureDownlink) -> v1::SecureDownlink {
    use v1::secure_downlink::Step;
    let (round, step) = match message {
        SecureDownlink::Begin { round } => (round, Step::Begin(v1::SecureBegin {})),
        SecureDownlink::Peers { round, slot, peers } => {
            let peers = peers.iter().map(keys_to_wire).collect();
            (round, Step::Peers(v1::SecurePeers { slot: *slot, peers }))
        }
        SecureDownlink::Boxes { round, boxes } => (round, Step::Boxes(boxes_to_wire(boxes))),
        SecureDownlink::Open { round, survivors } => {
            let survivors = survivors.iter().map(|survivor| survivor.0).collect();
            (round, Step::Open(v1::SecureSurvivors { survivors }))
        }
        SecureDownlink::Outcome(outcome) => (
            &outcome.round,
            Step::Outcome(v1::SecureOutcome {
                authoritative: outcome.authoritative,
                included: outcome.included,
                slot: outcome.slot,
                version: outcome.version.0,
                members: outcome.members,
                variance: outcome.variance,
                evidence: Some(evidence_to_wire(&outcome.evidence)),
            }),
        ),
    };
    v1::SecureDownlink { round: round.0, step: Some(step) }
}

pub(super) fn downlink_from_wire(message: v1::SecureDownlink) -> Result<SecureDownlink, DecodeError> {
    use v1::secure_downlink::Step;
    let round = RoundId(message.round);
    Ok(match required(message.step)? {
        Step::Begin(v1::SecureBegin {}) => SecureDownlink::Begin { round },
        Step::Peers(v1::SecurePeers { slot, peers }) => {
            let peers = peers.into_iter().map(keys_from_wire).collect::<Result<Vec<_>, _>>()?;
            SecureDownlink::Peers { round, slot, peers: Arc::new(peers) }
        }
        Step::Boxes(list) => SecureDownlink::Boxes { round, boxes: boxes_from_wire(list)? },
        Step::Open(v1::SecureSurvivors { survivors }) => {
            let survivors = Arc::new(survivors.into_iter().map(AgentId).collect());
            SecureDownlink::Open { round, survivors }
        }
        Step::Outcome(outcome) => SecureDownlink::Outcome(SecureOutcome {
            authoritative: outcome.authoritative,
            round,
            included: outcome.included,
            slot: outcome.slot,
            version: Version(outcome.version),
            members: outcome.members,
            variance: variance(outcome.variance)?,
            evidence: Arc::new(evidence_from_wire(required(outcome.evidence)?)?),
        }),
    })
}
