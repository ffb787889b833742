//! Releases added up, and what a relay refuses to add.

use crate::clustered::groups::{MAX_MEMBERS, MAX_VARIANCE};
use crate::clustered::message::ClusterUpload;
use crate::error::ProtocolError;
use crate::evidence::Evidence;

/// Releases of some agents, added up.
#[derive(Clone, Debug)]
pub(super) struct Releases {
    pub(super) evidence: Evidence,
    pub(super) variance: f64,
    /// Of how many agents.
    pub(super) members: u64,
}

impl Releases {
    pub(super) fn none(dimension: usize) -> Self {
        Self { evidence: Evidence::none(dimension), variance: 0.0, members: 0 }
    }

    pub(super) fn of(upload: ClusterUpload) -> Self {
        let ClusterUpload { evidence, variance, members, .. } = upload;
        Self { evidence, variance, members }
    }

    /// The sum of some releases, unless a parent would refuse it: then what came last is refused here.
    pub(super) fn sum<'r>(
        dimension: usize,
        releases: impl Iterator<Item = &'r Self>,
    ) -> Result<Self, ProtocolError> {
        let mut sum = Self::none(dimension);
        for other in releases.filter(|other| !other.evidence.is_empty()) {
            if sum.evidence.count().checked_add(other.evidence.count()).is_none() {
                return Err(ProtocolError::Evidence("more observations than can be counted"));
            }
            sum.evidence.add(&other.evidence);
            sum.variance += other.variance;
            sum.members = sum.members.saturating_add(other.members);
        }
        sum.evidence.check_release()?;
        if sum.variance > MAX_VARIANCE || sum.members > MAX_MEMBERS {
            return Err(ProtocolError::Evidence("more noise or more agents than can be"));
        }
        Ok(sum)
    }
}
