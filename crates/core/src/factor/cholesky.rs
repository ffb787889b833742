//! Cholesky's decomposition of a whole matrix.
//!
//! Every entry has the earlier rows' products subtracted one after the other, each rounded by itself. In which order the
//! entries are visited does not matter for the bits, so large matrices are decomposed in panels: what a whole panel subtracts
//! from an entry is subtracted while the entry is in a register, instead of passing over the matrix for every four rows.

use pulp::{Simd, WithSimd};

use super::{CHUNK, Factor};

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
            let size = (0..inverses.len()).map(|r| length - r / CHUNK * CHUNK).sum();
            let (panel, below) = rows.split_at_mut(size);
            if !finish_panel(simd, panel, length, inverses) {
                return false;
            }
            if below.is_empty() {
                break;
            }
            subtract_panel(simd, panel, self.panel, length, below, &mut strip);
            (rows, length) = (below, length - self.panel);
        }
        true
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

/// Subtracts from every row below what the finished rows of a panel contribute to it, a strip of columns at a time.
#[inline(always)]
fn subtract_panel<S: Simd>(
    simd: S,
    panel: &[f64],
    height: usize,
    length: usize,
    below: &mut [f64],
    Strip { columns: strip, multiples }: &mut Strip,
) {
    strip.resize(height * STRIP, 0.0);
    for first in (height..length).step_by(STRIP) {
        let width = STRIP.min(length - first);
        for (row, copy) in panel_rows(panel, length).zip(strip.chunks_exact_mut(STRIP)) {
            copy[..width].copy_from_slice(&row[row.len() - (length - first)..][..width]);
        }
        let mut rest = &mut *below;
        let mut start = height;
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
