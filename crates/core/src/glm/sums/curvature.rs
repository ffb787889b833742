//! Σ μ'(xᵀθ)xxᵀ.
//!
//! A matrix has more sums than registers hold, and to load and store each of them at every block would take most of the time.
//! So the matrix is divided into tiles of four by four entries, and a chunk of blocks, which a cache holds, goes through one
//! tile before it goes through the next.

use pulp::{Simd, WithSimd};

use super::gradient::add_gradient;
use super::{Clicks, LaneRow};
use crate::evidence::packed;
use crate::exponential::LANES;

/// Blocks that go through a tile before its sums leave the registers.
const CHUNK: usize = 32;
/// Rows and columns of a tile.
const TILE: usize = 4;

/// The gradient, and Σ μ'(xᵀθ)xxᵀ as a packed lower triangle, which has zeros before.
pub(crate) struct AddCurvature<'a> {
    pub(crate) clicks: Clicks<'a>,
    pub(crate) gradient: &'a mut [LaneRow],
    pub(crate) curvature: &'a mut [f64],
}

impl WithSimd for AddCurvature<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { clicks, gradient, curvature } = self;
        if clicks.count == 0 {
            return;
        }
        let mut scratch = ChunkScratch::new();
        let rows = clicks.theta.len().div_ceil(TILE);
        // After the only chunk a row of tiles is added up and its memory is free again.
        let keep = clicks.count > CHUNK * LANES;
        let mut tiles = vec![NO_TILE; if keep { packed(rows) } else { rows }];
        let mut left = clicks;
        while left.count > CHUNK * LANES {
            let chunk = left.first(CHUNK * LANES);
            add_gradient(simd, chunk, gradient, Some(&mut scratch.slopes));
            for row in 0..rows {
                let sums = &mut tiles[packed(row)..packed(row + 1)];
                add_row(simd, chunk, &mut scratch, row * TILE, sums, false);
            }
            left = left.after(CHUNK);
        }
        let last = left.first(left.count);
        add_gradient(simd, last, gradient, Some(&mut scratch.slopes));
        for row in 0..rows {
            let first = if keep { packed(row) } else { 0 };
            let sums = &mut tiles[first..first + row + 1];
            add_row(simd, last, &mut scratch, row * TILE, sums, !keep);
            add_up(sums, row * TILE, curvature);
        }
    }
}

/// A square of entries with a row of sums for each. A matrix has its tiles row of tiles by row of tiles, up to the diagonal.
type Tile = [[LaneRow; TILE]; TILE];

const NO_TILE: Tile = [[LaneRow::ZERO; TILE]; TILE];

/// What is computed for each block of a chunk.
struct ChunkScratch {
    slopes: [LaneRow; CHUNK],
    /// Slopes times the features of a row of tiles.
    weighted: [[LaneRow; TILE]; CHUNK],
}

impl ChunkScratch {
    const fn new() -> Self {
        Self { slopes: [LaneRow::ZERO; CHUNK], weighted: [[LaneRow::ZERO; TILE]; CHUNK] }
    }
}

/// Writes entries from row `first` on, for which these are the tiles.
#[inline(always)]
fn add_up(tiles: &[Tile], first: usize, curvature: &mut [f64]) {
    let mut rows = &mut curvature[packed(first)..];
    for r in 0..TILE {
        let length = first + r + 1;
        if rows.len() < length {
            return;
        }
        let (row, below) = rows.split_at_mut(length);
        for (entries, tile) in row.chunks_mut(TILE).zip(tiles) {
            for (entry, lanes) in entries.iter_mut().zip(&tile[r]) {
                *entry = lanes.total();
            }
        }
        rows = below;
    }
}

/// Adds a chunk of blocks to a row of tiles, which begins with the row `first` of the matrix. `is_fresh` says that the sums are
/// zero whatever the tiles hold.
#[inline(always)]
fn add_row<S: Simd>(
    simd: S,
    clicks: Clicks<'_>,
    scratch: &mut ChunkScratch,
    first: usize,
    tiles: &mut [Tile],
    is_fresh: bool,
) {
    let stride = clicks.stride();
    let rows = (clicks.theta.len() - first).min(TILE);
    let blocks = clicks.count.div_ceil(LANES);
    let (slopes, weighted) = (&scratch.slopes[..blocks], &mut scratch.weighted[..blocks]);
    for block in 0..blocks {
        let features = &clicks.blocks[block * stride + first..][..rows];
        for part in 0..LANES / S::F64_LANES {
            let slope = slopes[block].part::<S>(part);
            for (weighted, row) in weighted[block].iter_mut().zip(features) {
                *weighted.part_mut::<S>(part) = simd.mul_f64s(slope, row.part::<S>(part));
            }
        }
    }
    let weighted = &*weighted;
    let (last, before) = tiles.split_last_mut().expect("the tile on the diagonal");
    for (place, tile) in before.iter_mut().enumerate() {
        let factors = TileFactors { weighted, features: &clicks.blocks[place * TILE..], stride };
        add_square(simd, factors, rows, tile, is_fresh);
    }
    let factors = TileFactors { weighted, features: &clicks.blocks[first..], stride };
    add_triangle(simd, factors, rows, last, is_fresh);
}

