//! The one encoding: protobuf `posse.v1`, for the wire, for logs and for saved states.
//!
//! Decoding never panics, whatever the bytes: shapes are checked before anything is built from them, and
//! memory is allocated only for numbers that are really there.

use std::sync::Arc;

use prost::Message;

use crate::error::DecodeError;
use crate::evidence::{Evidence, packed};
use crate::ids::{ClusterId, PhaseId, RoundId, Version};
use crate::message::{Downlink, Extension, Fit, Gradient, Model, Snapshot, Uplink};
use crate::parcel::{LowRank, Parcel};

mod clusters;
mod exchanges;
mod networks;
mod packed;
mod parts;
mod rounded;
mod secure;
mod size;
/// The types generated from `proto/posse/v1`.
#[allow(missing_docs, clippy::doc_markdown, clippy::use_self, reason = "generated")]
#[rustfmt::skip]
pub mod v1;

pub(crate) use clusters::{group_from_wire, group_to_wire, released_from_wire, said_members, variance};
pub(crate) use exchanges::{news_from_wire, news_to_wire};
pub(crate) use networks::{
    model_from_wire as network_from_wire, model_to_wire as network_to_wire, part_from_wire, part_to_wire,
    width_sum_from_wire, width_sum_to_wire,
};
pub(crate) use parts::{
    name_from_wire, name_to_wire, numbers as path_to_wire, part_from_wire as agent_part_from_wire,
    part_to_wire as agent_part_to_wire, path as path_from_wire,
};
pub(crate) use secure::{
    boxes_from_wire, boxes_to_wire, keys_from_wire, keys_to_wire, numbers_from_wire, numbers_to_wire,
    opened_from_wire, opened_to_wire,
};
pub(crate) use size::{downlink_len, uplink_len};

/// The largest dimension that is decoded: beyond it a matrix alone has two gigabytes.
pub const MAX_DIMENSION: usize = 1 << 14;

/// The bytes of a message to the coordinator.
#[must_use]
pub fn encode_uplink(message: &Uplink) -> Vec<u8> {
    uplink_to_wire(message).encode_to_vec()
}

/// Decodes a message of an agent. Fails if the bytes are not one, or hold more than this build accepts.
pub fn decode_uplink(bytes: &[u8]) -> Result<Uplink, DecodeError> {
    uplink_from_wire(decode(bytes)?)
}

/// The bytes of a message to an agent.
#[must_use]
pub fn encode_downlink(message: &Downlink) -> Vec<u8> {
    downlink_to_wire(message).encode_to_vec()
}

/// Decodes a message of the coordinator. Fails if the bytes are not one, or hold more than this build
/// accepts.
pub fn decode_downlink(bytes: &[u8]) -> Result<Downlink, DecodeError> {
    downlink_from_wire(decode(bytes)?)
}

pub(crate) fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    M::decode(bytes).map_err(|error| DecodeError::Malformed(error.to_string()))
}

pub(crate) fn uplink_to_wire(message: &Uplink) -> v1::Uplink {
    let kind = match message {
        Uplink::Evidence(upload) => v1::uplink::Kind::Evidence(exchanges::upload_to_wire(upload)),
        Uplink::Pull(pull) => v1::uplink::Kind::Pull(exchanges::pull_to_wire(pull)),
        Uplink::RoundRequest { observations } => {
            v1::uplink::Kind::RoundRequest(v1::RoundRequest { observations: *observations })
        }
        Uplink::RoundEvidence { round, evidence } => v1::uplink::Kind::RoundEvidence(v1::RoundEvidence {
            round: round.0,
            evidence: Some(parcel_to_wire(evidence)),
        }),
        Uplink::RoundParts { round, parts } => {
            let parts = parts.iter().map(parts::part_to_wire).collect();
            v1::uplink::Kind::RoundParts(v1::RoundParts { round: round.0, parts })
        }
        Uplink::RoundLoss { round, shared } => {
            v1::uplink::Kind::RoundLoss(v1::RoundLoss { round: round.0, shared: *shared })
        }
        Uplink::Gradient(gradient) => v1::uplink::Kind::Gradient(v1::Gradient {
            round: gradient.round.0,
            step: gradient.step,
            gradient: gradient.gradient.clone(),
            curvature: gradient.curvature.clone().map(|entries| v1::Packed { entries }),
        }),
        Uplink::Secure(part) => v1::uplink::Kind::Secure(secure::uplink_to_wire(part)),
        Uplink::Cluster(upload) => v1::uplink::Kind::Cluster(clusters::upload_to_wire(upload)),
        Uplink::Clusters(list) => v1::uplink::Kind::Clusters(clusters::list_to_wire(list)),
        Uplink::NetworkRequest { observations } => {
            v1::uplink::Kind::NetworkRequest(v1::NetworkRequest { observations: *observations })
        }
        Uplink::NetworkPart(part) => v1::uplink::Kind::NetworkPart(networks::part_to_wire(part)),
        Uplink::Weights(weights) => v1::uplink::Kind::Weights(networks::weights_to_wire(weights)),
        Uplink::Extension(extension) => v1::uplink::Kind::Extension(extension_to_wire(extension)),
    };
    v1::Uplink { kind: Some(kind) }
}

