//! The two published forms of the linear worlds: as the paper describes them and as its authors' code
//! makes them. They differ in how the true parameters and the arms are drawn.

use posse_core::settings::Described;
use posse_core::{ConfigError, Stream};
use serde::{Deserialize, Serialize};

use super::vector::{direction, gaussian, scale};

/// How parameters and arms are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Form {
    /// Parameters uniform on the unit sphere; every step has fresh arms, uniform in the unit ball.
    #[default]
    Paper,
    /// Parameters of length one with a positive sum; every step offers different arms of one fixed
    /// catalogue, whose first coordinates vary more than its last.
    Authors,
}

impl Form {
    /// True parameters θ of length one.
    pub(super) fn parameters(self, dimension: usize, stream: &mut Stream) -> Vec<f64> {
        let mut theta = direction(dimension, stream);
        // The authors divide a normal vector by its sum before they normalise: a change of sign at most.
        if self == Self::Authors && theta.iter().sum::<f64>() < 0.0 {
            scale(&mut theta, -1.0);
        }
        theta
    }

    /// `Ok` if `arms` arms of `dimension` features can be offered, from a catalogue of `pool` if need be.
    pub(super) fn check(self, dimension: usize, arms: usize, pool: usize) -> Result<(), ConfigError> {
        if dimension == 0 {
            return Err(ConfigError::new("dimension", dimension, "at least 1"));
        }
        if arms == 0 {
            return Err(ConfigError::new("arms", arms, "at least 1"));
        }
        if self == Self::Authors && arms > pool {
            return Err(ConfigError::new("arms", arms, "at most `pool`"));
        }
        Ok(())
    }
}

/// Fresh arms, uniform in the unit ball.
#[derive(Debug)]
pub(super) struct Ball {
    dimension: usize,
    /// Memory for one arm and the two coordinates it loses.
    x: Vec<f64>,
}

impl Ball {
    pub(super) fn new(dimension: usize) -> Self {
        Self { dimension, x: vec![0.0; dimension + 2] }
    }

    /// Draws `count` arms and shows each to `visit`.
    pub(super) fn draw(&mut self, stream: &mut Stream, count: usize, mut visit: impl FnMut(&[f64])) {
        for _ in 0..count {
            // A point of the sphere without two of its coordinates is uniform in the ball (Archimedes'
            // theorem, in any dimension): cheaper than a direction times U^(1/d).
            let length = gaussian(&mut self.x, stream);
            let arm = &mut self.x[..self.dimension];
            scale(arm, 1.0 / length);
            visit(arm);
        }
    }
}

#[cfg(test)]
mod tests {
    use posse_core::Seed;

    use super::*;
    use crate::world::vector::dot;

    #[test]
    fn parameters_have_length_one_and_the_authors_a_positive_sum() {
        for number in 0..200 {
            for form in [Form::Paper, Form::Authors] {
                let theta = form.parameters(7, &mut Seed(1).stream("test", 0, number));
                assert!((dot(&theta, &theta) - 1.0).abs() < 1e-12);
                assert!(form == Form::Paper || theta.iter().sum::<f64>() > 0.0);
            }
        }
    }

    #[test]
    fn ball_arms_are_uniform_in_the_ball() {
        let draws = 20_000;
        let (mut inner, mut sum) = (0u32, [0.0; 3]);
        Ball::new(3).draw(&mut Seed(2).stream("test", 0, 0), draws, |x| {
            let length = dot(x, x).sqrt();
            assert!(length <= 1.0 + 1e-12);
            inner += u32::from(length < 0.5);
            sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
        });
        // An eighth of the volume lies within half the radius: 2 500 with standard deviation 47.
        assert!(inner.abs_diff(2_500) < 250, "{inner}");
        // Coordinates have variance 1/5: each sum has standard deviation 63.
        assert!(sum.iter().all(|sum| sum.abs() < 320.0), "{sum:?}");
    }
}
