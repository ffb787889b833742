//! The noise of rewards: one draw a step.

use posse_core::settings::Described;
use posse_core::{ConfigError, Domain, Seed};
use serde::{Deserialize, Serialize};

use super::gamma::ln_gamma_draw;

/// The distribution of the noise. Its mean is zero and its standard deviation is the world's `noise`,
/// whatever the law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default, deny_unknown_fields)]
pub struct NoiseShape {
    /// The family of distributions. Default `gaussian`.
    pub law: NoiseLaw,
    /// ν > 2: degrees of freedom of `student-t`, above 2 so that the variance exists; the nearer to 2, the
    /// wilder the outliers. The other laws ignore it. Default 3.
    pub degrees: f64,
}

/// A family of distributions that noise can be drawn from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NoiseLaw {
    /// The normal distribution, with tails that fall fast.
    #[default]
    Gaussian,
    /// Uniform on ±√3 standard deviations: bounded.
    Uniform,
    /// Student's t distribution, which has heavy tails.
    StudentT,
}

impl Default for NoiseShape {
    fn default() -> Self {
        Self { law: NoiseLaw::default(), degrees: 3.0 }
    }
}

/// The noise of one world.
#[derive(Debug)]
pub(super) struct Noise {
    deviation: f64,
    shape: NoiseShape,
    domain: Domain,
}

impl Noise {
    pub(super) fn new(deviation: f64, shape: NoiseShape, seed: Seed) -> Result<Self, ConfigError> {
        let proper = deviation.is_finite() && deviation >= 0.0;
        ConfigError::require(proper, "noise", deviation, "finite and at least 0")?;
        let proper = shape.law != NoiseLaw::StudentT || (shape.degrees.is_finite() && shape.degrees > 2.0);
        ConfigError::require(proper, "degrees", shape.degrees, "finite and above 2")?;
        Ok(Self { deviation, shape, domain: seed.domain("noise") })
    }

    /// The noise that is added to the reward of interaction `step`.
    pub(super) fn draw(&self, step: u64) -> f64 {
        let mut stream = self.domain.stream(0, step);
        let unit = match self.shape.law {
            NoiseLaw::Gaussian => stream.normal(),
            NoiseLaw::Uniform => (2.0 * stream.uniform() - 1.0) * 3f64.sqrt(),
            NoiseLaw::StudentT => {
                // t = z/√(χ²/ν) with χ² twice a Gamma(ν/2) draw; its variance is ν/(ν − 2).
                let degrees = self.shape.degrees;
                let z = stream.normal();
                let gamma = libm::exp(ln_gamma_draw(0.5 * degrees, &mut stream));
                z * (0.5 * (degrees - 2.0) / gamma).sqrt()
            }
        };
        self.deviation * unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(law: NoiseLaw, degrees: f64) -> Noise {
        Noise::new(0.5, NoiseShape { law, degrees }, Seed(1)).unwrap()
    }

    #[test]
    fn every_law_has_mean_zero_and_the_configured_deviation() {
        for law in [NoiseLaw::Gaussian, NoiseLaw::Uniform, NoiseLaw::StudentT] {
            let noise = noise(law, 10.0);
            let draws = 100_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for step in 0..draws {
                let x = noise.draw(step);
                sum += x;
                squares += x * x;
            }
            let draws = draws as f64;
            assert!((sum / draws).abs() < 0.01, "{law:?}");
            assert!((squares / draws / 0.25 - 1.0).abs() < 0.05, "{law:?}");
        }
    }

    #[test]
    fn tails_are_as_heavy_as_the_law_says() {
        let beyond = |law, deviations: f64| {
            let noise = noise(law, 3.0);
            (0..100_000).filter(|&step| noise.draw(step).abs() > 0.5 * deviations).count()
        };
        assert_eq!(beyond(NoiseLaw::Uniform, 1.733), 0);
        // Beyond four deviations: 6 of 100 000 normals, and 616 draws of Student's t with three degrees.
        assert!(beyond(NoiseLaw::Gaussian, 4.0) < 30);
        assert!((450..800).contains(&beyond(NoiseLaw::StudentT, 4.0)));
    }

    #[test]
    fn impossible_noise_is_refused_by_name() {
        let refused = |deviation, law, degrees| {
            Noise::new(deviation, NoiseShape { law, degrees }, Seed(1)).err().map(|error| error.name)
        };
        assert_eq!(refused(0.0, NoiseLaw::Gaussian, 0.0), None);
        assert_eq!(refused(-1.0, NoiseLaw::Gaussian, 3.0), Some("noise"));
        assert_eq!(refused(f64::NAN, NoiseLaw::Uniform, 3.0), Some("noise"));
        assert_eq!(refused(0.1, NoiseLaw::StudentT, 2.0), Some("degrees"));
        assert_eq!(refused(0.1, NoiseLaw::StudentT, f64::NAN), Some("degrees"));
    }
}
