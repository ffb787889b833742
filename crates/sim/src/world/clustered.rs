//! The world of clustered users: every user has one of a few parameter vectors, and clicks or does not.

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Domain, Seed, Shape, UserId};
use serde::{Deserialize, Serialize};

use super::vector::{dot, gaussian};
use super::{Luck, Offer, Rewards, World};

/// Which users an agent serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Assignment {
    /// Users in random order: the users of a cluster are spread over agents.
    #[default]
    Shuffled,
    /// Neighbours: with as many clusters as agents, every agent has exactly one. As in the authors' files.
    Contiguous,
}

/// Users in clusters of equal size, each with its own θ, rewards 1 with probability θᵀx and 0 otherwise.
///
/// Parameters and arms are v = [g/‖g‖; 1]/√2 with a normal g, so ‖v‖ = 1 and inner products lie in [0, 1].
/// The agent whose turn it is serves one of its users, all equally likely.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ClusteredConfig {
    /// n: users of all agents, at least as many as agents. Default 40.
    #[setting(max = 10_000_000)]
    pub users: u64,
    /// m ≥ 1: clusters of users, at most as many as users. Default 5.
    #[setting(max = 10_000_000)]
    pub clusters: u64,
    /// d ≥ 1: features of an arm; with one, all arms are the same. Default 10.
    #[setting(max = 10_000)]
    pub dimension: usize,
    /// K ≥ 1: how many arms an offer has. Default 10.
    #[setting(max = 1_000_000)]
    pub arms: usize,
    /// How users are divided over agents. Default `shuffled`.
    pub assignment: Assignment,
}

impl Default for ClusteredConfig {
    fn default() -> Self {
        Self { users: 40, clusters: 5, dimension: 10, arms: 10, assignment: Assignment::default() }
    }
}

impl ClusteredConfig {
    pub(super) fn build(&self, agents: u64, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        let Self { users, clusters, dimension, .. } = *self;
        if users < agents {
            return Err(ConfigError::new("users", users, "at least as many as agents"));
        }
        if clusters == 0 || clusters > users {
            return Err(ConfigError::new("clusters", clusters, "1 to users"));
        }
        if dimension == 0 {
            return Err(ConfigError::new("dimension", dimension, "at least 1"));
        }
        let centres = (0..clusters).map(|cluster| {
            let mut centre = vec![0.0; dimension];
            draw(&mut centre, &mut seed.stream("parameters", cluster, 0));
            centre
        });
        let centres: Vec<Vec<f64>> = centres.collect();
        let labels = (0..users).map(|user| user * clusters / users).collect();
        self.with_centres(centres, labels, agents, seed)
    }

    /// The world of users whose parameters are known: `centres[labels[user]]` for each user. They may come
    /// from a matrix of ratings; `users`, `clusters` and `dimension` of the configuration do not count then.
    pub fn with_centres(
        &self,
        centres: Vec<Vec<f64>>,
        labels: Vec<u64>,
        agents: u64,
        seed: Seed,
    ) -> Result<Box<dyn World>, ConfigError> {
        if self.arms == 0 {
            return Err(ConfigError::new("arms", 0, "at least 1"));
        }
        let dimension = centres.first().map_or(0, Vec::len);
        let known = labels.iter().all(|label| *label < centres.len() as u64);
        let alike = centres.iter().all(|c| c.len() == dimension && c.iter().all(|v| v.is_finite()));
        if dimension == 0 || !known || !alike || (labels.len() as u64) < agents || agents == 0 {
            let allowed = "every user needs one of the vectors, which are finite and of equal length";
            return Err(ConfigError::new("users", labels.len(), allowed));
        }
        let mut order: Vec<u64> = (0..labels.len() as u64).collect();
        if self.assignment == Assignment::Shuffled {
            let mut stream = seed.stream("assignment", 0, 0);
            for last in (1..order.len()).rev() {
                order.swap(last, stream.below(last as u64 + 1) as usize);
            }
        }
        // Blocks that differ by one user at most.
        let users = labels.len() as u64;
        let block = |agent: u64| {
            order[(agent * users / agents) as usize..((agent + 1) * users / agents) as usize].to_vec()
        };
        Ok(Box::new(Clustered {
            served: (0..agents).map(block).collect(),
            centres,
            labels,
            arms: self.arms,
            features: vec![0.0; dimension],
            offers: seed.domain("arms"),
            arrivals: seed.domain("users"),
            clicks: seed.domain("clicks"),
        }))
    }
}

