//! Links: how the expected reward follows from xᵀθ, and the constants that theory needs of them.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use crate::error::InputError;
use crate::exponential::{self, LANES, Lanes};

/// How the expected reward μ(z) follows from z = xᵀθ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum LinkFunction {
    /// μ(z) = z: rewards are numbers.
    Identity,
    /// μ(z) = 1/(1 + e⁻ᶻ): rewards lie between 0 and 1, such as clicks.
    #[default]
    Logistic,
    /// μ(z) = eᶻ, with z cut off at ±30: rewards are counts.
    Poisson,
    /// μ(z) = Φ(z), the normal distribution function, as a quasi-likelihood: rewards between 0 and 1.
    Probit,
}

/// The Poisson link cuts its exponent off at ± this. e³⁰ is more than any count of events in practice.
const LARGEST_EXPONENT: f64 = 30.0;

impl LinkFunction {
    /// Returns μ(z), the expected reward of an arm with z = xᵀθ.
    #[must_use]
    pub fn mean(self, z: f64) -> f64 {
        let mut lanes = [z; LANES];
        self.means(&mut lanes);
        lanes[0]
    }

    /// Returns μ'(z), the slope of the expected reward.
    #[must_use]
    pub fn slope(self, z: f64) -> f64 {
        match self {
            Self::Identity => 1.0,
            Self::Logistic => exponential::logistic_slope(z),
            Self::Poisson => exponential::exp(z.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)),
            Self::Probit => density(z),
        }
    }

    /// m(z) with m' = μ: the loss of an observation is m(z) − yz.
    #[must_use]
    pub fn potential(self, z: f64) -> f64 {
        match self {
            Self::Identity => 0.5 * z * z,
            Self::Logistic => z.max(0.0) + libm::log1p(exponential::exp(-z.abs())),
            Self::Poisson => {
                // Straight beyond the cut, so that its slope stays the mean.
                let cut = z.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT);
                exponential::exp(cut) * (1.0 + (z - cut))
            }
            Self::Probit => z * distribution(z) + density(z),
        }
    }

    /// Replaces every z by μ(z).
    #[inline(always)]
    pub(crate) fn means(self, z: &mut Lanes) {
        match self {
            Self::Identity => {}
            Self::Logistic => z.iter_mut().for_each(|z| *z = exponential::logistic(*z)),
            Self::Poisson => z.iter_mut().for_each(|z| {
                *z = exponential::exp(z.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT));
            }),
            Self::Probit => z.iter_mut().for_each(|z| *z = distribution(*z)),
        }
    }

    /// Replaces every z by μ(z) and writes μ'(z).
    #[inline(always)]
    pub(crate) fn means_and_slopes(self, z: &mut Lanes, slopes: &mut Lanes) {
        match self {
            Self::Identity => *slopes = [1.0; LANES],
            Self::Logistic => {
                for lane in 0..LANES {
                    (z[lane], slopes[lane]) = exponential::logistic_and_slope(z[lane]);
                }
            }
            Self::Poisson => {
                self.means(z);
                *slopes = *z;
            }
            Self::Probit => {
                for lane in 0..LANES {
                    slopes[lane] = density(z[lane]);
                }
                self.means(z);
            }
        }
    }

    /// c_μ: the smallest slope for |z| ≤ `reach`.
    #[must_use]
    pub fn smallest_slope(self, reach: f64) -> f64 {
        match self {
            Self::Identity => 1.0,
            Self::Logistic | Self::Probit => self.slope(reach),
            Self::Poisson => self.slope(-reach),
        }
    }

    /// k_μ: the largest slope for |z| ≤ `reach`.
    #[must_use]
    pub fn largest_slope(self, reach: f64) -> f64 {
        match self {
            Self::Identity => 1.0,
            Self::Logistic => 0.25,
            Self::Poisson => self.slope(reach),
            Self::Probit => density(0.0),
        }
    }

    /// The most by which a reward and its mean can differ, where there is such a bound.
    pub(crate) const fn largest_error(self) -> Option<f64> {
        match self {
            Self::Logistic | Self::Probit => Some(1.0),
            Self::Identity | Self::Poisson => None,
        }
    }

    /// `Ok` if rewards of this link can have this value.
    pub(crate) fn check_reward(self, reward: f64) -> Result<(), InputError> {
        let (allowed, range) = match self {
            Self::Identity => (true, ""),
            Self::Logistic | Self::Probit => ((0.0..=1.0).contains(&reward), "between 0 and 1"),
            Self::Poisson => (reward >= 0.0, "zero or more"),
        };
        if allowed || !reward.is_finite() {
            return if reward.is_finite() { Ok(()) } else { Err(InputError::Reward { value: reward }) };
        }
        Err(InputError::RewardRange { value: reward, link: self.name(), range })
    }

    /// Returns the name of the link in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Logistic => "logistic",
            Self::Poisson => "poisson",
            Self::Probit => "probit",
        }
    }

    /// Returns every link that posse knows.
    #[must_use]
    pub const fn all() -> [Self; 4] {
        [Self::Identity, Self::Logistic, Self::Poisson, Self::Probit]
    }
}

