//! How similar two arms are.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use crate::exponential::{LANES, Lanes, exp};

/// A kernel k(x, x′), of arms whose features were divided by the length scale. r = ‖x − x′‖.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kernel {
    /// e⁻ʳ: rewards that are continuous and nowhere smooth. The distance is not squared.
    #[default]
    Exponential,
    /// e^(−r²/2), also known as Gaussian or squared exponential: as smooth as can be.
    Rbf,
    /// (1 + √3·r)·e^(−√3·r): rewards that have a slope.
    #[serde(rename = "matern-1.5")]
    Matern15,
    /// (1 + √5·r + 5r²/3)·e^(−√5·r): rewards that have a slope and a curvature.
    #[serde(rename = "matern-2.5")]
    Matern25,
    /// xᵀx′: rewards linear in the features.
    Linear,
}

/// Beyond this distance every kernel is less than the smallest that [`exp`] gives; cutting off here keeps
/// polynomials of the distance finite.
const FARTHEST: f64 = 1e4;

impl Kernel {
    /// Of `x` with each of the points in `block`, which has a row of lanes a feature. The scale is 1/ℓ².
    #[inline(always)]
    pub(super) fn with_block(self, x: &[f64], block: &[Lanes], inverse_square_scale: f64) -> Lanes {
        let mut products = [0.0; LANES];
        if self == Self::Linear {
            for (x, row) in x.iter().zip(block) {
                for lane in 0..LANES {
                    products[lane] += x * row[lane];
                }
            }
            return each(products, |product| product * inverse_square_scale);
        }
        let mut squares = products;
        for (x, row) in x.iter().zip(block) {
            for lane in 0..LANES {
                let difference = x - row[lane];
                squares[lane] += difference * difference;
            }
        }
        let squares = each(squares, |square| (square * inverse_square_scale).min(FARTHEST * FARTHEST));
        match self {
            Self::Exponential => each(squares, |square| exp(-square.sqrt())),
            Self::Rbf => each(squares, |square| exp(-0.5 * square)),
            Self::Matern15 => each(squares, |square| {
                let r = (3.0 * square).sqrt();
                (1.0 + r) * exp(-r)
            }),
            Self::Matern25 => each(squares, |square| {
                let r = (5.0 * square).sqrt();
                (1.0 + r + 5.0 / 3.0 * square) * exp(-r)
            }),
            Self::Linear => products,
        }
    }

    /// Returns k(x, x), the variance that the kernel gives to an arm before any observation.
    pub(super) fn with_itself(self, x: &[f64], inverse_square_scale: f64) -> f64 {
        match self {
            Self::Linear => x.iter().map(|x| x * x).sum::<f64>() * inverse_square_scale,
            _ => 1.0,
        }
    }
}

/// The same of every lane: one loop for each kernel, so that it runs in vector registers.
#[inline(always)]
fn each(mut lanes: Lanes, of: impl Fn(f64) -> f64) -> Lanes {
    for lane in &mut lanes {
        *lane = of(*lane);
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// k(x, y) with length scale `scale`, by way of a block whose other lanes hold something else.
    fn value(kernel: Kernel, x: &[f64], y: &[f64], scale: f64) -> f64 {
        let block: Vec<Lanes> = y.iter().map(|y| [*y, 9.0, -3.0, 0.0, 1.0, 2.0, 1e9, 7.0]).collect();
        kernel.with_block(x, &block, 1.0 / (scale * scale))[0]
    }

    #[test]
    fn kernels_follow_their_formulas() {
        let (x, y) = ([0.3, -1.2, 0.5], [1.0, 0.4, 0.0]);
        for scale in [0.4, 1.0, 3.0] {
            let square = (0.7 * 0.7 + 1.6 * 1.6 + 0.5 * 0.5) / (scale * scale);
            let r = f64::sqrt(square);
            let (three, five) = (3f64.sqrt() * r, 5f64.sqrt() * r);
            let expected = [
                (Kernel::Exponential, libm::exp(-r)),
                (Kernel::Rbf, libm::exp(-square / 2.0)),
                (Kernel::Matern15, (1.0 + three) * libm::exp(-three)),
                (Kernel::Matern25, (1.0 + five + five * five / 3.0) * libm::exp(-five)),
                (Kernel::Linear, (0.3 - 1.2 * 0.4) / (scale * scale)),
            ];
            for (kernel, expected) in expected {
                let got = value(kernel, &x, &y, scale);
                assert!((got - expected).abs() < 1e-14, "{kernel:?} at {scale}: {got}, not {expected}");
                assert!((got - value(kernel, &y, &x, scale)).abs() < 1e-15);
                let own = kernel.with_itself(&x, 1.0 / (scale * scale));
                assert!((own - value(kernel, &x, &x, scale)).abs() < 1e-14, "{kernel:?}");
            }
        }
    }

    #[test]
    fn arms_beyond_all_measure_have_nothing_in_common() {
        for kernel in [Kernel::Exponential, Kernel::Rbf, Kernel::Matern15, Kernel::Matern25] {
            for far in [1e5, 1e100, 1e308] {
                let value = value(kernel, &[far], &[-far], 1e-100);
                assert!((0.0..1e-290).contains(&value), "{kernel:?} at {far}: {value}");
            }
        }
    }
}
