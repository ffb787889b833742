//! FCLUB, its agent: clusters of users that share with clusters of other agents. This one agent is FCLUB,
//! FCLUB-DC, CDP-FCLUB-DC, Homo, Homo-DC and every private linear algorithm; settings make the difference.
//!
//! Its coordinator is in [`groups`](super::groups).

use std::collections::BTreeMap;

use prost::Message;

use crate::agent::{Agent, AgentView, Choice, LocalCluster};
use crate::arms::Arms;
use crate::clustered::config::ClusterPlan;
use crate::clustered::local::Local;
use crate::clustered::message::{ClusterList, ClusterUpload, GroupSnapshot};
use crate::clustered::private::Private;
use crate::clustered::users::Users;
use crate::clustered::width::Noisy;
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation};
use crate::exchange::belief::Adopted;
use crate::federation::Federation;
use crate::ids::{AgentId, ClusterId, Incarnation, PhaseId, UserId};
use crate::message::{Downlink, Uplink};
use crate::privacy::response::Response;
use crate::privacy::{NoiseSource, PrivacyReport, Release, StreamId};
use crate::ridge::Ridge;
use crate::scoring::{Draws, check_arms, upper_confidence};
use crate::width::Width;
use crate::wire::{self, v1};

/// The cluster that every agent starts with, and that its first users belong to.
pub(crate) const FIRST: ClusterId = ClusterId(1);

/// An agent with clusters of users.
#[derive(Debug)]
pub(crate) struct ClusteredAgent {
    name: &'static str,
    model: Ridge,
    width: Width,
    /// α₁: how different two users must look to lose their edge. Not set: users are never separated.
    edge_scale: Option<f64>,
    ln_upload: f64,
    /// Releases are collected in rounds: an agent that is not due yet gives what it has, if that is worth a release.
    in_rounds: bool,
    /// The scale of Thompson sampling and its random numbers. Not set: choices are by upper confidence bounds.
    sampling: Option<(f64, Draws)>,
    private: Option<Private>,
    /// How rewards enter private sums. Not set: as they are.
    response: Option<Response>,
    users: Users,
    clusters: BTreeMap<ClusterId, Local>,
    next_cluster: u64,
    phase: PhaseId,
    choices: u64,
}

