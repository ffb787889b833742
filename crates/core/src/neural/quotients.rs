//! Sums over a gradient, divided by a diagonal.
//!
//! Divisions are what takes time, and they do not depend on each other: several are done at a time. Their results are added one
//! after the other, in the order of the gradient, so that it matters to no bit how many that were.

use crate::lanes::four_wide;
use pulp::{Simd, WithSimd};

use super::sparse::Sparse;

/// Entries whose quotients are computed together. Every vector divides it.
const TOGETHER: usize = 8;

/// Returns Σ φᵢbᵢ/vᵢ and Σ φᵢ²/vᵢ.
pub(crate) fn quotients(phi: &Sparse, moment: &[f64], diagonal: &[f64]) -> (f64, f64) {
    four_wide().dispatch(Quotients { phi, moment, diagonal })
}

struct Quotients<'a> {
    phi: &'a Sparse,
    moment: &'a [f64],
    diagonal: &'a [f64],
}

impl WithSimd for Quotients<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f64, f64) {
        let Self { phi, moment, diagonal } = self;
        let (indices, last_indices) = phi.indices().as_chunks::<TOGETHER>();
        let (values, last_values) = phi.values().as_chunks::<TOGETHER>();
        // What an empty sum of the standard library is.
        let (mut mean, mut square) = (-0.0, -0.0);
        for (indices, values) in indices.iter().zip(values) {
            let (mut means, mut squares, mut divisors) = ([0.0; TOGETHER], *values, [0.0; TOGETHER]);
            for lane in 0..TOGETHER {
                means[lane] = moment[indices[lane] as usize];
                divisors[lane] = diagonal[indices[lane] as usize];
            }
            let (values, divisors) = (S::as_simd_f64s(values).0, S::as_simd_f64s(&divisors).0);
            let both = S::as_mut_simd_f64s(&mut means).0.iter_mut().zip(S::as_mut_simd_f64s(&mut squares).0);
            for ((means, squares), (value, divisor)) in both.zip(values.iter().zip(divisors)) {
                *means = simd.div_f64s(simd.mul_f64s(*value, *means), *divisor);
                *squares = simd.div_f64s(simd.mul_f64s(*value, *value), *divisor);
            }
            for lane in 0..TOGETHER {
                mean += means[lane];
                square += squares[lane];
            }
        }
        for (index, value) in last_indices.iter().zip(last_values) {
            let index = *index as usize;
            mean += value * moment[index] / diagonal[index];
            square += value * value / diagonal[index];
        }
        (mean, square)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    #[test]
    fn many_at_once_have_the_bits_of_one_after_the_other() {
        let mut stream = Seed(1).stream("test", 0, 0);
        for length in [0, 1, 7, 8, 9, 16, 40, 241] {
            for keep in [0, 3, 10] {
                let mut entry = |_| if stream.below(10) < keep { stream.normal() } else { 0.0 };
                let phi = Sparse::from_dense(&(0..length).map(&mut entry).collect::<Vec<_>>());
                let moment: Vec<f64> = (0..length).map(|_| stream.normal()).collect();
                let diagonal: Vec<f64> = (0..length).map(|_| 0.1 + stream.uniform()).collect();
                let mean: f64 = phi.iter().map(|(i, v)| v * moment[i] / diagonal[i]).sum();
                let square: f64 = phi.iter().map(|(i, v)| v * v / diagonal[i]).sum();
                let found = quotients(&phi, &moment, &diagonal);
                assert_eq!((found.0.to_bits(), found.1.to_bits()), (mean.to_bits(), square.to_bits()));
            }
        }
    }
}
