//! What stands between an agent's observations and the coordinator: streams of releases with noise, and the accountant.

use std::collections::BTreeMap;

use crate::error::DecodeError;
use crate::ids::AgentId;
use crate::privacy::accountant::{Accountant, Exhausted};
use crate::privacy::budget::{Budget, Share};
use crate::privacy::config::PrivacyConfig;
use crate::privacy::intake::{Intake, Spent};
use crate::privacy::noise::StreamId;
use crate::privacy::repair::smallest_eigenvalue;
use crate::privacy::report::PrivacyReport;
use crate::privacy::stream::{Release, ReleaseStream};
use crate::random::Seed;
use crate::wire::v1;

/// The private side of an agent: nothing leaves it but releases of its streams.
///
/// Its state must be kept before a release is sent: an agent that forgot a measurement and drew it again would release
/// the same sums twice.
#[derive(Debug)]
pub(crate) struct Privatizer {
    pub(crate) intake: Intake,
    budget: Budget,
    dimension: usize,
    accountant: Accountant,
    streams: BTreeMap<StreamId, ReleaseStream>,
}

impl Privatizer {
    pub(crate) fn new(
        config: &PrivacyConfig,
        budget: Budget,
        dimension: usize,
        id: AgentId,
        seed: Seed,
    ) -> Self {
        Self {
            intake: Intake::new(config, id, seed),
            dimension,
            accountant: Accountant::new(budget.clone()),
            budget,
            streams: BTreeMap::new(),
        }
    }

    pub(crate) const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// A stream begins, over interactions that are in no other stream of its kind.
    pub(crate) fn open(&mut self, stream: StreamId) -> Result<(), Exhausted> {
        self.accountant.open(stream)?;
        self.streams.insert(stream, ReleaseStream::new(stream, self.dimension));
        Ok(())
    }

    pub(crate) fn close_cluster(&mut self, cluster: u64) {
        self.accountant.close(cluster);
        self.streams.remove(&StreamId::Cluster(cluster));
    }

    /// Adds an observation of `user` that was clipped before to the stream of its cluster and to its own.
    pub(crate) fn observe(&mut self, cluster: u64, user: u64, x: &[f64], y: f64) {
        let units = self.intake.units;
        self.for_streams_of(cluster, user, |stream| stream.add(units, x, y));
    }

    /// Counts an interaction without a reward, so that counts do not tell it from others.
    pub(crate) fn observe_nothing(&mut self, cluster: u64, user: u64) {
        self.for_streams_of(cluster, user, ReleaseStream::add_nothing);
    }

    fn for_streams_of(&mut self, cluster: u64, user: u64, mut take_in: impl FnMut(&mut ReleaseStream)) {
        let of_user = StreamId::User(user);
        if self.budget.user.is_some() && !self.streams.contains_key(&of_user) {
            self.open(of_user).expect("a user who is not there was never opened");
        }
        for id in [StreamId::Cluster(cluster), of_user] {
            self.streams.get_mut(&id).into_iter().for_each(&mut take_in);
        }
    }

    /// Whether a cluster of `total` observations, `released` of which were released, should and may be
    /// released again.
    pub(crate) fn is_due(&self, cluster: u64, total: u64, released: u64) -> bool {
        self.accountant.has_release(StreamId::Cluster(cluster)) && self.intake.config.is_due(total, released)
    }

    /// Whether a cluster that others wait for should and may be released. What has grown by less than half of what makes a
    /// release due is not: a coordinator that calls rounds again and again must not be able to spend the agent's releases.
    pub(crate) fn is_worth_a_round(&self, cluster: u64, total: u64, released: u64) -> bool {
        self.accountant.has_release(StreamId::Cluster(cluster))
            && self.intake.config.is_half_due(total, released)
    }

    pub(crate) const fn uses_raw_buffer(&self) -> bool {
        self.intake.config.raw_buffer
    }

    fn share(&self, stream: StreamId) -> Option<&Share> {
        match stream {
            StreamId::Cluster(_) => Some(&self.budget.cluster),
            StreamId::User(_) => self.budget.user.as_ref(),
        }
    }

