//! FCLUB, its agent: clusters of users that share with clusters of other agents. This one agent is FCLUB,
//! FCLUB-DC, CDP-FCLUB-DC, Homo, Homo-DC and private Async-LinUCB; settings make the difference.
//!
//! Its coordinator is in [`groups`](super::groups).

use std::collections::BTreeMap;

use prost::Message;

use crate::agent::{Agent, AgentView, Choice, LocalCluster};
use crate::arms::Arms;
use crate::clustered::config::Plan;
use crate::clustered::local::Local;
use crate::clustered::message::{ClusterList, ClusterUpload, GroupSnapshot};
use crate::clustered::users::Users;
use crate::clustered::width::PrivateWidth;
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation};
use crate::exchange::view::Adopted;
use crate::federation::Federation;
use crate::ids::{AgentId, ClusterId, Incarnation, PhaseId, UserId};
use crate::message::{Downlink, Uplink};
use crate::privacy::privatizer::Privatizer;
use crate::privacy::{NoiseSource, PrivacyReport};
use crate::ridge::Ridge;
use crate::scoring::{check_arms, upper_confidence};
use crate::width::Width;
use crate::wire::{self, v1};

/// The cluster that every agent starts with, whoever its users are.
pub(crate) const FIRST: ClusterId = ClusterId(1);

/// An agent with clusters of users.
#[derive(Debug)]
pub(crate) struct ClusteredAgent {
    name: &'static str,
    model: Ridge,
    width: Width,
    /// α₁; not set if nobody is ever told apart.
    edge_scale: Option<f64>,
    ln_upload: f64,
    private: Option<Private>,
    users: Users,
    clusters: BTreeMap<ClusterId, Local>,
    next_cluster: u64,
    phase: PhaseId,
    choices: u64,
}

/// What a private agent has besides.
#[derive(Debug)]
struct Private {
    privatizer: Privatizer,
    width: PrivateWidth,
}

impl ClusteredAgent {
    pub(crate) fn new(plan: &Plan<'_>, id: AgentId, dimension: usize, federation: &Federation) -> Self {
        let model = plan.model.model(dimension);
        let private = plan.privacy.map(|privacy| {
            let mut privatizer = Privatizer::new(privacy, dimension, id, federation.seed);
            privatizer.open(FIRST.0, None).expect("a budget has room for one tree");
            Private { privatizer, width: PrivateWidth::new(plan.model, privacy, dimension) }
        });
        let first = Local::new(Evidence::none(dimension), &model, private.is_some());
        Self {
            name: plan.name,
            users: Users::new(dimension, model.regularization()),
            model,
            width: plan.model.width(),
            edge_scale: plan.clusters.map(|clusters| clusters.edge_scale.0),
            ln_upload: plan.upload.ln(),
            private,
            clusters: BTreeMap::from([(FIRST, first)]),
            next_cluster: FIRST.0 + 1,
            phase: PhaseId(1),
            choices: 0,
        }
    }

    /// The cluster of a user; of one who was never seen, the cluster that is known best.
    fn cluster_of(&self, user: UserId) -> ClusterId {
        if let Some(place) = self.users.find(user) {
            return self.users.list[place].cluster;
        }
        let best = self.clusters.iter().rev().max_by_key(|(_, local)| local.own.count());
        *best.expect("there is always a cluster").0
    }

    /// The next upload of a cluster, if it is due and none is on its way.
    fn upload_if_due(&mut self, cluster: ClusterId) -> Option<Uplink> {
        let local = self.clusters.get(&cluster)?;
        if local.view.is_sending() {
            return None;
        }
        let due = match &self.private {
            None => !local.view.buffer().is_empty() && local.view.fresh_information() >= self.ln_upload,
            Some(own) => own.privatizer.is_due(cluster.0, local.own.count(), local.released()),
        };
        due.then(|| Uplink::Cluster(self.upload(cluster)))
    }

    /// The sums of a cluster as they leave: exactly, or released with noise.
    fn upload(&mut self, cluster: ClusterId) -> ClusterUpload {
        let local = self.clusters.get_mut(&cluster).expect("the caller has it");
        let (number, based_on, information) = local.view.send_inside();
        match (&mut self.private, &mut local.private) {
            (Some(own), Some(released)) => {
                let evidence = own.privatizer.release(cluster.0, &local.own);
                let evidence = evidence.expect("the caller knows that there is one left");
                released.sent = local.own.clone();
                ClusterUpload { cluster, number, based_on, information: 0.0, evidence, released: true }
            }
            _ => {
                let evidence = local.own.clone();
                ClusterUpload { cluster, number, based_on, information, evidence, released: false }
            }
        }
    }

