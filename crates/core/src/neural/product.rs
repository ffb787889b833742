//! Products of a packed symmetric matrix with vectors that are mostly zero.
//!
//! A matrix of a thousand parameters does not stay in a cache that is close, so what bounds a product is how long the
//! processor waits for rows. Rows are looked at four at a time, which wait for memory together, and several vectors share one
//! walk through the matrix. No number is rounded in another order than one row and one vector at a time would round it. Workers
//! may each take some entries of all products with a large matrix.

use pulp::{Simd, WithSimd};

use super::sparse::Sparse;
use crate::evidence::packed;
use crate::lanes::four_wide;
use crate::workers::{Piece, Workers, evenly, pieces_of};

/// Rows that are looked at together.
const ROWS: usize = 4;
/// Sums of one entry that are kept side by side.
const LANES: usize = 4;

/// What a row costs that has to come from memory, in vectors that it is multiplied with.
const FROM_MEMORY: usize = 8;

/// Returns Pφ of a packed matrix P with `parameters` rows, for each of some vectors φ.
pub(crate) fn products(
    matrix: &[f64],
    phis: &[&Sparse],
    parameters: usize,
    workers: &dyn Workers,
) -> Vec<Vec<f64>> {
    let mut products = vec![vec![0.0; parameters]; phis.len()];
    let count = pieces_of(matrix.len() * phis.len().max(FROM_MEMORY), workers);
    let mut rest: Vec<&mut [f64]> = products.iter_mut().map(Vec::as_mut_slice).collect();
    if count < 2 {
        four_wide().dispatch(Products { matrix, phis, first: 0, into: &mut rest });
        return products;
    }
    let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(count);
    for range in evenly((0..parameters).map(|i| i + 1), count) {
        let mut into = Vec::with_capacity(phis.len());
        for v in &mut rest {
            let (own, later) = std::mem::take(v).split_at_mut(range.len());
            into.push(own);
            *v = later;
        }
        pieces.push(Box::new(move || {
            four_wide().dispatch(Products { matrix, phis, first: range.start, into: &mut into });
        }));
    }
    workers.run(pieces);
    products
}

/// Σ φⱼ·rowⱼ over entries left of the diagonal. Four sums side by side, because each addition waits for the one before.
#[inline(always)]
pub(crate) fn met(row: &[f64], indices: &[u32], values: &[f64]) -> f64 {
    met_after([0.0; LANES], row, indices, values)
}

/// The same, with the four sums over the entries before these.
#[inline(always)]
fn met_after(mut sums: [f64; LANES], row: &[f64], indices: &[u32], values: &[f64]) -> f64 {
    let (four, rest) = indices.as_chunks::<LANES>();
    let (weights, last) = values.as_chunks::<LANES>();
    for (indices, weights) in four.iter().zip(weights) {
        for lane in 0..LANES {
            sums[lane] += weights[lane] * row[indices[lane] as usize];
        }
    }
    for (index, weight) in rest.iter().zip(last) {
        sums[0] += weight * row[*index as usize];
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// Some entries of every product, from entry `first` on.
struct Products<'a, 'v> {
    matrix: &'a [f64],
    phis: &'a [&'a Sparse],
    first: usize,
    into: &'a mut [&'v mut [f64]],
}

impl WithSimd for Products<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { matrix, phis, first, into } = self;
        let end = first + into.first().map_or(0, |v| v.len());
        // How many entries of each vector lie left of the diagonal of the row at hand.
        let mut known = Vec::with_capacity(phis.len());
        for phi in phis {
            known.push(before(phi, first));
        }
        let mut rest = &matrix[packed(first)..];
        let mut i = first;
        while i < end {
            let count = ROWS.min(end - i);
            let mut rows: [&[f64]; ROWS] = [&[]; ROWS];
            for (offset, row) in rows[..count].iter_mut().enumerate() {
                (*row, rest) = rest.split_at(i + offset + 1);
            }
            for ((phi, v), known) in phis.iter().zip(&mut *into).zip(&mut known) {
                *known = left_of_diagonals(&rows[..count], i, phi, *known, &mut v[i - first..][..count]);
            }
            i += count;
        }
        for (phi, v) in phis.iter().zip(into) {
            above_diagonals(simd, matrix, phi, first, v);
        }
    }
}

