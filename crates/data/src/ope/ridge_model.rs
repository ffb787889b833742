//! Ridge regression with a penalty that does not depend on the scale of the inputs.

use super::reward_model::PRIOR_ROWS;

/// A linear function with a constant.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    /// One for each input, then the constant.
    weights: Vec<f64>,
}

impl Linear {
    /// Fits y to rows of `width` inputs. The penalty of a weight is as strong as ten rows in which its input is as
    /// large as usual.
    pub(super) fn fit(x: &[f64], y: &[f64], width: usize) -> Self {
        let size = width + 1;
        let mut gram = vec![0.0; size * size];
        let mut moment = vec![0.0; size];
        let mut row = vec![1.0; size];
        for (x, y) in x.chunks_exact(width.max(1)).zip(y) {
            row[..width].copy_from_slice(x);
            for i in 0..size {
                moment[i] += row[i] * y;
                for j in 0..=i {
                    gram[i * size + j] += row[i] * row[j];
                }
            }
        }
        let rows = (y.len() as f64).max(1.0);
        for i in 0..size {
            let usual = gram[i * size + i] / rows;
            // An input that is always 0 has a weight of 0: any positive number does.
            gram[i * size + i] += if usual > 0.0 { PRIOR_ROWS * usual } else { 1.0 };
        }
        Self { weights: solve(gram, moment, size) }
    }

    /// The value for these inputs.
    pub(super) fn predict(&self, x: &[f64]) -> f64 {
        let constant = self.weights[self.weights.len() - 1];
        x.iter().zip(&self.weights).map(|(x, weight)| x * weight).sum::<f64>() + constant
    }
}

/// Solves A·z = b for a positive definite A, given by its lower half in rows, by Cholesky's method.
fn solve(mut a: Vec<f64>, mut b: Vec<f64>, size: usize) -> Vec<f64> {
    for j in 0..size {
        for k in 0..j {
            let factor = a[j * size + k];
            for i in j..size {
                a[i * size + j] -= a[i * size + k] * factor;
            }
        }
        let root = a[j * size + j].max(f64::MIN_POSITIVE).sqrt();
        for i in j..size {
            a[i * size + j] /= root;
        }
    }
    for i in 0..size {
        let known: f64 = (0..i).map(|k| a[i * size + k] * b[k]).sum();
        b[i] = (b[i] - known) / a[i * size + i];
    }
    for i in (0..size).rev() {
        let known: f64 = (i + 1..size).map(|k| a[k * size + i] * b[k]).sum();
        b[i] = (b[i] - known) / a[i * size + i];
    }
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_whatever_the_scale_of_its_inputs() {
        for scale in [1e-6, 1.0, 1e6] {
            let x: Vec<f64> = (0..2000).flat_map(|i| [f64::from(i % 7) * scale, f64::from(i % 5)]).collect();
            let y: Vec<f64> = x.chunks_exact(2).map(|x| 2.0 * x[0] / scale - 3.0 * x[1] + 1.0).collect();
            let line = Linear::fit(&x, &y, 2);
            let expected = 2.0 * 4.0 - 3.0 * 2.0 + 1.0;
            assert!((line.predict(&[4.0 * scale, 2.0]) - expected).abs() < 0.1, "{scale}");
        }
        assert_eq!(Linear::fit(&[], &[], 3).predict(&[1.0, 2.0, 3.0]), 0.0);
    }
}