    /// A phase begins: tells apart who is not alike, and says what clusters there are.
    fn regroup(&mut self, phase: PhaseId) -> ClusterList {
        if let Some(scale) = self.edge_scale
            && self.users.prune_all(scale)
        {
            let clusters: Vec<ClusterId> = self.clusters.keys().copied().collect();
            clusters.into_iter().for_each(|cluster| self.split(cluster));
        }
        let mut list = ClusterList { phase, kept: Vec::new(), uploads: Vec::new() };
        let clusters: Vec<ClusterId> = self.clusters.keys().copied().collect();
        for cluster in clusters {
            let local = &self.clusters[&cluster];
            let news = !local.view.buffer().is_empty() && !local.view.is_sending();
            let may = match &self.private {
                None => true,
                Some(own) => own.privatizer.is_due(cluster.0, local.own.count(), local.released()),
            };
            if news && may {
                list.uploads.push(self.upload(cluster));
            } else {
                list.kept.push(cluster);
            }
        }
        list
    }

    /// Divides a cluster into the parts that still hang together, if it may be divided.
    fn split(&mut self, cluster: ClusterId) {
        let users = self.users.of(cluster);
        let parts = self.users.graph.components(&users);
        let may = self.private.as_ref().is_none_or(|own| own.privatizer.may_split(cluster.0));
        if parts.len() < 2 || !may {
            return;
        }
        for part in parts {
            let id = ClusterId(self.next_cluster);
            self.next_cluster += 1;
            let own = self.users.sum(&part);
            part.iter().for_each(|&user| self.users.list[user].cluster = id);
            if let Some(private) = &mut self.private {
                private.privatizer.open(id.0, Some(cluster.0)).expect("it was asked whether it may");
            }
            self.clusters.insert(id, Local::new(own, &self.model, self.private.is_some()));
        }
        self.clusters.remove(&cluster);
        if let Some(private) = &mut self.private {
            private.privatizer.close(cluster.0);
        }
    }

    /// The coordinator lost part of its history: everything from the beginning.
    fn say_again(&mut self, phase: PhaseId) -> ClusterList {
        let mut list = ClusterList { phase, kept: Vec::new(), uploads: Vec::new() };
        let clusters: Vec<ClusterId> = self.clusters.keys().copied().collect();
        for cluster in clusters {
            if let Some(upload) = self.repeat_release(cluster) {
                list.uploads.push(upload);
                continue;
            }
            let local = self.clusters.get_mut(&cluster).expect("it was just listed");
            let may = self.private.is_none() || local.released() > 0;
            *local = Local::new(local.own.clone(), &self.model, self.private.is_some());
            if may && !local.own.is_empty() {
                list.uploads.push(self.upload(cluster));
            } else {
                list.kept.push(cluster);
            }
        }
        list
    }

    /// The last release of a cluster that has none left, once more and word for word: that costs nothing.
    fn repeat_release(&mut self, cluster: ClusterId) -> Option<ClusterUpload> {
        let privatizer = &self.private.as_ref()?.privatizer;
        let local = self.clusters.get_mut(&cluster)?;
        if privatizer.has_release(cluster.0) {
            return None;
        }
        let evidence = privatizer.last(cluster.0)?.clone();
        let released = local.private.clone().expect("in a private agent every cluster is");
        *local = local.repeating(&released, &self.model);
        let (number, based_on) = (1, local.view.version());
        Some(ClusterUpload { cluster, number, based_on, information: 0.0, evidence, released: true })
    }

    fn take_in(&mut self, group: &GroupSnapshot) -> Result<Option<Uplink>, ProtocolError> {
        if group.snapshot.authoritative {
            return Err(ProtocolError::Evidence("a group's sums are never authoritative"));
        }
        // It was divided while the message was on its way: its parts have said so.
        let Some(local) = self.clusters.get_mut(&group.cluster) else { return Ok(None) };
        let adopted = local.view.adopt(&group.snapshot)?;
        if matches!(adopted, Adopted::Stale) {
            return Ok(None);
        }
        local.members = group.members;
        if let Some(private) = &mut local.private {
            private
                .chooser
                .refresh_to(local.view.base())
                .expect("a base is factorised before it is accepted");
        }
        Ok(match adopted {
            Adopted::WithUpload => self.upload_if_due(group.cluster),
            _ => None,
        })
    }
}