pub(crate) fn uplink_from_wire(message: v1::Uplink) -> Result<Uplink, DecodeError> {
    Ok(match message.kind.ok_or(DecodeError::invalid("uplink", "it has no kind"))? {
        v1::uplink::Kind::Evidence(upload) => Uplink::Evidence(exchanges::upload_from_wire(upload)?),
        v1::uplink::Kind::Pull(pull) => Uplink::Pull(exchanges::pull_from_wire(pull)?),
        v1::uplink::Kind::RoundRequest(request) => {
            Uplink::RoundRequest { observations: request.observations }
        }
        v1::uplink::Kind::RoundEvidence(part) => Uplink::RoundEvidence {
            round: RoundId(part.round),
            evidence: parcel_from_wire(required(part.evidence)?)?,
        },
        v1::uplink::Kind::RoundParts(message) => {
            let parts = message.parts.into_iter().map(parts::part_from_wire).collect::<Result<_, _>>()?;
            Uplink::RoundParts { round: RoundId(message.round), parts }
        }
        v1::uplink::Kind::RoundLoss(loss) => {
            Uplink::RoundLoss { round: RoundId(loss.round), shared: loss.shared }
        }
        v1::uplink::Kind::Gradient(gradient) => {
            let curvature = gradient.curvature.map(|matrix| matrix.entries);
            let fits =
                curvature.as_ref().is_none_or(|matrix| matrix.len() == packed(gradient.gradient.len()));
            if !fits {
                return Err(DecodeError::invalid("gradient", "the matrix does not fit the vector"));
            }
            Uplink::Gradient(Gradient {
                round: RoundId(gradient.round),
                step: gradient.step,
                gradient: gradient.gradient,
                curvature,
            })
        }
        v1::uplink::Kind::Secure(part) => Uplink::Secure(secure::uplink_from_wire(part)?),
        v1::uplink::Kind::Cluster(upload) => Uplink::Cluster(clusters::upload_from_wire(upload)?),
        v1::uplink::Kind::Clusters(list) => Uplink::Clusters(clusters::list_from_wire(list)?),
        v1::uplink::Kind::NetworkRequest(request) => {
            Uplink::NetworkRequest { observations: request.observations }
        }
        v1::uplink::Kind::NetworkPart(part) => Uplink::NetworkPart(networks::part_from_wire(part)?),
        v1::uplink::Kind::Weights(weights) => Uplink::Weights(networks::weights_from_wire(weights)),
        v1::uplink::Kind::Extension(extension) => Uplink::Extension(extension_from_wire(extension)),
    })
}

pub(crate) fn downlink_to_wire(message: &Downlink) -> v1::Downlink {
    let kind = match message {
        Downlink::Snapshot(snapshot) => v1::downlink::Kind::Snapshot(snapshot_to_wire(snapshot)),
        Downlink::Answer(answer) => v1::downlink::Kind::Answer(exchanges::answer_to_wire(answer)),
        Downlink::Receipt { number, version } => {
            v1::downlink::Kind::Receipt(v1::Receipt { number: *number, version: version.map(|v| v.0) })
        }
        Downlink::Collect { round, whole } => {
            v1::downlink::Kind::Collect(v1::Collect { round: round.0, whole: *whole })
        }
        Downlink::Commit { round, included, version, evidence } => v1::downlink::Kind::Commit(v1::Commit {
            round: round.0,
            included: *included,
            version: version.0,
            evidence: Some(evidence_to_wire(evidence)),
        }),
        Downlink::GradientRequest { round, step, point, curvature } => {
            v1::downlink::Kind::GradientRequest(v1::GradientRequest {
                round: round.0,
                step: *step,
                point: point.to_vec(),
                curvature: *curvature,
            })
        }
        Downlink::Model(model) => v1::downlink::Kind::Model(model_to_wire(model)),
        Downlink::Abort { round } => v1::downlink::Kind::Abort(v1::Abort { round: round.0 }),
        Downlink::Extension(extension) => v1::downlink::Kind::Extension(extension_to_wire(extension)),
        Downlink::Secure(call) => v1::downlink::Kind::Secure(secure::downlink_to_wire(call)),
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
        Downlink::NetworkCollect { round, observations } => {
            let (round, observations) = (round.0, *observations);
            v1::downlink::Kind::NetworkCollect(v1::NetworkCollect { round, observations })
        }
        Downlink::Average(weights) => v1::downlink::Kind::Average(networks::weights_to_wire(weights)),
        Downlink::Network(model) => v1::downlink::Kind::Network(networks::model_to_wire(model)),
    };
    v1::Downlink { kind: Some(kind) }
}

