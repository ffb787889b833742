//! The triangular factor of a matrix that grows by a row and a column at a time.
//!
//! For a positive definite A this keeps the lower triangular L with A = LLᵀ. Appending to A appends a row to
//! L and changes nothing else. What is asked for is always z = L⁻¹k, for the k of one new point or of all arms
//! of an offer, at ½n² multiplications a column.
//!
//! **Layout.** Rows lie in panels of eight; within a panel, column after column. A panel is read from front to
//! back once for several k, with eight sums for each of them in vector registers.
//!
//! **The same bits on every processor.** Lanes hold different rows, every sum runs over its row from left to
//! right, and no multiplication is fused with an addition: neither the vector width nor the number of columns
//! solved together changes a result.

use pulp::{Simd, WithSimd};

use crate::exponential::{LANES, Lanes};
use crate::lanes::four_wide;

/// How many columns share a pass over the factor: their sums still fit into registers.
const TOGETHER: usize = 4;

/// The lower triangular factor L of the kernel matrix. It grows by one row for each observation.
#[derive(Clone, Debug)]
pub(super) struct GrowingFactor {
    /// Panel p has columns 0..8(p + 1). Entries above the diagonal and of rows that are not there are zero.
    panels: Vec<Lanes>,
    /// 1 / L_jj; zero for rows that are not there.
    inverse_diagonal: Vec<Lanes>,
    len: usize,
}

impl GrowingFactor {
    pub(super) const fn new() -> Self {
        Self { panels: Vec::new(), inverse_diagonal: Vec::new(), len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Panels so far: a column to be solved has as many blocks of lanes.
    pub(super) const fn blocks(&self) -> usize {
        self.inverse_diagonal.len()
    }

    /// The entries of the diagonal, first row first.
    pub(super) fn diagonal(&self) -> impl Iterator<Item = f64> {
        self.inverse_diagonal.as_flattened()[..self.len].iter().map(|inverse| 1.0 / inverse)
    }

    /// Appends the row z = L⁻¹a for the new column a of A, and the diagonal entry √(A_nn − ‖z‖²) > 0.
    pub(super) fn append(&mut self, z: &[Lanes], diagonal: f64) {
        debug_assert_eq!(z.len(), self.blocks(), "a whole column");
        let row = self.len % LANES;
        if row == 0 {
            self.panels.resize(self.panels.len() + self.len + LANES, [0.0; LANES]);
            self.inverse_diagonal.push([0.0; LANES]);
        }
        let panel = &mut self.panels[offset(self.len / LANES)..];
        for (column, value) in panel[..self.len].iter_mut().zip(z.as_flattened()) {
            column[row] = *value;
        }
        panel[self.len][row] = diagonal;
        self.inverse_diagonal[self.len / LANES][row] = 1.0 / diagonal;
        self.len += 1;
    }

    /// z = L⁻¹k in place, for one column after the other. Each has [`blocks`](Self::blocks) blocks; rows that
    /// are not there become zero.
    pub(super) fn solve(&self, columns: &mut [Lanes]) {
        if self.len > 0 {
            four_wide().dispatch(Solve { factor: self, columns });
        }
    }

    #[inline(always)]
    fn solve_group<const N: usize>(&self, group: &mut [Lanes]) {
        let blocks = self.blocks();
        for p in 0..blocks {
            let panel = &self.panels[offset(p)..][..LANES * (p + 1)];
            let (left, corner) = panel.split_at(LANES * p);
            let mut sums: [Lanes; N] = std::array::from_fn(|n| group[n * blocks + p]);
            let solved: [&[Lanes]; N] = std::array::from_fn(|n| &group[n * blocks..][..p]);
            for (block, columns) in left.as_chunks::<LANES>().0.iter().enumerate() {
                let z: [Lanes; N] = std::array::from_fn(|n| solved[n][block]);
                for (i, column) in columns.iter().enumerate() {
                    for n in 0..N {
                        subtract(&mut sums[n], column, z[n][i]);
                    }
                }
            }
            let inverse = &self.inverse_diagonal[p];
            for n in 0..N {
                let z = &mut group[n * blocks + p];
                for (i, column) in corner.iter().enumerate() {
                    z[i] = sums[n][i] * inverse[i];
                    // Rows up to this one are done: what becomes of their sums does not matter.
                    subtract(&mut sums[n], column, z[i]);
                }
            }
        }
    }
}

/// A type and not a closure: a closure is called through a function that is not compiled for wide vectors.
struct Solve<'a> {
    factor: &'a GrowingFactor,
    columns: &'a mut [Lanes],
}

impl WithSimd for Solve<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let blocks = self.factor.blocks();
        for group in self.columns.chunks_mut(TOGETHER * blocks) {
            match group.len() / blocks {
                1 => self.factor.solve_group::<1>(group),
                2 => self.factor.solve_group::<2>(group),
                3 => self.factor.solve_group::<3>(group),
                _ => self.factor.solve_group::<TOGETHER>(group),
            }
        }
    }
}

