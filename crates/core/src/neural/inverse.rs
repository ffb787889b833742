//! The inverse of V = λI + Σφφᵀ, kept in the cheapest form that is exact.
//!
//! By Sherman and Morrison every observation subtracts a multiple of a vector's square. A few of them need not be
//! subtracted from the matrix at once: P = B − Σ s·vvᵀ answers as well. As long as there are far fewer observations
//! than parameters, B is I/λ and no matrix exists; that is the dual form, with its vectors made orthogonal as they come.
//! Later vectors are collected and subtracted several at a time, so that the matrix goes through the processor once
//! for all of them; and who adds a few observations to a matrix that many share needs no copy of it.

use std::sync::Arc;

use pulp::{Arch, Simd, WithSimd};

use super::sparse::Sparse;
use crate::evidence::packed;

/// How many vectors are collected before they are subtracted from a matrix.
const COLLECTED: usize = 16;

/// The inverse P = B − Σ s·vvᵀ, kept as a base and vectors that are folded into it now and then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Inverse {
    parameters: usize,
    base: Base,
    columns: Vec<Column>,
}

/// The part B of an inverse that vectors are subtracted from.
#[derive(Clone, Debug, PartialEq)]
enum Base {
    /// A multiple of the identity.
    Ridge(f64),
    /// A packed matrix, which others may share.
    Whole(Arc<Vec<f64>>),
}

/// The scale s and the vector v of a term s·vvᵀ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) scale: f64,
    pub(crate) vector: Vec<f64>,
}

impl Column {
    /// Returns the same term with its weight multiplied: `share`·s·vvᵀ.
    pub(crate) fn scaled(&self, share: f64) -> Self {
        Self { scale: share * self.scale, vector: self.vector.clone() }
    }
}

impl Inverse {
    /// Returns (λI)⁻¹, the inverse before any observation.
    pub(crate) fn new(parameters: usize, regularization: f64) -> Self {
        Self { parameters, base: Base::Ridge(1.0 / regularization), columns: Vec::new() }
    }

    /// From the packed matrix, if it can be an inverse: it has the right size and finite entries, and none on the
    /// diagonal is negative.
    pub(crate) fn from_whole(matrix: Arc<Vec<f64>>, parameters: usize) -> Option<Self> {
        let fits = matrix.len() == packed(parameters) && matrix.iter().all(|v| v.is_finite());
        let positive = fits && (0..parameters).all(|i| matrix[packed(i) + i] >= 0.0);
        positive.then_some(Self { parameters, base: Base::Whole(matrix), columns: Vec::new() })
    }

    /// The packed matrix, and what is to be subtracted from it. Without a matrix the slice is empty.
    pub(crate) fn parts(&self) -> (&[f64], &[Column]) {
        let matrix = match &self.base {
            Base::Ridge(_) => &[],
            Base::Whole(matrix) => matrix.as_slice(),
        };
        (matrix, &self.columns)
    }

    /// This one with vectors to be subtracted, if they can be such.
    pub(crate) fn with(mut self, columns: Vec<Column>) -> Option<Self> {
        let fits = |column: &Column| {
            let finite = column.vector.iter().all(|v| v.is_finite()) && column.scale.is_finite();
            column.vector.len() == self.parameters && column.scale >= 0.0 && finite
        };
        if columns.len() >= self.limit() || !columns.iter().all(fits) {
            return None;
        }
        self.columns = columns;
        Some(self)
    }

    /// How many vectors may wait. Without a matrix, as many as take the room of one.
    fn limit(&self) -> usize {
        match self.base {
            Base::Ridge(_) => COLLECTED.max(self.parameters / 2),
            Base::Whole(_) => COLLECTED,
        }
    }

    /// Returns Pφ, where P is this inverse.
    pub(crate) fn times(&self, phi: &Sparse) -> Vec<f64> {
        let mut v = vec![0.0; self.parameters];
        match &self.base {
            Base::Ridge(entry) => phi.iter().for_each(|(index, value)| v[index] = value * entry),
            Base::Whole(matrix) => multiply(matrix, phi, &mut v),
        }
        Arch::new().dispatch(Project { v: &mut v, phi, columns: &self.columns });
        v
    }

