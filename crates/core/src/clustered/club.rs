//! CLUB: each agent sorts its own users into clusters and sends nothing. A learner for each user is CLUB in
//! which every user has a cluster of its own from the start.

use std::collections::BTreeMap;

use prost::Message;

use crate::agent::{Agent, AgentView, Choice, LocalCluster};
use crate::arms::Arms;
use crate::clustered::config::{Club, UserLinUcb};
use crate::clustered::own::OwnCluster;
use crate::clustered::users::Users;
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation};
use crate::ids::{ClusterId, UserId};
use crate::message::{Downlink, Uplink};
use crate::ridge::Ridge;
use crate::scoring::{check_arms, upper_confidence};
use crate::width::{ModelConfig, Width};
use crate::wire::{self, v1};

/// An agent that sorts its users into clusters and sends nothing.
#[derive(Clone, Debug)]
pub(crate) struct ClubAgent {
    name: &'static str,
    /// A model without observations: what a user meets of whom nothing is known.
    empty: Ridge,
    nothing: Evidence,
    width: Width,
    /// α > 0: how different two users must look to lose their edge. Not set: every user has a cluster of its
    /// own.
    edge_scale: Option<f64>,
    users: Users,
    clusters: BTreeMap<ClusterId, OwnCluster>,
    next_cluster: u64,
    choices: u64,
}

impl Club {
    pub(crate) fn agent(&self, dimension: usize) -> ClubAgent {
        ClubAgent::new("club", &self.model, Some(self.edge_scale.0), dimension)
    }
}

impl UserLinUcb {
    pub(crate) fn agent(&self, dimension: usize) -> ClubAgent {
        ClubAgent::new("user-lin-ucb", &self.model, None, dimension)
    }
}

impl ClubAgent {
    fn new(name: &'static str, model: &ModelConfig, edge_scale: Option<f64>, dimension: usize) -> Self {
        let empty = model.model(dimension);
        Self {
            name,
            users: Users::new(dimension, empty.regularization()),
            nothing: Evidence::none(dimension),
            empty,
            width: model.width(),
            edge_scale,
            clusters: BTreeMap::new(),
            next_cluster: 1,
            choices: 0,
        }
    }

    /// The cluster of a user; of one who was never seen, the cluster that is known best, if users may be
    /// alike.
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        if let Some(place) = self.users.find(user) {
            return Some(self.users.list[place].cluster);
        }
        self.edge_scale?;
        let best = self.clusters.iter().rev().max_by_key(|(_, cluster)| cluster.evidence.count());
        best.map(|(id, _)| *id)
    }

    fn open(&mut self, evidence: Evidence) -> ClusterId {
        let id = ClusterId(self.next_cluster);
        self.next_cluster += 1;
        self.clusters.insert(id, OwnCluster::new(evidence, &self.empty));
        id
    }

    /// Tells a user apart from those it is not like, and divides its cluster if it falls apart.
    fn sort_out(&mut self, user: usize, scale: f64) {
        self.users.estimate(user);
        if !self.users.prune(user, 0, scale) {
            return;
        }
        let cluster = self.users.list[user].cluster;
        let members = self.users.of(cluster);
        let parts = self.users.graph.components(&members);
        if parts.len() < 2 {
            return;
        }
        self.clusters.remove(&cluster);
        for part in parts {
            let id = self.open(self.users.sum(&part));
            part.into_iter().for_each(|user| self.users.list[user].cluster = id);
        }
    }
}

impl Agent for ClubAgent {
    fn choose(&mut self, user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.empty.dimension(), arms)?;
        let cluster = self.cluster_of(user).map(|id| &self.clusters[&id]);
        let (model, count) = cluster.map_or((&self.empty, 0), |own| (&own.model, own.evidence.count()));
        let choice = upper_confidence(model, self.width.of(model, count), arms)?;
        self.choices += 1;
        Ok(choice)
    }

    fn learn(&mut self, user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_observation(self.empty.dimension(), arm, reward)?;
        let cluster = self.cluster_of(user).unwrap_or_else(|| self.open(self.nothing.clone()));
        let place = self.users.find(user).unwrap_or_else(|| self.users.add(user, cluster));
        self.users.list[place].evidence.add_observation(arm, reward);
        let own = self.clusters.get_mut(&cluster).expect("users are in clusters that are there");
        own.observe(arm, reward);
        if let Some(scale) = self.edge_scale {
            self.sort_out(place, scale);
        }
        Ok(None)
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        Err(ProtocolError::Unexpected { algorithm: self.name, message: message.kind() })
    }

    fn inspect(&self) -> AgentView<'_> {
        let unsent = self.clusters.values().map(|own| own.evidence.count()).sum();
        let information = self.clusters.values().map(|own| own.model.information()).sum();
        AgentView::alone(unsent, information)
    }

    fn clusters(&self) -> Vec<LocalCluster> {
        describe(&self.clusters, &self.users)
    }

    fn save(&self) -> Vec<u8> {
        let (users, edges) = self.users.save();
        v1::ClusteredAgentState {
            choices: self.choices,
            users,
            edges,
            clusters: self.clusters.iter().map(|(id, own)| own.save(*id)).collect(),
            next_cluster: self.next_cluster,
            dimension: self.empty.dimension() as u64,
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::ClusteredAgentState = wire::decode(state)?;
        let (users, clusters) = restored(&self.users, &self.empty, &state)?;
        (self.users, self.clusters) = (users, clusters);
        self.next_cluster = state.next_cluster;
        self.choices = state.choices;
        Ok(())
    }
}

/// Clusters with their users, none of whose observations are ever sent.
pub(super) fn describe(clusters: &BTreeMap<ClusterId, OwnCluster>, users: &Users) -> Vec<LocalCluster> {
    let users_of = |id: ClusterId| users.of(id).into_iter().map(|user| users.list[user].id).collect();
    let one = |(id, own): (&ClusterId, &OwnCluster)| LocalCluster {
        cluster: *id,
        users: users_of(*id),
        count: own.evidence.count(),
        unsent: own.evidence.count(),
        in_flight: 0,
        uploads: 0,
    };
    clusters.iter().map(one).collect()
}

/// Users and clusters that were saved, if they fit each other.
pub(super) fn restored(
    users: &Users,
    empty: &Ridge,
    state: &v1::ClusteredAgentState,
) -> Result<(Users, BTreeMap<ClusterId, OwnCluster>), DecodeError> {
    if state.dimension != empty.dimension() as u64 {
        return Err(DecodeError::invalid("state", "it has another dimension"));
    }
    let users = users.restored(state.users.clone(), &state.edges)?;
    let mut clusters = BTreeMap::new();
    for cluster in &state.clusters {
        clusters.insert(ClusterId(cluster.cluster), OwnCluster::restored(cluster.clone(), empty)?);
    }
    let sound = users.list.iter().all(|user| clusters.contains_key(&user.cluster))
        && clusters.keys().all(|cluster| cluster.0 < state.next_cluster);
    if sound {
        Ok((users, clusters))
    } else {
        Err(DecodeError::invalid("clusters", "not every user has one"))
    }
}
