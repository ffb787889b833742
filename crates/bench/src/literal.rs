//! The baseline for uploads: the coordinator as the paper prints it, with a matrix per agent and two
//! determinants per agent and upload. Keep it literal.

/// A coordinator with a download buffer for every agent.
pub(super) struct Literal {
    d: usize,
    regularization: f64,
    gram: Vec<f64>,
    moment: Vec<f64>,
    /// What each agent has not been sent, matrix and vector.
    buffers: Vec<Vec<f64>>,
    scratch: Vec<f64>,
}

impl Literal {
    pub(super) fn new(d: usize, regularization: f64, agents: usize) -> Self {
        let buffers = (0..agents).map(|_| vec![0.0; d * d + d]).collect();
        Self {
            d,
            regularization,
            gram: vec![0.0; d * d],
            moment: vec![0.0; d],
            buffers,
            scratch: vec![0.0; d * d],
        }
    }

    /// Adds the observation (x, y) of `agent` and counts who is due for a download.
    pub(super) fn upload(&mut self, agent: usize, x: &[f64], y: f64, ln_threshold: f64) -> usize {
        let d = self.d;
        for i in 0..d {
            for j in 0..d {
                self.gram[i * d + j] += x[i] * x[j];
            }
            self.moment[i] += y * x[i];
        }
        let mut due = 0;
        for (other, buffer) in self.buffers.iter_mut().enumerate() {
            if other != agent {
                for i in 0..d {
                    for j in 0..d {
                        buffer[i * d + j] += x[i] * x[j];
                    }
                    buffer[d * d + i] += y * x[i];
                }
            }
            let everything = ln_det(&self.gram, None, d, self.regularization, &mut self.scratch);
            let has = ln_det(&self.gram, Some(buffer), d, self.regularization, &mut self.scratch);
            if everything - has > ln_threshold {
                buffer.fill(0.0);
                due += 1;
            }
        }
        due
    }
}

/// ln det(gram − minus + λI) by Cholesky's decomposition.
fn ln_det(gram: &[f64], minus: Option<&Vec<f64>>, d: usize, regularization: f64, a: &mut [f64]) -> f64 {
    a.copy_from_slice(gram);
    if let Some(minus) = minus {
        for (value, subtracted) in a.iter_mut().zip(minus) {
            *value -= subtracted;
        }
    }
    let mut sum = 0.0;
    for j in 0..d {
        a[j * d + j] += regularization;
        for k in 0..j {
            a[j * d + j] -= a[j * d + k] * a[j * d + k];
        }
        let root = a[j * d + j].sqrt();
        sum += 2.0 * root.ln();
        for i in j + 1..d {
            for k in 0..j {
                a[i * d + j] -= a[i * d + k] * a[j * d + k];
            }
            a[i * d + j] /= root;
        }
    }
    sum
}