    /// Returns φᵀPφ. Rounding errors below zero are raised to zero.
    pub(crate) fn square(&self, phi: &Sparse) -> f64 {
        let base = match &self.base {
            Base::Ridge(entry) => phi.iter().map(|(_, value)| value * (value * entry)).sum(),
            Base::Whole(matrix) => quadratic(matrix, phi),
        };
        let less = |column: &Column| {
            let product = phi.dot(&column.vector);
            column.scale * product * product
        };
        // Rounding may make a square of almost nothing negative.
        self.columns.iter().fold(base, |sum, column| sum - less(column)).max(0.0)
    }

    /// P ← P − s·vvᵀ.
    pub(crate) fn subtract(&mut self, column: Column) {
        self.columns.push(column);
        if self.columns.len() >= self.limit() {
            self.fold();
        }
    }

    /// Makes this one matrix from which nothing is left to be subtracted, and shares it.
    pub(crate) fn fold(&mut self) -> Arc<Vec<f64>> {
        let columns = std::mem::take(&mut self.columns);
        let whole = match &self.base {
            Base::Whole(matrix) if columns.is_empty() => Arc::clone(matrix),
            Base::Whole(matrix) => Arc::new(subtracted(matrix, &columns)),
            Base::Ridge(entry) => Arc::new(subtracted(&ridge(self.parameters, *entry), &columns)),
        };
        self.base = Base::Whole(Arc::clone(&whole));
        whole
    }

    /// The sum of some inverses, each times `share`, packed. None of them needs a matrix for it.
    pub(crate) fn weighted_sum<'a>(all: impl Iterator<Item = &'a Self>, share: f64) -> Vec<f64> {
        let (mut sum, mut columns): (Vec<f64>, Vec<Column>) = (Vec::new(), Vec::new());
        for inverse in all {
            sum.resize(packed(inverse.parameters), 0.0);
            match &inverse.base {
                Base::Ridge(entry) => {
                    (0..inverse.parameters).for_each(|i| sum[packed(i) + i] += share * entry);
                }
                Base::Whole(matrix) => {
                    sum.iter_mut().zip(matrix.iter()).for_each(|(sum, entry)| *sum += share * entry);
                }
            }
            columns.extend(inverse.columns.iter().map(|column| column.scaled(share)));
        }
        subtracted(&sum, &columns)
    }

    /// Whether no entry is so large that sums with it are lost. The diagonal vouches for the rest: the matrix is
    /// positive definite.
    pub(crate) fn is_sound(&self) -> bool {
        let sound = |v: &f64| v.abs() <= 1e150;
        let base = match &self.base {
            Base::Ridge(entry) => sound(entry),
            Base::Whole(matrix) => (0..self.parameters).all(|i| sound(&matrix[packed(i) + i])),
        };
        base && self.columns.iter().all(|column| sound(&column.scale) && column.vector.iter().all(sound))
    }
}

fn ridge(parameters: usize, entry: f64) -> Vec<f64> {
    let mut matrix = vec![0.0; packed(parameters)];
    (0..parameters).for_each(|i| matrix[packed(i) + i] = entry);
    matrix
}

/// φᵀPφ of a packed matrix. Not negative.
pub(crate) fn quadratic(matrix: &[f64], phi: &Sparse) -> f64 {
    let (indices, values) = (phi.indices(), phi.values());
    let mut sum = 0.0;
    for (place, (index, value)) in phi.iter().enumerate() {
        let row = &matrix[packed(index)..=packed(index) + index];
        let inner = met(row, &indices[..place], &values[..place]);
        sum += value * (2.0 * inner + value * row[index]);
    }
    sum.max(0.0)
}