/// Adds to `sums` what rows from the `first` on say of entries left of their diagonals. `known` is how many entries of φ lie
/// left of the first one's; returns how many lie left of the row after the last.
#[inline(always)]
fn left_of_diagonals(rows: &[&[f64]], first: usize, phi: &Sparse, known: usize, sums: &mut [f64]) -> usize {
    let (indices, values) = (phi.indices(), phi.values());
    let common = known / LANES * LANES;
    let mut lanes = [[0.0; LANES]; ROWS];
    if let [a, b, c, d] = rows {
        let rows = [*a, *b, *c, *d];
        let chunks = indices[..common].as_chunks::<LANES>().0.iter();
        for (indices, weights) in chunks.zip(values[..common].as_chunks::<LANES>().0) {
            for (sums, row) in lanes.iter_mut().zip(rows) {
                for lane in 0..LANES {
                    sums[lane] += weights[lane] * row[indices[lane] as usize];
                }
            }
        }
    }
    let begin = if rows.len() == ROWS { common } else { 0 };
    let mut known = known;
    for (offset, row) in rows.iter().enumerate() {
        sums[offset] += met_after(lanes[offset], row, &indices[begin..known], &values[begin..known]);
        if known < indices.len() && indices[known] as usize == first + offset {
            known += 1;
        }
    }
    known
}

/// How many entries of a vector lie before entry `first`.
#[inline(always)]
fn before(phi: &Sparse, first: usize) -> usize {
    phi.indices().partition_point(|index| (*index as usize) < first)
}

/// v += Σ φᵢ·rowᵢ, for the entries from `first` on. A row is a column for the entries before its diagonal.
#[inline(always)]
fn above_diagonals<S: Simd>(simd: S, matrix: &[f64], phi: &Sparse, first: usize, v: &mut [f64]) {
    // Rows that end before these entries say nothing of them.
    let passed = before(phi, first);
    let (indices, rest) = phi.indices()[passed..].as_chunks::<ROWS>();
    let (weights, last) = phi.values()[passed..].as_chunks::<ROWS>();
    for (indices, weights) in indices.iter().zip(weights) {
        let length = row(matrix, indices[0], first, v.len()).len();
        let (head, tail) = v.split_at_mut(length);
        let mut beside: [&[f64]; ROWS] = [&[]; ROWS];
        for (beside, index) in beside.iter_mut().zip(indices) {
            *beside = row(matrix, *index, first, length);
        }
        add_four(simd, head, weights, beside);
        for (index, weight) in indices.iter().zip(weights).skip(1) {
            let below = &row(matrix, *index, first, length + tail.len())[length..];
            add(simd, &mut tail[..below.len()], *weight, below);
        }
    }
    for (index, weight) in rest.iter().zip(last) {
        let row = row(matrix, *index, first, v.len());
        add(simd, &mut v[..row.len()], *weight, row);
    }
}

/// At most `count` entries of a row of a packed matrix, from entry `first` on and up to its diagonal.
#[inline(always)]
fn row(matrix: &[f64], index: u32, first: usize, count: usize) -> &[f64] {
    let index = index as usize;
    &matrix[packed(index) + first..][..count.min(index + 1 - first)]
}

/// v += Σ weight·row of four rows, one after the other.
#[inline(always)]
fn add_four<S: Simd>(simd: S, v: &mut [f64], weights: &[f64; ROWS], rows: [&[f64]; ROWS]) {
    let (head, tail) = S::as_mut_simd_f64s(v);
    // Loops and not closures: what is called by a closure is not compiled for the instruction set that is dispatched to.
    let mut splats = [simd.splat_f64s(0.0); ROWS];
    let (mut heads, mut tails): ([&[S::f64s]; ROWS], [&[f64]; ROWS]) = ([&[]; ROWS], [&[]; ROWS]);
    for i in 0..ROWS {
        splats[i] = simd.splat_f64s(weights[i]);
        let (vectors, last) = S::as_simd_f64s(rows[i]);
        (heads[i], tails[i]) = (&vectors[..head.len()], &last[..tail.len()]);
    }
    for (place, v) in head.iter_mut().enumerate() {
        let mut sum = *v;
        for i in 0..ROWS {
            sum = simd.add_f64s(sum, simd.mul_f64s(splats[i], heads[i][place]));
        }
        *v = sum;
    }
    for (place, v) in tail.iter_mut().enumerate() {
        for (weight, row) in weights.iter().zip(tails) {
            *v += weight * row[place];
        }
    }
}

