//! The heterogeneous linear world: some parameters are shared, the others are each agent's own.

use std::collections::BTreeMap;

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Domain, Seed, Shape};
use serde::{Deserialize, Serialize};

use super::catalogue::Catalogue;
use super::drift::Drift;
use super::form::{Ball, Form};
use super::noise::{Noise, NoiseShape};
use super::vector::dot;
use super::{Luck, Offer, Rewards, World};

/// Rewards θᵢᵀx + noise where θᵢ is a shared part followed by agent i's local part, each of length one,
/// and ‖x‖ ≤ 1 over both parts together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct HeterogeneousConfig {
    /// d ≥ 1: features of an arm, shared and local. Default 25.
    #[setting(max = 10_000)]
    pub dimension: usize,
    /// d_g ≥ 1: features whose parameters all agents share, at most `dimension`. Default 16.
    #[setting(max = 10_000)]
    pub shared: usize,
    /// By how many local features agents may differ: agent i has i mod (`local_spread` + 1) fewer than
    /// `dimension` − `shared`. Default 0: all the same.
    #[setting(max = 10_000)]
    pub local_spread: usize,
    /// K ≥ 1: how many arms an offer has. Default 25.
    #[setting(max = 1_000_000)]
    pub arms: usize,
    /// σ ≥ 0: standard deviation of the noise; one draw a step, the same for all its arms. Default 0.1.
    pub noise: f64,
    /// How parameters and arms are drawn. Default `paper`.
    pub form: Form,
    /// Arms in the catalogue of the `authors` form; agents with equally many features have the same
    /// catalogue. The other form ignores it. Default 1000.
    #[setting(max = 1_000_000)]
    pub pool: usize,
    /// The distribution of the noise. Default Gaussian.
    pub noise_shape: NoiseShape,
    /// How the parameters turn over time. Not set: they stay.
    pub drift: Option<Drift>,
}

impl Default for HeterogeneousConfig {
    fn default() -> Self {
        Self {
            dimension: 25,
            shared: 16,
            local_spread: 0,
            arms: 25,
            noise: 0.1,
            form: Form::default(),
            pool: 1000,
            noise_shape: NoiseShape::default(),
            drift: None,
        }
    }
}

impl HeterogeneousConfig {
    pub(super) fn build(&self, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        let Self { dimension, shared, local_spread, arms, noise, form, pool, noise_shape, drift } = *self;
        form.check(dimension, arms, pool)?;
        if shared == 0 || shared > dimension {
            return Err(ConfigError::new("shared", shared, "at least 1 and at most `dimension`"));
        }
        if local_spread > dimension - shared {
            return Err(ConfigError::new("local_spread", local_spread, "at most `dimension` − `shared`"));
        }
        let sources = (0..=local_spread)
            .map(|fewer| match form {
                Form::Paper => HeterogeneousArms::Ball(Ball::new(dimension - fewer)),
                Form::Authors => HeterogeneousArms::Catalogue(Catalogue::new(
                    dimension - fewer,
                    pool,
                    seed.domain("catalogue"),
                )),
            })
            .collect();
        let truth = Truth {
            form,
            shared: form.parameters(shared, &mut seed.stream("parameters", 0, 0)),
            local: seed.domain("local-parameters"),
            most_local: dimension - shared,
            spread: local_spread,
        };
        let world = Box::new(Heterogeneous {
            truth,
            arms,
            sources,
            choice: seed.domain("arms"),
            noise: Noise::new(noise, noise_shape, seed)?,
            met: BTreeMap::new(),
        });
        match drift {
            Some(drift) => drift.wrap(world, seed),
            None => Ok(world),
        }
    }
}

struct Heterogeneous {
    truth: Truth,
    arms: usize,
    /// Where arms come from, by how many local features the agent has fewer than the most.
    sources: Vec<HeterogeneousArms>,
    /// Draws the arms that a step offers.
    choice: Domain,
    noise: Noise,
    /// The parameters of agents met so far.
    met: BTreeMap<AgentId, Vec<f64>>,
}

enum HeterogeneousArms {
    Ball(Ball),
    Catalogue(Catalogue),
}

/// The true parameters of all agents.
struct Truth {
    form: Form,
    shared: Vec<f64>,
    /// The local parameters, a stream an agent.
    local: Domain,
    most_local: usize,
    spread: usize,
}

impl Truth {
    /// How many local features `agent` has fewer than the most.
    fn fewer(&self, agent: AgentId) -> usize {
        (agent.0 % (self.spread as u64 + 1)) as usize
    }

    fn shape(&self, agent: AgentId) -> Shape {
        Shape { shared: self.shared.len(), local: self.most_local - self.fewer(agent) }
    }

    fn parameters(&self, agent: AgentId) -> Vec<f64> {
        let local = self.form.parameters(self.shape(agent).local, &mut self.local.stream(agent.0, 0));
        [self.shared.as_slice(), local.as_slice()].concat()
    }
}

