//! A cluster that stays with its agent: its sums and the model of them.

use crate::error::DecodeError;
use crate::evidence::Evidence;
use crate::ids::ClusterId;
use crate::ridge::Ridge;
use crate::wire::{self, v1};

/// A cluster with its model.
#[derive(Clone, Debug)]
pub(super) struct OwnCluster {
    pub(super) evidence: Evidence,
    pub(super) model: Ridge,
    /// θ̂ and T when the stage began.
    pub(super) stage_estimate: Vec<f64>,
    pub(super) stage_count: u64,
}

impl OwnCluster {
    /// A cluster of these observations; `empty` is a model without any.
    pub(super) fn new(evidence: Evidence, empty: &Ridge) -> Self {
        let mut model = empty.clone();
        // Sums of real observations are positive semidefinite; if rounding says otherwise, nothing is known.
        let _ = model.refresh([&evidence].into_iter());
        let (stage_estimate, stage_count) = (model.estimate(), evidence.count());
        Self { evidence, model, stage_estimate, stage_count }
    }

    /// Adds an observation that was checked before.
    pub(super) fn observe(&mut self, x: &[f64], y: f64) {
        self.evidence.add_observation(x, y);
        self.model.learn(x, y, [&self.evidence].into_iter());
    }

    pub(super) fn save(&self, cluster: ClusterId) -> v1::LocalClusterState {
        v1::LocalClusterState {
            cluster: cluster.0,
            own: Some(wire::evidence_to_wire(&self.evidence)),
            model: Some(self.model.save()),
            stage_estimate: self.stage_estimate.clone(),
            stage_count: self.stage_count,
            ..Default::default()
        }
    }

    pub(super) fn restored(state: v1::LocalClusterState, empty: &Ridge) -> Result<Self, DecodeError> {
        let evidence = wire::evidence_from_wire(state.own.unwrap_or_default())?;
        let d = empty.dimension();
        let finite = state.stage_estimate.iter().all(|v| v.is_finite());
        if evidence.dimension() != d || state.stage_estimate.len() != d || !finite {
            return Err(DecodeError::invalid("cluster", "it has another dimension"));
        }
        let mut model = empty.clone();
        model.restore(&state.model.unwrap_or_default())?;
        let (stage_estimate, stage_count) = (state.stage_estimate, state.stage_count);
        Ok(Self { evidence, model, stage_estimate, stage_count })
    }
}
