//! The matrix that a factor of few columns stands for.
//!
//! Rows of a packed triangle are short, so that most of them would end within a vector. Each is written in whole vectors
//! instead, and what these put behind its end is overwritten by the next rows. An entry is summed up in a register, column
//! after column from zero on: it matters neither how wide vectors are nor how many go together.

use pulp::{Simd, WithSimd};

use crate::evidence::packed;
use crate::lanes::widest;

/// The widest vector of any dispatched instruction set, in `f64`.
const WIDEST: usize = 8;
/// Rows that are summed up together.
const ROWS: usize = 4;

/// A factor F, column by column.
#[derive(Debug)]
pub(crate) struct FactorColumns {
    dimension: usize,
    /// Numbers of a column: the rows and zeros, in whole vectors of any width.
    stride: usize,
    numbers: Vec<f64>,
}

impl FactorColumns {
    /// A factor of `count` columns of zeros.
    pub(crate) fn zeros(dimension: usize, count: usize) -> Self {
        let stride = dimension.next_multiple_of(WIDEST);
        Self { dimension, stride, numbers: vec![0.0; stride * count] }
    }

    /// Returns the columns, of as many numbers as there are rows.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        let rows = self.dimension;
        self.numbers.chunks_exact_mut(self.stride.max(1)).map(move |column| &mut column[..rows])
    }

    /// Returns FFᵀ as a packed lower triangle.
    pub(crate) fn gram(&self) -> Vec<f64> {
        if self.numbers.is_empty() {
            return vec![0.0; packed(self.dimension)];
        }
        // The last row ends within a vector, too.
        let mut gram = vec![0.0; packed(self.dimension) + WIDEST];
        widest().dispatch(Gram { columns: self, gram: &mut gram });
        gram.truncate(packed(self.dimension));
        gram
    }
}

struct Gram<'a> {
    columns: &'a FactorColumns,
    gram: &'a mut [f64],
}

impl WithSimd for Gram<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Gram { columns, mut gram } = self;
        let whole = columns.dimension / ROWS * ROWS;
        for i in (0..whole).step_by(ROWS) {
            rows::<S, ROWS>(simd, columns, i, gram);
            gram = &mut gram[packed(i + ROWS) - packed(i)..];
        }
        for i in whole..columns.dimension {
            rows::<S, 1>(simd, columns, i, gram);
            gram = &mut gram[i + 1..];
        }
    }
}

/// Writes `R` rows from row `i` on to the beginning of `gram`, their ends first: what these put into the beginning of the next
/// row is overwritten when that row is written.
#[inline(always)]
fn rows<S: Simd, const R: usize>(simd: S, columns: &FactorColumns, i: usize, gram: &mut [f64]) {
    // Sums of four rows and what they are made of fill the registers that there are: 32 for the widest vectors, 16 for others.
    let most = if S::F64_LANES == WIDEST { 4 } else { 2 };
    let mut vectors = (i + R - 1) / S::F64_LANES + 1;
    while vectors > 0 {
        let count = (vectors - 1) % most + 1;
        vectors -= count;
        let place = vectors * S::F64_LANES;
        match count {
            1 => tile::<S, R, 1>(simd, columns, i, place, gram),
            2 => tile::<S, R, 2>(simd, columns, i, place, gram),
            3 => tile::<S, R, 3>(simd, columns, i, place, gram),
            _ => tile::<S, R, 4>(simd, columns, i, place, gram),
        }
    }
}

/// Writes `W` vectors of each of `R` rows, from column `place` of the matrix on.
#[inline(always)]
fn tile<S: Simd, const R: usize, const W: usize>(
    simd: S,
    columns: &FactorColumns,
    i: usize,
    place: usize,
    gram: &mut [f64],
) {
    let mut sums = [[simd.splat_f64s(0.0); W]; R];
    for column in columns.numbers.chunks_exact(columns.stride) {
        let others = &S::as_simd_f64s(&column[place..place + W * S::F64_LANES]).0[..W];
        let own = &column[i..i + R];
        for r in 0..R {
            let own = simd.splat_f64s(own[r]);
            for w in 0..W {
                sums[r][w] = simd.add_f64s(sums[r][w], simd.mul_f64s(own, others[w]));
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let start = packed(i + r) - packed(i) + place;
        let row = &mut gram[start..start + W * S::F64_LANES];
        S::as_mut_simd_f64s(row).0.copy_from_slice(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    /// FFᵀ entry by entry.
    fn plain(dimension: usize, columns: &[Vec<f64>]) -> Vec<f64> {
        let mut gram = vec![0.0; packed(dimension)];
        for column in columns {
            for i in 0..dimension {
                for j in 0..=i {
                    gram[packed(i) + j] += column[i] * column[j];
                }
            }
        }
        gram
    }

    fn bits(numbers: &[f64]) -> Vec<u64> {
        numbers.iter().map(|number| number.to_bits()).collect()
    }

    fn with_lanes<S: Simd>(simd: S, columns: &FactorColumns) -> Vec<u64> {
        // What is there before does not matter.
        let mut gram = vec![f64::NAN; packed(columns.dimension) + WIDEST];
        Gram { columns, gram: &mut gram }.with_simd(simd);
        bits(&gram[..packed(columns.dimension)])
    }

    #[test]
    fn every_vector_width_rounds_as_plain_loops_do() {
        let mut stream = Seed(6).stream("test", 0, 0);
        for dimension in (0..=40).chain([63, 64, 65, 100, 131]) {
            for rank in (0..=12).chain([dimension]) {
                // Zeros of both signs are in it, and so are numbers whose products underflow.
                let mut entry = || match stream.below(6) {
                    0 => 0.0,
                    1 => -0.0,
                    2 => 1e-160 * stream.normal(),
                    _ => stream.normal(),
                };
                let columns: Vec<Vec<f64>> =
                    (0..rank).map(|_| (0..dimension).map(|_| entry()).collect()).collect();
                let mut factor = FactorColumns::zeros(dimension, rank);
                factor.iter_mut().zip(&columns).for_each(|(into, column)| into.copy_from_slice(column));
                let expected = bits(&plain(dimension, &columns));
                let gram = factor.gram();
                assert_eq!(gram.len(), packed(dimension));
                assert!(bits(&gram) == expected, "{dimension} rows, {rank} columns");
                if rank > 0 && dimension > 0 {
                    assert!(with_lanes(pulp::Scalar, &factor) == expected, "{dimension} {rank}");
                    assert!(with_lanes(pulp::Scalar128b, &factor) == expected, "{dimension} {rank}");
                    assert!(with_lanes(pulp::Scalar256b, &factor) == expected, "{dimension} {rank}");
                    assert!(with_lanes(pulp::Scalar512b, &factor) == expected, "{dimension} {rank}");
                }
            }
        }
    }
}