impl World for Heterogeneous {
    fn shape(&self, agent: AgentId) -> Shape {
        self.truth.shape(agent)
    }

    fn offer(&mut self, step: u64, offer: &mut Offer) {
        let agent = offer.agent;
        let theta: &[f64] = self.met.entry(agent).or_insert_with(|| self.truth.parameters(agent));
        let mut stream = self.choice.stream(0, step);
        offer.clear(theta.len());
        match &mut self.sources[self.truth.fewer(agent)] {
            HeterogeneousArms::Ball(ball) => {
                ball.draw(&mut stream, self.arms, |x| offer.push(x, dot(theta, x)));
            }
            HeterogeneousArms::Catalogue(catalogue) => {
                catalogue.draw(&mut stream, self.arms, |_, x| offer.push(x, dot(theta, x)));
            }
        }
        offer.luck = Luck::Noise(self.noise.draw(step));
    }

    fn rewards(&self) -> Option<Rewards> {
        Some(Rewards::Numbers)
    }

    fn parameters(&self, agent: AgentId) -> Option<Vec<f64>> {
        Some(self.truth.parameters(agent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tests::ask;

    #[test]
    fn agents_share_one_part_and_differ_in_the_other() {
        for form in [Form::Paper, Form::Authors] {
            let config = HeterogeneousConfig { form, ..HeterogeneousConfig::default() };
            let world = config.build(Seed(1)).unwrap();
            let thetas: Vec<_> = (0..4).map(|agent| world.parameters(AgentId(agent)).unwrap()).collect();
            for theta in &thetas {
                let (shared, local) = theta.split_at(16);
                assert_eq!(shared, &thetas[0][..16]);
                assert!((dot(shared, shared) - 1.0).abs() < 1e-12);
                assert!((dot(local, local) - 1.0).abs() < 1e-12);
            }
            assert_ne!(thetas[0], thetas[1]);
            assert_ne!(thetas[1], thetas[2]);
        }
    }

    #[test]
    fn local_dimensions_spread_over_the_agents() {
        let config = HeterogeneousConfig {
            dimension: 6,
            shared: 4,
            local_spread: 2,
            form: Form::Authors,
            ..HeterogeneousConfig::default()
        };
        let mut world = config.build(Seed(2)).unwrap();
        for (agent, local) in [2, 1, 0, 2, 1].into_iter().enumerate() {
            let agent = agent as u64;
            assert_eq!(world.shape(AgentId(agent)), Shape { shared: 4, local });
            assert_eq!(world.parameters(AgentId(agent)).unwrap().len(), 4 + local);
            assert_eq!(ask(&mut *world, agent, 0).arms.dimension(), 4 + local);
        }
        // The same catalogue and the same choice for agents alike; other means, as they differ in taste.
        let (one, other) = (ask(&mut *world, 0, 5), ask(&mut *world, 3, 5));
        assert_eq!(one.arms, other.arms);
        assert_ne!(one.means, other.means);
    }

    #[test]
    fn means_are_the_agents_parameters_times_the_features() {
        for form in [Form::Paper, Form::Authors] {
            let config = HeterogeneousConfig { form, local_spread: 3, ..HeterogeneousConfig::default() };
            let mut world = config.build(Seed(3)).unwrap();
            for step in 0..40 {
                let offer = ask(&mut *world, step % 7, step);
                let theta = world.parameters(offer.agent).unwrap();
                for (arm, mean) in offer.means.iter().enumerate() {
                    let x = offer.arms.row(arm);
                    let expected: f64 = theta.iter().zip(x).map(|(theta, x)| theta * x).sum();
                    assert!((mean - expected).abs() < 1e-12);
                    let length = dot(x, x).sqrt();
                    assert!(length <= 1.0 + 1e-12);
                    assert!(form == Form::Paper || length > 1.0 - 1e-12);
                }
            }
        }
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let good = HeterogeneousConfig::default;
        let refused = |config: HeterogeneousConfig| config.build(Seed(1)).err().map(|error| error.name);
        assert_eq!(refused(good()), None);
        assert_eq!(refused(HeterogeneousConfig { shared: 25, ..good() }), None);
        assert_eq!(refused(HeterogeneousConfig { shared: 26, ..good() }), Some("shared"));
        assert_eq!(refused(HeterogeneousConfig { shared: 0, ..good() }), Some("shared"));
        assert_eq!(refused(HeterogeneousConfig { local_spread: 9, ..good() }), None);
        assert_eq!(refused(HeterogeneousConfig { local_spread: 10, ..good() }), Some("local_spread"));
        assert_eq!(refused(HeterogeneousConfig { dimension: 0, ..good() }), Some("dimension"));
        assert_eq!(refused(HeterogeneousConfig { arms: 0, ..good() }), Some("arms"));
        assert_eq!(refused(HeterogeneousConfig { noise: f64::INFINITY, ..good() }), Some("noise"));
    }
}