    /// The next release of a stream, or an error if there is none left.
    fn release(&mut self, stream: StreamId) -> Result<Release, Exhausted> {
        self.accountant.release(stream)?;
        let share = match stream {
            StreamId::Cluster(_) => Some(&self.budget.cluster),
            StreamId::User(_) => self.budget.user.as_ref(),
        };
        let own = self.streams.get_mut(&stream).expect("the accountant knows the same streams");
        let share = share.expect("the accountant opens no stream without a share");
        let release = own.release(share, self.intake.units, &mut *self.intake.noise);
        Ok(release.expect("the accountant counts the same releases"))
    }

    /// Makes the next release of a cluster's stream. Fails if the stream has none left.
    pub(crate) fn release_cluster(&mut self, cluster: u64) -> Result<Release, Exhausted> {
        self.release(StreamId::Cluster(cluster))
    }

    /// Notes how far the data in what was just uploaded are above the noise. It looks at sums with noise only, so
    /// that the result may be published.
    pub(crate) fn note_signal(&mut self, uploaded: &Release) {
        let lowest = smallest_eigenvalue(uploaded.evidence.gram(), self.dimension);
        self.intake.signal_to_noise = Some(lowest / self.budget.matrix_bound(uploaded.variance));
    }

    /// Releases the sums of every user that is due, in the order of users.
    pub(crate) fn release_users(&mut self, users: impl Iterator<Item = (u64, u64)>) {
        for (user, count) in users {
            let stream = StreamId::User(user);
            let released = self.last_of_user(user).map_or(0, |last| last.evidence.count());
            if self.accountant.has_release(stream) && self.intake.config.is_edge_due(count, released) {
                self.release(stream).expect("it was asked whether there is one left");
            }
        }
    }

    /// The newest release of a user's sums.
    pub(crate) fn last_of_user(&self, user: u64) -> Option<Release> {
        let stream = StreamId::User(user);
        self.streams.get(&stream)?.last(self.share(stream)?, self.intake.units)
    }

    pub(crate) fn report(&self, most_of_a_user: u64) -> PrivacyReport {
        let (streams, releases) = self.accountant.totals();
        let spent = Spent {
            mu: self.accountant.mu(),
            calibration: self.budget.calibration(),
            secure_aggregation: None,
            streams,
            releases,
            silent: self.accountant.silent(),
            interactive: !self.intake.config.raw_buffer,
            private_partition: self.budget.user.is_some(),
        };
        self.intake.report(&spent, most_of_a_user)
    }

    pub(crate) fn save(&self) -> v1::PrivacyState {
        v1::PrivacyState {
            accountant: Some(self.accountant.save()),
            streams: self.streams.values().map(ReleaseStream::save).collect(),
            clipped: self.intake.clipped,
            beyond_cap: self.intake.beyond_cap,
            signal_to_noise: self.intake.signal_to_noise,
        }
    }

    /// Goes on from a saved state of an agent with these clusters, or changes nothing.
    pub(crate) fn restore(
        &mut self,
        state: v1::PrivacyState,
        clusters: impl Iterator<Item = u64>,
    ) -> Result<(), DecodeError> {
        let mut streams = BTreeMap::new();
        for stream in state.streams {
            let share = if stream.user { self.budget.user.as_ref() } else { Some(&self.budget.cluster) };
            let share = share.ok_or(DecodeError::invalid("privacy", "users are not released here"))?;
            let stream = ReleaseStream::restored(stream, self.dimension, share.factors.releases())?;
            streams.insert(stream.id(), stream);
        }
        let accountant = state.accountant.ok_or(DecodeError::invalid("privacy", "it has no accountant"))?;
        let own = streams.keys().filter_map(|stream| match stream {
            StreamId::Cluster(id) => Some(*id),
            StreamId::User(_) => None,
        });
        if !own.eq(clusters) {
            return Err(DecodeError::invalid("privacy", "its streams are not those of its clusters"));
        }
        let open = streams.iter().map(|(id, stream)| (*id, stream.released())).collect();
        self.accountant.restore(&accountant, open)?;
        self.streams = streams;
        (self.intake.clipped, self.intake.beyond_cap) = (state.clipped, state.beyond_cap);
        self.intake.signal_to_noise = state.signal_to_noise;
        Ok(())
    }
}
