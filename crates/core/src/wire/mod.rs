//! The one encoding: protobuf `posse.v1`, for the wire, for logs and for saved states.
//!
//! Decoding never panics, whatever the bytes: shapes are checked before anything is built from them, and
//! memory is allocated only for numbers that are really there.

use std::sync::Arc;

use prost::Message;

use crate::error::DecodeError;
use crate::evidence::{Evidence, packed};
use crate::ids::{ClusterId, PhaseId, RoundId, Version};
use crate::message::{Downlink, EvidenceUpload, Snapshot, Uplink};
use crate::parcel::{LowRank, Parcel};

mod clusters;
mod size;
/// The types generated from `proto/posse/v1`.
#[allow(missing_docs, clippy::doc_markdown, clippy::use_self, reason = "generated")]
#[rustfmt::skip]
pub mod v1;

pub(crate) use clusters::released_from_wire;
pub(crate) use size::{downlink_len, uplink_len};

/// The largest dimension that is decoded: beyond it a matrix alone has two gigabytes.
pub const MAX_DIMENSION: usize = 1 << 14;

/// The bytes of a message to the coordinator.
#[must_use]
pub fn encode_uplink(message: &Uplink) -> Vec<u8> {
    uplink_to_wire(message).encode_to_vec()
}

/// The message in these bytes.
pub fn decode_uplink(bytes: &[u8]) -> Result<Uplink, DecodeError> {
    uplink_from_wire(decode(bytes)?)
}

/// The bytes of a message to an agent.
#[must_use]
pub fn encode_downlink(message: &Downlink) -> Vec<u8> {
    downlink_to_wire(message).encode_to_vec()
}

/// The message in these bytes.
pub fn decode_downlink(bytes: &[u8]) -> Result<Downlink, DecodeError> {
    downlink_from_wire(decode(bytes)?)
}

pub(crate) fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    M::decode(bytes).map_err(|error| DecodeError::Malformed(error.to_string()))
}

pub(crate) fn uplink_to_wire(message: &Uplink) -> v1::Uplink {
    let kind = match message {
        Uplink::Evidence(upload) => v1::uplink::Kind::Evidence(v1::EvidenceUpload {
            number: upload.number,
            based_on: upload.based_on.0,
            information: upload.information,
            evidence: Some(parcel_to_wire(&upload.evidence)),
        }),
        Uplink::RoundRequest => v1::uplink::Kind::RoundRequest(v1::RoundRequest {}),
        Uplink::RoundEvidence { round, evidence } => v1::uplink::Kind::RoundEvidence(v1::RoundEvidence {
            round: round.0,
            evidence: Some(parcel_to_wire(evidence)),
        }),
        Uplink::Cluster(upload) => v1::uplink::Kind::Cluster(clusters::upload_to_wire(upload)),
        Uplink::Clusters(list) => v1::uplink::Kind::Clusters(clusters::list_to_wire(list)),
    };
    v1::Uplink { kind: Some(kind) }
}

pub(crate) fn uplink_from_wire(message: v1::Uplink) -> Result<Uplink, DecodeError> {
    Ok(match message.kind.ok_or(DecodeError::invalid("uplink", "it has no kind"))? {
        v1::uplink::Kind::Evidence(upload) => Uplink::Evidence(EvidenceUpload {
            number: upload.number,
            based_on: Version(upload.based_on),
            information: information(upload.information)?,
            evidence: parcel_from_wire(required(upload.evidence)?)?,
        }),
        v1::uplink::Kind::RoundRequest(_) => Uplink::RoundRequest,
        v1::uplink::Kind::RoundEvidence(part) => Uplink::RoundEvidence {
            round: RoundId(part.round),
            evidence: parcel_from_wire(required(part.evidence)?)?,
        },
        v1::uplink::Kind::Cluster(upload) => Uplink::Cluster(clusters::upload_from_wire(upload)?),
        v1::uplink::Kind::Clusters(list) => Uplink::Clusters(clusters::list_from_wire(list)?),
    })
}

pub(crate) fn downlink_to_wire(message: &Downlink) -> v1::Downlink {
    let kind = match message {
        Downlink::Snapshot(snapshot) => v1::downlink::Kind::Snapshot(snapshot_to_wire(snapshot)),
        Downlink::Receipt { number, version } => {
            v1::downlink::Kind::Receipt(v1::Receipt { number: *number, version: version.map(|v| v.0) })
        }
        Downlink::Collect { round } => v1::downlink::Kind::Collect(v1::Collect { round: round.0 }),
        Downlink::Commit { round, included, version, evidence } => v1::downlink::Kind::Commit(v1::Commit {
            round: round.0,
            included: *included,
            version: version.0,
            evidence: Some(evidence_to_wire(evidence)),
        }),
        Downlink::Group(group) => v1::downlink::Kind::Group(clusters::group_to_wire(group)),
        Downlink::ClusterReceipt { cluster, number, version } => {
            v1::downlink::Kind::ClusterReceipt(v1::ClusterReceipt {
                cluster: cluster.0,
                number: *number,
                version: version.map(|v| v.0),
            })
        }
        Downlink::Regroup { phase, anew } => {
            v1::downlink::Kind::Regroup(v1::Regroup { phase: phase.0, anew: *anew })
        }
    };
    v1::Downlink { kind: Some(kind) }
}

