//! One cluster of an agent's users: what they observed, what the coordinator has of it, and the model they
//! are served with.

use crate::agent::LocalCluster;
use crate::error::DecodeError;
use crate::evidence::Evidence;
use crate::exchange::view::View;
use crate::ids::{ClusterId, UserId};
use crate::ridge::Ridge;
use crate::wire::{self, v1};

/// A cluster.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// Everything its users observed, exactly. It stays here.
    pub(crate) own: Evidence,
    /// The group's sums, what is on its way, and what is not.
    pub(crate) view: View,
    /// In private federations: the model over released sums only, and what `own` was at the last release.
    pub(crate) private: Option<Released>,
    /// Clusters that contributed to the group's sums.
    pub(crate) members: u64,
}

/// What a private cluster chooses with, and what it gave away.
#[derive(Clone, Debug)]
pub(crate) struct Released {
    pub(crate) chooser: Ridge,
    pub(crate) sent: Evidence,
}

impl Local {
    /// A cluster whose observations nobody has heard of.
    pub(crate) fn new(own: Evidence, model: &Ridge, private: bool) -> Self {
        let view = if own.is_empty() {
            View::new(model.clone())
        } else {
            View::from_parts(model.clone(), None, own.clone())
        };
        let sent = Evidence::none(own.dimension());
        let private = private.then(|| Released { chooser: model.clone(), sent });
        Self { own, view, private, members: 0 }
    }

    /// The same private cluster, with its last release on its way once more to somebody who knows nothing.
    pub(crate) fn repeating(&self, released: &Released, model: &Ridge) -> Self {
        let sent = released.sent.clone();
        let view = View::from_parts(model.clone(), Some(sent.clone()), self.view.buffer().clone());
        let private = Some(Released { chooser: model.clone(), sent });
        Self { own: self.own.clone(), view, private, members: 0 }
    }

    /// Observations in the last release.
    pub(crate) fn released(&self) -> u64 {
        self.private.as_ref().map_or(0, |private| private.sent.count())
    }

    pub(crate) fn describe(&self, cluster: ClusterId, users: Vec<UserId>) -> LocalCluster {
        LocalCluster {
            cluster,
            users,
            count: self.own.count(),
            unsent: self.view.buffer().count(),
            in_flight: self.view.in_flight().map_or(0, Evidence::count),
            uploads: self.view.uploads(),
        }
    }

    pub(crate) fn save(&self, cluster: ClusterId) -> v1::LocalClusterState {
        v1::LocalClusterState {
            cluster: cluster.0,
            own: Some(wire::evidence_to_wire(&self.own)),
            view: Some(self.view.save()),
            chooser: self.private.as_ref().map(|private| private.chooser.save()),
            members: self.members,
            sent: self.private.as_ref().map(|private| wire::evidence_to_wire(&private.sent)),
            ..Default::default()
        }
    }

    /// The cluster that was saved.
    pub(crate) fn restored(
        state: v1::LocalClusterState,
        model: &Ridge,
        private: bool,
    ) -> Result<Self, DecodeError> {
        let evidence = |part: Option<v1::Evidence>| {
            let evidence = wire::evidence_from_wire(part.unwrap_or_default())?;
            if evidence.dimension() != model.dimension() {
                return Err(DecodeError::invalid("cluster", "it has another dimension"));
            }
            Ok(evidence)
        };
        let private = if private {
            let mut chooser = model.clone();
            chooser.restore(&state.chooser.unwrap_or_default())?;
            Some(Released { chooser, sent: evidence(state.sent)? })
        } else {
            None
        };
        let view = View::new(model.clone()).restored(state.view.unwrap_or_default())?;
        Ok(Self { own: evidence(state.own)?, view, private, members: state.members })
    }
}
