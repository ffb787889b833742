//! The recipe of an algorithm: everything that the rest of posse has to know about it, in one place.

use std::fmt;

use crate::agent::{Agent, Shape};
use crate::algorithm::Algorithm;
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::evidence::packed;
use crate::exchange::{JoinPolicy, Silent};
use crate::federation::{Federation, Placement};
use crate::glm::LinkFunction;
use crate::ids::AgentId;
use crate::privacy::{PrivacyConfig, SecureAggregation};
use crate::relay::{LinkThresholds, Relay, Relaying, UpperLink};
use crate::settings::Setting;

/// An algorithm with its settings.
///
/// The simulator, the network, the invariants and the conformance suite ask a recipe what they need to know and
/// look nowhere else. A crate outside of posse implements this trait for its own settings and hands it over as
/// [`Algorithm::Outside`].
pub trait Recipe: fmt::Debug + Send + Sync {
    /// The name in configuration files and results: lower case, words joined by hyphens.
    fn name(&self) -> &'static str;

    /// `Ok` if the settings make sense for arms of this `shape`, which has at least one feature.
    fn check(&self, shape: Shape) -> Result<(), ConfigError>;

    /// A new agent for arms of this `shape`. Only called with settings that [`check`](Self::check) accepted.
    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent>;

    /// A new coordinator. Only called with settings that [`check`](Self::check) accepted. Algorithms whose agents
    /// never speak need none: theirs refuses every message.
    fn coordinator(&self, _shape: Shape) -> Box<dyn Coordinator> {
        Box::new(Silent::new(self.name()))
    }

    /// A new coordinator of a federation with so many `levels` of links, two or more, so that its children are relays. The
    /// same as without relays, unless relays say something that agents may not say.
    fn root(&self, shape: Shape, _levels: usize) -> Box<dyn Coordinator> {
        self.coordinator(shape)
    }

    /// How observations travel, which decides what invariants check. Algorithms whose agents speak say so here.
    fn sharing(&self) -> Sharing {
        Sharing::Nothing
    }

    /// Where learners live: one with each agent, unless this says otherwise.
    fn placement(&self) -> Placement {
        Placement::PerAgent
    }

    /// When agents become known to the coordinator: with their first interaction, unless this says otherwise.
    fn join_policy(&self) -> JoinPolicy {
        JoinPolicy::Lazy
    }

    /// Whether an agent chooses with everything it knows. If not, it chooses with what it took over from the
    /// coordinator, and its own observations count once they come back.
    fn chooses_with_unsent(&self) -> bool {
        true
    }

    /// The link between features and rewards, for algorithms that have one: it says which rewards they take.
    fn link_function(&self) -> Option<LinkFunction> {
        None
    }

    /// Whether agents may have private features of different number.
    fn takes_local_features(&self) -> bool {
        false
    }

    /// The privacy that is promised, if any is.
    fn privacy(&self) -> Option<&PrivacyConfig> {
        None
    }

    /// How agents keep that promise together, if no agent keeps it alone.
    fn secure_aggregation(&self) -> Option<&SecureAggregation> {
        None
    }

    /// Whether and how the algorithm runs through relays. By default it does not, for the reason that follows from
    /// how it shares.
    fn relaying(&self, _federation: &Federation) -> Relaying {
        Relaying::No(match self.sharing() {
            Sharing::Nothing => "its agents never speak: there is nothing to relay",
            Sharing::Clusters => {
                "groups are found by comparing the clusters of all agents, which a sum hides"
            }
            Sharing::Rounds | Sharing::MinimisedRounds | Sharing::OnlineRounds => {
                "no relay for its rounds is built: use sync-lin-ucb, fed-glb-ucb or an asynchronous algorithm"
            }
            Sharing::Uploads | Sharing::Other => "no relay for its messages is built",
        })
    }

    /// The algorithm with the thresholds of one level of links. Settings of single agents are left out unless the
    /// lower ends of these links are `agents`. Only called if [`relaying`](Self::relaying) names thresholds.
    fn on_level(&self, _thresholds: LinkThresholds, _agents: bool) -> Option<Algorithm> {
        None
    }

    /// A new relay, made by the settings of the level of links below it. `above` is its link to its parent. `None` if
    /// [`relaying`](Self::relaying) says that there are no relays.
    fn relay(&self, _shape: Shape, _above: UpperLink) -> Option<Box<dyn Relay>> {
        None
    }

    /// How many numbers the largest message of an agent holds, for arms of `dimension` features.
    fn largest_upload(&self, dimension: u64) -> Payload {
        Payload::sums(dimension)
    }

    /// The same for the largest message of a relay.
    fn largest_relayed(&self, dimension: u64) -> Payload {
        self.largest_upload(dimension)
    }

    /// How many numbers the largest message to an agent holds in its matrices.
    fn largest_download(&self, dimension: u64, _agents: u64) -> u64 {
        self.largest_upload(dimension).matrix
    }

    /// About how much work an interaction is, in those of a linear learner, in a run of `agents` with so many
    /// `observations` each. Runs that take longest begin first, and progress is estimated by it.
    fn effort(&self, _agents: u64, _observations: u64) -> f64 {
        1.0
    }

    /// What to change when messages are longer than a network can carry.
    fn too_long(&self, dimension: u64, _agents: u64) -> ConfigError {
        ConfigError::new("dimension", dimension, "its messages are longer than 1 GB: use fewer features")
    }

    /// What the settings mean, for listings. Recipes from outside of posse whose settings derive
    /// [`Described`](trait@crate::settings::Described) return theirs; those of posse are known without it.
    fn described(&self) -> Vec<Setting> {
        Vec::new()
    }

    /// The settings as text, for agents that join over a network and make the same recipe from it. Only recipes
    /// from outside of posse need it.
    fn settings(&self) -> String {
        String::new()
    }
}

/// How the observations of agents travel to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// Agents send nothing; each learns alone.
    Nothing,
    /// Each upload holds what is new, and is counted once by its number.
    Uploads,
    /// A round collects what each agent has not shared. An agent forgets its part when it hears that the round
    /// took it.
    Rounds,
    /// A round minimises a loss over all observations, which agents keep: when an agent is gone, so are its
    /// observations after the next round.
    MinimisedRounds,
    /// A round adds to a state that only the coordinator keeps whole; agents forget what a round took.
    OnlineRounds,
    /// Each upload holds all that a cluster of users ever contributed, and replaces the one before.
    Clusters,
    /// Some other way. Only what views count is checked.
    Other,
}

/// How many numbers a message holds: `parts` times a few vectors and a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// How often a message may hold vectors and a matrix.
    pub parts: u64,
    /// How many numbers each vector has.
    pub vector: u64,
    /// How many numbers each matrix has, as it is packed.
    pub matrix: u64,
}

impl Payload {
    /// Sums over observations of `dimension` features.
    #[must_use]
    pub const fn sums(dimension: u64) -> Self {
        Self { parts: 1, vector: dimension, matrix: packed(dimension as usize) as u64 }
    }
}
