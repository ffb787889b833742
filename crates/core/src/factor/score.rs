//! Means and widths of many arms in one pass over the factor.

use pulp::{Simd, WithSimd};

use super::{CHUNK, Factor, WIDEST, Workspace, eights};
use crate::arms::Columns;

/// Vectors of arms that are solved together; eight sums leave registers for what they are made of.
pub(super) const TILE: usize = 8;

/// z = U⁻ᵀx for many arms at once, a lane an arm; then their sums of squares and of products with q.
pub(super) struct Score<'a, 'w> {
    pub(super) factor: &'a Factor,
    pub(super) arms: Columns<'a>,
    pub(super) workspace: &'w mut Workspace,
}

impl WithSimd for Score<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Score { factor, arms, workspace } = self;
        if S::F64_LANES == WIDEST && factor.dimension >= CHUNK {
            return eights::score(simd, factor, arms, workspace);
        }
        let count = arms.len();
        let mut done = 0;
        while done < count {
            let vectors = (count - done).div_ceil(S::F64_LANES).min(TILE);
            let width = vectors * S::F64_LANES;
            let tile = &mut workspace.tile[..factor.dimension * width];
            transpose(simd, arms, done, width.min(count - done), tile, width);
            let (z, _) = S::as_mut_simd_f64s(tile);
            let q = &workspace.q[..factor.dimension];
            let (means, _) = S::as_mut_simd_f64s(&mut workspace.means[done..done + width]);
            let (widths, _) = S::as_mut_simd_f64s(&mut workspace.widths[done..done + width]);
            match vectors {
                1 => solve_tile::<S, 1>(simd, factor, q, z, means, widths),
                2 => solve_tile::<S, 2>(simd, factor, q, z, means, widths),
                3 => solve_tile::<S, 3>(simd, factor, q, z, means, widths),
                4 => solve_tile::<S, 4>(simd, factor, q, z, means, widths),
                5 => solve_tile::<S, 5>(simd, factor, q, z, means, widths),
                6 => solve_tile::<S, 6>(simd, factor, q, z, means, widths),
                7 => solve_tile::<S, 7>(simd, factor, q, z, means, widths),
                _ => solve_tile::<S, TILE>(simd, factor, q, z, means, widths),
            }
            done += width;
        }
    }
}

/// Copies `count` arms from `first` on into the tile, feature by feature. Lanes beyond repeat the last arm: they are
/// solved along and never read.
#[inline(always)]
fn transpose<S: Simd>(
    simd: S,
    arms: Columns<'_>,
    first: usize,
    count: usize,
    tile: &mut [f64],
    width: usize,
) {
    if tile.is_empty() {
        // Arms without features: agents may share none, or have none of their own.
        return;
    }
    let row = |arm: usize| arms.row(first + arm.min(count - 1));
    if S::F64_LANES != 4 {
        for arm in 0..width {
            for (lanes, x) in tile.chunks_exact_mut(width).zip(row(arm)) {
                lanes[arm] = *x;
            }
        }
        return;
    }
    for arm in (0..width).step_by(4) {
        let rows = [row(arm), row(arm + 1), row(arm + 2), row(arm + 3)];
        let [(a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest)] = rows.map(S::as_simd_f64s);
        // Four features to a block, the last of them or of the rest without what lies behind these four arms.
        let mut blocks = tile[arm..].chunks_mut(4 * width);
        for ((((a, b), c), d), block) in a.iter().zip(b).zip(c).zip(d).zip(&mut blocks) {
            // Four arms by four features are turned in registers.
            let [a, b, c, d] = simd.deinterleave_shfl_f64s([*a, *b, *c, *d]);
            let (one, block) = block.split_at_mut(width);
            let (two, block) = block.split_at_mut(width);
            let (three, four) = block.split_at_mut(width);
            S::as_mut_simd_f64s(one).0[0] = a;
            S::as_mut_simd_f64s(two).0[0] = b;
            S::as_mut_simd_f64s(three).0[0] = c;
            S::as_mut_simd_f64s(four).0[0] = d;
        }
        let rest = a_rest.iter().zip(b_rest).zip(c_rest).zip(d_rest);
        for (lanes, (((a, b), c), d)) in blocks.next().unwrap_or_default().chunks_mut(width).zip(rest) {
            lanes[..4].copy_from_slice(&[*a, *b, *c, *d]);
        }
    }
}

/// Solves `W` vectors of arms.
#[inline(always)]
fn solve_tile<S: Simd, const W: usize>(
    simd: S,
    factor: &Factor,
    q: &[f64],
    tile: &mut [S::f64s],
    means: &mut [S::f64s],
    widths: &mut [S::f64s],
) {
    let d = factor.dimension;
    let tile = &mut tile.as_chunks_mut::<W>().0[..d];
    let (rows, inverse_diagonal) = (&factor.rows[..], &factor.inverse_diagonal[..d]);
    let columns = (d + 1).next_multiple_of(CHUNK);
    for (j, &inverse) in inverse_diagonal.iter().enumerate() {
        let (solved, open) = tile.split_at_mut(j);
        let mut z = open[0];
        let (mut rows, mut length, mut place) = (rows, columns, j);
        // The rows of a chunk are equally long: one look at the bounds for four of them.
        let (chunks, rest) = solved.as_chunks::<CHUNK>();
        for [a, b, c, d] in chunks {
            let (one, below) = rows.split_at(length);
            let (two, below) = below.split_at(length);
            let (three, below) = below.split_at(length);
            let (four, below) = below.split_at(length);
            subtract(simd, one[place], a, &mut z);
            subtract(simd, two[place], b, &mut z);
            subtract(simd, three[place], c, &mut z);
            subtract(simd, four[place], d, &mut z);
            (rows, length, place) = (below, length - CHUNK, place - CHUNK);
        }
        for (row, earlier) in rest.iter().enumerate() {
            subtract(simd, rows[row * length + place], earlier, &mut z);
        }
        let inverse = simd.splat_f64s(inverse);
        open[0] = z.map(|z| simd.mul_f64s(z, inverse));
    }
    let mut square = [simd.splat_f64s(0.0); W];
    for z in &*tile {
        for lane in 0..W {
            square[lane] = simd.add_f64s(square[lane], simd.mul_f64s(z[lane], z[lane]));
        }
    }
    for (width, square) in widths.iter_mut().zip(square) {
        *width = simd.sqrt_f64s(square);
    }
    let mut mean = [simd.splat_f64s(0.0); W];
    for (z, &q) in tile.iter().zip(q) {
        let q = simd.splat_f64s(q);
        for lane in 0..W {
            mean[lane] = simd.add_f64s(mean[lane], simd.mul_f64s(z[lane], q));
        }
    }
    means[..W].copy_from_slice(&mean);
}

/// Subtracts `u` times an earlier feature.
#[inline(always)]
pub(super) fn subtract<S: Simd, const W: usize>(
    simd: S,
    u: f64,
    earlier: &[S::f64s; W],
    z: &mut [S::f64s; W],
) {
    let u = simd.splat_f64s(u);
    for lane in 0..W {
        z[lane] = simd.sub_f64s(z[lane], simd.mul_f64s(u, earlier[lane]));
    }
}