/// Σ φⱼ·rowⱼ over entries left of the diagonal. Four sums side by side, because each addition waits for the one before.
#[inline]
fn met(row: &[f64], indices: &[u32], values: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (four, rest) = indices.as_chunks::<4>();
    let (weights, last) = values.as_chunks::<4>();
    for (indices, weights) in four.iter().zip(weights) {
        for lane in 0..4 {
            sums[lane] += weights[lane] * row[indices[lane] as usize];
        }
    }
    for (index, weight) in rest.iter().zip(last) {
        sums[0] += weight * row[*index as usize];
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// v += Pφ of a packed matrix.
fn multiply(matrix: &[f64], phi: &Sparse, v: &mut [f64]) {
    let (indices, values) = (phi.indices(), phi.values());
    let mut known = 0;
    for i in 0..v.len() {
        let row = &matrix[packed(i)..=packed(i) + i];
        v[i] += met(row, &indices[..known], &values[..known]);
        if known < indices.len() && indices[known] as usize == i {
            let weight = values[known];
            // The same row is a column for those before it.
            for (entry, p) in v.iter_mut().zip(row) {
                *entry += weight * p;
            }
            known += 1;
        }
    }
}

/// The packed matrix P − Σ s·vvᵀ.
pub(crate) fn subtracted(matrix: &[f64], columns: &[Column]) -> Vec<f64> {
    Arch::new().dispatch(Subtract { matrix, columns })
}

/// P − Σ s·vvᵀ in one pass. Each entry is computed on its own, so that the width of vectors changes
/// no bit.
struct Subtract<'a> {
    matrix: &'a [f64],
    columns: &'a [Column],
}

impl WithSimd for Subtract<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<f64> {
        let mut into = Vec::with_capacity(self.matrix.len());
        let mut rest = self.matrix;
        let mut i = 0;
        while !rest.is_empty() {
            let (row, later) = rest.split_at(i + 1);
            rest = later;
            let start = into.len();
            into.extend_from_slice(row);
            for column in self.columns {
                let multiple = column.scale * column.vector[i];
                // Much of a gradient is zero, and so are the first vectors.
                if multiple != 0.0 {
                    subtract(simd, &mut into[start..], multiple, &column.vector[..=i]);
                }
            }
            i += 1;
        }
        into
    }
}

/// v ← v − Σ s·v'v'ᵀφ.
struct Project<'a> {
    v: &'a mut [f64],
    phi: &'a Sparse,
    columns: &'a [Column],
}

impl WithSimd for Project<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for column in self.columns {
            let multiple = column.scale * self.phi.dot(&column.vector);
            subtract(simd, self.v, multiple, &column.vector);
        }
    }
}