/// What a tile is a sum over.
#[derive(Clone, Copy)]
struct TileFactors<'a> {
    /// Features of its rows times the slope, block by block.
    weighted: &'a [[LaneRow; TILE]],
    /// Features of its columns, one after the other, every `stride`.
    features: &'a [LaneRow],
    stride: usize,
}

impl TileFactors<'_> {
    /// Features of the first `N` columns in a block.
    #[inline(always)]
    fn columns<const N: usize>(&self, block: usize) -> &[LaneRow] {
        &self.features[block * self.stride..][..N]
    }
}

/// Adds a chunk to `rows` rows of a tile.
#[inline(always)]
fn add_square<S: Simd>(simd: S, factors: TileFactors<'_>, rows: usize, tile: &mut Tile, is_fresh: bool) {
    // Sixteen sums and what they are made of fit into the 32 registers of the widest vectors, eight into 16.
    let most = if S::F64_LANES == LANES { 4 } else { 2 };
    for part in 0..LANES / S::F64_LANES {
        let mut row = 0;
        while row < rows {
            match (rows - row).min(most) {
                1 => add_rows::<S, 1>(simd, factors, row, part, tile, is_fresh),
                2 => add_rows::<S, 2>(simd, factors, row, part, tile, is_fresh),
                3 => add_rows::<S, 3>(simd, factors, row, part, tile, is_fresh),
                _ => add_rows::<S, TILE>(simd, factors, row, part, tile, is_fresh),
            }
            row += most;
        }
    }
}

/// Adds a chunk to `rows` rows of a tile on the diagonal, up to it.
#[inline(always)]
fn add_triangle<S: Simd>(simd: S, factors: TileFactors<'_>, rows: usize, tile: &mut Tile, is_fresh: bool) {
    for part in 0..LANES / S::F64_LANES {
        match rows {
            1 => add_rows_to_diagonal::<S, 1>(simd, factors, part, tile, is_fresh),
            2 => add_rows_to_diagonal::<S, 2>(simd, factors, part, tile, is_fresh),
            3 => add_rows_to_diagonal::<S, 3>(simd, factors, part, tile, is_fresh),
            _ => add_rows_to_diagonal::<S, TILE>(simd, factors, part, tile, is_fresh),
        }
    }
}

/// Adds some lanes of a chunk to `R` rows of a tile from row `first` on.
#[inline(always)]
fn add_rows<S: Simd, const R: usize>(
    simd: S,
    factors: TileFactors<'_>,
    first: usize,
    part: usize,
    tile: &mut Tile,
    is_fresh: bool,
) {
    let tile = &mut tile[first..first + R];
    let mut sums = [[simd.splat_f64s(0.0); TILE]; R];
    if !is_fresh {
        for r in 0..R {
            for c in 0..TILE {
                sums[r][c] = tile[r][c].part::<S>(part);
            }
        }
    }
    // Not zipped with chunks of features: that was a call, around which all sums left their registers.
    for (block, weighted) in factors.weighted.iter().enumerate() {
        let (weighted, columns) = (&weighted[first..first + R], factors.columns::<TILE>(block));
        for r in 0..R {
            for c in 0..TILE {
                let term = simd.mul_f64s(weighted[r].part::<S>(part), columns[c].part::<S>(part));
                sums[r][c] = simd.add_f64s(sums[r][c], term);
            }
        }
    }
    for r in 0..R {
        for c in 0..TILE {
            *tile[r][c].part_mut::<S>(part) = sums[r][c];
        }
    }
}

/// Adds some lanes of a chunk to `R` rows of a tile on the diagonal, up to it.
#[inline(always)]
fn add_rows_to_diagonal<S: Simd, const R: usize>(
    simd: S,
    factors: TileFactors<'_>,
    part: usize,
    tile: &mut Tile,
    is_fresh: bool,
) {
    let mut sums = [[simd.splat_f64s(0.0); R]; R];
    if !is_fresh {
        for r in 0..R {
            for c in 0..=r {
                sums[r][c] = tile[r][c].part::<S>(part);
            }
        }
    }
    for (block, weighted) in factors.weighted.iter().enumerate() {
        let columns = factors.columns::<R>(block);
        for r in 0..R {
            for c in 0..=r {
                let term = simd.mul_f64s(weighted[r].part::<S>(part), columns[c].part::<S>(part));
                sums[r][c] = simd.add_f64s(sums[r][c], term);
            }
        }
    }
    for r in 0..R {
        for c in 0..=r {
            *tile[r][c].part_mut::<S>(part) = sums[r][c];
        }
    }
}
