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
        let (mut rest, left) = appended.split_at_mut(columns);
        let (mut left, others) = left.split_at_mut(CHUNK * columns);
        let mut left_before = &mut others[..CHUNK * columns];
        rest[..d].copy_from_slice(x);
        rest[d] = y;
        rest[d + 1..].fill(0.0);
        let mut rows = &mut factor.rows[..];
        let (blocks, single) = factor.inverse_diagonal[..d].as_chunks_mut::<CHUNK>();
        let mut t = NormSoFar { before: 1.0, norm: 0.0 };
        // A block's roots and divisions take long. Meanwhile the next one is solved, which needs none of them.
        let mut waiting: Option<(&mut [f64], RowSteps)> = None;
        for inverse in blocks {
            let (rows_of_block, below) = std::mem::take(&mut rows).split_at_mut(CHUNK * rest.len());
            let block = RowSteps::solve(simd, rows_of_block, rest, inverse, &mut t);
            block.subtract(simd, rows_of_block, rest, left);
            if let Some((rows, block)) = waiting.replace((rows_of_block, block)) {
                block.combine(simd, rows, left_before);
            }
            std::mem::swap(&mut left, &mut left_before);
            (rows, rest) = (below, &mut rest[CHUNK..]);
        }
        if let Some((rows, block)) = waiting {
            block.combine(simd, rows, left_before);
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

/// The steps by which four rows of equal length are updated. Only their z depend on each other, through their triangle, which is solved
/// without vectors; their divisions and roots are independent, and so is every column.
struct RowSteps {
    z: [f64; CHUNK],
    a: [f64; CHUNK],
    b: [f64; CHUNK],
}

impl RowSteps {
    #[inline(always)]
    fn solve<S: Simd>(
        simd: S,
        rows: &[f64],
        rest: &[f64],
        inverse: &mut [f64; CHUNK],
        t: &mut NormSoFar,
    ) -> Self {
        let (u0, tail) = rows.split_at(rest.len());
        let (u1, tail) = tail.split_at(rest.len());
        let u2 = &tail[..CHUNK];
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
        let mut a = quotients(simd, &after, &before);
        for a in S::as_mut_simd_f64s(&mut a).0 {
            *a = simd.sqrt_f64s(*a);
        }
        let products = std::array::from_fn(|j| a[j] * before[j]);
        let b = quotients(simd, &z, &products);
        *inverse = quotients(simd, inverse, &a);
        Self { z, a, b }
    }

    /// Subtracts the rows from the appended one, and writes to `left` what is left of it after each.
    #[inline(always)]
    fn subtract<S: Simd>(&self, simd: S, rows: &[f64], rest: &mut [f64], left: &mut [f64]) {
        let (u0, tail) = rows.split_at(rest.len());
        let (u1, tail) = tail.split_at(rest.len());
        let (u2, u3) = tail.split_at(rest.len());
        let z = self.z.map(|z| simd.splat_f64s(z));
        let rows = S::as_simd_f64s(u0).0.iter().zip(S::as_simd_f64s(u1).0);
        let rows = rows.zip(S::as_simd_f64s(u2).0).zip(S::as_simd_f64s(u3).0);
        let (left, _) = S::as_mut_simd_f64s(left).0.as_chunks_mut::<CHUNK>();
        for (((((u0, u1), u2), u3), rest), left) in rows.zip(S::as_mut_simd_f64s(rest).0).zip(left) {
            let mut w = *rest;
            for (j, u) in [u0, u1, u2, u3].into_iter().enumerate() {
                w = simd.sub_f64s(w, simd.mul_f64s(z[j], *u));
                left[j] = w;
            }
            *rest = w;
        }
    }

    /// Replaces each row by a times itself plus b times what was left of the appended row after it.
    #[inline(always)]
    fn combine<S: Simd>(&self, simd: S, rows: &mut [f64], left: &[f64]) {
        let length = rows.len() / CHUNK;
        let (u0, tail) = rows.split_at_mut(length);
        let (u1, tail) = tail.split_at_mut(length);
        let (u2, u3) = tail.split_at_mut(length);
        let a = self.a.map(|a| simd.splat_f64s(a));
        let b = self.b.map(|b| simd.splat_f64s(b));
        let rows = S::as_mut_simd_f64s(u0).0.iter_mut().zip(S::as_mut_simd_f64s(u1).0);
        let rows = rows.zip(S::as_mut_simd_f64s(u2).0).zip(S::as_mut_simd_f64s(u3).0);
        let (left, _) = S::as_simd_f64s(left).0.as_chunks::<CHUNK>();
        for ((((u0, u1), u2), u3), left) in rows.zip(left) {
            for (j, u) in [u0, u1, u2, u3].into_iter().enumerate() {
                *u = simd.add_f64s(simd.mul_f64s(a[j], *u), simd.mul_f64s(b[j], left[j]));
            }
        }
    }
}

/// Divides four numbers by four others.
#[inline(always)]
fn quotients<S: Simd>(simd: S, over: &[f64; CHUNK], under: &[f64; CHUNK]) -> [f64; CHUNK] {
    let mut quotients = [0.0; CHUNK];
    let terms = S::as_simd_f64s(over).0.iter().zip(S::as_simd_f64s(under).0);
    for (quotient, (over, under)) in S::as_mut_simd_f64s(&mut quotients).0.iter_mut().zip(terms) {
        *quotient = simd.div_f64s(*over, *under);
    }
    quotients
}
