//! What gradients of chosen arms add up to, in the form in which it is asked for: the inverse of
//! V = λI + Σφφᵀ and the estimate V⁻¹Σφy, of the whole matrix or of its diagonal.

use std::sync::Arc;

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use super::inverse::{Column, Inverse};
use super::quotients::quotients;
use super::rows::Row;
use super::sparse::Sparse;
use crate::error::DecodeError;
use crate::evidence::packed;
use crate::wire::v1;
use crate::workers::{ThisThread, Workers};

/// How much of the matrix V is kept and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum Precondition {
    /// The whole matrix: p₀² numbers.
    #[default]
    Full,
    /// Only the diagonal is kept: p₀ numbers.
    Diagonal,
}

/// V⁻¹ of some observations, with their estimate and information.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statistic {
    matrix: Matrix,
    /// V⁻¹Σφy; of a diagonal, Σφy.
    pub(crate) vector: Vec<f64>,
    /// ln det(V/λ): 0 before any observation, and growing with each.
    pub(crate) information: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Matrix {
    Full(Inverse),
    /// The diagonal of V itself.
    Diagonal(Vec<f64>),
}

impl Matrix {
    /// A diagonal, if this can be one.
    fn diagonal(entries: Vec<f64>, parameters: usize) -> Option<Self> {
        let possible = entries.len() == parameters && entries.iter().all(|v| *v > 0.0 && v.is_finite());
        possible.then_some(Self::Diagonal(entries))
    }
}

impl Statistic {
    pub(crate) fn new(kind: Precondition, parameters: usize, regularization: f64) -> Self {
        let matrix = match kind {
            Precondition::Full => Matrix::Full(Inverse::new(parameters, regularization)),
            Precondition::Diagonal => Matrix::Diagonal(vec![regularization; parameters]),
        };
        Self { matrix, vector: vec![0.0; parameters], information: 0.0 }
    }

    /// From its numbers, if these can be some: shapes fit, all are finite, no width is negative.
    pub(crate) fn from_parts(
        kind: Precondition,
        matrix: Vec<f64>,
        vector: Vec<f64>,
        information: f64,
    ) -> Option<Self> {
        let matrix = match kind {
            Precondition::Full => Matrix::Full(Inverse::from_whole(Arc::new(matrix), vector.len())?),
            Precondition::Diagonal => Matrix::diagonal(matrix, vector.len())?,
        };
        Self::assembled(matrix, vector, information)
    }

    fn assembled(matrix: Matrix, vector: Vec<f64>, information: f64) -> Option<Self> {
        let finite = vector.iter().all(|v| v.is_finite()) && information.is_finite();
        (finite && information >= 0.0).then_some(Self { matrix, vector, information })
    }

    pub(crate) fn save(&self) -> v1::StatisticState {
        let (matrix, columns): (&[f64], &[Column]) = match &self.matrix {
            Matrix::Full(inverse) => inverse.parts(),
            Matrix::Diagonal(diagonal) => (diagonal, &[]),
        };
        v1::StatisticState {
            matrix: matrix.to_vec(),
            vector: self.vector.clone(),
            information: self.information,
            columns: columns.iter().flat_map(|column| &column.vector).copied().collect(),
            scales: columns.iter().map(|column| column.scale).collect(),
        }
    }

    /// The statistic that was saved, if it is of this kind and size. `self` is one without observations.
    pub(crate) fn restored(&self, state: v1::StatisticState) -> Result<Self, DecodeError> {
        let parameters = self.vector.len();
        if state.vector.len() != parameters {
            return Err(DecodeError::invalid("statistic", "it is of another network"));
        }
        let misfit = || DecodeError::invalid("statistic", "its numbers do not fit together");
        let columns: Vec<Column> = state
            .columns
            .chunks(parameters)
            .zip(&state.scales)
            .map(|(vector, scale)| Column { scale: *scale, vector: vector.to_vec() })
            .collect();
        if columns.len() != state.scales.len() || columns.len() * parameters != state.columns.len() {
            return Err(misfit());
        }
        let matrix = match &self.matrix {
            Matrix::Full(none) => {
                let base = match state.matrix.is_empty() {
                    true => Some(none.clone()),
                    false => Inverse::from_whole(Arc::new(state.matrix), parameters),
                };
                base.and_then(|base| base.with(columns)).map(Matrix::Full)
            }
            Matrix::Diagonal(_) if columns.is_empty() => Matrix::diagonal(state.matrix, parameters),
            Matrix::Diagonal(_) => None,
        };
        let whole = matrix.and_then(|matrix| Self::assembled(matrix, state.vector, state.information));
        whole.ok_or_else(misfit)
    }