/// v += weight·row.
#[inline(always)]
fn add<S: Simd>(simd: S, v: &mut [f64], weight: f64, row: &[f64]) {
    let splat = simd.splat_f64s(weight);
    let (head, tail) = S::as_mut_simd_f64s(v);
    let (row_head, row_tail) = S::as_simd_f64s(row);
    for (v, p) in head.iter_mut().zip(row_head) {
        *v = simd.add_f64s(*v, simd.mul_f64s(splat, *p));
    }
    for (v, p) in tail.iter_mut().zip(row_tail) {
        *v += weight * p;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;
    use crate::workers::ThisThread;
    use crate::workers::tests::Backwards;

    /// v += Pφ, row by row and vector by vector.
    fn plain(matrix: &[f64], phi: &Sparse, v: &mut [f64]) {
        let (indices, values) = (phi.indices(), phi.values());
        let mut known = 0;
        for i in 0..v.len() {
            let row = &matrix[packed(i)..=packed(i) + i];
            v[i] += met(row, &indices[..known], &values[..known]);
            if known < indices.len() && indices[known] as usize == i {
                let weight = values[known];
                for (entry, p) in v.iter_mut().zip(row) {
                    *entry += weight * p;
                }
                known += 1;
            }
        }
    }

    #[test]
    fn any_number_of_workers_gives_the_bits_of_one() {
        let mut stream = Seed(2).stream("test", 0, 0);
        for parameters in [725, 790, 851] {
            let matrix: Vec<f64> = (0..packed(parameters)).map(|_| stream.normal()).collect();
            for keep in [1, 4, 10] {
                let mut phi = || {
                    let entry = |_| if stream.below(10) < keep { stream.normal() } else { 0.0 };
                    Sparse::from_dense(&(0..parameters).map(entry).collect::<Vec<f64>>())
                };
                let phis = [phi(), phi(), phi(), phi(), phi()];
                let expected = phis.each_ref().map(|phi| {
                    let mut expected = vec![0.0; parameters];
                    plain(&matrix, phi, &mut expected);
                    expected
                });
                for count in [1, 2, 3, 5] {
                    let all = products(&matrix, &phis.each_ref(), parameters, &Backwards(count));
                    assert!(all == expected, "{parameters} parameters, {count} workers");
                }
            }
            assert!(pieces_of(matrix.len() * FROM_MEMORY, &Backwards(2)) > 1, "it was divided");
        }
    }

    #[test]
    fn many_at_once_have_the_bits_of_one_after_the_other() {
        let mut stream = Seed(1).stream("test", 0, 0);
        for parameters in [0, 1, 3, 4, 7, 30, 61] {
            let matrix: Vec<f64> = (0..packed(parameters)).map(|_| stream.normal()).collect();
            for keep in [0, 1, 2, 5, 10] {
                let mut phi = || {
                    let entry = |_| if stream.below(10) < keep { stream.normal() } else { 0.0 };
                    Sparse::from_dense(&(0..parameters).map(entry).collect::<Vec<f64>>())
                };
                let phis = [phi(), phi(), phi()];
                let all = products(&matrix, &phis.each_ref(), parameters, &ThisThread);
                for (phi, v) in phis.iter().zip(&all) {
                    let mut expected = vec![0.0; parameters];
                    plain(&matrix, phi, &mut expected);
                    let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(v), bits(&expected), "{parameters} parameters");
                }
            }
        }
    }
}
