//! The inverse of V = λI + Σφφᵀ, kept in the cheapest form that is exact.
//!
//! By Sherman and Morrison every observation subtracts a multiple of a vector's square. A few of them need not be
//! subtracted from the matrix at once: P = B − Σ s·vvᵀ answers as well. As long as there are far fewer observations
//! than parameters, B is I/λ and no matrix exists; that is the dual form, with its vectors made orthogonal as they come.
//! Later vectors are collected and subtracted several at a time, so that the matrix goes through the processor once
//! for all of them; and who adds a few observations to a matrix that many share needs no copy of it.

use std::sync::Arc;

use super::downdate::{Term, subtract_from, subtract_multiples, subtracted};
use super::product::{met, products};
use super::sparse::Sparse;
use crate::evidence::packed;
use crate::workers::{ThisThread, Workers};

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
    #[cfg(test)]
    pub(crate) fn times(&self, phi: &Sparse) -> Vec<f64> {
        let v = self.base_times(&[phi], &ThisThread).remove(0);
        self.less_columns(phi, v)
    }

    /// Returns Bφ for each of some vectors, where B is the matrix that vectors are still to be subtracted from.
    pub(crate) fn base_times(&self, phis: &[&Sparse], workers: &dyn Workers) -> Vec<Vec<f64>> {
        match &self.base {
            Base::Ridge(entry) => {
                let scaled = |phi: &&Sparse| {
                    let mut v = vec![0.0; self.parameters];
                    phi.iter().for_each(|(index, value)| v[index] = value * entry);
                    v
                };
                phis.iter().map(scaled).collect()
            }
            Base::Whole(matrix) => products(matrix, phis, self.parameters, workers),
        }
    }

    /// Turns Bφ into Pφ: subtracts Σ s·v(vᵀφ) over the vectors that wait.
    pub(crate) fn less_columns(&self, phi: &Sparse, mut v: Vec<f64>) -> Vec<f64> {
        let term = |column: &Column| column.scale * phi.dot(&column.vector);
        let terms: Vec<Term<'_>> =
            self.columns.iter().map(|column| (term(column), column.vector.as_slice())).collect();
        subtract_multiples(&mut v, &terms);
        v
    }

    /// How many vectors may be subtracted before the matrix that they wait for changes.
    pub(crate) fn room(&self) -> usize {
        self.limit().saturating_sub(self.columns.len())
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
    pub(crate) fn subtract(&mut self, column: Column, workers: &dyn Workers) {
        self.columns.push(column);
        if self.columns.len() >= self.limit() {
            self.fold_on(workers);
        }
    }

    /// Makes this one matrix from which nothing is left to be subtracted, and shares it.
    pub(crate) fn fold(&mut self) -> Arc<Vec<f64>> {
        self.fold_on(&ThisThread)
    }

    /// The same, where workers share the work.
    pub(crate) fn fold_on(&mut self, workers: &dyn Workers) -> Arc<Vec<f64>> {
        let columns = std::mem::take(&mut self.columns);
        if let Base::Ridge(entry) = &self.base {
            self.base = Base::Whole(Arc::new(ridge(self.parameters, *entry)));
        }
        let Base::Whole(matrix) = &mut self.base else { unreachable!("it was made a matrix") };
        if !columns.is_empty() {
            match Arc::get_mut(matrix) {
                Some(own) => subtract_from(own, &columns, workers),
                None => *matrix = Arc::new(subtracted(matrix, &columns, workers)),
            }
        }
        Arc::clone(matrix)
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
        subtracted(&sum, &columns, &ThisThread)
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
        inverse.subtract(Column { scale, vector }, &ThisThread);
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
