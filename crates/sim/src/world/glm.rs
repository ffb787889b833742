//! The generalized linear world: clicks, counts and choices.

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Domain, LinkFunction, Seed, Shape};
use serde::{Deserialize, Serialize};

use super::form::Form;
use super::vector::{direction, dot, scale};
use super::{Luck, Offer, Rewards, World};

/// Expected rewards μ(xᵀθ) with one θ for all agents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct GlmWorldConfig {
    /// μ: the link from xᵀθ to the mean reward; it also says whether rewards are numbers, clicks or counts. Default logistic.
    pub link: LinkFunction,
    /// d ≥ 1: features of an arm. Default 10.
    #[setting(max = 10_000)]
    pub dimension: usize,
    /// K ≥ 1: how many arms an offer has. Default 25.
    #[setting(max = 1_000_000)]
    pub arms: usize,
    /// How arms are drawn. `paper` has new ones every step, uniform on the unit sphere; `authors` has a
    /// catalogue of arms with a constant last feature 1 (so of length √2), drawn with repetition. Default
    /// `paper`.
    pub form: Form,
    /// Arms in the catalogue of the `authors` form; the other form ignores it. Default 1000.
    #[setting(max = 1_000_000)]
    pub pool: usize,
    /// ‖θ‖ ≥ 0: the length of the true parameter. Default 1.
    pub parameter_norm: f64,
    /// σ ≥ 0: standard deviation of Gaussian noise with the identity link; other links ignore it. Default 0.1.
    pub noise: f64,
    /// ≥ 0: the largest count with the Poisson link. Default 20.
    pub max_count: f64,
}

impl Default for GlmWorldConfig {
    fn default() -> Self {
        Self {
            link: LinkFunction::Logistic,
            dimension: 10,
            arms: 25,
            form: Form::Paper,
            pool: 1000,
            parameter_norm: 1.0,
            noise: 0.1,
            max_count: 20.0,
        }
    }
}

impl GlmWorldConfig {
    pub(super) fn build(&self, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        // Unlike the linear catalogue's, these arms may come twice in an offer.
        self.form.check(self.dimension, self.arms, self.pool.max(self.arms))?;
        if self.form == Form::Authors && self.pool == 0 {
            return Err(ConfigError::new("pool", 0, "at least 1"));
        }
        let range = |name, value: f64| {
            let fine = value.is_finite() && value >= 0.0;
            ConfigError::require(fine, name, value, "it must be a finite number, zero or more")
        };
        range("parameter_norm", self.parameter_norm)?;
        range("noise", self.noise)?;
        range("max_count", self.max_count)?;
        let mut theta = direction(self.dimension, &mut seed.stream("parameters", 0, 0));
        scale(&mut theta, self.parameter_norm);
        let catalogue = match self.form {
            Form::Paper => Vec::new(),
            Form::Authors => self.catalogue(seed),
        };
        let (choice, luck) = (seed.domain("arms"), seed.domain("noise"));
        Ok(Box::new(Glm { config: self.clone(), theta, catalogue, choice, luck }))
    }

    /// Directions in all features but the last, which is 1; the first of them along the axes.
    fn catalogue(&self, seed: Seed) -> Vec<Vec<f64>> {
        let free = self.dimension - 1;
        let arm = |index: usize| {
            let mut x = if index < free {
                (0..free).map(|i| f64::from(u8::from(i == index))).collect()
            } else {
                direction(free, &mut seed.stream("catalogue", self.dimension as u64, index as u64))
            };
            x.push(1.0);
            x
        };
        (0..self.pool).map(arm).collect()
    }
}

struct Glm {
    config: GlmWorldConfig,
    theta: Vec<f64>,
    catalogue: Vec<Vec<f64>>,
    /// Draws the arms that a step offers.
    choice: Domain,
    luck: Domain,
}

impl World for Glm {
    fn shape(&self, _: AgentId) -> Shape {
        Shape::shared(self.theta.len())
    }

