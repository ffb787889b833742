//! One interaction as a world offers it, and what turns means into rewards.

use posse_core::{AgentId, Arms, UserId};

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
