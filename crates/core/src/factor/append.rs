//! One more observation: a rank-one update of the factor.

use pulp::{Simd, WithSimd};

use super::{CHUNK, Factor};

/// Appends a row [x y] to the QR decomposition. With z = U⁻ᵀx and t_j = 1 + Σ_{i≤j} z_i², row j becomes
/// a·u_j + b·w, a = √(t_j/t_{j−1}), b = z_j/√(t_j·t_{j−1}), where w is what is left of the appended row
/// after subtracting z_i·u_i for i ≤ j. Returns ‖z‖².
pub(super) struct AppendRow<'a> {
    pub(super) factor: &'a mut Factor,
    pub(super) appended: &'a mut [f64],
    pub(super) x: &'a [f64],
    pub(super) y: f64,
}

impl WithSimd for AppendRow<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let AppendRow { factor, appended, x, y } = self;
        let d = factor.dimension;
        let columns = (d + 1).next_multiple_of(CHUNK);
        let mut rest = &mut appended[..columns];
        rest[..d].copy_from_slice(x);
        rest[d] = y;
        rest[d + 1..].fill(0.0);
        let mut rows = &mut factor.rows[..];
        let (blocks, single) = factor.inverse_diagonal[..d].as_chunks_mut::<CHUNK>();
        let mut t = NormSoFar { before: 1.0, norm: 0.0 };
        for inverse in blocks {
            let (block, below) = rows.split_at_mut(CHUNK * rest.len());
            append_block(simd, block, rest, inverse, &mut t);
            (rows, rest) = (below, &mut rest[CHUNK..]);
        }
        // The last rows, too few for a block, share their first column with it.
        for (j, inverse) in single.iter_mut().enumerate() {
            let (row, below) = rows.split_at_mut(rest.len());
            let z = rest[j] * *inverse;
            let (a, b) = t.grow(z);
            let (z, a_lanes, b_lanes) = (simd.splat_f64s(z), simd.splat_f64s(a), simd.splat_f64s(b));
            for (u, w) in S::as_mut_simd_f64s(row).0.iter_mut().zip(S::as_mut_simd_f64s(rest).0) {
                *w = simd.sub_f64s(*w, simd.mul_f64s(z, *u));
                *u = simd.add_f64s(simd.mul_f64s(a_lanes, *u), simd.mul_f64s(b_lanes, *w));
            }
            *inverse /= a;
            rows = below;
        }
        t.norm
    }
}

/// t_j = 1 + ‖z‖² so far.
struct NormSoFar {
    before: f64,
    norm: f64,
}

impl NormSoFar {
    /// Takes in the next z and returns a and b of its row.
    #[inline(always)]
    fn grow(&mut self, z: f64) -> (f64, f64) {
        self.norm += z * z;
        let after = 1.0 + self.norm;
        let a = (after / self.before).sqrt();
        let b = z / (a * self.before);
        self.before = after;
        (a, b)
    }
}

/// Updates four rows of equal length in one pass over the appended row.
///
/// Only the z of the four rows depend on each other, through their triangle, which is solved first and without vectors.
/// The divisions and roots of the four rows are then independent, and so is every column.
#[inline(always)]
fn append_block<S: Simd>(
    simd: S,
    block: &mut [f64],
    rest: &mut [f64],
    inverse: &mut [f64; CHUNK],
    t: &mut NormSoFar,
) {
    let length = rest.len();
    let (u0, tail) = block.split_at_mut(length);
    let (u1, tail) = tail.split_at_mut(length);
    let (u2, u3) = tail.split_at_mut(length);
    let u3 = &mut u3[..length];
    let mut w = [rest[0], rest[1], rest[2], rest[3]];
    let mut z = [0.0; CHUNK];
    z[0] = w[0] * inverse[0];
    for k in 1..CHUNK {
        w[k] -= z[0] * u0[k];
    }
    z[1] = w[1] * inverse[1];
    for k in 2..CHUNK {
        w[k] -= z[1] * u1[k];
    }
    z[2] = w[2] * inverse[2];
    w[3] -= z[2] * u2[3];
    z[3] = w[3] * inverse[3];

    let (mut before, mut after) = ([0.0; CHUNK], [0.0; CHUNK]);
    for j in 0..CHUNK {
        before[j] = t.before;
        t.norm += z[j] * z[j];
        after[j] = 1.0 + t.norm;
        t.before = after[j];
    }
    let (mut a, mut b) = ([0.0; CHUNK], [0.0; CHUNK]);
    for j in 0..CHUNK {
        a[j] = (after[j] / before[j]).sqrt();
    }
    for j in 0..CHUNK {
        b[j] = z[j] / (a[j] * before[j]);
    }
    for j in 0..CHUNK {
        inverse[j] /= a[j];
    }
    let z = z.map(|z| simd.splat_f64s(z));
    let a = a.map(|a| simd.splat_f64s(a));
    let b = b.map(|b| simd.splat_f64s(b));
    let rows = S::as_mut_simd_f64s(u0).0.iter_mut().zip(S::as_mut_simd_f64s(u1).0);
    let rows = rows.zip(S::as_mut_simd_f64s(u2).0).zip(S::as_mut_simd_f64s(u3).0);
    for ((((u0, u1), u2), u3), rest) in rows.zip(S::as_mut_simd_f64s(rest).0) {
        let mut w = *rest;
        for (j, u) in [u0, u1, u2, u3].into_iter().enumerate() {
            w = simd.sub_f64s(w, simd.mul_f64s(z[j], *u));
            *u = simd.add_f64s(simd.mul_f64s(a[j], *u), simd.mul_f64s(b[j], w));
        }
        *rest = w;
    }
}