    fn offer(&mut self, step: u64, offer: &mut Offer) {
        let mut stream = self.choice.stream(0, step);
        let (link, theta) = (self.config.link, &self.theta);
        offer.clear(theta.len());
        for _ in 0..self.config.arms {
            match self.config.form {
                Form::Paper => {
                    let x = direction(theta.len(), &mut stream);
                    offer.push(&x, link.mean(dot(theta, &x)));
                }
                Form::Authors => {
                    let x = &self.catalogue[stream.below(self.catalogue.len() as u64) as usize];
                    offer.push(x, link.mean(dot(theta, x)));
                }
            }
        }
        let mut stream = self.luck.stream(0, step);
        offer.luck = match link {
            LinkFunction::Identity => Luck::Noise(self.config.noise * stream.normal()),
            LinkFunction::Logistic | LinkFunction::Probit => Luck::Coin(stream.uniform()),
            LinkFunction::Poisson => Luck::Count { quantile: stream.uniform(), most: self.config.max_count },
        };
    }

    fn rewards(&self) -> Option<Rewards> {
        Some(match self.config.link {
            LinkFunction::Identity => Rewards::Numbers,
            LinkFunction::Logistic | LinkFunction::Probit => Rewards::Clicks,
            LinkFunction::Poisson => Rewards::Counts,
        })
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
    fn means_follow_the_link_and_arms_have_the_length_of_their_form() {
        for link in LinkFunction::all() {
            for (form, length) in [(Form::Paper, 1.0), (Form::Authors, 2.0)] {
                let config = GlmWorldConfig { link, form, parameter_norm: 0.7, ..Default::default() };
                let mut world = config.build(Seed(1)).unwrap();
                let theta = world.parameters(AgentId(0)).unwrap();
                assert!((dot(&theta, &theta) - 0.49).abs() < 1e-12);
                for step in 0..20 {
                    let offer = ask(&mut *world, step % 3, step);
                    for (arm, mean) in offer.means.iter().enumerate() {
                        let x = offer.arms.row(arm);
                        assert!((dot(x, x) - length).abs() < 1e-12);
                        let z: f64 = theta.iter().zip(x).map(|(a, b)| a * b).sum();
                        assert!((mean - link.mean(z)).abs() < 1e-12);
                    }
                }
            }
        }
    }

    #[test]
    fn rewards_are_of_the_kind_the_link_says_and_average_to_their_means() {
        for link in LinkFunction::all() {
            let mut world = GlmWorldConfig { link, ..Default::default() }.build(Seed(2)).unwrap();
            let (mut rewards, mut means) = (0.0, 0.0);
            for step in 0..20_000 {
                let offer = ask(&mut *world, 0, step);
                let reward = offer.reward(0);
                match link {
                    LinkFunction::Identity => {}
                    LinkFunction::Logistic | LinkFunction::Probit => assert!(reward == 0.0 || reward == 1.0),
                    LinkFunction::Poisson => assert!(reward >= 0.0 && reward.fract() == 0.0),
                }
                rewards += reward;
                means += offer.means[0];
            }
            assert!((rewards - means).abs() < 0.03 * 20_000.0, "{link:?}: {rewards} for {means}");
        }
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let refused = |config: GlmWorldConfig| config.build(Seed(1)).err().map(|error| error.name);
        let good = GlmWorldConfig::default;
        assert_eq!(refused(good()), None);
        assert_eq!(refused(GlmWorldConfig { dimension: 0, ..good() }), Some("dimension"));
        assert_eq!(refused(GlmWorldConfig { arms: 0, ..good() }), Some("arms"));
        assert_eq!(refused(GlmWorldConfig { form: Form::Authors, pool: 0, ..good() }), Some("pool"));
        assert_eq!(refused(GlmWorldConfig { parameter_norm: f64::NAN, ..good() }), Some("parameter_norm"));
    }
}
