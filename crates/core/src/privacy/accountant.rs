//! What was spent: every release of every stream that an interaction is in.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::error::DecodeError;
use crate::privacy::budget::Budget;
use crate::privacy::noise::StreamId;
use crate::wire::v1;

/// A release that the budget does not allow. Nothing was released.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exhausted {
    /// The stream has made all its releases; the number is their limit.
    #[error("all {0} releases of this stream are spent")]
    Releases(u64),
    /// The stream was never opened, or was closed.
    #[error("{0:?} is not open: nothing can be released from it")]
    Unknown(StreamId),
    /// The stream was opened before: its interactions may not enter a second one.
    #[error("{0:?} was opened before")]
    Again(StreamId),
}

/// Records the streams of one agent. Its interactions are in no other agent's streams, so a federation has lost what the
/// agent that lost most has.
#[derive(Clone, Debug, PartialEq)]
pub struct Accountant {
    budget: Budget,
    /// How many releases each open stream has made.
    open: BTreeMap<StreamId, u64>,
    /// The newest cluster that was ever opened: their numbers only grow.
    newest_cluster: Option<u64>,
    /// Streams that were ever opened.
    streams: u64,
    releases: u64,
    /// Most releases of a cluster and of a user, closed streams included.
    most_of_cluster: u64,
    most_of_user: u64,
}

impl Accountant {
    /// Returns an accountant of a run in which nothing was released yet.
    #[must_use]
    pub const fn new(budget: Budget) -> Self {
        Self {
            budget,
            open: BTreeMap::new(),
            newest_cluster: None,
            streams: 0,
            releases: 0,
            most_of_cluster: 0,
            most_of_user: 0,
        }
    }

    /// A stream opens over interactions that are in no other stream of its kind.
    pub fn open(&mut self, stream: StreamId) -> Result<(), Exhausted> {
        match stream {
            StreamId::Cluster(id) if self.newest_cluster.is_some_and(|newest| id <= newest) => {
                return Err(Exhausted::Again(stream));
            }
            StreamId::Cluster(id) => self.newest_cluster = Some(id),
            StreamId::User(_) if self.budget.user.is_none() => return Err(Exhausted::Unknown(stream)),
            StreamId::User(_) if self.open.contains_key(&stream) => return Err(Exhausted::Again(stream)),
            StreamId::User(_) => {}
        }
        self.open.insert(stream, 0);
        self.streams += 1;
        Ok(())
    }

    /// How often a stream of this kind may be released.
    fn limit(&self, stream: StreamId) -> u64 {
        match stream {
            StreamId::Cluster(_) => self.budget.cluster.factors.releases(),
            StreamId::User(_) => self.budget.user.as_ref().map_or(0, |share| share.factors.releases()),
        }
    }

    /// Whether a stream has a release left.
    #[must_use]
    pub fn has_release(&self, stream: StreamId) -> bool {
        self.open.get(&stream).is_some_and(|releases| *releases < self.limit(stream))
    }

    /// A stream is released once more, if that is allowed.
    pub fn release(&mut self, stream: StreamId) -> Result<(), Exhausted> {
        let most = self.limit(stream);
        let releases = self.open.get_mut(&stream).ok_or(Exhausted::Unknown(stream))?;
        if *releases >= most {
            return Err(Exhausted::Releases(most));
        }
        *releases += 1;
        let worst = match stream {
            StreamId::Cluster(_) => &mut self.most_of_cluster,
            StreamId::User(_) => &mut self.most_of_user,
        };
        *worst = (*worst).max(*releases);
        self.releases += 1;
        Ok(())
    }

    /// A cluster is not released any more. Users stay open for as long as their agent lives.
    pub fn close(&mut self, cluster: u64) {
        self.open.remove(&StreamId::Cluster(cluster));
    }

    /// μ that the unit that lost most has lost: in the stream of its cluster and in that of its user.
    #[must_use]
    pub fn mu(&self) -> f64 {
        let user = self.budget.user.as_ref().map_or(0.0, |share| share.loss(self.most_of_user));
        (self.budget.cluster.loss(self.most_of_cluster) + user).sqrt()
    }

    /// Streams that were ever opened, and releases of all of them.
    #[must_use]
    pub const fn totals(&self) -> (u64, u64) {
        (self.streams, self.releases)
    }

    /// Open clusters that have no release left.
    #[must_use]
    pub fn silent(&self) -> u64 {
        let clusters = self.open.keys().filter(|stream| matches!(stream, StreamId::Cluster(_)));
        clusters.filter(|stream| !self.has_release(**stream)).count() as u64
    }

    pub(crate) fn save(&self) -> v1::AccountantState {
        v1::AccountantState {
            newest_cluster: self.newest_cluster,
            streams: self.streams,
            releases: self.releases,
            most_of_cluster: self.most_of_cluster,
            most_of_user: self.most_of_user,
        }
    }

