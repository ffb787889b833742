//! The baseline for updating a factor: LinUCB that factorises its matrix anew after every observation, in plain loops. Keep it
//! plain.

use crate::plain::{dot, width_of};

/// LinUCB with the Cholesky factor of λI + Σxxᵀ, made from nothing each time.
pub(super) struct RefactorisingLinUcb {
    d: usize,
    /// λI + Σxxᵀ, and Σxy.
    matrix: Vec<f64>,
    moment: Vec<f64>,
    /// The lower triangle with L·Lᵀ = matrix, in rows of d.
    factor: Vec<f64>,
    theta: Vec<f64>,
    /// L⁻¹ times an arm.
    solved: Vec<f64>,
    count: u64,
    regularization: f64,
}

impl RefactorisingLinUcb {
    pub(super) fn new(d: usize, regularization: f64) -> Self {
        let (mut matrix, mut factor) = (vec![0.0; d * d], vec![0.0; d * d]);
        for i in 0..d {
            matrix[i * d + i] = regularization;
            factor[i * d + i] = regularization.sqrt();
        }
        let zeros = || vec![0.0; d];
        let (moment, theta, solved) = (zeros(), zeros(), zeros());
        Self { d, matrix, moment, factor, theta, solved, count: 0, regularization }
    }

    /// The arm with the largest upper confidence bound; `arms` has d features a row.
    pub(super) fn choose(&mut self, arms: &[f64]) -> usize {
        let alpha = width_of(self.d, self.count, self.regularization);
        let (mut best, mut best_score) = (0, f64::NEG_INFINITY);
        for (k, x) in arms.chunks_exact(self.d).enumerate() {
            self.forward(x);
            let score = dot(&self.theta, x) + alpha * dot(&self.solved, &self.solved).sqrt();
            if score > best_score {
                (best, best_score) = (k, score);
            }
        }
        best
    }

    pub(super) fn learn(&mut self, x: &[f64], reward: f64) {
        for (row, xi) in self.matrix.chunks_exact_mut(self.d).zip(x) {
            for (value, xj) in row.iter_mut().zip(x) {
                *value += xi * xj;
            }
        }
        for (moment, xi) in self.moment.iter_mut().zip(x) {
            *moment += reward * xi;
        }
        self.count += 1;
        self.factorise();
        let moment = std::mem::take(&mut self.moment);
        self.forward(&moment);
        self.moment = moment;
        self.backward();
    }

    /// Row by row: each entry is one product of two rows that are there already.
    fn factorise(&mut self) {
        let d = self.d;
        for i in 0..d {
            let (above, row) = self.factor.split_at_mut(i * d);
            for j in 0..i {
                let other = &above[j * d..=j * d + j];
                row[j] = (self.matrix[i * d + j] - dot(&row[..j], &other[..j])) / other[j];
            }
            row[i] = (self.matrix[i * d + i] - dot(&row[..i], &row[..i])).sqrt();
        }
    }

    /// Solves L·z = x.
    fn forward(&mut self, x: &[f64]) {
        for (i, (row, xi)) in self.factor.chunks_exact(self.d).zip(x).enumerate() {
            self.solved[i] = (xi - dot(&row[..i], &self.solved[..i])) / row[i];
        }
    }

    /// Solves Lᵀ·θ = z.
    fn backward(&mut self) {
        self.theta.copy_from_slice(&self.solved);
        for (i, row) in self.factor.chunks_exact(self.d).enumerate().rev() {
            let value = self.theta[i] / row[i];
            self.theta[i] = value;
            for (theta, factor) in self.theta[..i].iter_mut().zip(row) {
                *theta -= factor * value;
            }
        }
    }
}
