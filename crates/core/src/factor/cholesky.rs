//! Cholesky's decomposition of a whole matrix.
//!
//! Every entry has the earlier rows' products subtracted one after the other, each rounded by itself. In which order the
//! entries are visited does not matter for the bits, so large matrices are decomposed in panels: what a whole panel subtracts
//! from an entry is subtracted while the entry is in a register, instead of passing over the matrix for every four rows.

use pulp::{Simd, WithSimd};

use super::{CHUNK, Factor};
use crate::lanes::four_wide;
use crate::workers::{Piece, Workers, evenly, pieces_of};

/// Rows of a panel. Matrices of no more rows have one.
pub(super) const PANEL: usize = 64;
/// Columns of a panel that are worked on at a time: 32 kB.
const STRIP: usize = 64;
/// Vectors of a row that are kept in registers.
const VECTORS: usize = 2;

/// Copies of a part of a panel, one after the other in memory.
#[derive(Default)]
struct Strip {
    /// [`STRIP`] entries of each row.
    columns: Vec<f64>,
    /// What each row is multiplied with when it is subtracted from four rows below.
    multiples: Vec<[f64; CHUNK]>,
}

/// Cholesky's decomposition in place, by [`Factorise`]. Where a panel is subtracted from many rows, workers each take some of
/// them.
pub(super) fn factorise(factor: &mut Factor, panel: usize, workers: &dyn Workers) -> bool {
    let d = factor.dimension;
    if pieces_of(multiplications(panel, d.saturating_sub(panel)), workers) < 2 {
        return four_wide().dispatch(Factorise { factor, panel });
    }
    let mut length = (d + 1).next_multiple_of(CHUNK);
    let mut rows = &mut factor.rows[..];
    for inverse_diagonal in factor.inverse_diagonal[..d].chunks_mut(panel) {
        let (finished, below) = rows.split_at_mut(entries(length, inverse_diagonal.len()));
        if !four_wide().dispatch(FinishPanel { rows: finished, length, inverse_diagonal }) {
            return false;
        }
        if below.is_empty() {
            break;
        }
        subtract_in_pieces(finished, panel, length, below, workers);
        (rows, length) = (below, length - panel);
    }
    true
}

/// How many multiplications it takes to subtract a panel from `below` rows.
const fn multiplications(panel: usize, below: usize) -> usize {
    panel * below * below / 2
}

/// How many entries the first `count` rows of a factor have, of which the first row has `length`.
fn entries(length: usize, count: usize) -> usize {
    (0..count).map(|r| length - r / CHUNK * CHUNK).sum()
}

/// Subtracts from every row below what the finished rows of a panel contribute to it. An entry belongs to one piece, and what
/// it is made of to none.
fn subtract_in_pieces(
    panel: &[f64],
    height: usize,
    length: usize,
    mut below: &mut [f64],
    workers: &dyn Workers,
) {
    let blocks = (height..length).step_by(CHUNK).map(|start| CHUNK * (length - start));
    let ranges = evenly(blocks, pieces_of(multiplications(height, length - height), workers));
    let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let start = height + range.start * CHUNK;
        let size = entries(length - start, range.len() * CHUNK).min(below.len());
        let (rows, rest) = below.split_at_mut(size);
        below = rest;
        pieces.push(Box::new(move || {
            four_wide().dispatch(SubtractPanel { panel, length, start, rows, strip: &mut Strip::default() });
        }));
    }
    workers.run(pieces);
}

/// Cholesky's decomposition in place; column d turns b into q on the way. `false` if a pivot is not positive and
/// finite.
pub(super) struct Factorise<'a> {
    pub(super) factor: &'a mut Factor,
    /// Rows of a panel: [`PANEL`], or another multiple of [`CHUNK`] to show that it does not matter.
    pub(super) panel: usize,
}

impl WithSimd for Factorise<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let d = self.factor.dimension;
        let mut length = (d + 1).next_multiple_of(CHUNK);
        let mut rows = &mut self.factor.rows[..];
        if d <= self.panel {
            return finish_panel(simd, rows, length, &mut self.factor.inverse_diagonal[..d]);
        }
        let mut strip = Strip::default();
        for inverses in self.factor.inverse_diagonal[..d].chunks_mut(self.panel) {
            let (panel, below) = rows.split_at_mut(entries(length, inverses.len()));
            if !finish_panel(simd, panel, length, inverses) {
                return false;
            }
            if below.is_empty() {
                break;
            }
            SubtractPanel { panel, length, start: self.panel, rows: below, strip: &mut strip }
                .with_simd(simd);
            (rows, length) = (below, length - self.panel);
        }
        true
    }
}

/// Decomposes the rows of a panel by itself.
struct FinishPanel<'a> {
    rows: &'a mut [f64],
    /// Entries of the first row.
    length: usize,
    inverse_diagonal: &'a mut [f64],
}

