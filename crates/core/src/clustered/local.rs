//! One cluster of an agent's users: what they observed, what the coordinator has of it, and the model they
//! are served with.

use crate::agent::LocalCluster;
use crate::clustered::width::Noisy;
use crate::error::DecodeError;
use crate::evidence::Evidence;
use crate::exchange::belief::Belief;
use crate::ids::{ClusterId, UserId};
use crate::privacy::Release;
use crate::ridge::Ridge;
use crate::wire::{self, v1};

/// A cluster of users as its agent keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// Everything its users observed, exactly. It stays here.
    pub(crate) own: Evidence,
    /// The group's sums, what is on its way, and what is not.
    pub(crate) view: Belief,
    /// In private federations: what left the cluster, and the model over released sums only.
    pub(crate) private: Option<Released>,
    /// Clusters that contributed to the group's sums.
    pub(crate) members: u64,
}

/// What a private cluster chooses with, and what it gave away.
#[derive(Clone, Debug)]
pub(crate) struct Released {
    /// The model over the group's released sums.
    pub(crate) chooser: Ridge,
    /// What `own` was at the last upload.
    pub(crate) sent: Evidence,
    /// Released sums of its users from before it split off. Every upload contains them.
    pub(crate) baseline: Option<Release>,
    /// What was uploaded last, to be said again word for word if it must be.
    pub(crate) said: Option<Release>,
    /// The noise in the group's sums.
    pub(crate) group: Noisy,
}

impl Released {
    fn new(model: &Ridge, dimension: usize) -> Self {
        Self {
            chooser: model.clone(),
            sent: Evidence::none(dimension),
            baseline: None,
            said: None,
            group: Noisy { variance: 0.0, lowest: 0.0, count: 0 },
        }
    }
}

impl Local {
    /// Returns a cluster none of whose observations were sent yet.
    pub(crate) fn new(own: Evidence, model: &Ridge, private: bool) -> Self {
        let view = if own.is_empty() {
            Belief::new(model.clone())
        } else {
            Belief::from_parts(model.clone(), None, own.clone())
        };
        let private = private.then(|| Released::new(model, own.dimension()));
        Self { own, view, private, members: 0 }
    }

    /// The same private cluster with its last upload on its way once more, to a coordinator that lost it.
    pub(crate) fn repeating(&self, released: &Released, model: &Ridge) -> Self {
        let Released { sent, baseline, said, .. } = released.clone();
        let view =
            Belief::from_parts(model.clone(), Some(sent.clone()), self.view.buffer().evidence().clone());
        let private = Released { sent, baseline, said, ..Released::new(model, self.own.dimension()) };
        Self { own: self.own.clone(), view, private: Some(private), members: 0 }
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
        let baseline = self.private.as_ref().and_then(|private| private.baseline.as_ref());
        let said = self.private.as_ref().and_then(|private| private.said.as_ref());
        v1::LocalClusterState {
            cluster: cluster.0,
            own: Some(wire::evidence_to_wire(&self.own)),
            view: Some(self.view.save()),
            chooser: self.private.as_ref().map(|private| private.chooser.save()),
            members: self.members,
            sent: self.private.as_ref().map(|private| wire::evidence_to_wire(&private.sent)),
            baseline: baseline.map(|release| wire::evidence_to_wire(&release.evidence)),
            baseline_variance: baseline.map_or(0.0, |release| release.variance),
            said: said.map(|release| wire::evidence_to_wire(&release.evidence)),
            said_variance: said.map_or(0.0, |release| release.variance),
            variance: self.private.as_ref().map_or(0.0, |private| private.group.variance),
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
        let view = Belief::new(model.clone()).restored(state.view.unwrap_or_default())?;
        let release = |part: Option<v1::Evidence>, variance: f64| {
            let part =
                part.map(|part| wire::released_from_wire(part, Some(model.dimension()))).transpose()?;
            let variance = wire::variance(variance)?;
            Ok::<_, DecodeError>(part.map(|evidence| Release { evidence, variance }))
        };
        let private = if private {
            let mut chooser = model.clone();
            chooser.restore(&state.chooser.unwrap_or_default())?;
            Some(Released {
                chooser,
                sent: evidence(state.sent)?,
                baseline: release(state.baseline, state.baseline_variance)?,
                said: release(state.said, state.said_variance)?,
                group: Noisy::of(view.base(), wire::variance(state.variance)?),
            })
        } else {
            None
        };
        Ok(Self { own: evidence(state.own)?, view, private, members: state.members })
    }
}
