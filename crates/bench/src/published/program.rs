//! Which published programs are known, and what they are called.

use crate::{Effort, Suite};

/// A repository of a paper's authors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repository {
    /// `async-lin-ucb`, `async-lin-ucb-am` and `sync-lin-ucb`.
    AsyncLinUcb,
    /// `fed-glb-ucb`, its variants, and what its paper compares them with.
    FedGlbUcb,
}

impl Repository {
    /// All that are known.
    pub const ALL: [Self; 2] = [Self::AsyncLinUcb, Self::FedGlbUcb];

    /// The directory that `git clone` makes.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AsyncLinUcb => "Async-LinUCB",
            Self::FedGlbUcb => "FedGLB-UCB",
        }
    }

    pub(super) fn url(self) -> String {
        format!("https://github.com/cyrilli/{}", self.name())
    }

    /// The suite whose rows its programs are compared with.
    pub(super) const fn suite(self) -> Suite {
        match self {
            Self::AsyncLinUcb => Suite::Simulation,
            Self::FedGlbUcb => Suite::Families,
        }
    }

    /// The modules that hold its simulations.
    pub(super) const fn scripts(self) -> &'static [&'static str] {
        match self {
            Self::AsyncLinUcb => &["SimulationHomogeneousClients", "SimulationHeterogeneousClients"],
            Self::FedGlbUcb => &["RunSyntheticDataset"],
        }
    }
}

/// One algorithm of a repository with the setting of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(super) repository: Repository,
    /// The authors' class.
    pub(super) algorithm: &'static str,
    /// Its threshold, or every how many interactions there is a round; zero if it has neither.
    pub(super) setting: f64,
    /// How many interactions it has at most, in a quick run and in a full one.
    most: [u64; 2],
}

impl Program {
    /// Of the paper on asynchronous linear bandits.
    pub(crate) const fn linear(algorithm: &'static str, threshold: f64) -> Self {
        let repository = Repository::AsyncLinUcb;
        Self { repository, algorithm, setting: threshold, most: [u64::MAX; 2] }
    }

    /// Of the paper on federated generalized linear bandits.
    pub(crate) const fn clicks(algorithm: &'static str, setting: f64) -> Self {
        Self { repository: Repository::FedGlbUcb, algorithm, setting, most: [u64::MAX; 2] }
    }

    /// For a program that takes too long: how many interactions it has in a quick run and in a full one.
    pub(crate) const fn at_most(self, quick: u64, full: u64) -> Self {
        Self { most: [quick, full], ..self }
    }

    /// How many interactions both sides have where ours would have `own`.
    pub(crate) fn interactions(&self, own: u64, effort: Effort) -> u64 {
        let [quick, full] = self.most;
        own.min(if effort == Effort::Quick { quick } else { full })
    }

    /// The authors' module with the world of this algorithm.
    pub(super) fn script(&self) -> &'static str {
        match (self.repository, self.algorithm) {
            (Repository::FedGlbUcb, _) => "RunSyntheticDataset",
            // Agents that differ in some of their parameters.
            (_, "AsyncLinUCB_AM") => "SimulationHeterogeneousClients",
            _ => "SimulationHomogeneousClients",
        }
    }
}