impl WithSimd for FinishPanel<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        finish_panel(simd, self.rows, self.length, self.inverse_diagonal)
    }
}

/// Decomposes the rows of a panel, from which all earlier panels have been subtracted, four rows at a time.
#[inline(always)]
fn finish_panel<S: Simd>(
    simd: S,
    mut rows: &mut [f64],
    mut length: usize,
    inverse_diagonal: &mut [f64],
) -> bool {
    for inverses in inverse_diagonal.chunks_mut(CHUNK) {
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

/// Subtracts from rows below a panel what its finished rows contribute to them, a strip of columns at a time.
struct SubtractPanel<'a> {
    panel: &'a [f64],
    /// Entries of the first row of the panel.
    length: usize,
    /// How many columns later than the panel these rows begin.
    start: usize,
    rows: &'a mut [f64],
    strip: &'a mut Strip,
}

impl WithSimd for SubtractPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { panel, length, start: begin, rows: below, strip: Strip { columns: strip, multiples } } =
            self;
        let height = panel_rows(panel, length).count();
        strip.resize(height * STRIP, 0.0);
        for first in (begin..length).step_by(STRIP) {
            let width = STRIP.min(length - first);
            for (row, copy) in panel_rows(panel, length).zip(strip.chunks_exact_mut(STRIP)) {
                copy[..width].copy_from_slice(&row[row.len() - (length - first)..][..width]);
            }
            let mut rest = &mut *below;
            let mut start = begin;
            // Rows that begin after the strip have nothing in it.
            while start < first + width && !rest.is_empty() {
                let own = length - start;
                let (rows, next) = rest.split_at_mut((CHUNK * own).min(rest.len()));
                let (from, to) = (first.max(start), first + width);
                let columns = from - start..to - start;
                let part = &strip[from - first..];
                multiples.clear();
                multiples.extend(panel_rows(panel, length).map(|row| {
                    let place = row.len() - own;
                    std::array::from_fn::<_, CHUNK, _>(|r| row[place + r])
                }));
                if rows.len() == CHUNK * own {
                    subtract_rows::<S, CHUNK>(simd, multiples, part, rows, own, columns);
                } else {
                    for (r, row) in rows.chunks_exact_mut(own).enumerate() {
                        multiples.iter_mut().for_each(|multiples| multiples[0] = multiples[r]);
                        subtract_rows::<S, 1>(simd, multiples, part, row, own, columns.clone());
                    }
                }
                (rest, start) = (next, start + CHUNK);
            }
        }
    }
}

/// The rows of a panel, the first of which has `length` entries.
#[inline(always)]
fn panel_rows(mut panel: &[f64], length: usize) -> impl Iterator<Item = &[f64]> {
    (0..).map_while(move |r: usize| {
        let (row, rest) = panel.split_at_checked(length - r / CHUNK * CHUNK)?;
        panel = rest;
        Some(row)
    })
}

/// Subtracts from `R` rows of `length` entries, in these columns, the strip's rows times their multiples.
#[inline(always)]
fn subtract_rows<S: Simd, const R: usize>(
    simd: S,
    multiples: &[[f64; CHUNK]],
    strip: &[f64],
    rows: &mut [f64],
    length: usize,
    columns: std::ops::Range<usize>,
) {
    let wide = VECTORS * S::F64_LANES;
    let mut column = columns.start;
    while column + wide <= columns.end {
        let (source, target) = (&strip[column - columns.start..], &mut rows[column..]);
        subtract_tile::<S, R, VECTORS>(simd, multiples, source, target, length);
        column += wide;
    }
    while column < columns.end {
        let (source, target) = (&strip[column - columns.start..], &mut rows[column..]);
        subtract_tile::<S, R, 1>(simd, multiples, source, target, length);
        column += S::F64_LANES;
    }
}

/// The same for the first `V` vectors of each row, in registers.
#[inline(always)]
fn subtract_tile<S: Simd, const R: usize, const V: usize>(
    simd: S,
    multiples: &[[f64; CHUNK]],
    strip: &[f64],
    rows: &mut [f64],
    length: usize,
) {
    let width = V * S::F64_LANES;
    let mut sums: [[S::f64s; V]; R] = std::array::from_fn(|r| {
        let row = S::as_simd_f64s(&rows[r * length..][..width]).0;
        std::array::from_fn(|v| row[v])
    });
    for (multiples, source) in multiples.iter().zip(strip.chunks(STRIP)) {
        let source = S::as_simd_f64s(&source[..width]).0;
        for r in 0..R {
            let multiple = simd.splat_f64s(multiples[r]);
            for v in 0..V {
                sums[r][v] = simd.sub_f64s(sums[r][v], simd.mul_f64s(multiple, source[v]));
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        S::as_mut_simd_f64s(&mut rows[r * length..][..width]).0.copy_from_slice(sums);
    }
}
