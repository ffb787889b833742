//! What gradients of chosen arms add up to, in the form in which it is asked for: the inverse of
//! V = λI + Σφφᵀ and the estimate V⁻¹Σφy, of the whole matrix or of its diagonal.

use pulp::{Arch, Simd, WithSimd};
use serde::{Deserialize, Serialize};

use super::sparse::Sparse;
use crate::error::DecodeError;
use crate::evidence::packed;
use crate::wire::v1;

/// How much of V is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precondition {
    /// The whole matrix: p₀² numbers.
    #[default]
    Full,
    /// Its diagonal: p₀ numbers.
    Diagonal,
}

/// V⁻¹ of some observations, with their estimate and information.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statistic {
    /// The inverse of V, packed, or the diagonal of V.
    pub(crate) matrix: Vec<f64>,
    /// V⁻¹Σφy; of a diagonal, Σφy.
    pub(crate) vector: Vec<f64>,
    /// ln det(V/λ).
    pub(crate) information: f64,
    kind: Precondition,
}

impl Statistic {
    /// Without observations.
    pub(crate) fn new(kind: Precondition, parameters: usize, regularization: f64) -> Self {
        let matrix = match kind {
            Precondition::Full => identity(parameters, 1.0 / regularization),
            Precondition::Diagonal => vec![regularization; parameters],
        };
        Self { matrix, vector: vec![0.0; parameters], information: 0.0, kind }
    }

    /// From its numbers, if these can be some: shapes fit, all are finite, no width is negative.
    pub(crate) fn from_parts(
        kind: Precondition,
        matrix: Vec<f64>,
        vector: Vec<f64>,
        information: f64,
    ) -> Option<Self> {
        let parameters = vector.len();
        let fits = matrix.len() == Self::scalars(kind, parameters);
        let finite = matrix.iter().chain(&vector).all(|v| v.is_finite()) && information.is_finite();
        let diagonal = match kind {
            Precondition::Full => fits && (0..parameters).all(|i| matrix[packed(i) + i] >= 0.0),
            Precondition::Diagonal => fits && matrix.iter().all(|v| *v > 0.0),
        };
        (diagonal && finite && information >= 0.0).then_some(Self { matrix, vector, information, kind })
    }

    pub(crate) fn save(&self) -> v1::StatisticState {
        let (matrix, vector) = (self.matrix.clone(), self.vector.clone());
        v1::StatisticState { matrix, vector, information: self.information }
    }

    /// The statistic that was saved, if it is of this kind and size.
    pub(crate) fn restored(&self, state: v1::StatisticState) -> Result<Self, DecodeError> {
        if state.vector.len() != self.vector.len() {
            return Err(DecodeError::invalid("statistic", "it is of another network"));
        }
        Self::from_parts(self.kind, state.matrix, state.vector, state.information)
            .ok_or(DecodeError::invalid("statistic", "its numbers do not fit together"))
    }

    /// Numbers in the matrix.
    pub(crate) const fn scalars(kind: Precondition, parameters: usize) -> usize {
        match kind {
            Precondition::Full => packed(parameters),
            Precondition::Diagonal => parameters,
        }
    }

    pub(crate) const fn kind(&self) -> Precondition {
        self.kind
    }

    /// Adds the observation (φ, y), and returns by how much the information grew.
    pub(crate) fn learn(&mut self, phi: &Sparse, y: f64) -> f64 {
        let gain = match self.kind {
            Precondition::Full => self.learn_full(phi, y),
            Precondition::Diagonal => {
                let mut gain = 0.0;
                for (index, value) in phi.iter() {
                    let entry = &mut self.matrix[index];
                    gain += libm::log1p(value * value / *entry);
                    *entry += value * value;
                    self.vector[index] += y * value;
                }
                gain
            }
        };
        self.information += gain;
        gain
    }

    /// Adds sums over observations to a diagonal.
    pub(crate) fn add_diagonal(&mut self, squares: &[f64], moment: &[f64]) {
        debug_assert!(self.kind == Precondition::Diagonal, "whole matrices take rows");
        for (entry, square) in self.matrix.iter_mut().zip(squares).filter(|(_, square)| **square > 0.0) {
            self.information += libm::log1p(square / *entry);
            *entry += square;
        }
        self.vector.iter_mut().zip(moment).for_each(|(sum, value)| *sum += value);
    }

