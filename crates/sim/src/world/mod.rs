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
mod data;
mod drift;
mod form;
mod gamma;
mod glm;
mod heterogeneous;
mod linear;
mod noise;
mod nonlinear;
mod outside;
mod recommender;
mod shuffle;
mod split;
mod table;
mod vector;

use std::sync::Arc;

use posse_core::settings::Described;
use posse_core::{AgentId, Arms, ConfigError, LinkFunction, Seed, Shape, UserId};
use serde::{Deserialize, Serialize};

pub use arrival::{ArrivalConfig, Arrivals};
pub use classification::ClassificationConfig;
pub use clustered::{Assignment, ClusteredConfig};
pub use clustered_arms::{ArmClusters, ClusteredArmsConfig};
pub use clustered_users::{ClusteredUsersConfig, UserClusters};
pub use data::{Data, DataName, Loaded};
pub use drift::{Drift, Motion};
pub use form::Form;
pub use glm::GlmWorldConfig;
pub use heterogeneous::HeterogeneousConfig;
pub use linear::LinearConfig;
pub use noise::{NoiseLaw, NoiseShape};
pub use nonlinear::NonlinearConfig;
pub use outside::{OutsideWorld, OutsideWorldRecipe};
pub use recommender::{Interactions, RecommenderConfig};
pub use split::Split;
pub use table::LabelledTable;

use nonlinear::RewardCurve;

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

/// One interaction as the world offers it. An algorithm sees the agent, the user and the arms; the rest is
/// for the simulator, which pays rewards and measures regret.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The agent that chooses.
    pub agent: AgentId,
    /// The user that the agent chooses for.
    pub user: UserId,
    /// The arms that the agent chooses from.
    pub arms: Arms,
    /// The expected reward of each arm.
    pub means: Vec<f64>,
    /// What turns the mean of whichever arm is chosen into its reward.
    pub luck: Luck,
}

/// What turns a mean into a reward. One draw a step: all arms of an offer share it, so that what an
/// algorithm chooses does not change the world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Luck {
    /// The reward is the mean plus this number.
    Noise(f64),
    /// The reward is 1 if this number between 0 and 1 is below the mean, and 0 otherwise.
    Coin(f64),
    /// The reward is this quantile of the Poisson distribution with that mean, but no more than `most`.
    Count {
        /// The quantile at which the reward is drawn, between 0 and 1.
        quantile: f64,
        /// The largest reward that can be drawn.
        most: f64,
    },
}

impl Luck {
    /// The reward of an arm with this mean.
    #[must_use]
    pub fn reward(self, mean: f64) -> f64 {
        match self {
            Self::Noise(noise) => mean + noise,
            Self::Coin(draw) => f64::from(u8::from(draw < mean)),
            Self::Count { quantile, most } => poisson_quantile(mean, quantile, most),
        }
    }
}

/// The smallest count whose distribution function reaches `quantile`, or `most` if that is smaller.
fn poisson_quantile(mean: f64, quantile: f64, most: f64) -> f64 {
    let mut count = 0.0;
    let mut probability = libm::exp(-mean);
    let mut sum = probability;
    while sum <= quantile && count < most {
        count += 1.0;
        probability *= mean / count;
        sum += probability;
    }
    count
}

impl Offer {
    /// An offer without arms, to be filled by a world.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            agent: AgentId(0),
            user: UserId(0),
            arms: Arms::new(0),
            means: Vec::new(),
            luck: Luck::Noise(0.0),
        }
    }

    /// The reward for choosing `arm`.
    ///
    /// # Panics
    /// If there is no such arm.
    #[must_use]
    pub fn reward(&self, arm: usize) -> f64 {
        self.luck.reward(self.means[arm])
    }

    /// By how much the mean of `arm` falls short of the best one.
    ///
    /// # Panics
    /// If there is no such arm.
    #[must_use]
    pub fn regret(&self, arm: usize) -> f64 {
        self.best_mean() - self.means[arm]
    }

    /// The largest mean; −∞ without arms.
    #[must_use]
    pub fn best_mean(&self) -> f64 {
        self.means.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// What choosing at random would be worth; NaN without arms.
    #[must_use]
    pub fn average_mean(&self) -> f64 {
        self.means.iter().sum::<f64>() / self.means.len() as f64
    }

    /// Forgets all arms, keeps the memory and takes arms of `dimension` features from now on.
    pub fn clear(&mut self, dimension: usize) {
        self.arms.reset(dimension);
        self.means.clear();
    }

    /// Adds an arm with its mean.
    ///
    /// # Panics
    /// If the features are not finite or not as many as promised: worlds make better ones.
    pub fn push(&mut self, features: &[f64], mean: f64) {
        self.arms.push(features).expect("a world makes finite features of its own dimension");
        self.means.push(mean);
    }
}