impl Agent for ClusteredAgent {
    fn choose(&mut self, user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.model.dimension(), arms)?;
        let local = &self.clusters[&self.cluster_of(user)];
        let choice = match (&self.private, &local.private) {
            (Some(own), Some(released)) => {
                let width = own.width.of(local.members, local.view.base().count());
                let raw = own.privatizer.uses_raw_buffer();
                upper_confidence(if raw { local.view.model() } else { &released.chooser }, width, arms)
            }
            _ => {
                let model = local.view.model();
                upper_confidence(model, self.width.of(model, local.view.count()), arms)
            }
        }?;
        self.choices += 1;
        Ok(choice)
    }

    fn learn(&mut self, user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_observation(self.model.dimension(), arm, reward)?;
        let clipped = self.private.as_mut().map(|own| own.privatizer.clip(arm, reward)).transpose()?;
        let (arm, reward) = clipped.as_ref().map_or((arm, reward), |(arm, reward)| (arm.as_slice(), *reward));
        let cluster = self.cluster_of(user);
        let place = self.users.find(user).unwrap_or_else(|| self.users.add(user, cluster));
        self.users.list[place].evidence.add_observation(arm, reward);
        let local = self.clusters.get_mut(&cluster).expect("users are in clusters that are there");
        local.own.add_observation(arm, reward);
        local.view.observe(arm, reward);
        Ok(self.upload_if_due(cluster))
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        match message {
            Downlink::ClusterReceipt { cluster, number, version } if self.private.is_none() => {
                let news = self.clusters.get_mut(&cluster).map(|c| c.view.acknowledge(number, version));
                Ok(if news == Some(true) { self.upload_if_due(cluster) } else { None })
            }
            Downlink::Group(group) => self.take_in(&group),
            Downlink::Regroup { phase, anew: true } => {
                self.phase = phase;
                Ok(Some(Uplink::Clusters(self.say_again(phase))))
            }
            Downlink::Regroup { phase, anew: false } => {
                if phase <= self.phase {
                    return Ok(None);
                }
                self.phase = phase;
                Ok(Some(Uplink::Clusters(self.regroup(phase))))
            }
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
        }
    }

    fn inspect(&self) -> AgentView<'_> {
        let (first, local) = self.clusters.first_key_value().expect("there is always a cluster");
        let model = match (&self.private, &local.private) {
            (Some(own), Some(released)) if !own.privatizer.uses_raw_buffer() => &released.chooser,
            _ => local.view.model(),
        };
        let mut view = local.view.inspect_with(model);
        // What the others hold is told as a number; `clusters` has it one by one.
        let others = self.clusters.iter().filter(|(cluster, _)| *cluster != first);
        view.withheld = others
            .map(|(_, other)| other.view.buffer().count() + other.view.in_flight().map_or(0, Evidence::count))
            .sum();
        view
    }

    fn clusters(&self) -> Vec<LocalCluster> {
        let mut users: BTreeMap<ClusterId, Vec<UserId>> = BTreeMap::new();
        for user in &self.users.list {
            users.entry(user.cluster).or_default().push(user.id);
        }
        let all = self.clusters.iter();
        all.map(|(id, local)| local.describe(*id, users.remove(id).unwrap_or_default())).collect()
    }

    fn privacy(&self) -> Option<PrivacyReport> {
        self.private.as_ref().map(|own| {
            let mut report = own.privatizer.report(self.users.most());
            report.splits = self.edge_scale.is_some_and(f64::is_finite);
            report
        })
    }

    fn use_noise(&mut self, noise: Box<dyn NoiseSource>) {
        if let Some(private) = &mut self.private {
            private.privatizer.use_noise(noise);
        }
    }

    fn begin_life(&mut self, life: Incarnation) {
        if let Some(private) = &mut self.private {
            private.privatizer.begin_life(life);
        }
    }

    fn save(&self) -> Vec<u8> {
        let (users, edges) = self.users.save();
        v1::ClusteredAgentState {
            choices: self.choices,
            users,
            edges,
            clusters: self.clusters.iter().map(|(id, local)| local.save(*id)).collect(),
            next_cluster: self.next_cluster,
            phase: self.phase.0,
            privacy: self.private.as_ref().map(|own| own.privatizer.save()),
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::ClusteredAgentState = wire::decode(state)?;
        let users = self.users.restored(state.users, &state.edges)?;
        let mut clusters = BTreeMap::new();
        for cluster in state.clusters {
            let id = ClusterId(cluster.cluster);
            clusters.insert(id, Local::restored(cluster, &self.model, self.private.is_some())?);
        }
        let sound = users.list.iter().all(|user| clusters.contains_key(&user.cluster))
            && clusters.keys().all(|cluster| cluster.0 < state.next_cluster);
        if clusters.is_empty() || !sound {
            return Err(DecodeError::invalid("clusters", "not every user has one"));
        }
        if let Some(private) = &mut self.private {
            private.privatizer.restore(state.privacy.unwrap_or_default())?;
        }
        (self.users, self.clusters) = (users, clusters);
        self.next_cluster = state.next_cluster;
        self.phase = PhaseId(state.phase);
        self.choices = state.choices;
        Ok(())
    }
}
