//! Exponential and logistic function for whole vectors of numbers: no branches, no tables, and the same
//! bits at every vector width. Within two units in the last place of the true values.

/// Interactions that are worked on together. Fixed, so that sums over interactions are split the same way
/// on every processor.
pub(crate) const LANES: usize = 8;

/// A number for each of [`LANES`] interactions.
pub(crate) type Lanes = [f64; LANES];

/// Adding and subtracting this rounds to the nearest integer.
const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5·2⁵²
/// ln 2 in two parts: the first has so few digits that its multiples up to 1100 are exact.
const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// Beyond this the result leaves the range of ordinary numbers.
const LIMIT: f64 = 708.0;

/// 1/k! from k = 13 down to 2: the series of (eʳ − 1 − r)/r² for |r| ≤ ln 2 / 2.
const SERIES: [f64; 12] = [
    1.605_904_383_682_161_3e-10,
    2.087_675_698_786_81e-9,
    2.505_210_838_544_172e-8,
    2.755_731_922_398_589_3e-7,
    2.755_731_922_398_589e-6,
    2.480_158_730_158_73e-5,
    1.984_126_984_126_984e-4,
    1.388_888_888_888_889e-3,
    8.333_333_333_333_333e-3,
    4.166_666_666_666_666_4e-2,
    1.666_666_666_666_666_6e-1,
    0.5,
];

/// eᶻ, with z cut off at ±708.
#[inline(always)]
pub(crate) fn exp(z: f64) -> f64 {
    let z = z.clamp(-LIMIT, LIMIT);
    let shifted = z * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (z - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut series = SERIES[0];
    for coefficient in &SERIES[1..] {
        series = series * r + coefficient;
    }
    let fraction = 1.0 + (r + r * r * series);
    // The last bits of `shifted` are n, which is added to the exponent.
    f64::from_bits(fraction.to_bits().wrapping_add(shifted.to_bits() << 52))
}

/// 1/(1 + e⁻ᶻ), as accurate far below zero as above it.
#[inline(always)]
pub(crate) fn logistic(z: f64) -> f64 {
    let e = exp(-z.abs());
    let near_one = 1.0 / (1.0 + e);
    if z < 0.0 { e * near_one } else { near_one }
}

/// The slope of [`logistic`], without cancellation.
#[inline(always)]
pub(crate) fn logistic_slope(z: f64) -> f64 {
    let e = exp(-z.abs());
    let near_one = 1.0 / (1.0 + e);
    e * near_one * near_one
}

/// [`logistic`] and [`logistic_slope`] with one exponential.
#[inline(always)]
pub(crate) fn logistic_and_slope(z: f64) -> (f64, f64) {
    let e = exp(-z.abs());
    let near_one = 1.0 / (1.0 + e);
    let near_zero = e * near_one;
    (if z < 0.0 { near_zero } else { near_one }, near_zero * near_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    /// Largest error in units in the last place over many numbers.
    fn error(range: f64, mine: impl Fn(f64) -> f64, theirs: impl Fn(f64) -> f64) -> f64 {
        let mut stream = Seed(3).stream("test", 0, 0);
        (0..200_000)
            .map(|_| {
                let z = (2.0 * stream.uniform() - 1.0) * range;
                let (mine, theirs) = (mine(z), theirs(z));
                (mine - theirs).abs() / (theirs * f64::EPSILON)
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn the_exponential_is_accurate_to_the_last_digits() {
        for range in [0.3, 5.0, 700.0] {
            let error = error(range, exp, libm::exp);
            assert!(error < 2.0, "{error} units within ±{range}");
        }
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn the_logistic_function_is_accurate_to_the_last_digits_on_both_sides() {
        for range in [0.5, 10.0, 700.0] {
            let error = error(range, logistic, |z| 1.0 / (1.0 + libm::exp(-z)));
            // The plain formula is itself off by a few units.
            assert!(error < 6.0, "{error} units within ±{range}");
        }
        assert_eq!(logistic(0.0), 0.5);
    }

    #[test]
    fn slopes_are_the_product_of_the_two_probabilities() {
        let error = error(30.0, logistic_slope, |z| logistic(z) * logistic(-z));
        assert!(error < 6.0, "{error} units");
    }

    #[test]
    fn extremes_stay_in_range() {
        assert!(exp(1e300).is_finite() && exp(-1e300) > 0.0);
        assert_eq!(logistic(f64::MAX), 1.0);
        assert!(logistic(-f64::MAX) > 0.0 && logistic(-f64::MAX) < 1e-300);
    }
}