    /// Returns how many numbers the matrix takes in a message.
    pub(crate) const fn scalars(kind: Precondition, parameters: usize) -> usize {
        match kind {
            Precondition::Full => packed(parameters),
            Precondition::Diagonal => parameters,
        }
    }

    /// How many numbers it holds, of which taking in an observation looks at most.
    pub(crate) fn held(&self) -> usize {
        match &self.matrix {
            Matrix::Full(inverse) => inverse.parts().0.len() + inverse.parts().1.len() * self.vector.len(),
            Matrix::Diagonal(diagonal) => diagonal.len(),
        }
    }

    pub(crate) const fn kind(&self) -> Precondition {
        match self.matrix {
            Matrix::Full(_) => Precondition::Full,
            Matrix::Diagonal(_) => Precondition::Diagonal,
        }
    }

    /// Brings it to the form in which it is told: one matrix.
    pub(crate) fn fold(&mut self) {
        self.fold_on(&ThisThread);
    }

    /// The same, where workers share the work.
    pub(crate) fn fold_on(&mut self, workers: &dyn Workers) {
        if let Matrix::Full(inverse) = &mut self.matrix {
            inverse.fold_on(workers);
        }
    }

    /// The inverse of V, packed, or the diagonal of V, of a statistic that was folded.
    pub(crate) fn told(&self) -> &[f64] {
        match &self.matrix {
            Matrix::Full(inverse) => {
                debug_assert!(inverse.parts().1.is_empty(), "it is folded before it is told");
                inverse.parts().0
            }
            Matrix::Diagonal(diagonal) => diagonal,
        }
    }

    /// Adds the observation (φ, y), and returns by how much the information grew.
    pub(crate) fn learn(&mut self, phi: &Sparse, y: f64) -> f64 {
        self.learn_and_tell(phi, y, |_| ())
    }

    /// The same; a whole matrix says what was subtracted from its inverse.
    pub(crate) fn learn_and_tell(&mut self, phi: &Sparse, y: f64, tell: impl FnOnce(&Column)) -> f64 {
        let gain = match &mut self.matrix {
            Matrix::Full(inverse) => {
                let product = inverse.base_times(&[phi], &ThisThread).remove(0);
                learn_whole(inverse, &mut self.vector, (phi, y), product, tell, &ThisThread)
            }
            Matrix::Diagonal(diagonal) => {
                let mut growth = Growth::default();
                for (index, value) in phi.iter() {
                    let entry = &mut diagonal[index];
                    growth.by(value * value / *entry);
                    *entry += value * value;
                    self.vector[index] += y * value;
                }
                growth.logarithm()
            }
        };
        self.information += gain;
        gain
    }

    /// Adds observations in their order. A whole matrix is walked through once for as many of them as may wait to be subtracted
    /// from it, and says what was subtracted from its inverse.
    pub(crate) fn learn_all(&mut self, rows: &[Row], mut tell: impl FnMut(&Column), workers: &dyn Workers) {
        let mut rest = rows;
        while let (Matrix::Full(inverse), false) = (&mut self.matrix, rest.is_empty()) {
            let (now, later) = rest.split_at(inverse.room().min(rest.len()));
            let phis: Vec<&Sparse> = now.iter().map(|row| &row.phi).collect();
            for (row, product) in now.iter().zip(inverse.base_times(&phis, workers)) {
                let (vector, observation) = (&mut self.vector, (&row.phi, row.reward));
                self.information += learn_whole(inverse, vector, observation, product, &mut tell, workers);
            }
            rest = later;
        }
        for row in rest {
            self.learn(&row.phi, row.reward);
        }
    }

