//! Worlds: who is offered which arms, and what the arms are worth.
//!
//! A world is a pure function of its seed. What it offers at a step is drawn from streams named after that
//! step, so offers can be asked for in any order and repeat bit for bit, and every algorithm of an experiment
//! meets the same world whatever it chooses.
//!
//! [`WorldConfig`] builds a world, [`ArrivalConfig`] decides which agent is next.

mod arrival;
mod catalogue;
mod classification;
mod clustered;
mod clustered_arms;
mod clustered_users;
mod config;
mod data;
mod drift;
mod form;
mod gamma;
mod glm;
mod heterogeneous;
mod linear;
mod noise;
mod nonlinear;
mod offer;
mod outside;
mod recommender;
mod shuffle;
mod split;
mod table;
mod vector;

use posse_core::{AgentId, LinkFunction, Shape, UserId};

pub use arrival::{ArrivalConfig, Arrivals};
pub use classification::ClassificationConfig;
pub use clustered::{Assignment, ClusteredConfig};
pub use clustered_arms::{ArmClusters, ClusteredArmsConfig};
pub use clustered_users::{ClusteredUsersConfig, UserClusters};
pub use config::WorldConfig;
pub use data::{Data, DataName, Loaded};
pub use drift::{Drift, Motion};
pub use form::Form;
pub use glm::GlmWorldConfig;
pub use heterogeneous::HeterogeneousConfig;
pub use linear::LinearConfig;
pub use noise::{NoiseLaw, NoiseShape};
pub use nonlinear::NonlinearConfig;
pub use offer::{Luck, Offer};
pub use outside::{OutsideWorld, OutsideWorldRecipe};
pub use recommender::{Interactions, RecommenderConfig};
pub use split::Split;
pub use table::LabelledTable;

/// A place where agents choose arms.
///
/// # How to drive it
/// Set `agent` (and `user`, where agents serve several) of an [`Offer`], then call
/// [`offer`](Self::offer) with the number of the interaction. Keep one `Offer` for a whole run: its memory
/// is reused.
pub trait World: Send {
    /// How the features of this agent's arms divide.
    fn shape(&self, agent: AgentId) -> Shape;

    /// Fills in the arms, their means and the noise that `offer.agent` meets at interaction `step`, counted
    /// from 0 over all agents. Worlds in which users do not matter leave `offer.user` as it is.
    fn offer(&mut self, step: u64, offer: &mut Offer);

    /// The agent that acts at interaction `step`, if the world decides that: recorded interactions say which
    /// agent served them. `None` leaves the decision to the arrivals.
    ///
    /// # Panics
    /// May panic beyond the last interaction.
    fn turn(&self, step: u64) -> Option<AgentId> {
        let _ = step;
        None
    }

    /// How many interactions there are, if they are recorded.
    fn length(&self) -> Option<u64> {
        None
    }

    /// What rewards can be, if the world knows: a run whose algorithm cannot take them is refused before it
    /// begins. `None` by default, which lets the run begin and end at the first reward that does not fit.
    fn rewards(&self) -> Option<Rewards> {
        None
    }

    /// The true parameters of an agent over all its features, shared ones first. `None` where the world has
    /// none or they change over time.
    fn parameters(&self, agent: AgentId) -> Option<Vec<f64>>;

    /// The cluster that a user belongs to in truth, if users are clustered.
    fn cluster(&self, _user: UserId) -> Option<u64> {
        None
    }
}

/// What the rewards of a world can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewards {
    /// Rewards may be any finite number.
    Numbers,
    /// Every reward is 0 or 1.
    Clicks,
    /// Every reward is a whole number of 0 or more.
    Counts,
}

impl Rewards {
    /// Whether a model with this link can take all of them.
    #[must_use]
    pub const fn fit(self, link: LinkFunction) -> bool {
        match link {
            LinkFunction::Identity => true,
            LinkFunction::Logistic | LinkFunction::Probit => matches!(self, Self::Clicks),
            LinkFunction::Poisson => matches!(self, Self::Clicks | Self::Counts),
        }
    }

    /// What a link must be to take them, for messages.
    #[must_use]
    pub const fn allowed_links(self) -> &'static str {
        match self {
            Self::Numbers => "this environment pays any number, which only the link \"identity\" takes",
            Self::Clicks => "this environment pays 0 or 1, which every link takes",
            Self::Counts => "this environment pays counts, which the links \"poisson\" and \"identity\" take",
        }
    }
}

#[cfg(test)]
mod tests;