    /// Sherman and Morrison: P ← P − vvᵀ/(1 + φᵀv), v = Pφ, and θ ← θ + v(y − φᵀθ)/(1 + φᵀv).
    fn learn_full(&mut self, phi: &Sparse, y: f64) -> f64 {
        let mut v = Vec::new();
        multiply(&self.matrix, phi, self.vector.len(), &mut v);
        // Rounding may make a square of almost nothing negative.
        let square = phi.dot(&v).max(0.0);
        let error = (y - phi.dot(&self.vector)) / (1.0 + square);
        for (theta, v) in self.vector.iter_mut().zip(&v) {
            *theta += error * v;
        }
        Arch::new().dispatch(Downdate { matrix: &mut self.matrix, v: &v, scale: 1.0 / (1.0 + square) });
        libm::log1p(square)
    }

    /// V⁻¹, packed or diagonal.
    pub(crate) fn inverse(&self) -> Vec<f64> {
        let mut inverse = vec![0.0; self.matrix.len()];
        self.add_inverse(1.0, &mut inverse);
        inverse
    }

    /// Adds `share`·V⁻¹.
    pub(crate) fn add_inverse(&self, share: f64, sum: &mut [f64]) {
        let pairs = sum.iter_mut().zip(&self.matrix);
        match self.kind {
            Precondition::Full => pairs.for_each(|(sum, entry)| *sum += share * entry),
            Precondition::Diagonal => pairs.for_each(|(sum, entry)| *sum += share / entry),
        }
    }

    /// Whether no number is lost to overflow, now or with the next observations. Of a whole matrix the diagonal
    /// vouches for the rest: it is positive definite.
    pub(crate) fn is_sound(&self) -> bool {
        let sound = |v: &f64| v.abs() <= 1e150;
        let matrix = match self.kind {
            Precondition::Full => (0..self.vector.len()).all(|i| sound(&self.matrix[packed(i) + i])),
            Precondition::Diagonal => self.matrix.iter().all(sound),
        };
        matrix && self.vector.iter().all(sound)
    }

    /// φᵀV⁻¹Σφy.
    pub(crate) fn mean(&self, phi: &Sparse) -> f64 {
        match self.kind {
            Precondition::Full => phi.dot(&self.vector),
            Precondition::Diagonal => {
                phi.iter().map(|(index, value)| value * self.vector[index] / self.matrix[index]).sum()
            }
        }
    }

    /// φᵀV⁻¹φ.
    pub(crate) fn square(&self, phi: &Sparse) -> f64 {
        match self.kind {
            Precondition::Full => quadratic(&self.matrix, phi),
            Precondition::Diagonal => {
                phi.iter().map(|(index, value)| value * value / self.matrix[index]).sum()
            }
        }
    }
}

/// The packed matrix `entry`·I.
fn identity(dimension: usize, entry: f64) -> Vec<f64> {
    let mut matrix = vec![0.0; packed(dimension)];
    (0..dimension).for_each(|i| matrix[packed(i) + i] = entry);
    matrix
}

/// φᵀPφ of a packed matrix, or of a diagonal if there are as many numbers as entries of one. Not negative.
pub(crate) fn quadratic(matrix: &[f64], phi: &Sparse) -> f64 {
    let (indices, values) = (phi.indices(), phi.values());
    let mut sum = 0.0;
    for (place, (index, value)) in phi.iter().enumerate() {
        let row = &matrix[packed(index)..=packed(index) + index];
        let mut inner = 0.0;
        for (other, weight) in indices[..place].iter().zip(&values[..place]) {
            inner += weight * row[*other as usize];
        }
        sum += value * (2.0 * inner + value * row[index]);
    }
    sum.max(0.0)
}

/// Σ φᵢ²·dᵢ of a diagonal.
pub(crate) fn weighted_squares(diagonal: &[f64], phi: &Sparse) -> f64 {
    phi.iter().map(|(index, value)| value * value * diagonal[index]).sum()
}