#[inline(always)]
fn subtract(sums: &mut Lanes, column: &Lanes, z: f64) {
    for lane in 0..LANES {
        sums[lane] -= column[lane] * z;
    }
}

/// Where panel `index` begins: before it are panels of 8, 16, … columns.
const fn offset(index: usize) -> usize {
    LANES * index * (index + 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    /// The lower triangle of a symmetric matrix with a heavy diagonal, and its factor.
    fn example(n: usize) -> (Vec<Vec<f64>>, GrowingFactor) {
        let mut stream = Seed(4).stream("test", 0, 0);
        let heavy = 3.0 * n as f64;
        let matrix: Vec<Vec<f64>> =
            (0..n).map(|i| (0..i).map(|_| stream.normal()).chain([heavy]).collect()).collect();
        let mut factor = GrowingFactor::new();
        for (i, row) in matrix.iter().enumerate() {
            let mut z = column(&row[..i]);
            factor.solve(&mut z);
            let square: f64 = z.as_flattened().iter().map(|z| z * z).sum();
            factor.append(&z, (row[i] - square).sqrt());
        }
        (matrix, factor)
    }

    fn column(values: &[f64]) -> Vec<Lanes> {
        let mut blocks = vec![[0.0; LANES]; values.len().div_ceil(LANES)];
        blocks.as_flattened_mut()[..values.len()].copy_from_slice(values);
        blocks
    }

    /// Entry (i, j) of L.
    fn entry(factor: &GrowingFactor, i: usize, j: usize) -> f64 {
        factor.panels[offset(i / LANES) + j][i % LANES]
    }

    #[test]
    fn the_factor_multiplies_out_to_the_matrix_after_every_row() {
        for n in [1, 2, 7, 8, 9, 31, 40] {
            let (matrix, factor) = example(n);
            assert_eq!(factor.len(), n);
            for (i, row) in matrix.iter().enumerate() {
                for (j, expected) in row.iter().enumerate() {
                    let product: f64 = (0..=j).map(|k| entry(&factor, i, k) * entry(&factor, j, k)).sum();
                    assert!((product - expected).abs() < 1e-11 * n as f64, "({i}, {j}) of {n}");
                }
            }
        }
    }

    #[test]
    fn solving_undoes_multiplying() {
        let (_, factor) = example(37);
        let mut stream = Seed(5).stream("test", 0, 0);
        let z: Vec<f64> = (0..37).map(|_| stream.normal()).collect();
        let product = |i| (0..=i).map(|j| entry(&factor, i, j) * z[j]).sum();
        let mut solved = column(&(0..37).map(product).collect::<Vec<f64>>());
        factor.solve(&mut solved);
        for (solved, z) in solved.as_flattened().iter().zip(z.iter().chain([&0.0; 3])) {
            assert!((solved - z).abs() < 1e-12);
        }
    }

    #[test]
    fn how_many_columns_are_solved_together_changes_no_bit() {
        let (_, factor) = example(29);
        let mut stream = Seed(6).stream("test", 0, 0);
        let columns: Vec<Lanes> =
            (0..11).flat_map(|_| column(&(0..29).map(|_| stream.normal()).collect::<Vec<f64>>())).collect();
        let mut alone = columns.clone();
        alone.chunks_mut(factor.blocks()).for_each(|column| factor.solve(column));
        for count in 1..=11 {
            let mut together = columns[..count * factor.blocks()].to_vec();
            factor.solve(&mut together);
            assert_eq!(together, alone[..count * factor.blocks()]);
        }
    }

    #[test]
    fn plain_substitution_gives_the_same_bits() {
        let (_, factor) = example(45);
        let mut stream = Seed(7).stream("test", 0, 0);
        let k: Vec<f64> = (0..45).map(|_| stream.normal()).collect();
        let mut plain = k.clone();
        for i in 0..45 {
            for j in 0..i {
                plain[i] -= entry(&factor, i, j) * plain[j];
            }
            plain[i] *= 1.0 / entry(&factor, i, i);
        }
        let mut fast = column(&k);
        factor.solve(&mut fast);
        assert_eq!(&fast.as_flattened()[..45], &plain);
    }
}