struct Clustered {
    centres: Vec<Vec<f64>>,
    labels: Vec<u64>,
    /// The users of each agent.
    served: Vec<Vec<u64>>,
    arms: usize,
    features: Vec<f64>,
    offers: Domain,
    arrivals: Domain,
    clicks: Domain,
}

impl World for Clustered {
    fn shape(&self, _: AgentId) -> Shape {
        Shape::shared(self.features.len())
    }

    fn offer(&mut self, step: u64, offer: &mut Offer) {
        let own = &self.served[offer.agent.0 as usize];
        let user = own[self.arrivals.stream(0, step).below(own.len() as u64) as usize];
        offer.user = UserId(user);
        offer.clear(self.features.len());
        let theta = &self.centres[self.labels[user as usize] as usize];
        let mut stream = self.offers.stream(0, step);
        for _ in 0..self.arms {
            draw(&mut self.features, &mut stream);
            offer.push(&self.features, dot(theta, &self.features));
        }
        offer.luck = Luck::Coin(self.clicks.stream(0, step).uniform());
    }

    fn rewards(&self) -> Option<Rewards> {
        Some(Rewards::Clicks)
    }

    fn parameters(&self, agent: AgentId) -> Option<Vec<f64>> {
        // Only where all its users are alike has an agent parameters.
        let own = &self.served[agent.0 as usize];
        let label = self.labels[own[0] as usize];
        let alike = own.iter().all(|user| self.labels[*user as usize] == label);
        alike.then(|| self.centres[label as usize].clone())
    }

    fn cluster(&self, user: UserId) -> Option<u64> {
        self.labels.get(user.0 as usize).copied()
    }
}

/// [g/‖g‖; 1]/√2 with a normal g.
fn draw(v: &mut [f64], stream: &mut posse_core::Stream) {
    let last = v.len() - 1;
    let length = gaussian(&mut v[..last], stream);
    v[..last].iter_mut().for_each(|x| *x *= std::f64::consts::FRAC_1_SQRT_2 / length);
    v[last] = std::f64::consts::FRAC_1_SQRT_2;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::world::tests::ask;

    #[test]
    fn means_are_probabilities_and_rewards_are_clicks() {
        let mut world = ClusteredConfig::default().build(5, Seed(1)).unwrap();
        let (mut clicks, mut expected) = (0.0, 0.0);
        for step in 0..20_000 {
            let offer = ask(&mut *world, step % 5, step);
            assert!(offer.means.iter().all(|mean| (0.0..=1.0).contains(mean)));
            assert!(offer.reward(3) == 0.0 || offer.reward(3) == 1.0);
            let x = offer.arms.row(3);
            assert!((dot(x, x) - 1.0).abs() < 1e-12);
            clicks += offer.reward(3);
            expected += offer.means[3];
        }
        assert!((clicks - expected).abs() < 5.0 * (20_000.0_f64 * 0.25).sqrt(), "{clicks} {expected}");
    }

    #[test]
    fn neighbours_share_an_agent_or_anybody_does() {
        for (assignment, alike) in [(Assignment::Contiguous, 5), (Assignment::Shuffled, 0)] {
            let config = ClusteredConfig { assignment, ..Default::default() };
            let mut world = config.build(5, Seed(2)).unwrap();
            let of_one = (0..5).filter(|agent| world.parameters(AgentId(*agent)).is_some()).count();
            assert_eq!(of_one, alike, "{assignment:?}");
            let mut seen = vec![BTreeSet::new(); 5];
            for step in 0..4000 {
                let agent = step % 5;
                seen[agent as usize].insert(ask(&mut *world, agent, step).user);
            }
            assert!(seen.iter().all(|users| users.len() == 8), "eight users each");
            let all: BTreeSet<UserId> = seen.iter().flatten().copied().collect();
            assert_eq!(all.len(), 40, "and nobody is served twice");
        }
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let good = ClusteredConfig::default;
        let refused = |config: ClusteredConfig| config.build(5, Seed(1)).err().map(|error| error.name);
        assert_eq!(refused(good()), None);
        assert_eq!(refused(ClusteredConfig { users: 4, ..good() }), Some("users"));
        assert_eq!(refused(ClusteredConfig { clusters: 0, ..good() }), Some("clusters"));
        assert_eq!(refused(ClusteredConfig { clusters: 41, ..good() }), Some("clusters"));
        assert_eq!(refused(ClusteredConfig { dimension: 0, ..good() }), Some("dimension"));
        assert_eq!(refused(ClusteredConfig { arms: 0, ..good() }), Some("arms"));
        let nobody = good().with_centres(vec![vec![1.0, 0.0]], vec![0, 1, 0], 2, Seed(1));
        assert_eq!(nobody.err().unwrap().name, "users");
    }
}
