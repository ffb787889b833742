//! Observations, their sums and their noise in integers.
//!
//! Features and rewards are cut to multiples of a small unit, towards zero, so that no cut makes them longer than
//! their bound. Their products add up exactly, whatever the order. Measurements are rounded to a lattice that is much
//! finer than the noise, and noise is drawn on that lattice. What is computed from measurements afterwards may be floating point.

use crate::error::InputError;
use crate::evidence::{Evidence, packed};
use crate::privacy::config::{Clip, PrivacyConfig};
use crate::privacy::factorisation::PART_BITS;
use crate::privacy::sampler::{Bits, discrete_gaussian};

/// Binary digits of a feature or reward after the point, relative to its bound.
const DIGITS: i32 = 15;
/// A standard deviation of noise is at least so many steps of its lattice, and less than twice as many.
pub(crate) const LATTICE: f64 = (1u64 << 24) as f64;

/// What one unit of each integer is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Units {
    feature: f64,
    reward: f64,
}

/// Sums over some observations in integers: the lower triangle of Σxxᵀ, then Σxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) sums: Vec<i64>,
    pub(crate) count: u64,
}

impl Units {
    pub(crate) fn new(config: &PrivacyConfig) -> Self {
        let unit = |bound: f64| libm::ldexp(libm::exp2(libm::floor(libm::log2(bound))), -DIGITS);
        Self { feature: unit(config.feature_bound), reward: unit(config.reward_bound) }
    }

    /// Features and reward as multiples of their units.
    fn cut(self, x: &[f64], y: f64) -> (Vec<i64>, i64) {
        (x.iter().map(|v| (v / self.feature) as i64).collect(), (y / self.reward) as i64)
    }

    /// Features and reward as they enter the sums.
    pub(crate) fn snap(self, x: &[f64], y: f64) -> (Vec<f64>, f64) {
        let (x, y) = self.cut(x, y);
        (x.iter().map(|v| *v as f64 * self.feature).collect(), y as f64 * self.reward)
    }

    /// The observation as it enters the sums: around the centre, within its bounds, and in units of fixed point; and whether it was
    /// cut to its bounds. An error if larger ones are refused.
    pub(crate) fn clip(
        self,
        config: &PrivacyConfig,
        x: &[f64],
        reward: f64,
    ) -> Result<(Vec<f64>, f64, bool), InputError> {
        let (longest, largest) = (config.feature_bound, config.reward_bound);
        let y = reward - config.reward_centre;
        let length = x.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length <= longest && y.abs() <= largest {
            let (x, y) = self.snap(x, y);
            return Ok((x, y, false));
        }
        if config.clip == Clip::Refuse {
            return Err(if length > longest {
                InputError::FeatureBound { length, bound: longest }
            } else {
                InputError::RewardBound { value: reward, bound: largest }
            });
        }
        // Rounding alone is not worth reporting.
        let was_clipped = length > longest * (1.0 + 1e-9) || y.abs() > largest;
        // Rounded down, so that no rounding makes it longer than the bound.
        let factor = if length > longest { longest / length * (1.0 - f64::EPSILON * 4.0) } else { 1.0 };
        let x: Vec<f64> = x.iter().map(|v| v * factor).collect();
        let (x, y) = self.snap(&x, y.clamp(-largest, largest));
        Ok((x, y, was_clipped))
    }

    /// What one unit of entry `entry` of a leaf is worth.
    pub(crate) fn of(self, entry: usize, dimension: usize) -> f64 {
        self.feature * if entry < packed(dimension) { self.feature } else { self.reward }
    }

    /// Evidence from numbers in the order of a leaf, rounded to the units of leaves.
    pub(crate) fn evidence(self, numbers: &[f64], dimension: usize, count: u64) -> Evidence {
        let rounded = numbers.iter().enumerate().map(|(entry, number)| {
            let unit = self.of(entry, dimension);
            libm::round(number / unit) * unit
        });
        let mut gram: Vec<f64> = rounded.collect();
        let moment = gram.split_off(packed(dimension));
        Evidence::from_parts_unchecked(gram, moment, count)
    }
}

impl Leaf {
    pub(crate) fn new(dimension: usize) -> Self {
        Self { sums: vec![0; packed(dimension) + dimension], count: 0 }
    }

    /// Adds an observation within its bounds. Sums that would overflow stay at the largest number: that makes no
    /// interaction count for more.
    pub(crate) fn add(&mut self, units: Units, x: &[f64], y: f64) {
        let (x, y) = units.cut(x, y);
        let mut place = 0;
        for (i, a) in x.iter().enumerate() {
            for b in &x[..=i] {
                self.sums[place] = self.sums[place].saturating_add(a * b);
                place += 1;
            }
        }
        for a in &x {
            self.sums[place] = self.sums[place].saturating_add(a * y);
            place += 1;
        }
        self.count += 1;
    }