fn snapshot_to_wire(snapshot: &Snapshot) -> v1::Snapshot {
    v1::Snapshot {
        authoritative: snapshot.authoritative,
        version: snapshot.version.0,
        contains: snapshot.contains,
        information: snapshot.information,
        evidence: Some(evidence_to_wire(&snapshot.evidence)),
    }
}

fn snapshot_from_wire(snapshot: v1::Snapshot) -> Result<Snapshot, DecodeError> {
    Ok(Snapshot {
        authoritative: snapshot.authoritative,
        version: Version(snapshot.version),
        contains: snapshot.contains,
        information: information(snapshot.information)?,
        evidence: Arc::new(evidence_from_wire(required(snapshot.evidence)?)?),
    })
}

pub(crate) fn downlink_from_wire(message: v1::Downlink) -> Result<Downlink, DecodeError> {
    Ok(match message.kind.ok_or(DecodeError::invalid("downlink", "it has no kind"))? {
        v1::downlink::Kind::Snapshot(snapshot) => Downlink::Snapshot(snapshot_from_wire(snapshot)?),
        v1::downlink::Kind::Group(group) => Downlink::Group(clusters::group_from_wire(group)?),
        v1::downlink::Kind::ClusterReceipt(receipt) => Downlink::ClusterReceipt {
            cluster: ClusterId(receipt.cluster),
            number: receipt.number,
            version: receipt.version.map(Version),
        },
        v1::downlink::Kind::Regroup(regroup) => {
            Downlink::Regroup { phase: PhaseId(regroup.phase), anew: regroup.anew }
        }
        v1::downlink::Kind::Receipt(receipt) => {
            Downlink::Receipt { number: receipt.number, version: receipt.version.map(Version) }
        }
        v1::downlink::Kind::Collect(collect) => Downlink::Collect { round: RoundId(collect.round) },
        v1::downlink::Kind::Commit(commit) => Downlink::Commit {
            round: RoundId(commit.round),
            included: commit.included,
            version: Version(commit.version),
            evidence: Arc::new(evidence_from_wire(required(commit.evidence)?)?),
        },
    })
}

pub(crate) fn evidence_to_wire(evidence: &Evidence) -> v1::Evidence {
    v1::Evidence {
        count: evidence.count(),
        moment: evidence.moment().to_vec(),
        matrix: Some(v1::evidence::Matrix::Packed(v1::Packed { entries: evidence.gram().to_vec() })),
    }
}

pub(crate) fn evidence_from_wire(evidence: v1::Evidence) -> Result<Evidence, DecodeError> {
    match parcel_from_wire(evidence)? {
        Parcel::Dense(evidence) => Ok(evidence),
        Parcel::LowRank(_) => Err(DecodeError::invalid("evidence", "a packed matrix is needed here")),
    }
}

fn parcel_to_wire(parcel: &Parcel) -> v1::Evidence {
    match parcel {
        Parcel::Dense(evidence) => evidence_to_wire(evidence),
        Parcel::LowRank(parcel) => v1::Evidence {
            count: parcel.count,
            moment: parcel.moment.clone(),
            matrix: Some(v1::evidence::Matrix::LowRank(v1::LowRank {
                pivots: parcel.pivots.clone(),
                columns: parcel.columns.clone(),
            })),
        },
    }
}

fn parcel_from_wire(evidence: v1::Evidence) -> Result<Parcel, DecodeError> {
    let v1::Evidence { count, moment, matrix } = evidence;
    let d = moment.len();
    if d > MAX_DIMENSION {
        return Err(DecodeError::TooLarge { part: "dimension", got: d as u64, limit: MAX_DIMENSION as u64 });
    }
    match matrix.ok_or(DecodeError::invalid("evidence", "it has no matrix"))? {
        v1::evidence::Matrix::Packed(matrix) => {
            if matrix.entries.len() != packed(d) {
                return Err(DecodeError::invalid("evidence", "the matrix does not fit the vector"));
            }
            Evidence::from_parts(matrix.entries, moment, count)
                .map(Parcel::Dense)
                .map_err(|_| DecodeError::invalid("evidence", "no observations give these numbers"))
        }
        v1::evidence::Matrix::LowRank(v1::LowRank { pivots, columns }) => {
            let mut seen = vec![false; d];
            let distinct = pivots.len() <= d
                && pivots
                    .iter()
                    .all(|&p| seen.get_mut(p as usize).is_some_and(|seen| !std::mem::replace(seen, true)));
            if !distinct || columns.len() != LowRank::column_scalars(d, pivots.len()) {
                return Err(DecodeError::invalid("evidence", "the factor does not fit the vector"));
            }
            if !columns.iter().chain(&moment).all(|v| v.is_finite() && v.abs() <= 1e150) {
                return Err(DecodeError::invalid("evidence", "not all numbers are finite"));
            }
            if pivots.len() as u64 > count || (count == 0 && moment.iter().any(|&v| v != 0.0)) {
                return Err(DecodeError::invalid("evidence", "more numbers than observations"));
            }
            Ok(Parcel::LowRank(LowRank { pivots, columns, moment, count }))
        }
    }
}

fn required<T>(part: Option<T>) -> Result<T, DecodeError> {
    part.ok_or(DecodeError::invalid("message", "a part is missing"))
}

fn information(value: f64) -> Result<f64, DecodeError> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(DecodeError::invalid("information", "it must be finite and not negative"))
    }
}