    /// Adds sums over observations to a diagonal.
    pub(crate) fn add_diagonal(&mut self, squares: &[f64], moment: &[f64]) {
        let Matrix::Diagonal(diagonal) = &mut self.matrix else {
            debug_assert!(false, "whole matrices take rows");
            return;
        };
        let mut growth = Growth::default();
        for (entry, square) in diagonal.iter_mut().zip(squares).filter(|(_, square)| **square > 0.0) {
            growth.by(square / *entry);
            *entry += square;
        }
        self.information += growth.logarithm();
        self.vector.iter_mut().zip(moment).for_each(|(sum, value)| *sum += value);
    }

    /// The inverse of V, packed or diagonal, to be shared.
    pub(crate) fn inverse(&mut self) -> Arc<Vec<f64>> {
        match &mut self.matrix {
            Matrix::Full(inverse) => inverse.fold(),
            Matrix::Diagonal(diagonal) => Arc::new(diagonal.iter().map(|entry| 1.0 / entry).collect()),
        }
    }

    /// The mean of the inverses of some statistics, packed or diagonal.
    pub(crate) fn mean_inverse<'a>(all: impl ExactSizeIterator<Item = &'a Self>) -> Vec<f64> {
        let share = 1.0 / all.len().max(1) as f64;
        Self::weighted_inverses(all, share)
    }

    /// The sum of the inverses of some statistics, each times `share`, packed or diagonal. Empty without any.
    pub(crate) fn weighted_inverses<'a>(all: impl Iterator<Item = &'a Self>, share: f64) -> Vec<f64> {
        let mut sum: Vec<f64> = Vec::new();
        let mut inverses = Vec::new();
        for statistic in all {
            match &statistic.matrix {
                Matrix::Full(inverse) => inverses.push(inverse),
                Matrix::Diagonal(diagonal) => {
                    sum.resize(diagonal.len(), 0.0);
                    sum.iter_mut().zip(diagonal).for_each(|(sum, entry)| *sum += share / entry);
                }
            }
        }
        if inverses.is_empty() { sum } else { Inverse::weighted_sum(inverses.into_iter(), share) }
    }

    /// Whether no number is lost to overflow, now or with the next observations.
    pub(crate) fn is_sound(&self) -> bool {
        let sound = |v: &f64| v.abs() <= 1e150;
        let matrix = match &self.matrix {
            Matrix::Full(inverse) => inverse.is_sound(),
            Matrix::Diagonal(diagonal) => diagonal.iter().all(sound),
        };
        matrix && self.vector.iter().all(sound)
    }

    /// Returns φᵀV⁻¹Σφy, the prediction of the linear model of gradients.
    pub(crate) fn mean(&self, phi: &Sparse) -> f64 {
        match &self.matrix {
            Matrix::Full(_) => phi.dot(&self.vector),
            Matrix::Diagonal(diagonal) => {
                phi.iter().map(|(index, value)| value * self.vector[index] / diagonal[index]).sum()
            }
        }
    }

    /// Returns [`mean`](Self::mean) and [`square`](Self::square).
    pub(crate) fn mean_and_square(&self, phi: &Sparse) -> (f64, f64) {
        match &self.matrix {
            Matrix::Full(_) => (self.mean(phi), self.square(phi)),
            Matrix::Diagonal(diagonal) => quotients(phi, &self.vector, diagonal),
        }
    }

    /// Returns φᵀV⁻¹φ, the squared uncertainty of that prediction.
    pub(crate) fn square(&self, phi: &Sparse) -> f64 {
        match &self.matrix {
            Matrix::Full(inverse) => inverse.square(phi),
            Matrix::Diagonal(diagonal) => {
                phi.iter().map(|(index, value)| value * value / diagonal[index]).sum()
            }
        }
    }
}

/// Adds the observation (φ, y) to an inverse and an estimate by Sherman and Morrison: P ← P − vvᵀ/(1 + φᵀv), v = Pφ, and
/// θ ← θ + v(y − φᵀθ)/(1 + φᵀv). `product` is Bφ, with the matrix that vectors are still to be subtracted from. Returns by how
/// much the information grew.
fn learn_whole(
    inverse: &mut Inverse,
    theta: &mut [f64],
    (phi, y): (&Sparse, f64),
    product: Vec<f64>,
    tell: impl FnOnce(&Column),
    workers: &dyn Workers,
) -> f64 {
    let vector = inverse.less_columns(phi, product);
    // Rounding may make a square of almost nothing negative.
    let square = phi.dot(&vector).max(0.0);
    let error = (y - phi.dot(theta)) / (1.0 + square);
    theta.iter_mut().zip(&vector).for_each(|(theta, v)| *theta += error * v);
    let column = Column { scale: 1.0 / (1.0 + square), vector };
    tell(&column);
    inverse.subtract(column, workers);
    libm::log1p(square)
}

