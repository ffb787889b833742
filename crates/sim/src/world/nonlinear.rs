//! Two worlds whose means are not linear in the features: a wave and a parabola along one hidden direction.

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Domain, Seed, Shape, Stream};
use serde::{Deserialize, Serialize};

use super::form::Form;
use super::noise::{Noise, NoiseShape};
use super::vector::{direction, dot, scale};
use super::{Luck, Offer, Rewards, World};

/// Rewards that follow a curve of aᵀx, with one `a` of length one for all agents and ‖x‖ = 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default, deny_unknown_fields)]
pub struct NonlinearConfig {
    /// d ≥ 1: features of an arm. Default 10.
    #[setting(max = 10_000)]
    pub dimension: usize,
    /// K ≥ 1: how many arms an offer has, new ones every step. Default 4.
    #[setting(max = 1_000_000)]
    pub arms: usize,
    /// σ ≥ 0: standard deviation of the noise; one draw a step, the same for all its arms. Default 0.01.
    pub noise: f64,
    /// How arms are drawn. `paper` has them uniform on the unit sphere; `authors` draws a point of the cube
    /// [−½, ½]^d and divides it by its length, so that corners come more often than axes. Default `paper`.
    pub form: Form,
    /// The distribution of the noise. Default Gaussian.
    pub noise_shape: NoiseShape,
}

impl Default for NonlinearConfig {
    fn default() -> Self {
        Self {
            dimension: 10,
            arms: 4,
            noise: 0.01,
            form: Form::default(),
            noise_shape: NoiseShape::default(),
        }
    }
}

/// What an arm is worth, given z = aᵀx.
#[derive(Clone, Copy, Debug)]
pub(super) enum RewardCurve {
    /// The mean reward is cos 3z.
    Cosine,
    /// The mean reward is 10z².
    Square,
}

impl RewardCurve {
    fn mean(self, z: f64) -> f64 {
        match self {
            Self::Cosine => libm::cos(3.0 * z),
            Self::Square => 10.0 * z * z,
        }
    }
}

impl NonlinearConfig {
    pub(super) fn build(&self, curve: RewardCurve, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        Ok(Box::new(self.world(curve, seed)?))
    }

    fn world(&self, curve: RewardCurve, seed: Seed) -> Result<Nonlinear, ConfigError> {
        let Self { dimension, arms, noise, form, noise_shape } = *self;
        // Arms are new in both forms: there is no catalogue to be too small.
        form.check(dimension, arms, arms)?;
        let noise = Noise::new(noise, noise_shape, seed)?;
        let a = direction(dimension, &mut seed.stream("parameters", 0, 0));
        Ok(Nonlinear { curve, a, arms, form, choice: seed.domain("arms"), noise })
    }
}

struct Nonlinear {
    curve: RewardCurve,
    a: Vec<f64>,
    arms: usize,
    form: Form,
    /// Draws the arms that a step offers.
    choice: Domain,
    noise: Noise,
}

impl World for Nonlinear {
    fn shape(&self, _: AgentId) -> Shape {
        Shape::shared(self.a.len())
    }

    fn offer(&mut self, step: u64, offer: &mut Offer) {
        let mut stream = self.choice.stream(0, step);
        offer.clear(self.a.len());
        for _ in 0..self.arms {
            let x = match self.form {
                Form::Paper => direction(self.a.len(), &mut stream),
                Form::Authors => towards_cube(self.a.len(), &mut stream),
            };
            offer.push(&x, self.curve.mean(dot(&self.a, &x)));
        }
        offer.luck = Luck::Noise(self.noise.draw(step));
    }

    /// None: `a` is not what a linear model would have to find.
    fn rewards(&self) -> Option<Rewards> {
        Some(Rewards::Numbers)
    }

    fn parameters(&self, _: AgentId) -> Option<Vec<f64>> {
        None
    }
}

/// The direction of a uniform point of the cube [−½, ½]^d.
fn towards_cube(dimension: usize, stream: &mut Stream) -> Vec<f64> {
    loop {
        let mut x: Vec<f64> = (0..dimension).map(|_| stream.uniform() - 0.5).collect();
        let length = dot(&x, &x).sqrt();
        // The middle of the cube has no direction.
        if length > 0.0 {
            scale(&mut x, 1.0 / length);
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tests::ask;

    #[test]
    fn means_follow_the_curve_for_arms_of_length_one() {
        for form in [Form::Paper, Form::Authors] {
            let config = NonlinearConfig { form, ..NonlinearConfig::default() };
            for curve in [RewardCurve::Cosine, RewardCurve::Square] {
                let mut world = config.world(curve, Seed(1)).unwrap();
                let a = world.a.clone();
                assert!((dot(&a, &a) - 1.0).abs() < 1e-12);
                for step in 0..50 {
                    let offer = ask(&mut world, step % 3, step);
                    for (arm, mean) in offer.means.iter().enumerate() {
                        let x = offer.arms.row(arm);
                        assert!((dot(x, x) - 1.0).abs() < 1e-12);
                        let z: f64 = a.iter().zip(x).map(|(a, x)| a * x).sum();
                        let expected = match curve {
                            // cos 3z = 4cos³z − 3cos z.
                            RewardCurve::Cosine => 4.0 * libm::pow(libm::cos(z), 3.0) - 3.0 * libm::cos(z),
                            RewardCurve::Square => z * z / 0.1,
                        };
                        assert!((mean - expected).abs() < 1e-12, "{curve:?}: {mean} for {z}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_the_authors_prefer_corners() {
        // The mean of Σx⁴ over directions: 3/(d + 2) on the sphere, less where corners come more often.
        let fourth = |form| {
            let config = NonlinearConfig { form, dimension: 2, ..NonlinearConfig::default() };
            let mut world = config.world(RewardCurve::Cosine, Seed(2)).unwrap();
            let mut sum = 0.0;
            for step in 0..10_000 {
                let offer = ask(&mut world, 0, step);
                sum += (0..4)
                    .map(|arm| offer.arms.row(arm).iter().map(|x| x * x * x * x).sum::<f64>())
                    .sum::<f64>();
            }
            sum / 40_000.0
        };
        // In the square, angles φ between 0 and π/4 have density 1/cos²φ: the mean is 3/2 − π/4.
        assert!((fourth(Form::Paper) - 0.75).abs() < 0.003);
        assert!((fourth(Form::Authors) - 0.7146).abs() < 0.003);
    }

    #[test]
    fn all_agents_meet_one_direction_and_another_seed_another() {
        let config = NonlinearConfig::default();
        let world = |seed| config.world(RewardCurve::Square, Seed(seed)).unwrap();
        assert_eq!(ask(&mut world(4), 0, 9).means, ask(&mut world(4), 7, 9).means);
        assert_ne!(world(4).a, world(5).a);
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let good = NonlinearConfig::default;
        let refused = |config: NonlinearConfig| {
            config.build(RewardCurve::Cosine, Seed(1)).err().map(|error| error.name)
        };
        assert_eq!(refused(good()), None);
        assert_eq!(refused(NonlinearConfig { form: Form::Authors, ..good() }), None);
        assert_eq!(refused(NonlinearConfig { dimension: 0, ..good() }), Some("dimension"));
        assert_eq!(refused(NonlinearConfig { arms: 0, ..good() }), Some("arms"));
        assert_eq!(refused(NonlinearConfig { noise: f64::NAN, ..good() }), Some("noise"));
    }
}