/// v = Pφ of a packed matrix.
fn multiply(matrix: &[f64], phi: &Sparse, dimension: usize, v: &mut Vec<f64>) {
    v.clear();
    v.resize(dimension, 0.0);
    let (indices, values) = (phi.indices(), phi.values());
    let mut known = 0;
    for i in 0..dimension {
        let row = &matrix[packed(i)..=packed(i) + i];
        // Entries left of the diagonal that φ meets.
        let mut sum = 0.0;
        for (other, weight) in indices[..known].iter().zip(&values[..known]) {
            sum += weight * row[*other as usize];
        }
        v[i] += sum;
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

/// P ← P − scale·vvᵀ. Each entry is computed on its own, so that the width of vectors changes no bit.
struct Downdate<'a> {
    matrix: &'a mut [f64],
    v: &'a [f64],
    scale: f64,
}

impl WithSimd for Downdate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Downdate { matrix, v, scale } = self;
        let mut rest = matrix;
        for i in 0..v.len() {
            let (row, later) = rest.split_at_mut(i + 1);
            rest = later;
            let multiple = scale * v[i];
            let splat = simd.splat_f64s(multiple);
            let (head, tail) = S::as_mut_simd_f64s(row);
            let (v_head, _) = S::as_simd_f64s(&v[..head.len() * S::F64_LANES]);
            for (p, v) in head.iter_mut().zip(v_head) {
                *p = simd.sub_f64s(*p, simd.mul_f64s(splat, *v));
            }
            let done = i + 1 - tail.len();
            for (p, v) in tail.iter_mut().zip(&v[done..]) {
                *p -= multiple * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Evidence;
    use crate::random::{Seed, Stream};
    use crate::ridge::Ridge;

    fn gradient(stream: &mut Stream, dimension: usize) -> Vec<f64> {
        (0..dimension).map(|_| if stream.below(3) == 0 { 0.0 } else { stream.normal() }).collect()
    }

    #[test]
    fn widths_means_and_information_are_those_of_ridge_regression() {
        let (d, lambda) = (17, 0.3);
        let mut stream = Seed(1).stream("test", 0, 0);
        let mut statistic = Statistic::new(Precondition::Full, d, lambda);
        let mut evidence = Evidence::none(d);
        for step in 0..400 {
            let (x, y) = (gradient(&mut stream, d), stream.normal());
            evidence.observe(&x, y).unwrap();
            statistic.learn(&Sparse::from_dense(&x), y);
            if step % 40 != 0 {
                continue;
            }
            let mut ridge = Ridge::new(d, lambda);
            ridge.refresh([&evidence].into_iter()).unwrap();
            let probe = gradient(&mut stream, d);
            let mut solved = probe.clone();
            ridge.solve(&mut solved);
            let square: f64 = probe.iter().zip(&solved).map(|(a, b)| a * b).sum();
            let phi = Sparse::from_dense(&probe);
            assert!((statistic.square(&phi) - square).abs() <= 1e-9 * square, "step {step}");
            let mean: f64 = probe.iter().zip(ridge.estimate()).map(|(a, b)| a * b).sum();
            assert!((statistic.mean(&phi) - mean).abs() <= 1e-9, "step {step}");
            assert!((statistic.information - ridge.information()).abs() <= 1e-9 * ridge.information());
        }
    }

    /// O24: while there are fewer observations than parameters, widths can be found from the inner products of
    /// observations alone: φᵀV⁻¹φ = (φᵀφ − kᵀ(K + λI)⁻¹k)/λ.
    #[test]
    fn widths_of_the_dual_form_are_the_same() {
        let (d, n, lambda) = (40, 12, 0.1);
        let mut stream = Seed(2).stream("test", 0, 0);
        let mut statistic = Statistic::new(Precondition::Full, d, lambda);
        let mut rows: Vec<Vec<f64>> = Vec::new();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for _ in 0..n {
            let x = gradient(&mut stream, d);
            statistic.learn(&Sparse::from_dense(&x), 0.0);
            rows.push(x);
            // K as evidence: its model is K + λI.
            let mut gram = Vec::new();
            for i in 0..rows.len() {
                gram.extend((0..=i).map(|j| dot(&rows[i], &rows[j])));
            }
            let kernel = Evidence::from_parts(gram, vec![0.0; rows.len()], 1).unwrap();
            let mut model = Ridge::new(rows.len(), lambda);
            model.refresh([&kernel].into_iter()).unwrap();
            let probe = gradient(&mut stream, d);
            let k: Vec<f64> = rows.iter().map(|row| dot(row, &probe)).collect();
            let mut solved = k.clone();
            model.solve(&mut solved);
            let dual = (dot(&probe, &probe) - dot(&k, &solved)) / lambda;
            let primal = statistic.square(&Sparse::from_dense(&probe));
            assert!((primal - dual).abs() <= 1e-8 * dual, "{primal} and {dual}");
        }
    }

    #[test]
    fn a_diagonal_keeps_the_diagonal() {
        let (d, lambda) = (6, 2.0);
        let mut stream = Seed(3).stream("test", 0, 0);
        let mut statistic = Statistic::new(Precondition::Diagonal, d, lambda);
        let (mut squares, mut moment) = (vec![lambda; d], vec![0.0; d]);
        for _ in 0..30 {
            let (x, y) = (gradient(&mut stream, d), stream.normal());
            statistic.learn(&Sparse::from_dense(&x), y);
            for i in 0..d {
                squares[i] += x[i] * x[i];
                moment[i] += x[i] * y;
            }
        }
        let probe = gradient(&mut stream, d);
        let phi = Sparse::from_dense(&probe);
        let square: f64 = (0..d).map(|i| probe[i] * probe[i] / squares[i]).sum();
        let mean: f64 = (0..d).map(|i| probe[i] * moment[i] / squares[i]).sum();
        assert!((statistic.square(&phi) - square).abs() <= 1e-12 * square);
        assert!((statistic.mean(&phi) - mean).abs() <= 1e-12);
        let information: f64 = squares.iter().map(|v| libm::log(v / lambda)).sum();
        assert!((statistic.information - information).abs() <= 1e-10 * information);
    }

    #[test]
    fn tens_of_thousands_of_updates_do_not_wear_the_inverse_out() {
        let (d, lambda) = (30, 0.1);
        let mut stream = Seed(4).stream("test", 0, 0);
        let mut statistic = Statistic::new(Precondition::Full, d, lambda);
        let mut evidence = Evidence::none(d);
        for _ in 0..50_000 {
            // Gradients of a network are large in some directions and small in others.
            let mut x = gradient(&mut stream, d);
            x.iter_mut().enumerate().for_each(|(i, x)| *x *= 10.0 / (1.0 + i as f64 * i as f64));
            evidence.observe(&x, 1.0).unwrap();
            statistic.learn(&Sparse::from_dense(&x), 1.0);
        }
        let mut ridge = Ridge::new(d, lambda);
        ridge.refresh([&evidence].into_iter()).unwrap();
        for i in 0..d {
            let mut unit = vec![0.0; d];
            unit[i] = 1.0;
            let square = statistic.square(&Sparse::from_dense(&unit));
            ridge.solve(&mut unit);
            assert!((square - unit[i]).abs() <= 1e-7 * unit[i], "{i}: {square} and {}", unit[i]);
        }
    }

    #[test]
    fn numbers_that_are_no_statistic_are_refused() {
        let full = |matrix: &[f64], information| {
            Statistic::from_parts(Precondition::Full, matrix.to_vec(), vec![0.0; 2], information).is_some()
        };
        assert!(full(&[1.0, 0.0, 1.0], 0.5));
        assert!(!full(&[1.0, 0.0], 0.5) && !full(&[-1.0, 0.0, 1.0], 0.5) && !full(&[1.0, 0.0, 1.0], -0.5));
        assert!(!full(&[1.0, f64::NAN, 1.0], 0.5));
        let diagonal = |matrix: &[f64]| {
            Statistic::from_parts(Precondition::Diagonal, matrix.to_vec(), vec![0.0; 2], 0.0).is_some()
        };
        assert!(diagonal(&[1.0, 2.0]) && !diagonal(&[1.0, 0.0]) && !diagonal(&[1.0]));
    }
}
