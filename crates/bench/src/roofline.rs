//! What one core of this machine can do at most: arithmetic out of registers, and reading out of memory.

use std::hint::black_box;

use pulp::{Arch, Simd, WithSimd};
use serde::Serialize;

use crate::shortest;

/// Sums that do not wait for each other, enough to hide how long one operation takes.
const SUMS: usize = 12;
const ROUNDS: usize = 100_000;
/// More numbers than caches hold: 256 MB.
const NUMBERS: usize = 1 << 25;

/// The two bounds of a roofline, measured on one core.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Roofline {
    /// Multiplications and additions of `f64` a second, counted singly. Kernels do not fuse them, so that every processor
    /// gives the same bits, and neither does this measurement.
    pub operations_per_second: f64,
    /// Bytes a second that a plain sum reads from memory.
    pub bytes_per_second: f64,
}

/// Measures both bounds. Takes about a second and 256 MB.
#[must_use]
pub fn roofline() -> Roofline {
    let mut operations = 0;
    let seconds = shortest(9, || operations = black_box(Arch::new().dispatch(Arithmetic)));
    let numbers = vec![1.0; NUMBERS];
    let reading = shortest(5, || {
        black_box(Arch::new().dispatch(Sum { numbers: black_box(&numbers) }));
    });
    Roofline {
        operations_per_second: operations as f64 / seconds,
        bytes_per_second: (NUMBERS * size_of::<f64>()) as f64 / reading,
    }
}

/// Multiplies and adds in registers only. Returns how many operations that were.
struct Arithmetic;

impl WithSimd for Arithmetic {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        let factor = simd.splat_f64s(black_box(0.999_999));
        let mut sums = [simd.splat_f64s(black_box(1.0)); SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = simd.add_f64s(simd.mul_f64s(*sum, factor), factor);
            }
        }
        black_box(sums);
        2 * SUMS * ROUNDS * S::F64_LANES
    }
}

struct Sum<'a> {
    numbers: &'a [f64],
}

impl WithSimd for Sum<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let mut sums = [simd.splat_f64s(0.0); 8];
        for eight in S::as_simd_f64s(self.numbers).0.as_chunks::<8>().0 {
            for (sum, number) in sums.iter_mut().zip(eight) {
                *sum = simd.add_f64s(*sum, *number);
            }
        }
        sums.into_iter().map(|sum| simd.reduce_sum_f64s(sum)).sum()
    }
}
