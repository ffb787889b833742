//! Releases added up, and what a relay refuses to add.

use crate::clustered::groups::{MAX_MEMBERS, MAX_VARIANCE};
use crate::clustered::message::ClusterUpload;
use crate::error::ProtocolError;
use crate::evidence::{Evidence, MAX_OBSERVATIONS};

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

    pub(super) fn add(&mut self, other: &Self) {
        if !other.evidence.is_empty() {
            self.evidence.add(&other.evidence);
            self.variance += other.variance;
            self.members = self.members.saturating_add(other.members);
        }
    }

    /// The sum of some releases, none of which was refused.
    pub(super) fn sum<'r>(dimension: usize, releases: impl Iterator<Item = &'r Self>) -> Self {
        let mut sum = Self::none(dimension);
        releases.for_each(|release| sum.add(release));
        sum
    }

    /// `Ok` if a parent would take the sum of these. If not, what came last is refused here.
    pub(super) fn check_sum<'r>(
        dimension: usize,
        releases: impl Iterator<Item = &'r Self> + Clone,
    ) -> Result<(), ProtocolError> {
        let counts = releases.clone().map(|release| release.evidence.count());
        if counts.fold(0, u64::saturating_add) > MAX_OBSERVATIONS {
            return Err(ProtocolError::Evidence("more observations than can be counted"));
        }
        let sum = Self::sum(dimension, releases);
        sum.evidence.check_release()?;
        if sum.variance > MAX_VARIANCE || sum.members > MAX_MEMBERS {
            return Err(ProtocolError::Evidence("more noise or more agents than can be"));
        }
        Ok(())
    }
}
