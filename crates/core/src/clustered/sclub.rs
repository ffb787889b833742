//! SCLUB: clusters that split user by user and merge again, each agent for itself.
//!
//! Time goes in stages of 2, 4, 8 … interactions of this agent. In a stage, a user who was served leaves its
//! cluster if it is too far from what the cluster was when the stage began, or comes too much more often
//! than another of its users. Clusters all of whose users were served merge if they are alike.

use std::collections::BTreeMap;

use prost::Message;

use crate::agent::{Agent, AgentView, Choice, LocalCluster};
use crate::arms::Arms;
use crate::clustered::club::{describe, restored};
use crate::clustered::config::Sclub;
use crate::clustered::own::OwnCluster;
use crate::clustered::users::{Users, distance_squared, radius};
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation};
use crate::ids::{ClusterId, UserId};
use crate::message::{Downlink, Uplink};
use crate::ridge::Ridge;
use crate::scoring::{check_arms, upper_confidence};
use crate::width::Width;
use crate::wire::{self, v1};

/// An agent with clusters that split and merge.
#[derive(Clone, Debug)]
pub(crate) struct SclubAgent {
    empty: Ridge,
    nothing: Evidence,
    width: Width,
    edge_scale: f64,
    frequency_scale: f64,
    merges: bool,
    users: Users,
    clusters: BTreeMap<ClusterId, OwnCluster>,
    next_cluster: u64,
    choices: u64,
    /// How many interactions the agent has learned from so far.
    time: u64,
    stage: u32,
    /// Interactions left in the stage.
    stage_left: u64,
}

impl Sclub {
    pub(crate) fn agent(&self, dimension: usize) -> SclubAgent {
        let empty = self.model.model(dimension);
        SclubAgent {
            users: Users::new(dimension, empty.regularization()),
            nothing: Evidence::none(dimension),
            empty,
            width: self.model.width(),
            edge_scale: self.edge_scale.0,
            frequency_scale: self.frequency_scale.0,
            merges: self.merge,
            clusters: BTreeMap::new(),
            next_cluster: 1,
            choices: 0,
            time: 0,
            stage: 0,
            stage_left: 0,
        }
    }
}

impl SclubAgent {
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        if let Some(place) = self.users.find(user) {
            return Some(self.users.list[place].cluster);
        }
        let best = self.clusters.iter().rev().max_by_key(|(_, cluster)| cluster.evidence.count());
        best.map(|(id, _)| *id)
    }

    fn open(&mut self, cluster: OwnCluster) -> ClusterId {
        let id = ClusterId(self.next_cluster);
        self.next_cluster += 1;
        self.clusters.insert(id, cluster);
        id
    }

    /// Begins a stage if the last one is over.
    fn begin_stage_if_due(&mut self) {
        if self.stage_left > 0 {
            return;
        }
        self.stage += 1;
        self.stage_left = 1_u64.checked_shl(self.stage).unwrap_or(u64::MAX);
        self.users.list.iter_mut().for_each(|user| user.checked = false);
        for cluster in self.clusters.values_mut() {
            cluster.stage_estimate = cluster.model.estimate();
            cluster.stage_count = cluster.evidence.count();
        }
    }

    /// Whether a user who was just served does not belong to its cluster.
    fn is_out_of_place(&self, user: usize) -> bool {
        let own = &self.users.list[user];
        let cluster = &self.clusters[&own.cluster];
        let far = self.edge_scale * (radius(own.evidence.count()) + radius(cluster.stage_count));
        if distance_squared(&own.estimate, &cluster.stage_estimate) > far * far {
            return true;
        }
        let share = |count: u64| count as f64 / self.time as f64;
        let apart = 2.0 * self.frequency_scale * radius(self.time);
        self.users.of(own.cluster).into_iter().any(|other| {
            (share(own.evidence.count()) - share(self.users.list[other].evidence.count())).abs() > apart
        })
    }

    /// Takes a user out of its cluster, if it is not alone there.
    fn split(&mut self, user: usize) {
        let old = self.users.list[user].cluster;
        let others: Vec<usize> = self.users.of(old).into_iter().filter(|&other| other != user).collect();
        if others.is_empty() {
            return;
        }
        let (stage_estimate, stage_count) = {
            let left = self.clusters.get_mut(&old).expect("users are in clusters that are there");
            let (estimate, count) = (left.stage_estimate.clone(), left.stage_count);
            *left = OwnCluster::new(self.users.sum(&others), &self.empty);
            (left.stage_estimate, left.stage_count) = (estimate.clone(), count);
            (estimate, count)
        };
        let alone = OwnCluster::new(self.users.list[user].evidence.clone(), &self.empty);
        let id = self.open(OwnCluster { stage_estimate, stage_count, ..alone });
        self.users.list[user].cluster = id;
    }

    /// Merges clusters that are alike, the lowest first, until there are none.
    fn merge(&mut self) {
        let mut ready: Vec<(ClusterId, Vec<f64>, u64, f64)> = Vec::new();
        for (id, cluster) in &self.clusters {
            let users = self.users.of(*id);
            if users.iter().all(|&user| self.users.list[user].checked) && !users.is_empty() {
                let count = cluster.evidence.count();
                let often = count as f64 / (users.len() as f64 * self.time as f64);
                ready.push((*id, cluster.model.estimate(), count, often));
            }
        }
        let apart = self.frequency_scale * radius(self.time);
        let half = 0.5 * self.edge_scale;
        for (place, (one, a, a_count, a_often)) in ready.iter().enumerate() {
            for (other, b, b_count, b_often) in &ready[place + 1..] {
                let near = half * (radius(*a_count) + radius(*b_count));
                if distance_squared(a, b) < near * near && (a_often - b_often).abs() < apart {
                    let (one, other) = (*one, *other);
                    self.join(one, other);
                    return self.merge();
                }
            }
        }
    }

    fn join(&mut self, one: ClusterId, other: ClusterId) {
        self.clusters.remove(&other);
        for user in self.users.of(other) {
            self.users.list[user].cluster = one;
        }
        let sum = self.users.sum(&self.users.of(one));
        self.clusters.insert(one, OwnCluster::new(sum, &self.empty));
    }
}

impl Agent for SclubAgent {
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
        self.begin_stage_if_due();
        (self.time, self.stage_left) = (self.time + 1, self.stage_left - 1);
        let first = || OwnCluster::new(self.nothing.clone(), &self.empty);
        let cluster = match self.cluster_of(user) {
            Some(cluster) => cluster,
            None => {
                let first = first();
                self.open(first)
            }
        };
        let place = self.users.find(user).unwrap_or_else(|| self.users.add(user, cluster));
        self.users.list[place].evidence.add_observation(arm, reward);
        self.users.list[place].checked = true;
        self.users.estimate(place);
        let own = self.clusters.get_mut(&cluster).expect("users are in clusters that are there");
        own.observe(arm, reward);
        if self.is_out_of_place(place) {
            self.split(place);
        }
        if self.merges && self.clusters.len() > 1 {
            self.merge();
        }
        Ok(None)
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        Err(ProtocolError::Unexpected { algorithm: "sclub", message: message.kind() })
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
            time: self.time,
            stage: self.stage,
            stage_left: self.stage_left,
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
        (self.choices, self.time) = (state.choices, state.time);
        (self.stage, self.stage_left) = (state.stage, state.stage_left);
        Ok(())
    }
}