/// row ← row − multiple·v.
#[inline(always)]
fn subtract<S: Simd>(simd: S, row: &mut [f64], multiple: f64, v: &[f64]) {
    let splat = simd.splat_f64s(multiple);
    let (head, tail) = S::as_mut_simd_f64s(row);
    let (v_head, v_tail) = S::as_simd_f64s(v);
    for (p, v) in head.iter_mut().zip(v_head) {
        *p = simd.sub_f64s(*p, simd.mul_f64s(splat, *v));
    }
    for (p, v) in tail.iter_mut().zip(v_tail) {
        *p -= multiple * v;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Seed, Stream};

    fn gradient(stream: &mut Stream, dimension: usize) -> Sparse {
        let entry = |stream: &mut Stream| if stream.below(3) == 0 { 0.0 } else { stream.normal() };
        Sparse::from_dense(&(0..dimension).map(|_| entry(stream)).collect::<Vec<_>>())
    }

    /// P ← P − vvᵀ/(1 + φᵀv), v = Pφ: on the form under test, and entry by entry on a square matrix.
    fn observe(inverse: &mut Inverse, plain: &mut [Vec<f64>], phi: &Sparse) {
        let vector = inverse.times(phi);
        let scale = 1.0 / (1.0 + phi.dot(&vector));
        inverse.subtract(Column { scale, vector });
        let v: Vec<f64> = plain.iter().map(|row| phi.dot(row)).collect();
        let scale = 1.0 / (1.0 + phi.dot(&v));
        for (row, vi) in plain.iter_mut().zip(&v) {
            row.iter_mut().zip(&v).for_each(|(p, vj)| *p -= scale * vi * vj);
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * (1.0 + b.abs())
    }

    #[test]
    fn every_form_answers_like_a_plain_matrix() {
        for (parameters, lambda) in [(5, 0.5), (40, 0.1)] {
            let mut stream = Seed(1).stream("test", 0, 0);
            let mut inverse = Inverse::new(parameters, lambda);
            let unit = |i: usize| (0..parameters).map(|j| if i == j { 1.0 / lambda } else { 0.0 }).collect();
            let mut plain: Vec<Vec<f64>> = (0..parameters).map(unit).collect();
            let (mut without, mut collected, mut whole) = (0, 0, 0);
            for _ in 0..100 {
                match inverse.parts() {
                    ([], _) => without += 1,
                    (_, []) => whole += 1,
                    _ => collected += 1,
                }
                let probe = gradient(&mut stream, parameters);
                let v: Vec<f64> = plain.iter().map(|row| probe.dot(row)).collect();
                assert!(inverse.times(&probe).iter().zip(&v).all(|(a, b)| close(*a, *b)));
                assert!(close(inverse.square(&probe), probe.dot(&v)));
                observe(&mut inverse, &mut plain, &gradient(&mut stream, parameters));
            }
            assert!(without > 0 && collected > 0 && whole > 0, "{without} {collected} {whole}");
            let matrix = inverse.fold();
            for i in 0..parameters {
                assert!((0..=i).all(|j| close(matrix[packed(i) + j], plain[i][j])));
            }
        }
    }

    #[test]
    fn a_shared_matrix_stays_as_it_is() {
        let mut stream = Seed(2).stream("test", 0, 0);
        let mut shared = Inverse::new(6, 1.0);
        let before = shared.fold();
        let kept = before.to_vec();
        let mut own = shared.clone();
        let mut plain = vec![vec![0.0; 6]; 6];
        for _ in 0..3 {
            observe(&mut own, &mut plain, &gradient(&mut stream, 6));
        }
        assert!(std::ptr::eq(own.parts().0, before.as_slice()), "a few observations need no copy");
        for _ in 0..COLLECTED {
            observe(&mut own, &mut plain, &gradient(&mut stream, 6));
        }
        assert!(!std::ptr::eq(own.parts().0, before.as_slice()));
        assert_eq!(*before, kept);
    }

    /// Whether agents in one process share a matrix or got it over a wire must not show.
    #[test]
    fn the_identity_gives_the_same_bits_with_and_without_a_matrix() {
        let mut stream = Seed(3).stream("test", 0, 0);
        let (without, mut with) = (Inverse::new(7, 0.3), Inverse::new(7, 0.3));
        with.fold();
        for _ in 0..20 {
            let phi = gradient(&mut stream, 7);
            assert_eq!(without.square(&phi).to_bits(), with.square(&phi).to_bits());
            assert_eq!(without.times(&phi), with.times(&phi));
        }
    }

    #[test]
    fn numbers_that_can_be_no_inverse_are_refused() {
        let whole = |matrix: &[f64]| Inverse::from_whole(Arc::new(matrix.to_vec()), 2);
        assert!(whole(&[1.0, 0.0, 1.0]).is_some());
        for wrong in [&[1.0, 0.0][..], &[-1.0, 0.0, 1.0], &[1.0, f64::NAN, 1.0]] {
            assert!(whole(wrong).is_none(), "{wrong:?}");
        }
        let column = |scale, vector: &[f64]| vec![Column { scale, vector: vector.to_vec() }];
        let with = |columns| Inverse::new(2, 1.0).with(columns);
        assert!(with(column(0.5, &[1.0, 2.0])).is_some());
        for wrong in [column(0.5, &[1.0]), column(-0.5, &[1.0, 2.0]), column(0.5, &[1.0, f64::INFINITY])] {
            assert!(with(wrong).is_none());
        }
        assert!(
            with(vec![column(0.5, &[1.0, 2.0]).remove(0); COLLECTED]).is_none(),
            "more than are ever kept"
        );
    }
}
