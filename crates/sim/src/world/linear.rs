//! The homogeneous linear world: one parameter vector for all agents.

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Domain, Seed, Shape};
use serde::{Deserialize, Serialize};

use super::catalogue::Catalogue;
use super::drift::Drift;
use super::form::{Ball, Form};
use super::noise::{Noise, NoiseShape};
use super::vector::dot;
use super::{Luck, Offer, Rewards, World};

/// Rewards θᵀx + noise with one θ for all agents, ‖θ‖ = 1 and ‖x‖ ≤ 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct LinearConfig {
    /// d ≥ 1: features of an arm. Default 25.
    #[setting(max = 10_000)]
    pub dimension: usize,
    /// K ≥ 1: how many arms an offer has. Default 25.
    #[setting(max = 1_000_000)]
    pub arms: usize,
    /// σ ≥ 0: standard deviation of the noise; one draw a step, the same for all its arms. Default 0.1.
    pub noise: f64,
    /// How parameters and arms are drawn. Default `paper`.
    pub form: Form,
    /// Arms in the catalogue of the `authors` form; the other form ignores it. Default 1000.
    #[setting(max = 1_000_000)]
    pub pool: usize,
    /// The distribution of the noise. Default Gaussian.
    pub noise_shape: NoiseShape,
    /// How the parameters turn over time. Not set: they stay.
    pub drift: Option<Drift>,
}

impl Default for LinearConfig {
    fn default() -> Self {
        Self {
            dimension: 25,
            arms: 25,
            noise: 0.1,
            form: Form::default(),
            pool: 1000,
            noise_shape: NoiseShape::default(),
            drift: None,
        }
    }
}

impl LinearConfig {
    pub(super) fn build(&self, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        let Self { dimension, arms, noise, form, pool, noise_shape, drift } = *self;
        form.check(dimension, arms, pool)?;
        let noise = Noise::new(noise, noise_shape, seed)?;
        let theta = form.parameters(dimension, &mut seed.stream("parameters", 0, 0));
        let source = match form {
            Form::Paper => LinearArms::Ball(Ball::new(dimension)),
            Form::Authors => {
                let catalogue = Catalogue::new(dimension, pool, seed.domain("catalogue"));
                let means = catalogue.rows().map(|x| dot(&theta, x)).collect();
                LinearArms::Catalogue(catalogue, means)
            }
        };
        let world = Box::new(Linear { theta, arms, source, choice: seed.domain("arms"), noise });
        match drift {
            Some(drift) => drift.wrap(world, seed),
            None => Ok(world),
        }
    }
}

struct Linear {
    theta: Vec<f64>,
    arms: usize,
    source: LinearArms,
    /// Draws the arms that a step offers.
    choice: Domain,
    noise: Noise,
}

enum LinearArms {
    Ball(Ball),
    /// With the mean of every arm in the catalogue.
    Catalogue(Catalogue, Vec<f64>),
}

impl World for Linear {
    fn shape(&self, _: AgentId) -> Shape {
        Shape::shared(self.theta.len())
    }

    fn offer(&mut self, step: u64, offer: &mut Offer) {
        let mut stream = self.choice.stream(0, step);
        offer.clear(self.theta.len());
        match &mut self.source {
            LinearArms::Ball(ball) => {
                ball.draw(&mut stream, self.arms, |x| offer.push(x, dot(&self.theta, x)));
            }
            LinearArms::Catalogue(catalogue, means) => {
                catalogue.draw(&mut stream, self.arms, |index, x| offer.push(x, means[index]));
            }
        }
        offer.luck = Luck::Noise(self.noise.draw(step));
    }

    fn rewards(&self) -> Option<Rewards> {
        Some(Rewards::Numbers)
    }

    fn parameters(&self, _: AgentId) -> Option<Vec<f64>> {
        Some(self.theta.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tests::ask;

    #[test]
    fn means_are_the_parameters_times_the_features_for_every_agent() {
        for form in [Form::Paper, Form::Authors] {
            let config = LinearConfig { form, ..LinearConfig::default() };
            let mut world = config.build(Seed(1)).unwrap();
            let theta = world.parameters(AgentId(0)).unwrap();
            assert!((dot(&theta, &theta) - 1.0).abs() < 1e-12);
            assert_eq!(world.parameters(AgentId(9)), Some(theta.clone()));
            for step in 0..50 {
                let offer = ask(&mut *world, step % 3, step);
                for (arm, mean) in offer.means.iter().enumerate() {
                    let x = offer.arms.row(arm);
                    let expected: f64 = theta.iter().zip(x).map(|(theta, x)| theta * x).sum();
                    assert!((mean - expected).abs() < 1e-12);
                    assert!(dot(x, x) <= 1.0 + 1e-12);
                }
            }
        }
    }

    #[test]
    fn only_the_catalogue_shows_an_arm_twice() {
        for (form, distinct) in [(Form::Paper, 20 * 25), (Form::Authors, 30)] {
            let config = LinearConfig { form, pool: 30, ..LinearConfig::default() };
            let mut world = config.build(Seed(2)).unwrap();
            let mut firsts: Vec<u64> = (0..20)
                .flat_map(|step| {
                    let offer = ask(&mut *world, 0, step);
                    (0..25).map(move |arm| offer.arms.row(arm)[0].to_bits()).collect::<Vec<_>>()
                })
                .collect();
            firsts.sort_unstable();
            firsts.dedup();
            assert_eq!(firsts.len(), distinct);
        }
    }

    #[test]
    fn rewards_spread_around_the_means_as_configured() {
        let config = LinearConfig { dimension: 2, arms: 2, noise: 0.3, ..LinearConfig::default() };
        let mut world = config.build(Seed(3)).unwrap();
        let squares: f64 = (0..20_000)
            .map(|step| {
                let offer = ask(&mut *world, 0, step);
                let noise = offer.reward(0) - offer.means[0];
                assert!((offer.reward(1) - offer.means[1] - noise).abs() < 1e-12);
                noise * noise
            })
            .sum();
        assert!((squares / 20_000.0 / 0.09 - 1.0).abs() < 0.05);
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let good = LinearConfig::default;
        let refused = |config: LinearConfig| config.build(Seed(1)).err().map(|error| error.name);
        assert_eq!(refused(good()), None);
        assert_eq!(refused(LinearConfig { dimension: 0, ..good() }), Some("dimension"));
        assert_eq!(refused(LinearConfig { arms: 0, ..good() }), Some("arms"));
        assert_eq!(refused(LinearConfig { noise: -0.1, ..good() }), Some("noise"));
        assert_eq!(refused(LinearConfig { noise: f64::NAN, ..good() }), Some("noise"));
        assert_eq!(
            refused(LinearConfig { drift: Some(Drift { period: 0, ..Drift::default() }), ..good() }),
            Some("period")
        );
        let small = LinearConfig { pool: 24, ..good() };
        assert_eq!(refused(small.clone()), None);
        assert_eq!(refused(LinearConfig { form: Form::Authors, ..small }), Some("arms"));
    }
}