fn snapshot_to_wire(snapshot: &Snapshot) -> v1::Snapshot {
    snapshot_around(snapshot, evidence_to_wire(&snapshot.evidence))
}

fn snapshot_around(snapshot: &Snapshot, evidence: v1::Evidence) -> v1::Snapshot {
    v1::Snapshot {
        authoritative: snapshot.authoritative,
        version: snapshot.version.0,
        contains: snapshot.contains,
        information: snapshot.information,
        evidence: Some(evidence),
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
        v1::downlink::Kind::Answer(answer) => Downlink::Answer(exchanges::answer_from_wire(answer)?),
        v1::downlink::Kind::Secure(call) => Downlink::Secure(secure::downlink_from_wire(call)?),
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
        v1::downlink::Kind::Collect(collect) => {
            Downlink::Collect { round: RoundId(collect.round), whole: collect.whole }
        }
        v1::downlink::Kind::Commit(commit) => Downlink::Commit {
            round: RoundId(commit.round),
            included: commit.included,
            version: Version(commit.version),
            evidence: Arc::new(evidence_from_wire(required(commit.evidence)?)?),
        },
        v1::downlink::Kind::GradientRequest(request) => Downlink::GradientRequest {
            round: RoundId(request.round),
            step: request.step,
            point: Arc::new(request.point),
            curvature: request.curvature,
        },
        v1::downlink::Kind::Model(model) => Downlink::Model(model_from_wire(model)?),
        v1::downlink::Kind::NetworkCollect(collect) => {
            let (round, observations) = (RoundId(collect.round), collect.observations);
            Downlink::NetworkCollect { round, observations }
        }
        v1::downlink::Kind::Average(weights) => Downlink::Average(networks::weights_from_wire(weights)),
        v1::downlink::Kind::Network(model) => Downlink::Network(networks::model_from_wire(model)?),
        v1::downlink::Kind::Abort(abort) => Downlink::Abort { round: RoundId(abort.round) },
        v1::downlink::Kind::Extension(extension) => Downlink::Extension(extension_from_wire(extension)),
    })
}

fn extension_to_wire(extension: &Extension) -> v1::Extension {
    let Extension { algorithm, version, scalars, bytes } = extension.clone();
    v1::Extension { algorithm, version, scalars, bytes }
}

fn extension_from_wire(extension: v1::Extension) -> Extension {
    let v1::Extension { algorithm, version, scalars, bytes } = extension;
    Extension { algorithm, version, scalars, bytes }
}

pub(crate) fn model_to_wire(model: &Model) -> v1::Model {
    let (moment, fit) = match &model.fit {
        Fit::Minimised { gap, information, unit_information } => {
            let (gap, information, unit_information) = (*gap, *information, *unit_information);
            (Vec::new(), v1::model::Fit::Minimised(v1::Minimised { gap, information, unit_information }))
        }
        Fit::Online { curvature, potential, squares } => {
            let curvature = Some(v1::Packed { entries: curvature.to_vec() });
            let (potential, squares) = (*potential, *squares);
            let moment = model.evidence.moment().to_vec();
            (moment, v1::model::Fit::Online(v1::Online { curvature, potential, squares }))
        }
    };
    let matrix = v1::Packed { entries: model.evidence.gram().to_vec() };
    v1::Model {
        authoritative: model.authoritative,
        version: model.version.0,
        contains: model.contains,
        evidence: Some(v1::Evidence {
            count: model.evidence.count(),
            moment,
            matrix: Some(v1::evidence::Matrix::Packed(matrix)),
            dimension: 0,
        }),
        estimate: model.estimate.to_vec(),
        fit: Some(fit),
    }
}