impl Default for Offer {
    fn default() -> Self {
        Self::new()
    }
}

/// A world by name, with its parameters: the `[environment]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorldConfig {
    /// Rewards linear in the features, with the same parameters for all agents.
    Linear(LinearConfig),
    /// Rewards linear in the features, with shared and local parameters.
    Heterogeneous(HeterogeneousConfig),
    /// Rewards that are clicks or counts: a link function of what is linear in the features.
    Glm(GlmWorldConfig),
    /// An arm for each class of a labelled table.
    Classification(ClassificationConfig),
    /// An arm for each cluster of a labelled table.
    ClusteredArms(ClusteredArmsConfig),
    /// Recorded events: an offer has an item that the user liked among others.
    Recommender(RecommenderConfig),
    /// Users in clusters, rewards 0 or 1.
    Clustered(ClusteredConfig),
    /// Rewards that are a wave along one hidden direction.
    Cosine(NonlinearConfig),
    /// Rewards that are a parabola along one hidden direction.
    Square(NonlinearConfig),
    /// Users in clusters that were found in data, rewards 0 or 1.
    ClusteredUsers(ClusteredUsersConfig),
    /// A world from outside of posse, which no file describes: the program that knows it makes it.
    #[serde(skip_deserializing)]
    Outside(OutsideWorld),
}

impl WorldConfig {
    /// Builds the world for agents `0..agents`, or says which setting is impossible.
    pub fn build(&self, agents: u64, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        if agents == 0 {
            return Err(ConfigError::new("agents", agents, "at least 1"));
        }
        match self {
            Self::Linear(config) => config.build(seed),
            Self::Heterogeneous(config) => config.build(seed),
            Self::Glm(config) => config.build(seed),
            Self::Classification(config) => config.build(agents, seed),
            Self::ClusteredArms(config) => config.build(seed),
            Self::Recommender(config) => config.build(agents, seed),
            Self::Clustered(config) => config.build(agents, seed),
            Self::Cosine(config) => config.build(RewardCurve::Cosine, seed),
            Self::Square(config) => config.build(RewardCurve::Square, seed),
            Self::ClusteredUsers(config) => config.build(agents, seed),
            Self::Outside(world) => world.recipe().build(agents, seed),
        }
    }