    /// Goes on from a saved state with these open streams and their releases, or changes nothing.
    pub(crate) fn restore(
        &mut self,
        state: &v1::AccountantState,
        open: BTreeMap<StreamId, u64>,
    ) -> Result<(), DecodeError> {
        let most = |cluster: bool| {
            let own = open.iter().filter(|(stream, _)| matches!(stream, StreamId::Cluster(_)) == cluster);
            own.map(|(_, releases)| *releases).max().unwrap_or(0)
        };
        let newest = open.keys().filter_map(|stream| match stream {
            StreamId::Cluster(id) => Some(*id),
            StreamId::User(_) => None,
        });
        let sound = most(true) <= state.most_of_cluster
            && most(false) <= state.most_of_user
            && newest.max() <= state.newest_cluster
            && open.values().sum::<u64>() <= state.releases;
        if !sound {
            return Err(DecodeError::invalid("privacy", "its accountant knows less than was released"));
        }
        self.open = open;
        self.newest_cluster = state.newest_cluster;
        (self.streams, self.releases) = (state.streams, state.releases);
        (self.most_of_cluster, self.most_of_user) = (state.most_of_cluster, state.most_of_user);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::{Mechanism, PrivacyConfig, conversion};
    use StreamId::{Cluster, User};

    fn accountant(max_releases: u64, splits: bool) -> Accountant {
        let config = PrivacyConfig { max_releases, mechanism: Mechanism::Tree, ..Default::default() };
        Accountant::new(Budget::new(&config, 10, splits))
    }

    /// The brute force: every leaf, every node of the tree that contains it.
    #[test]
    fn o19_what_is_spent_is_the_sum_over_nodes_that_contain_an_interaction() {
        for releases in 1..=16 {
            let mut accountant = accountant(16, false);
            accountant.open(Cluster(1)).unwrap();
            let mut nodes = Vec::new();
            for k in 1..=releases {
                accountant.release(Cluster(1)).unwrap();
                let level = u64::from(u64::trailing_zeros(k));
                nodes.push(((((k >> level) - 1) << level) + 1, k));
            }
            let worst = (1..=releases)
                .map(|leaf| nodes.iter().filter(|(first, last)| (*first..=*last).contains(&leaf)).count())
                .max()
                .unwrap();
            let expected = worst as f64 / 5.0 * accountant.budget.mu * accountant.budget.mu;
            let spent = accountant.mu() * accountant.mu();
            assert!((spent / expected - 1.0).abs() < 1e-9, "{releases}: {spent} is not {expected}");
        }
    }

    #[test]
    fn o19_the_budget_is_never_exceeded_and_release_number_max_plus_one_is_refused() {
        let mut accountant = accountant(16, true);
        accountant.open(User(7)).unwrap();
        (0..3).for_each(|_| accountant.release(User(7)).unwrap());
        assert_eq!(accountant.release(User(7)), Err(Exhausted::Releases(3)));
        for cluster in 1..=4 {
            accountant.open(Cluster(cluster)).unwrap();
            (0..16).for_each(|_| accountant.release(Cluster(cluster)).unwrap());
            assert_eq!(accountant.release(Cluster(cluster)), Err(Exhausted::Releases(16)));
        }
        let epsilon = conversion::gaussian_epsilon(accountant.mu(), 1e-5);
        assert!((epsilon - 1.0).abs() < 1e-6, "all of it is spent, once: {epsilon}");
        assert_eq!((accountant.totals(), accountant.silent()), ((5, 67), 4));
    }

    #[test]
    fn streams_that_are_not_open_release_nothing_and_closed_ones_never_open_again() {
        let mut accountant = accountant(4, false);
        let before = accountant.clone();
        assert_eq!(accountant.release(Cluster(1)), Err(Exhausted::Unknown(Cluster(1))));
        assert_eq!(accountant.open(User(1)), Err(Exhausted::Unknown(User(1))), "nothing was kept for users");
        assert_eq!(accountant, before);
        accountant.open(Cluster(2)).unwrap();
        accountant.release(Cluster(2)).unwrap();
        accountant.close(2);
        for cluster in [1, 2] {
            assert_eq!(accountant.open(Cluster(cluster)), Err(Exhausted::Again(Cluster(cluster))));
        }
        assert_eq!(accountant.release(Cluster(2)), Err(Exhausted::Unknown(Cluster(2))));
        assert!(accountant.mu() > 0.0, "what was released stays released");
    }

    #[test]
    fn a_restored_accountant_remembers_everything() {
        let mut one = accountant(4, true);
        one.open(Cluster(1)).unwrap();
        one.release(Cluster(1)).unwrap();
        one.close(1);
        one.open(Cluster(2)).unwrap();
        one.open(User(5)).unwrap();
        one.release(User(5)).unwrap();
        let mut other = accountant(4, true);
        other.restore(&one.save(), one.open.clone()).unwrap();
        assert_eq!(one, other);
        let more = BTreeMap::from([(Cluster(2), 3)]);
        other.restore(&one.save(), more).unwrap_err();
        assert_eq!(one, other, "nothing changed");
    }
}