pub(crate) fn model_from_wire(model: v1::Model) -> Result<Model, DecodeError> {
    let finite = |value: f64| {
        value.is_finite().then_some(value).ok_or(DecodeError::invalid("model", "not all numbers are finite"))
    };
    let d = model.estimate.len();
    let mut evidence = required(model.evidence)?;
    evidence.dimension = u32::try_from(d).unwrap_or(u32::MAX);
    let evidence = evidence_from_wire(evidence)?;
    if evidence.dimension() != d {
        return Err(DecodeError::invalid("model", "the estimate does not fit the matrix"));
    }
    model.estimate.iter().try_for_each(|&value| finite(value).map(|_| ()))?;
    let (evidence, fit) = match required(model.fit)? {
        v1::model::Fit::Minimised(fit) => {
            let fit = Fit::Minimised {
                gap: finite(fit.gap)?,
                information: information(fit.information)?,
                unit_information: information(fit.unit_information)?,
            };
            (evidence.with_predictions_of(&model.estimate), fit)
        }
        v1::model::Fit::Online(fit) => {
            let curvature = required(fit.curvature)?.entries;
            if curvature.len() != packed(d) {
                return Err(DecodeError::invalid("model", "the curvature does not fit the estimate"));
            }
            curvature.iter().try_for_each(|&value| finite(value).map(|_| ()))?;
            let (potential, squares) = (finite(fit.potential)?, finite(fit.squares)?);
            (evidence, Fit::Online { curvature: Arc::new(curvature), potential, squares })
        }
    };
    Ok(Model {
        authoritative: model.authoritative,
        version: Version(model.version),
        contains: model.contains,
        evidence: Arc::new(evidence),
        estimate: Arc::new(model.estimate),
        fit,
    })
}

pub(crate) fn evidence_to_wire(evidence: &Evidence) -> v1::Evidence {
    let (moment, dimension) = moment_to_wire(evidence.moment());
    v1::Evidence {
        count: evidence.count(),
        moment,
        matrix: Some(v1::evidence::Matrix::Packed(v1::Packed { entries: evidence.gram().to_vec() })),
        dimension,
    }
}

/// A moment that is zero throughout is not sent, only its length: parts of rounds without rewards.
fn moment_to_wire(moment: &[f64]) -> (Vec<f64>, u32) {
    if is_zero(moment) {
        (Vec::new(), u32::try_from(moment.len()).unwrap_or(u32::MAX))
    } else {
        (moment.to_vec(), 0)
    }
}

pub(crate) fn is_zero(moment: &[f64]) -> bool {
    moment.iter().all(|v| v.to_bits() == 0)
}

pub(crate) fn evidence_from_wire(evidence: v1::Evidence) -> Result<Evidence, DecodeError> {
    match parcel_from_wire(evidence)? {
        Parcel::Dense(evidence) => Ok(evidence),
        _ => Err(DecodeError::invalid("evidence", "a packed matrix is needed here")),
    }
}

fn parcel_to_wire(parcel: &Parcel) -> v1::Evidence {
    match parcel {
        Parcel::Dense(evidence) => evidence_to_wire(evidence),
        Parcel::Rounded(parcel) => rounded::rounded_to_wire(parcel),
        Parcel::LowRank(parcel) => {
            let (moment, dimension) = moment_to_wire(&parcel.moment);
            v1::Evidence {
                count: parcel.count,
                moment,
                matrix: Some(v1::evidence::Matrix::LowRank(v1::LowRank {
                    pivots: parcel.pivots.clone(),
                    columns: parcel.columns.clone(),
                })),
                dimension,
            }
        }
    }
}

fn parcel_from_wire(evidence: v1::Evidence) -> Result<Parcel, DecodeError> {
    let v1::Evidence { count, mut moment, matrix, dimension } = evidence;
    let d = if moment.is_empty() { dimension as usize } else { moment.len() };
    if d > MAX_DIMENSION {
        return Err(DecodeError::TooLarge { part: "dimension", got: d as u64, limit: MAX_DIMENSION as u64 });
    }
    moment.resize(d, 0.0);
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
            if !are_pivots(d, &pivots) || columns.len() != LowRank::column_scalars(d, pivots.len()) {
                return Err(DecodeError::invalid("evidence", "the factor does not fit the vector"));
            }
            if !columns.iter().chain(&moment).all(|v| v.is_finite() && v.abs() <= 1e150) {
                return Err(DecodeError::invalid("evidence", "not all numbers are finite"));
            }
            if pivots.len() as u64 > count || (count == 0 && moment.iter().any(|&v| v != 0.0)) {
                return Err(DecodeError::invalid("evidence", "more numbers than observations"));
            }
            Ok(Parcel::LowRank(LowRank::new(pivots, columns, moment, count)))
        }
        v1::evidence::Matrix::Rounded(matrix) => {
            if !is_zero(&moment) {
                return Err(DecodeError::invalid("evidence", "it has two vectors"));
            }
            rounded::rounded_from_wire(d, count, matrix).map(Parcel::Rounded)
        }
    }
}

/// Whether these are different rows of a matrix of dimension `d`.
fn are_pivots(d: usize, pivots: &[u32]) -> bool {
    let mut seen = vec![false; d];
    let mut is_new = |p: &u32| seen.get_mut(*p as usize).is_some_and(|seen| !std::mem::replace(seen, true));
    pivots.len() <= d && pivots.iter().all(&mut is_new)
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