/// Returns φ(z), the density of the standard normal distribution.
#[inline(always)]
fn density(z: f64) -> f64 {
    const ROOT: f64 = 0.398_942_280_401_432_7; // 1/√(2π)
    ROOT * exponential::exp(-0.5 * z * z)
}

/// Returns Φ(z), the distribution function of the standard normal distribution.
fn distribution(z: f64) -> f64 {
    0.5 * libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_slopes_of_the_potential_and_slopes_those_of_the_mean() {
        for link in LinkFunction::all() {
            for step in -40..=40 {
                let (z, h) = (f64::from(step) / 8.0, 1e-5);
                let mean = (link.potential(z + h) - link.potential(z - h)) / (2.0 * h);
                let slope = (link.mean(z + h) - link.mean(z - h)) / (2.0 * h);
                let scale = 1.0 + link.mean(z).abs();
                assert!((link.mean(z) - mean).abs() < 1e-8 * scale, "{link:?} at {z}");
                assert!((link.slope(z) - slope).abs() < 1e-8 * scale, "{link:?} at {z}");
            }
        }
    }

    #[test]
    fn no_slope_within_reach_leaves_the_constants() {
        for link in LinkFunction::all() {
            for reach in [0.1, 1.0, 3.0] {
                let (low, high) = (link.smallest_slope(reach), link.largest_slope(reach));
                assert!(low > 0.0 && low <= high);
                for step in -100..=100 {
                    let slope = link.slope(reach * f64::from(step) / 100.0);
                    assert!(slope >= low * (1.0 - 1e-12) && slope <= high * (1.0 + 1e-12), "{link:?}");
                }
            }
        }
        assert!((LinkFunction::Logistic.smallest_slope(1.0) - 0.196_612).abs() < 1e-6);
    }

    #[test]
    fn rewards_a_link_cannot_have_are_refused() {
        let refused = |link: LinkFunction, reward: f64| link.check_reward(reward).is_err();
        assert!(
            refused(LinkFunction::Logistic, -0.1)
                && refused(LinkFunction::Logistic, 1.5)
                && !refused(LinkFunction::Logistic, 0.5)
        );
        assert!(refused(LinkFunction::Probit, 2.0) && !refused(LinkFunction::Probit, 1.0));
        assert!(refused(LinkFunction::Poisson, -1.0) && !refused(LinkFunction::Poisson, 1e6));
        assert!(!refused(LinkFunction::Identity, -1e6));
        for link in LinkFunction::all() {
            assert!(matches!(link.check_reward(f64::NAN), Err(InputError::Reward { .. })));
        }
    }

    #[test]
    fn enormous_arguments_give_finite_numbers() {
        for link in LinkFunction::all() {
            for z in [-1e100, -800.0, 800.0, 1e100] {
                assert!(link.mean(z).is_finite() && link.slope(z).is_finite(), "{link:?} at {z}");
            }
        }
    }
}
