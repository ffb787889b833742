//! The baseline for interactions: LinUCB as anybody would write it first.
//!
//! The inverse is kept by Sherman and Morrison's formula in plain loops over rows, compiled like the rest
//! of the program and no better. Keep it plain: it is what the fast one is compared with.

/// LinUCB with an explicit inverse.
pub(super) struct PlainLinUcb {
    d: usize,
    inverse: Vec<f64>,
    theta: Vec<f64>,
    /// The inverse times an arm.
    product: Vec<f64>,
    count: u64,
    regularization: f64,
}

impl PlainLinUcb {
    pub(super) fn new(d: usize, regularization: f64) -> Self {
        let mut inverse = vec![0.0; d * d];
        for i in 0..d {
            inverse[i * d + i] = 1.0 / regularization;
        }
        Self { d, inverse, theta: vec![0.0; d], product: vec![0.0; d], count: 0, regularization }
    }

    /// The arm with the largest upper confidence bound; `arms` has d features a row.
    pub(super) fn choose(&mut self, arms: &[f64]) -> usize {
        self.choose_with(arms, width_of(self.d, self.count, self.regularization))
    }

    /// The same with a width of one's own.
    pub(super) fn choose_with(&mut self, arms: &[f64], alpha: f64) -> usize {
        let (mut best, mut best_score) = (0, f64::NEG_INFINITY);
        for (k, x) in arms.chunks_exact(self.d).enumerate() {
            self.multiply(x);
            let score = dot(&self.theta, x) + alpha * dot(&self.product, x).sqrt();
            if score > best_score {
                (best, best_score) = (k, score);
            }
        }
        best
    }

    pub(super) fn learn(&mut self, x: &[f64], reward: f64) {
        self.multiply(x);
        let s = 1.0 + dot(&self.product, x);
        let error = (reward - dot(&self.theta, x)) / s;
        for (row, p) in self.inverse.chunks_exact_mut(self.d).zip(&self.product) {
            for (value, q) in row.iter_mut().zip(&self.product) {
                *value -= p * q / s;
            }
        }
        for (t, p) in self.theta.iter_mut().zip(&self.product) {
            *t += error * p;
        }
        self.count += 1;
    }

    /// Row by row, so that the compiler may use what vectors every processor has.
    fn multiply(&mut self, x: &[f64]) {
        self.product.fill(0.0);
        for (row, xi) in self.inverse.chunks_exact(self.d).zip(x) {
            for (p, value) in self.product.iter_mut().zip(row) {
                *p += xi * value;
            }
        }
    }
}

/// How much a width counts after `count` observations, by the bound on the information.
pub(super) fn width_of(d: usize, count: u64, regularization: f64) -> f64 {
    let d = d as f64;
    let information = d * (1.0 + count as f64 / (d * regularization)).ln();
    0.1 * (information + 2.0 * 10.0_f64.ln()).sqrt() + regularization.sqrt()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use posse_core::{
        AgentId, Algorithm, Arms, Federation, LinUcb, ModelConfig, Seed, Shape, UserId, WidthForm,
    };

    use super::*;
    use crate::plain_refactorising::RefactorisingLinUcb;

    #[test]
    fn the_baselines_and_the_real_one_choose_alike() {
        let (d, k) = (6, 9);
        let model = ModelConfig { width: WidthForm::DetTrace, ..Default::default() };
        let federation = Federation { agents: 1, horizon: 1000, seed: Seed(0) };
        let mut real =
            Algorithm::LinUcb(LinUcb { model }).agent(AgentId(0), Shape::shared(d), &federation).unwrap();
        let mut plain = PlainLinUcb::new(d, 0.1);
        let mut refactorising = RefactorisingLinUcb::new(d, 0.1);
        let mut stream = Seed(4).stream("bench", 0, 0);
        for _ in 0..500 {
            let features: Vec<f64> = (0..k * d).map(|_| 0.4 * stream.normal()).collect();
            let rows: Vec<&[f64]> = features.chunks_exact(d).collect();
            let arms = Arms::from_rows(d, &rows).unwrap();
            let arm = real.choose(UserId(0), &arms).unwrap().arm;
            assert_eq!(arm, plain.choose(&features));
            assert_eq!(arm, refactorising.choose(&features));
            let reward = rows[arm][0] + 0.1 * stream.normal();
            real.learn(UserId(0), rows[arm], reward).unwrap();
            plain.learn(rows[arm], reward);
            refactorising.learn(rows[arm], reward);
        }
    }
}
