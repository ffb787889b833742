//! The discrete Gaussian, drawn exactly from random bits with integers alone (Canonne, Kamath and Steinke, 2020).
//!
//! Noise in floating point has gaps, and the gaps tell which number it was added to. Integers have none: data are
//! integers here, noise is an integer, and everything afterwards is computed from their sum.

/// Random bits, 64 at a time.
pub type Bits<'b> = dyn FnMut() -> u64 + 'b;

/// An integer z with probability proportional to exp(−z²/(2·variance)). `variance` must be from 1 to 2⁵⁰.
pub fn discrete_gaussian(variance: u64, bits: &mut Bits<'_>) -> i64 {
    debug_assert!((1..=1 << 50).contains(&variance), "beyond it the integers below overflow");
    let scale = variance.isqrt() + 1;
    loop {
        let candidate = discrete_laplace(scale, bits);
        // Accepted with probability exp(−(|z| − variance/scale)²/(2·variance)), as a ratio of integers.
        let off = (u128::from(candidate.unsigned_abs()) * u128::from(scale)).abs_diff(u128::from(variance));
        let below = 2 * u128::from(variance) * u128::from(scale) * u128::from(scale);
        // A candidate so far out that its square overflows would be accepted with a probability of e^(−2²⁰).
        if let Some(above) = off.checked_mul(off)
            && bernoulli_exp(above, below, bits)
        {
            return candidate;
        }
    }
}

/// An integer z with probability proportional to exp(−|z|/scale).
fn discrete_laplace(scale: u64, bits: &mut Bits<'_>) -> i64 {
    loop {
        let part = below(u128::from(scale), bits);
        if !bernoulli_exp(part, u128::from(scale), bits) {
            continue;
        }
        let mut whole = 0u64;
        while bernoulli_exp(1, 1, bits) {
            whole += 1;
        }
        let size = part as u64 + scale * whole;
        let negative = bits() >> 63 == 1;
        // Zero has one sign only.
        if !(negative && size == 0) {
            let size = size as i64;
            return if negative { -size } else { size };
        }
    }
}

/// Returns `true` with probability exp(−above/below), without rounding.
fn bernoulli_exp(above: u128, below: u128, bits: &mut Bits<'_>) -> bool {
    for _ in 0..above / below {
        if !bernoulli_exp_of_a_part(1, 1, bits) {
            return false;
        }
    }
    bernoulli_exp_of_a_part(above % below, below, bits)
}

/// The same for above ≤ below: the alternating series of the exponential as a game of coins.
fn bernoulli_exp_of_a_part(above: u128, below_one: u128, bits: &mut Bits<'_>) -> bool {
    let mut round = 1;
    while below(below_one * round, bits) < above {
        round += 1;
    }
    round % 2 == 1
}

/// Uniform among 0, …, bound − 1, by trying as many bits as the bound has.
fn below(bound: u128, bits: &mut Bits<'_>) -> u128 {
    let needed = 128 - (bound - 1).leading_zeros();
    if needed == 0 {
        return 0;
    }
    loop {
        let mut word = u128::from(bits());
        if needed > 64 {
            word |= u128::from(bits()) << 64;
        }
        let draw = word & (u128::MAX >> (128 - needed));
        if draw < bound {
            return draw;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    /// Shares of 200 000 draws against the probabilities, each within five standard deviations.
    #[test]
    fn small_integers_come_as_often_as_they_should() {
        for variance in [1u64, 2, 9] {
            let mut stream = Seed(variance).stream("discrete", 0, 0);
            let n = 200_000;
            let mut counts = [0u32; 41];
            for _ in 0..n {
                let draw = discrete_gaussian(variance, &mut || stream.next_u64());
                counts[(draw + 20).clamp(0, 40) as usize] += 1;
            }
            let weight = |z: i32| libm::exp(-f64::from(z * z) / (2.0 * variance as f64));
            let all: f64 = (-200..=200).map(weight).sum();
            for (z, count) in (-20..=20).zip(counts) {
                let p = weight(z) / all;
                let off = (f64::from(count) - p * f64::from(n)) / (p * f64::from(n)).sqrt().max(1.0);
                assert!(off.abs() < 5.0, "variance {variance}, {z}: {count} draws, {off} deviations off");
            }
        }
    }

    #[test]
    fn large_variances_have_the_moments_and_tails_of_a_normal() {
        let variance = 1u64 << 48;
        let mut stream = Seed(3).stream("discrete", 0, 0);
        let n = 40_000;
        let draws: Vec<f64> = (0..n)
            .map(|_| discrete_gaussian(variance, &mut || stream.next_u64()) as f64 / (1u64 << 24) as f64)
            .collect();
        let n = f64::from(n);
        let mean = draws.iter().sum::<f64>() / n;
        let square = draws.iter().map(|x| x * x).sum::<f64>() / n;
        let beyond = draws.iter().filter(|x| x.abs() > 1.959_964).count() as f64 / n;
        assert!(mean.abs() < 5.0 / n.sqrt(), "{mean}");
        assert!((square - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{square}");
        assert!((beyond - 0.05).abs() < 5.0 * (0.05 * 0.95 / n).sqrt(), "{beyond}");
    }

    #[test]
    fn draws_below_a_bound_are_uniform() {
        let mut stream = Seed(1).stream("below", 0, 0);
        let mut counts = [0u32; 5];
        (0..50_000).for_each(|_| counts[below(5, &mut || stream.next_u64()) as usize] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 450), "{counts:?}");
        assert_eq!(below(1, &mut || stream.next_u64()), 0);
        assert!(below(1 << 100, &mut || u64::MAX) == (1 << 100) - 1);
    }
}
