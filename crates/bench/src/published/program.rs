//! Which published programs are known, and what they are called.

use crate::{Effort, Suite};

/// A repository of a paper's authors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repository {
    /// `async-lin-ucb`, `async-lin-ucb-am` and `sync-lin-ucb`.
    AsyncLinUcb,
    /// `fed-glb-ucb`, its variants, and what its paper compares them with.
    FedGlbUcb,
    /// `fclub` and `fclub-dc`.
    FederatedClustering,
}

impl Repository {
    /// All that are known.
    pub const ALL: [Self; 3] = [Self::AsyncLinUcb, Self::FedGlbUcb, Self::FederatedClustering];

    /// The directory that `git clone` makes.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AsyncLinUcb => "Async-LinUCB",
            Self::FedGlbUcb => "FedGLB-UCB",
            Self::FederatedClustering => "Federated-Clustering-of-Bandits",
        }
    }

    pub(super) const fn url(self) -> &'static str {
        match self {
            Self::AsyncLinUcb => "https://github.com/cyrilli/Async-LinUCB",
            Self::FedGlbUcb => "https://github.com/cyrilli/FedGLB-UCB",
            Self::FederatedClustering => "https://github.com/ZhaoHaoRu/Federated-Clustering-of-Bandits",
        }
    }

    /// The suite whose rows its programs are compared with.
    pub(super) const fn suite(self) -> Suite {
        match self {
            Self::AsyncLinUcb => Suite::Simulation,
            Self::FedGlbUcb | Self::FederatedClustering => Suite::Families,
        }
    }

    /// The modules that hold its simulations, and those they need from another directory: paths without `.py`.
    pub(super) const fn scripts(self) -> &'static [&'static str] {
        match self {
            Self::AsyncLinUcb => &["SimulationHomogeneousClients", "SimulationHeterogeneousClients"],
            Self::FedGlbUcb => &["RunSyntheticDataset"],
            Self::FederatedClustering => {
                &["experiment/FCLUB", "experiment/LDP_FCLUB_DC", "environment/Environment"]
            }
        }
    }
}

/// One algorithm of a repository with the setting of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(super) repository: Repository,
    /// The authors' class; where all are called alike, their module.
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

    /// Of the paper on federated clustering of bandits.
    pub(crate) const fn clustered(algorithm: &'static str, threshold: f64) -> Self {
        let repository = Repository::FederatedClustering;
        Self { repository, algorithm, setting: threshold, most: [u64::MAX; 2] }
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
            (Repository::FederatedClustering, "FCLUB") => "experiment/FCLUB",
            (Repository::FederatedClustering, _) => "experiment/LDP_FCLUB_DC",
            // Agents that differ in some of their parameters.
            (_, "AsyncLinUCB_AM") => "SimulationHeterogeneousClients",
            _ => "SimulationHomogeneousClients",
        }
    }
}