    /// Adds the observations of another leaf.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.sums.iter_mut().zip(&other.sums).for_each(|(a, b)| *a = a.saturating_add(*b));
        self.count += other.count;
    }
}

/// The largest shift of a lattice. Noise beyond it would leave the numbers.
pub(crate) const COARSEST: i32 = 900;

/// A sum on the lattice whose steps are 2^`shift` of its units, rounded to the nearest.
pub(crate) const fn on_lattice(exact: i128, shift: i32) -> i128 {
    match shift {
        ..=0 => exact << -shift,
        1..96 => (exact + (1 << (shift - 1))) >> shift,
        // 512 sums of 63 bits with weights of 20 bits stay below 2⁹²: on so coarse a lattice they are nothing.
        _ => 0,
    }
}

/// One measurement: the sum of leaves with these weights, in multiples of 2⁻²⁰, with noise of these standard deviations:
/// the first for the matrix off its diagonal, with √2 times that on it, the second for the vector.
pub(crate) fn measure(
    leaves: &[Leaf],
    weights: &[u32],
    [matrix, vector]: [f64; 2],
    units: Units,
    dimension: usize,
    bits: &mut Bits<'_>,
) -> Vec<f64> {
    let entries = packed(dimension) + dimension;
    let mut next_diagonal = (0..dimension).map(|i| packed(i) + i).peekable();
    let mut noisy = Vec::with_capacity(entries);
    for entry in 0..entries {
        let on_diagonal = next_diagonal.next_if_eq(&entry).is_some();
        let deviation = match entry {
            _ if on_diagonal => matrix * std::f64::consts::SQRT_2,
            _ if entry < packed(dimension) => matrix,
            _ => vector,
        };
        let exact: i128 = leaves
            .iter()
            .zip(weights)
            .map(|(leaf, weight)| i128::from(leaf.sums[entry]) * i128::from(*weight))
            .sum();
        let finest = libm::ldexp(units.of(entry, dimension), -(PART_BITS as i32));
        // Steps of the lattice are 2^shift of the finest ones; a shift below −20 would be noise of nothing.
        let shift = (libm::floor(libm::log2(deviation / finest / LATTICE)) as i32).clamp(-20, COARSEST);
        let step = libm::ldexp(finest, shift);
        let ratio = deviation / step;
        let variance = libm::ceil((ratio * ratio).clamp(1.0, (1u64 << 50) as f64)) as u64;
        noisy.push((on_lattice(exact, shift) + i128::from(discrete_gaussian(variance, bits))) as f64 * step);
    }
    noisy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    #[test]
    fn no_cut_makes_an_observation_longer_than_its_bound() {
        let mut stream = Seed(1).stream("cut", 0, 0);
        for bound in [1.0, 0.7, 3.0, 1e-9, 1e9] {
            let config = PrivacyConfig { feature_bound: bound, reward_bound: bound, ..Default::default() };
            let units = Units::new(&config);
            for _ in 0..200 {
                let mut x: Vec<f64> = (0..4).map(|_| stream.normal()).collect();
                let length = x.iter().map(|v| v * v).sum::<f64>().sqrt();
                x.iter_mut().for_each(|v| *v *= bound / length);
                let (cut, y) = units.snap(&x, -bound);
                let after = cut.iter().map(|v| v * v).sum::<f64>().sqrt();
                assert!(after <= bound * (1.0 + 1e-15) && after > bound * 0.9999, "{after} {bound}");
                assert!(y.abs() <= bound && y.abs() > bound * 0.9999);
            }
        }
    }

    #[test]
    fn sums_do_not_depend_on_the_order_and_measurements_without_noise_are_the_sums() {
        let units = Units::new(&PrivacyConfig::default());
        let mut stream = Seed(2).stream("order", 0, 0);
        let rows: Vec<([f64; 3], f64)> =
            (0..500).map(|_| ([0; 3].map(|_| stream.uniform() - 0.5), stream.uniform())).collect();
        let (mut forth, mut back) = (Leaf::new(3), Leaf::new(3));
        rows.iter().for_each(|(x, y)| forth.add(units, x, *y));
        rows.iter().rev().for_each(|(x, y)| back.add(units, x, *y));
        assert_eq!(forth, back);
        let measured = measure(&[forth], &[1 << 20], [1e-12; 2], units, 3, &mut || stream.next_u64());
        let mut exact = Evidence::none(3);
        rows.iter().for_each(|(x, y)| {
            let (x, y) = units.snap(x, *y);
            exact.observe(&x, y).unwrap();
        });
        for (got, sum) in measured.iter().zip(exact.gram().iter().chain(exact.moment())) {
            assert!((got - sum).abs() < 1e-9, "{got} {sum}");
        }
    }
}
