//! Messages about clusters of users.

use crate::clustered::message::{ClusterList, ClusterUpload, GroupSnapshot};
use crate::error::DecodeError;
use crate::evidence::{Evidence, packed};
use crate::ids::{ClusterId, PhaseId, Version};
use crate::wire::{MAX_DIMENSION, evidence_from_wire, evidence_to_wire, information, required, v1};

pub(crate) fn upload_to_wire(upload: &ClusterUpload) -> v1::ClusterUpload {
    v1::ClusterUpload {
        cluster: upload.cluster.0,
        number: upload.number,
        based_on: upload.based_on.0,
        information: upload.information,
        evidence: Some(evidence_to_wire(&upload.evidence)),
        released: upload.released,
        variance: upload.variance,
        members: said_members(upload),
    }
}

/// 1 is what agents say, and is left out.
pub(crate) const fn said_members(upload: &ClusterUpload) -> u64 {
    if upload.members == 1 { 0 } else { upload.members }
}

pub(crate) fn upload_from_wire(upload: v1::ClusterUpload) -> Result<ClusterUpload, DecodeError> {
    let evidence = required(upload.evidence)?;
    let evidence =
        if upload.released { released_from_wire(evidence, None)? } else { evidence_from_wire(evidence)? };
    Ok(ClusterUpload {
        cluster: ClusterId(upload.cluster),
        number: upload.number,
        based_on: Version(upload.based_on),
        information: information(upload.information)?,
        evidence,
        released: upload.released,
        variance: variance(upload.variance)?,
        members: upload.members.max(1),
    })
}

pub(crate) fn list_to_wire(list: &ClusterList) -> v1::ClusterList {
    v1::ClusterList {
        phase: list.phase.0,
        kept: list.kept.iter().map(|cluster| cluster.0).collect(),
        uploads: list.uploads.iter().map(upload_to_wire).collect(),
    }
}

pub(crate) fn list_from_wire(list: v1::ClusterList) -> Result<ClusterList, DecodeError> {
    Ok(ClusterList {
        phase: PhaseId(list.phase),
        kept: list.kept.into_iter().map(ClusterId).collect(),
        uploads: list.uploads.into_iter().map(upload_from_wire).collect::<Result<_, _>>()?,
    })
}

pub(crate) fn group_to_wire(group: &GroupSnapshot) -> v1::GroupSnapshot {
    v1::GroupSnapshot {
        cluster: group.cluster.0,
        members: group.members,
        snapshot: Some(super::snapshot_to_wire(&group.snapshot)),
        variance: group.variance,
    }
}

pub(crate) fn group_from_wire(group: v1::GroupSnapshot) -> Result<GroupSnapshot, DecodeError> {
    Ok(GroupSnapshot {
        cluster: ClusterId(group.cluster),
        members: group.members,
        snapshot: super::snapshot_from_wire(required(group.snapshot)?)?,
        variance: variance(group.variance)?,
    })
}

/// The variance of noise in sums: not negative, and small enough that sums of variances stay finite.
pub(crate) fn variance(value: f64) -> Result<f64, DecodeError> {
    if (0.0..=1e250).contains(&value) {
        Ok(value)
    } else {
        Err(DecodeError::invalid("variance", "it must be a number that is not negative"))
    }
}

/// Sums with noise: of the right shape and finite, and nothing more can be asked of them.
pub(crate) fn released_from_wire(
    evidence: v1::Evidence,
    dimension: Option<usize>,
) -> Result<Evidence, DecodeError> {
    let v1::Evidence { count, mut moment, matrix, dimension: told } = evidence;
    let d = if moment.is_empty() { told as usize } else { moment.len() };
    if d > MAX_DIMENSION {
        return Err(DecodeError::TooLarge { part: "dimension", got: d as u64, limit: MAX_DIMENSION as u64 });
    }
    let Some(v1::evidence::Matrix::Packed(matrix)) = matrix else {
        return Err(DecodeError::invalid("release", "a packed matrix is needed here"));
    };
    if dimension.is_some_and(|expected| d != expected) || matrix.entries.len() != packed(d) {
        return Err(DecodeError::invalid("release", "the matrix does not fit the vector"));
    }
    moment.resize(d, 0.0);
    let evidence = Evidence::from_parts_unchecked(matrix.entries, moment, count);
    evidence.check_release().map_err(|_| DecodeError::invalid("release", "not all numbers are finite"))?;
    Ok(evidence)
}
