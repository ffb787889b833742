//! Gamma draws, for Dirichlet weights and Student's noise.

use posse_core::Stream;

/// The logarithm of a draw from Gamma(`shape`, 1), by the method of Marsaglia and Tsang (2000).
///
/// Draws of a small shape are often too small for a float; their logarithms are not.
pub(super) fn ln_gamma_draw(shape: f64, stream: &mut Stream) -> f64 {
    debug_assert!(shape > 0.0, "a gamma distribution has a positive shape");
    if shape < 1.0 {
        // Gamma(a) is Gamma(a + 1)·U^(1/a).
        let ln_power = libm::log(1.0 - stream.uniform()) / shape;
        return ln_power + ln_gamma_draw(shape + 1.0, stream);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = stream.normal();
        let root = 1.0 + c * x;
        if root <= 0.0 {
            continue;
        }
        let v = root * root * root;
        let ln_v = libm::log(v);
        if libm::log(1.0 - stream.uniform()) < 0.5 * x * x + d * (1.0 - v + ln_v) {
            return libm::log(d) + ln_v;
        }
    }
}

#[cfg(test)]
mod tests {
    use posse_core::Seed;

    use super::*;

    #[test]
    fn draws_have_the_mean_and_variance_of_the_gamma_distribution() {
        for shape in [0.1, 0.5, 1.0, 1.5, 20.0] {
            let mut stream = Seed(1).stream("test", 0, 0);
            let draws = 100_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..draws {
                let x = libm::exp(ln_gamma_draw(shape, &mut stream));
                sum += x;
                squares += x * x;
            }
            let mean = sum / f64::from(draws);
            let variance = squares / f64::from(draws) - mean * mean;
            // The mean's relative standard deviation is 1/√(shape·draws): at most 0.01.
            assert!((mean / shape - 1.0).abs() < 0.05, "shape {shape}: mean {mean}");
            assert!((variance / shape - 1.0).abs() < 0.15, "shape {shape}: variance {variance}");
        }
    }

    #[test]
    fn tiny_shapes_keep_finite_logarithms() {
        let mut stream = Seed(2).stream("test", 0, 0);
        assert!((0..1000).all(|_| ln_gamma_draw(1e-6, &mut stream).is_finite()));
    }
}
