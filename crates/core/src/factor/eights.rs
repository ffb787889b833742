//! Scoring with vectors of eight numbers, of which a processor that has them has 32.
//!
//! So many hold the sums of four vectors of arms for four features at once: what was solved before is then read once for
//! four features. Every number is computed as with narrower vectors, so that the bits are the same.

use pulp::Simd;

use super::score::subtract;
use super::{CHUNK, Factor, WIDEST, Workspace};
use crate::arms::Columns;

/// The most vectors of arms that are solved together.
const TILE: usize = 4;

/// Scores all arms, which have at least four features: as many whole vectors as there are, and one arm that is left over
/// beside them. More of them fill a vector of their own.
#[inline(always)]
pub(super) fn score<S: Simd>(simd: S, factor: &Factor, arms: Columns<'_>, workspace: &mut Workspace) {
    let mut done = 0;
    while done < arms.len() {
        let left = arms.len() - done;
        let over = left > 1 && left % WIDEST == 1 && left <= TILE * WIDEST + 1;
        let vectors = if over { left / WIDEST } else { left.div_ceil(WIDEST).min(TILE) };
        match (vectors, over) {
            (1, false) => score_tile::<S, 1, false>(simd, factor, arms, done, workspace),
            (2, false) => score_tile::<S, 2, false>(simd, factor, arms, done, workspace),
            (3, false) => score_tile::<S, 3, false>(simd, factor, arms, done, workspace),
            (_, false) => score_tile::<S, TILE, false>(simd, factor, arms, done, workspace),
            (1, true) => score_tile::<S, 1, true>(simd, factor, arms, done, workspace),
            (2, true) => score_tile::<S, 2, true>(simd, factor, arms, done, workspace),
            (3, true) => score_tile::<S, 3, true>(simd, factor, arms, done, workspace),
            (_, true) => score_tile::<S, TILE, true>(simd, factor, arms, done, workspace),
        }
        done += vectors * WIDEST + usize::from(over);
    }
}

/// Vectors of arms that are solved together, and perhaps one arm beside them.
struct ArmTile<'a, S: Simd, const W: usize> {
    /// z = U⁻ᵀx as far as it is solved, then x.
    z: &'a mut [[S::f64s; W]],
    squares: [S::f64s; W],
    products: [S::f64s; W],
    /// The same of the arm beside them.
    one: &'a mut [f64],
    one_square: f64,
    one_product: f64,
}

/// Scores `W` vectors of arms from `first` on, and with `ONE_MORE` the arm behind them.
#[inline(always)]
fn score_tile<S: Simd, const W: usize, const ONE_MORE: bool>(
    simd: S,
    factor: &Factor,
    arms: Columns<'_>,
    first: usize,
    workspace: &mut Workspace,
) {
    let d = factor.dimension;
    let after = first + W * WIDEST;
    let z = S::as_mut_simd_f64s(&mut workspace.tile[..d * W * WIDEST]).0.as_chunks_mut().0;
    transpose(simd, arms, first, z);
    let one = if ONE_MORE { &mut workspace.single[..d] } else { &mut [] };
    if ONE_MORE {
        one.copy_from_slice(arms.row(after));
    }
    let zeros = [simd.splat_f64s(0.0); W];
    let mut tile: ArmTile<'_, S, W> =
        ArmTile { z, squares: zeros, products: zeros, one, one_square: 0.0, one_product: 0.0 };
    tile.solve::<ONE_MORE>(simd, factor, &workspace.q[..d]);

    let means = &mut workspace.means[first..];
    S::as_mut_simd_f64s(means).0[..W].copy_from_slice(&tile.products);
    let widths = &mut workspace.widths[first..];
    for (width, square) in S::as_mut_simd_f64s(widths).0.iter_mut().zip(tile.squares) {
        *width = simd.sqrt_f64s(square);
    }
    if ONE_MORE {
        workspace.means[after] = tile.one_product;
        workspace.widths[after] = f64::sqrt(tile.one_square);
    }
}