impl ClusteredAgent {
    pub(crate) fn new(
        plan: &ClusterPlan<'_>,
        id: AgentId,
        dimension: usize,
        federation: &Federation,
    ) -> Self {
        let model = plan.model.model(dimension);
        let mut private = Private::new(plan, id, dimension, federation.seed);
        if let Some(private) = &mut private {
            private.privatizer.open(StreamId::Cluster(FIRST.0)).expect("it is the first of its streams");
        }
        let first = Local::new(Evidence::none(dimension), &model, private.is_some());
        Self {
            name: plan.name,
            users: Users::new(dimension, model.regularization()),
            model,
            width: plan.model.width(),
            edge_scale: plan.clusters.map(|clusters| clusters.edge_scale.0),
            ln_upload: plan.upload.ln(),
            in_rounds: plan.rounds.is_some(),
            sampling: plan.sampling.map(|scale| (scale, Draws::new(id, federation.seed))),
            private,
            response: plan.response,
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
                let sums = match (&released.baseline, &released.said) {
                    // A part of a cluster that split says first what was released of its users before.
                    (Some(baseline), None) => baseline.clone(),
                    (baseline, _) => {
                        let next = own.privatizer.release_cluster(cluster.0);
                        let mut next = next.expect("the caller knows that there is one left");
                        if let Some(baseline) = baseline {
                            next.evidence.add(&baseline.evidence);
                            next.variance += baseline.variance;
                        }
                        next
                    }
                };
                // The number of its users' observations is public. It includes those whose sums are in no release.
                let evidence = sums.evidence.with_count(local.own.count());
                let sums = Release { evidence, variance: sums.variance };
                own.privatizer.note_signal(&sums);
                released.sent = local.own.clone();
                released.said = Some(sums.clone());
                let Release { evidence, variance } = sums;
                ClusterUpload {
                    cluster,
                    number,
                    based_on,
                    information: 0.0,
                    evidence,
                    released: true,
                    variance,
                    members: 1,
                }
            }
            _ => {
                let (evidence, variance) = (local.own.clone(), 0.0);
                let (released, members) = (false, 1);
                ClusterUpload {
                    cluster,
                    number,
                    based_on,
                    information,
                    evidence,
                    released,
                    variance,
                    members,
                }
            }
        }
    }

    /// A phase begins: tells apart who is not alike, and says what clusters there are.
    fn regroup(&mut self, phase: PhaseId) -> ClusterList {
        let pruned = self.edge_scale.is_some_and(|scale| match &mut self.private {
            None => self.users.prune_all(scale),
            Some(own) => own.tell_apart(&mut self.users, scale, &self.model),
        });
        if pruned {
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
                Some(own) => {
                    let new_part =
                        local.private.as_ref().is_some_and(|p| p.baseline.is_some() && p.said.is_none());
                    let (total, released) = (local.own.count(), local.released());
                    new_part
                        || own.privatizer.is_due(cluster.0, total, released)
                        || (self.in_rounds && own.privatizer.is_worth_a_round(cluster.0, total, released))
                }
            };
            if news && may {
                list.uploads.push(self.upload(cluster));
            } else {
                list.kept.push(cluster);
            }
        }
        list
    }

    /// Divides a cluster into the parts that still hang together.
    fn split(&mut self, cluster: ClusterId) {
        let users = self.users.of(cluster);
        let is_known =
            |&user: &usize| self.private.as_ref().is_none_or(|own| own.is_known(self.users.list[user].id.0));
        // Users who were never released have edges to all others, and would keep the graph in one piece for ever.
        let (known, unknown): (Vec<usize>, Vec<usize>) = users.into_iter().partition(is_known);
        let mut parts = self.users.graph.components(&known);
        if parts.len() < 2 {
            return;
        }
        let largest = parts.iter_mut().rev().max_by_key(|part| part.len()).expect("there are two at least");
        largest.extend(unknown);
        for part in parts {
            let id = ClusterId(self.next_cluster);
            self.next_cluster += 1;
            let own = self.users.sum(&part);
            part.iter().for_each(|&user| self.users.list[user].cluster = id);
            let mut local = Local::new(own, &self.model, self.private.is_some());
            if let (Some(private), Some(released)) = (&mut self.private, &mut local.private) {
                private.privatizer.open(StreamId::Cluster(id.0)).expect("its number is new");
                let users = part.iter().map(|&user| self.users.list[user].id.0);
                released.baseline = Some(private.baseline(users, self.model.dimension()));
            }
            self.clusters.insert(id, local);
        }
        self.clusters.remove(&cluster);
        if let Some(private) = &mut self.private {
            private.privatizer.close_cluster(cluster.0);
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
            *local = Local::new(local.own.clone(), &self.model, self.private.is_some());
            // What a private agent never released is not due because a coordinator asks.
            if self.private.is_none() && !local.own.is_empty() {
                list.uploads.push(self.upload(cluster));
            } else {
                list.kept.push(cluster);
            }
        }
        list
    }

    /// The last upload of a private cluster, once more and word for word: that costs nothing. A coordinator that asks again
    /// and again must not be able to spend the agent's releases.
    fn repeat_release(&mut self, cluster: ClusterId) -> Option<ClusterUpload> {
        let local = self.clusters.get_mut(&cluster)?;
        let released = local.private.clone()?;
        let Release { evidence, variance } = released.said.clone()?;
        *local = local.repeating(&released, &self.model);
        let (number, based_on) = (1, local.view.version());
        Some(ClusterUpload {
            cluster,
            number,
            based_on,
            information: 0.0,
            evidence,
            released: true,
            variance,
            members: 1,
        })
    }

    /// xᵀθ̂ with the released estimate of the user's cluster. It uses nothing that was not released.
    fn released_value(&self, user: UserId, arm: &[f64]) -> f64 {
        let released = self.clusters[&self.cluster_of(user)].private.as_ref();
        released.map_or(0.0, |released| released.chooser.estimate().iter().zip(arm).map(|(a, b)| a * b).sum())
    }

    /// The observation as it enters private sums; `None` where nothing is private. Rewards of a curve become those of a line after they
    /// and the features were cut, because the bound on the line holds for those within their own bounds.
    fn clipped(
        &mut self,
        user: UserId,
        arm: &[f64],
        reward: f64,
    ) -> Result<Option<(Vec<f64>, f64)>, InputError> {
        let Some(own) = &mut self.private else { return Ok(None) };
        let Some(response) = self.response else { return own.privatizer.intake.clip(arm, reward).map(Some) };
        let reward = own.privatizer.intake.clip_reward(reward, response.rewards)?;
        let (arm, _) = own.privatizer.intake.clip(arm, 0.0)?;
        let line = response.of(self.released_value(user, &arm), reward);
        self.private.as_mut().map(|own| own.privatizer.intake.clip(&arm, line)).transpose()
    }

    /// Adds an observation that was checked, and clipped where that is due, to all sums it belongs to.
    fn take_in_observation(&mut self, user: UserId, arm: &[f64], reward: f64) -> Option<Uplink> {
        let cluster = self.cluster_of(user);
        let place = self.users.find(user).unwrap_or_else(|| self.users.add(user, cluster));
        self.users.list[place].evidence.add_observation(arm, reward);
        let local = self.clusters.get_mut(&cluster).expect("users are in clusters that are there");
        local.own.add_observation(arm, reward);
        local.view.observe(arm, reward);
        self.upload_if_due(cluster)
    }

    fn take_in(&mut self, group: &GroupSnapshot) -> Result<Option<Uplink>, ProtocolError> {
        if group.snapshot.authoritative {
            return Err(ProtocolError::Evidence("a group's sums are never authoritative"));
        }
        if !(0.0..=1e250).contains(&group.variance) {
            return Err(ProtocolError::Evidence("the variance of its noise cannot be"));
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
            private.group = Noisy::of(local.view.base(), group.variance);
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
                let width = own.width.of(released.group);
                let raw = own.privatizer.uses_raw_buffer();
                let model = if raw { local.view.model() } else { &released.chooser };
                match &self.sampling {
                    None => upper_confidence(model, width, arms),
                    Some((scale, draws)) => draws.choose(scale * width, model, arms, self.choices),
                }
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
        let Some((arm, reward)) = self.clipped(user, arm, reward)? else {
            return Ok(self.take_in_observation(user, arm, reward));
        };
        let count = self.users.find(user).map_or(0, |place| self.users.list[place].evidence.count());
        let cluster = self.cluster_of(user);
        if let Some(own) = &mut self.private {
            if !own.privatizer.intake.admits(count) {
                return Ok(None);
            }
            own.privatizer.observe(cluster.0, user.0, &arm, reward);
        }
        Ok(self.take_in_observation(user, &arm, reward))
    }

    fn give_up(&mut self, user: UserId) -> Option<Uplink> {
        let count = self.users.find(user).map_or(0, |place| self.users.list[place].evidence.count());
        let cluster = self.cluster_of(user);
        let own = self.private.as_mut()?;
        if !own.privatizer.intake.admits(count) {
            return None;
        }
        own.privatizer.observe_nothing(cluster.0, user.0);
        self.take_in_observation(user, &vec![0.0; self.model.dimension()], 0.0)
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
        self.private.as_ref().map(|own| own.privatizer.report(self.users.most()))
    }

    fn use_noise(&mut self, noise: Box<dyn NoiseSource>) {
        if let Some(private) = &mut self.private {
            private.privatizer.intake.noise = noise;
        }
    }

    fn begin_life(&mut self, life: Incarnation) {
        if let Some(private) = &mut self.private {
            private.privatizer.intake.begin_life(life);
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
            private.privatizer.restore(state.privacy.unwrap_or_default(), clusters.keys().map(|id| id.0))?;
        }
        (self.users, self.clusters) = (users, clusters);
        self.next_cluster = state.next_cluster;
        self.phase = PhaseId(state.phase);
        self.choices = state.choices;
        Ok(())
    }
}