    /// The data that this world is made of, if it is.
    #[must_use]
    pub fn data(&self) -> Option<DataName<'_>> {
        let (path, hash) = match self {
            Self::Linear(_)
            | Self::Heterogeneous(_)
            | Self::Glm(_)
            | Self::Clustered(_)
            | Self::Cosine(_)
            | Self::Square(_)
            | Self::Outside(_) => return None,
            Self::Classification(config) => (&config.data, &config.hash),
            Self::ClusteredArms(config) => (&config.data, &config.hash),
            Self::Recommender(config) => (&config.data, &config.hash),
            Self::ClusteredUsers(config) => (&config.data, &config.hash),
        };
        Some(DataName { path, hash })
    }

    /// Puts the data that this world names in its place, and its whole content hash with it; or says that it is of
    /// another kind.
    pub fn attach(&mut self, data: &Data, hash: &str) -> Result<(), ConfigError> {
        match (&mut *self, data) {
            (Self::Classification(config), Data::Table(table)) => {
                config.table = Arc::clone(table).into();
                config.hash = hash.into();
            }
            (Self::ClusteredArms(config), Data::Clusters(clusters)) => {
                config.clusters = Arc::clone(clusters).into();
                config.hash = hash.into();
            }
            (Self::Recommender(config), Data::Interactions(interactions)) => {
                config.interactions = Arc::clone(interactions).into();
                config.hash = hash.into();
            }
            (Self::ClusteredUsers(config), Data::Users(users)) => {
                config.clusters = Arc::clone(users).into();
                config.hash = hash.into();
            }
            _ => {
                let path = self.data().map_or("", |name| name.path);
                let allowed = "data that was prepared for this kind of world";
                return Err(ConfigError::new("data", format!("{path} ({})", data.kind()), allowed));
            }
        }
        Ok(())
    }

    /// Records which content the data of this world had, without the data itself: enough to describe a run that
    /// was made before, not to repeat it. Worlds without data stay as they are.
    pub fn record_hash(&mut self, hash: &str) {
        match self {
            Self::Classification(config) => config.hash = hash.into(),
            Self::ClusteredArms(config) => config.hash = hash.into(),
            Self::Recommender(config) => config.hash = hash.into(),
            Self::ClusteredUsers(config) => config.hash = hash.into(),
            _ => {}
        }
    }

    /// Every kind of world: its name in configuration files, what it is, and its default parameters.
    #[must_use]
    pub fn kinds() -> Vec<(&'static str, &'static str, Self)> {
        vec![
            (
                "linear",
                "linear rewards, the same parameters for all agents",
                Self::Linear(Default::default()),
            ),
            (
                "heterogeneous",
                "linear rewards, some parameters shared and some of each agent's own",
                Self::Heterogeneous(Default::default()),
            ),
            ("glm", "clicks, counts or numbers: a link of linear scores", Self::Glm(Default::default())),
            (
                "classification",
                "an arm for each class of a labelled table, the right one pays",
                Self::Classification(Default::default()),
            ),
            (
                "clustered-arms",
                "an arm for each cluster of a labelled table, paying as its members do",
                Self::ClusteredArms(Default::default()),
            ),
            (
                "recommender",
                "the next item that a user liked, among others that it never did",
                Self::Recommender(Default::default()),
            ),
            (
                "clustered",
                "users in clusters with parameters of their own, rewards 0 or 1",
                Self::Clustered(Default::default()),
            ),
            ("cosine", "cos 3aᵀx: a wave along a direction to be found", Self::Cosine(Default::default())),
            (
                "square",
                "10(aᵀx)²: a parabola along a direction to be found",
                Self::Square(Default::default()),
            ),
            (
                "clustered-users",
                "users in clusters found in who liked what, rewards 0 or 1",
                Self::ClusteredUsers(Default::default()),
            ),
        ]
    }
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self::Linear(LinearConfig::default())
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{Error, MapDeserializer};

    use posse_core::LinkFunction;

    use super::*;

    /// What the world offers `agent` at `step`, in fresh memory.
    pub(super) fn ask(world: &mut dyn World, agent: u64, step: u64) -> Offer {
        let mut offer = Offer { agent: AgentId(agent), ..Offer::new() };
        world.offer(step, &mut offer);
        offer
    }

    /// Ten rows of three classes; the first feature is the number of the row.
    pub(super) fn table() -> Arc<LabelledTable> {
        let features = (0..10u32).flat_map(|row| [f64::from(row), 1.0]).collect();
        let labels = (0..10).map(|row| row % 3).collect();
        Arc::new(LabelledTable::new(2, features, labels, 3, Vec::new()).unwrap())
    }

    /// Three clusters in two dimensions.
    pub(super) fn clusters() -> Arc<ArmClusters> {
        let centroids = vec![3.0, 4.0, 1.0, 2.0, -1.0, 0.5];
        Arc::new(ArmClusters::new(2, centroids, vec![0.25, 1.0, 0.0]).unwrap())
    }

    /// Five users who like three of ten items each.
    pub(super) fn interactions() -> Arc<Interactions> {
        let features = (0..10u32).flat_map(|item| [f64::from(item), 1.0]).collect();
        let events: Vec<(u32, u32)> =
            (0..15).map(|event| (event % 5, (3 * event + event / 5) % 10)).collect();
        Arc::new(Interactions::new(2, features, 5, &events, vec![0, 1, 0, 1, 1]).unwrap())
    }

    /// Six users in two clusters, in three dimensions.
    pub(super) fn users() -> Arc<UserClusters> {
        let centres = [0.3, -0.4, std::f64::consts::FRAC_1_SQRT_2, 0.0, 0.6, std::f64::consts::FRAC_1_SQRT_2];
        Arc::new(UserClusters::new(3, &centres, vec![0, 1, 1, 0, 0, 1]).unwrap())
    }

    /// Every kind of world, also with the options that change how offers are made.
    fn all_worlds() -> Vec<WorldConfig> {
        let noise_shape = NoiseShape { law: NoiseLaw::StudentT, ..NoiseShape::default() };
        let drift = Some(Drift { period: 50, ..Drift::default() });
        let linear = |form| LinearConfig { form, dimension: 6, pool: 40, ..LinearConfig::default() };
        let mixed = |form| HeterogeneousConfig {
            form,
            shared: 10,
            local_spread: 3,
            ..HeterogeneousConfig::default()
        };
        vec![
            WorldConfig::Linear(linear(Form::Paper)),
            WorldConfig::Linear(linear(Form::Authors)),
            WorldConfig::Linear(LinearConfig { noise_shape, drift, ..linear(Form::Authors) }),
            WorldConfig::Heterogeneous(mixed(Form::Paper)),
            WorldConfig::Heterogeneous(mixed(Form::Authors)),
            WorldConfig::Heterogeneous(HeterogeneousConfig { noise_shape, drift, ..mixed(Form::Paper) }),
            WorldConfig::Glm(GlmWorldConfig::default()),
            WorldConfig::Glm(GlmWorldConfig {
                form: Form::Authors,
                link: LinkFunction::Poisson,
                ..Default::default()
            }),
            WorldConfig::Classification(ClassificationConfig {
                table: table().into(),
                ..ClassificationConfig::default()
            }),
            WorldConfig::ClusteredArms(ClusteredArmsConfig {
                clusters: clusters().into(),
                ..ClusteredArmsConfig::default()
            }),
            WorldConfig::Recommender(RecommenderConfig {
                arms: 3,
                interactions: interactions().into(),
                ..RecommenderConfig::default()
            }),
            WorldConfig::Clustered(ClusteredConfig { arms: 25, ..ClusteredConfig::default() }),
            WorldConfig::Clustered(ClusteredConfig {
                arms: 25,
                assignment: Assignment::Contiguous,
                ..ClusteredConfig::default()
            }),
            WorldConfig::Cosine(NonlinearConfig { arms: 25, ..NonlinearConfig::default() }),
            WorldConfig::Square(NonlinearConfig {
                arms: 25,
                form: Form::Authors,
                noise_shape,
                ..NonlinearConfig::default()
            }),
            WorldConfig::ClusteredUsers(ClusteredUsersConfig {
                arms: 3,
                clusters: users().into(),
                ..ClusteredUsersConfig::default()
            }),
        ]
    }

    #[test]
    fn offers_repeat_in_any_order_of_asking() {
        for config in all_worlds() {
            let build = || config.build(5, Seed(11)).unwrap();
            let mut world = build();
            let steps = world.length().unwrap_or(60);
            let forward: Vec<Offer> = (0..steps).map(|step| ask(&mut *world, step % 5, step)).collect();
            let mut world = build();
            // One offer for all steps, and those steps backwards and twice.
            let mut reused = Offer::new();
            for step in (0..steps).rev().chain(0..steps) {
                reused.agent = AgentId(step % 5);
                world.offer(step, &mut reused);
                assert_eq!(reused, forward[step as usize], "{config:?}, step {step}");
            }
            let mut other = config.build(5, Seed(12)).unwrap();
            let same = (0..steps).all(|step| ask(&mut *other, step % 5, step) == forward[step as usize]);
            assert!(!same, "{config:?}");
        }
    }

    #[test]
    fn offers_have_the_promised_shape() {
        for config in all_worlds() {
            let mut world = config.build(5, Seed(3)).unwrap();
            for agent in 0..5 {
                let offer = ask(&mut *world, agent, 7);
                assert_eq!(offer.arms.dimension(), world.shape(AgentId(agent)).dimension());
                let arms = if config.data().is_some() { 3 } else { 25 };
                assert_eq!((offer.arms.len(), offer.means.len()), (arms, arms));
            }
        }
    }

    #[test]
    fn reward_is_mean_plus_noise_and_regret_is_free_of_noise() {
        let mut offer = Offer { luck: Luck::Noise(0.25), ..Offer::new() };
        offer.clear(1);
        offer.push(&[1.0], 0.5);
        offer.push(&[2.0], 1.5);
        assert_eq!((offer.reward(0), offer.reward(1)), (0.75, 1.75));
        assert_eq!((offer.regret(0), offer.regret(1)), (1.0, 0.0));
        assert_eq!(offer.best_mean(), 1.5);
    }

    #[test]
    fn coins_and_counts_have_the_means_they_are_given() {
        let draws = 40_000;
        let mut stream = Seed(5).stream("test", 0, 0);
        for mean in [0.05, 0.4, 0.93, 2.5] {
            let (mut heads, mut counts) = (0.0, 0.0);
            for _ in 0..draws {
                let draw = stream.uniform();
                heads += Luck::Coin(draw).reward(mean);
                counts += Luck::Count { quantile: draw, most: 1e9 }.reward(mean);
            }
            let (heads, counts) = (heads / f64::from(draws), counts / f64::from(draws));
            assert!((heads - mean.min(1.0)).abs() < 0.02, "{heads} instead of {mean}");
            assert!((counts - mean).abs() < 0.05, "{counts} instead of {mean}");
        }
        assert_eq!(Luck::Count { quantile: 1.0, most: 20.0 }.reward(3.0), 20.0);
    }

    #[test]
    fn a_kind_alone_gives_its_defaults() {
        for (name, _, defaults) in WorldConfig::kinds() {
            let table = MapDeserializer::<_, Error>::new([("kind", name)].into_iter());
            assert_eq!(WorldConfig::deserialize(table), Ok(defaults));
        }
    }

    #[test]
    fn a_world_without_agents_is_refused() {
        for (_, _, config) in WorldConfig::kinds() {
            assert_eq!(config.build(0, Seed(1)).err().unwrap().name, "agents");
        }
    }
}