impl<S: Simd, const W: usize> ArmTile<'_, S, W> {
    /// z = U⁻ᵀx, its squares and its products with q: four features at a time, so that one look at an earlier feature serves
    /// four later ones.
    #[inline(always)]
    fn solve<const ONE_MORE: bool>(&mut self, simd: S, factor: &Factor, q: &[f64]) {
        let (inverses, rest) = factor.inverse_diagonal[..q.len()].as_chunks::<CHUNK>();
        let (blocks_of_q, rest_of_q) = q.as_chunks::<CHUNK>();
        let mut from = 0;
        for (inverse, q) in inverses.iter().zip(blocks_of_q) {
            self.solve_block::<CHUNK, ONE_MORE>(simd, factor, from, inverse, q);
            from += CHUNK;
        }
        match (rest, rest_of_q) {
            (&[a], &[q]) => self.solve_block::<1, ONE_MORE>(simd, factor, from, &[a], &[q]),
            (&[a, b], &[q, r]) => self.solve_block::<2, ONE_MORE>(simd, factor, from, &[a, b], &[q, r]),
            (&[a, b, c], &[q, r, s]) => {
                self.solve_block::<3, ONE_MORE>(simd, factor, from, &[a, b, c], &[q, r, s]);
            }
            _ => {}
        }
    }

    /// Solves `N` features from `from` on.
    #[inline(always)]
    fn solve_block<const N: usize, const ONE_MORE: bool>(
        &mut self,
        simd: S,
        factor: &Factor,
        from: usize,
        inverse: &[f64; N],
        q: &[f64; N],
    ) {
        let (solved, open) = self.z.split_at_mut(from);
        let open = open.first_chunk_mut::<N>().expect("a tile has as many features as the factor");
        let mut z = *open;
        // The arm beside them has its features in the lanes of one vector.
        let (one_solved, one_open) = self.one.split_at_mut(if ONE_MORE { from } else { 0 });
        let mut one = simd.splat_f64s(0.0);
        if ONE_MORE {
            one = first_lanes::<S, N>(one_open);
        }

        let (mut rows, mut place) = (&factor.rows[..], from);
        let mut length = (factor.dimension + 1).next_multiple_of(CHUNK);
        for (chunk, four) in solved.as_chunks::<CHUNK>().0.iter().enumerate() {
            for (i, earlier) in four.iter().enumerate() {
                let (row, below) = rows.split_at(length);
                let u = &row[place..][..N];
                for k in 0..N {
                    subtract(simd, u[k], earlier, &mut z[k]);
                }
                if ONE_MORE {
                    let earlier = simd.splat_f64s(one_solved[CHUNK * chunk + i]);
                    one = simd.sub_f64s(one, simd.mul_f64s(first_lanes::<S, N>(u), earlier));
                }
                rows = below;
            }
            (length, place) = (length - CHUNK, place - CHUNK);
        }

        let mut y = [0.0; WIDEST];
        S::as_mut_simd_f64s(&mut y).0[0] = one;
        for j in 0..N {
            let scale = simd.splat_f64s(inverse[j]);
            for z in &mut z[j] {
                *z = simd.mul_f64s(*z, scale);
            }
            y[j] *= inverse[j];
            let (row, below) = rows.split_at(length);
            for k in j + 1..N {
                let solved = z[j];
                subtract(simd, row[k], &solved, &mut z[k]);
                y[k] -= row[k] * y[j];
            }
            rows = below;
        }
        *open = z;
        for (z, &q) in z.iter().zip(q) {
            let q = simd.splat_f64s(q);
            for ((square, product), z) in self.squares.iter_mut().zip(&mut self.products).zip(z) {
                *square = simd.add_f64s(*square, simd.mul_f64s(*z, *z));
                *product = simd.add_f64s(*product, simd.mul_f64s(*z, q));
            }
        }
        if ONE_MORE {
            one_open[..N].copy_from_slice(&y[..N]);
            for j in 0..N {
                self.one_square += y[j] * y[j];
                self.one_product += y[j] * q[j];
            }
        }
    }
}

/// Copies arms from `first` on into the tile, feature by feature. Lanes beyond the last arm repeat it: they are solved along
/// and never read.
#[inline(always)]
fn transpose<S: Simd, const W: usize>(simd: S, arms: Columns<'_>, first: usize, tile: &mut [[S::f64s; W]]) {
    let (last, last_block) = (arms.len() - 1, tile.len() - CHUNK);
    let places = places(simd);
    for vector in 0..W {
        let mut rows = [&[][..]; WIDEST];
        for (lane, place) in places.into_iter().enumerate() {
            let arm = first + vector * WIDEST + lane;
            rows[place] = &arms.row(arm.min(last))[..tile.len()];
        }
        // The last four features, of which some may be among those that are turned below.
        for (feature, lanes) in tile[last_block..].iter_mut().zip(turn(simd, &rows, last_block)) {
            feature[vector] = lanes;
        }
        for (block, features) in tile.as_chunks_mut::<CHUNK>().0.iter_mut().enumerate() {
            for (feature, lanes) in features.iter_mut().zip(turn(simd, &rows, CHUNK * block)) {
                feature[vector] = lanes;
            }
        }
    }
}

/// Four features of eight rows from `from` on: a vector of each, in which [`places`] says where a row comes.
#[inline(always)]
fn turn<S: Simd>(simd: S, rows: &[&[f64]; WIDEST], from: usize) -> [S::f64s; CHUNK] {
    let mut pairs = [simd.splat_f64s(0.0); CHUNK];
    for (pair, [low, high]) in pairs.iter_mut().zip(rows.as_chunks::<2>().0) {
        let mut numbers = [0.0; WIDEST];
        numbers[..CHUNK].copy_from_slice(&low[from..][..CHUNK]);
        numbers[CHUNK..].copy_from_slice(&high[from..][..CHUNK]);
        *pair = S::as_simd_f64s(&numbers).0[0];
    }
    simd.deinterleave_shfl_f64s(pairs)
}

/// The row of [`turn`] that comes out in each lane. Instruction sets have different orders, so this turns rows of known numbers
/// and looks where each went. The compiler computes that, so it costs nothing at run time.
#[inline(always)]
fn places<S: Simd>(simd: S) -> [usize; WIDEST] {
    let rows: [[f64; CHUNK]; WIDEST] = std::array::from_fn(|place| [place as f64; CHUNK]);
    let [lanes, ..] = turn(simd, &rows.each_ref().map(|row| &row[..]), 0);
    let mut numbers = [0.0; WIDEST];
    S::as_mut_simd_f64s(&mut numbers).0[0] = lanes;
    numbers.map(|place| place as usize)
}

/// A vector that begins with the first `N` of `numbers`.
#[inline(always)]
fn first_lanes<S: Simd, const N: usize>(numbers: &[f64]) -> S::f64s {
    let mut lanes = [0.0; WIDEST];
    lanes[..N].copy_from_slice(&numbers[..N]);
    S::as_simd_f64s(&lanes).0[0]
}