/// By how much the information of a diagonal grows with some observations.
pub(crate) fn diagonal_growth<'a>(diagonal: &[f64], rows: impl Iterator<Item = &'a Sparse>) -> f64 {
    let mut squares = vec![0.0; diagonal.len()];
    for phi in rows {
        phi.iter().for_each(|(index, value)| squares[index] += value * value);
    }
    let mut growth = Growth::default();
    squares.iter().zip(diagonal).for_each(|(square, entry)| growth.by(square / entry));
    growth.logarithm()
}

/// ln Π(1 + r) with one logarithm for many factors: (1 + p)(1 + r) − 1 = p + r + pr, which is as exact for small r as
/// ln(1 + r).
#[derive(Default)]
struct Growth {
    /// Π(1 + r) − 1 of factors whose logarithm is still to be taken.
    product: f64,
    sum: f64,
}

impl Growth {
    fn by(&mut self, r: f64) {
        self.product += r + self.product * r;
        // Far from where the next factor could overflow.
        if self.product > 1e50 {
            self.sum += libm::log1p(std::mem::take(&mut self.product));
        }
    }

    fn logarithm(self) -> f64 {
        self.sum + libm::log1p(self.product)
    }
}

/// Σ φᵢ²·dᵢ of a diagonal.
pub(crate) fn weighted_squares(diagonal: &[f64], phi: &Sparse) -> f64 {
    phi.iter().map(|(index, value)| value * value * diagonal[index]).sum()
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
    fn many_observations_at_once_have_the_bits_of_one_after_the_other() {
        for kind in [Precondition::Full, Precondition::Diagonal] {
            let mut stream = Seed(7).stream("test", 0, 0);
            let mut single = Statistic::new(kind, 23, 0.5);
            let mut together = single.clone();
            for count in [0, 1, 3, 20, 5, 40, 1, 1] {
                let row =
                    |_| Row { phi: Sparse::from_dense(&gradient(&mut stream, 23)), reward: stream.normal() };
                let rows: Vec<Row> = (0..count).map(row).collect();
                let (mut told, mut told_together) = (Vec::new(), Vec::new());
                for row in &rows {
                    single.learn_and_tell(&row.phi, row.reward, |column| told.push(column.clone()));
                }
                together.learn_all(&rows, |column| told_together.push(column.clone()), &ThisThread);
                assert_eq!(told, told_together);
                assert_eq!(single, together);
                assert_eq!(single.information.to_bits(), together.information.to_bits());
            }
        }
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
    fn one_logarithm_is_as_good_as_many() {
        for exponents in [-30..-20, -3..3, 100..200] {
            let mut stream = Seed(5).stream("test", 0, 0);
            let (mut growth, mut sum) = (Growth::default(), 0.0);
            for exponent in exponents.cycle().take(500) {
                let r = stream.uniform() * libm::exp10(f64::from(exponent));
                growth.by(r);
                sum += libm::log1p(r);
            }
            let logarithm = growth.logarithm();
            assert!((logarithm - sum).abs() <= 1e-13 * sum, "{logarithm} and {sum}");
        }
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
    fn what_was_saved_goes_on_the_same_in_every_form() {
        for kind in [Precondition::Full, Precondition::Diagonal] {
            let mut stream = Seed(6).stream("test", 0, 0);
            let none = Statistic::new(kind, 40, 0.5);
            let mut statistic = none.clone();
            for step in 0..60 {
                let restored = none.restored(statistic.save()).unwrap();
                assert!(restored == statistic, "{kind:?} after {step}");
                statistic.learn(&Sparse::from_dense(&gradient(&mut stream, 40)), 1.0);
            }
            let (mut long, mut uneven) = (statistic.save(), statistic.save());
            long.scales.push(1.0);
            uneven.columns.push(1.0);
            assert!(none.restored(long).is_err() && none.restored(uneven).is_err());
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
