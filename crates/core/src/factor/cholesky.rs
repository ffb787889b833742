//! Cholesky's decomposition of a whole matrix.

use pulp::{Simd, WithSimd};

use super::{CHUNK, Factor};

/// Cholesky's decomposition in place, four rows at a time; column d turns b into q on the way. `false` if a pivot is not
/// positive and finite.
pub(super) struct Factorise<'a> {
    pub(super) factor: &'a mut Factor,
}

impl WithSimd for Factorise<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let d = self.factor.dimension;
        let mut length = (d + 1).next_multiple_of(CHUNK);
        let mut rows = &mut self.factor.rows[..];
        for inverses in self.factor.inverse_diagonal[..d].chunks_mut(CHUNK) {
            let (block, below) = rows.split_at_mut(inverses.len() * length);
            if !finish_block(simd, block, length, inverses) {
                return false;
            }
            if inverses.len() == CHUNK {
                subtract_block(simd, block, length, below);
            }
            (rows, length) = (below, length - CHUNK);
        }
        true
    }
}

/// Decomposes the rows of one block, from which all earlier blocks have been subtracted.
#[inline(always)]
fn finish_block<S: Simd>(simd: S, block: &mut [f64], length: usize, inverses: &mut [f64]) -> bool {
    for (r, inverse) in inverses.iter_mut().enumerate() {
        let (done, rest) = block.split_at_mut((r + 1) * length);
        let row = &mut done[r * length..];
        let pivot = row[r];
        if !(pivot > 0.0 && pivot.is_finite()) {
            return false;
        }
        let root = pivot.sqrt();
        *inverse = 1.0 / root;
        let scale = simd.splat_f64s(*inverse);
        for u in S::as_mut_simd_f64s(row).0 {
            *u = simd.mul_f64s(*u, scale);
        }
        row[r] = root;
        for (i, target) in rest.chunks_exact_mut(length).enumerate() {
            let multiple = simd.splat_f64s(row[r + 1 + i]);
            for (t, u) in S::as_mut_simd_f64s(target).0.iter_mut().zip(S::as_simd_f64s(row).0) {
                *t = simd.sub_f64s(*t, simd.mul_f64s(multiple, *u));
            }
        }
    }
    true
}

/// Subtracts from every row below what four finished rows contribute to it, in one pass over it.
#[inline(always)]
fn subtract_block<S: Simd>(simd: S, block: &[f64], mut length: usize, mut below: &mut [f64]) {
    let (mut one, rest) = block.split_at(length);
    let (mut two, rest) = rest.split_at(length);
    let (mut three, mut four) = rest.split_at(length);
    while length > CHUNK {
        length -= CHUNK;
        (one, two) = (&one[CHUNK..], &two[CHUNK..]);
        (three, four) = (&three[CHUNK..], &four[CHUNK..]);
        for i in 0..CHUNK {
            if below.len() < length {
                return;
            }
            let (target, next) = below.split_at_mut(length);
            let multiples = [one[i], two[i], three[i], four[i]].map(|u| simd.splat_f64s(u));
            let sources = S::as_simd_f64s(one).0.iter().zip(S::as_simd_f64s(two).0);
            let sources = sources.zip(S::as_simd_f64s(three).0).zip(S::as_simd_f64s(four).0);
            for (t, (((one, two), three), four)) in S::as_mut_simd_f64s(target).0.iter_mut().zip(sources) {
                let mut sum = *t;
                for (multiple, u) in multiples.into_iter().zip([one, two, three, four]) {
                    sum = simd.sub_f64s(sum, simd.mul_f64s(multiple, *u));
                }
                *t = sum;
            }
            below = next;
        }
    }
}
