//! Textbook linear algebra on full matrices, with nothing kept from one question to the next.

use posse_core::{Evidence, packed};

/// Rows of a square matrix.
pub(crate) type Matrix = Vec<Vec<f64>>;

pub(crate) fn zeros(d: usize) -> Matrix {
    vec![vec![0.0; d]; d]
}

/// m += factor · a.
pub(crate) fn add(m: &mut Matrix, factor: f64, a: &Matrix) {
    for (row, from) in m.iter_mut().zip(a) {
        add_vector(row, factor, from);
    }
}

/// v += factor · a.
pub(crate) fn add_vector(v: &mut [f64], factor: f64, a: &[f64]) {
    for (entry, from) in v.iter_mut().zip(a) {
        *entry += factor * from;
    }
}

/// m += xxᵀ.
pub(crate) fn add_outer(m: &mut Matrix, x: &[f64]) {
    for (row, xi) in m.iter_mut().zip(x) {
        add_vector(row, *xi, x);
    }
}

/// m + λI.
pub(crate) fn regularized(m: &Matrix, lambda: f64) -> Matrix {
    let mut sum = m.clone();
    for (i, row) in sum.iter_mut().enumerate() {
        row[i] += lambda;
    }
    sum
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// xᵀmy.
pub(crate) fn form(x: &[f64], m: &Matrix, y: &[f64]) -> f64 {
    m.iter().zip(x).map(|(row, xi)| xi * dot(row, y)).sum()
}

/// The sum of Gram matrices, in full.
pub(crate) fn gram<'e>(parts: impl IntoIterator<Item = &'e Evidence>) -> Matrix {
    let mut sum = Matrix::new();
    for part in parts {
        if sum.is_empty() {
            sum = zeros(part.dimension());
        }
        for (i, row) in sum.iter_mut().enumerate() {
            for (j, entry) in row.iter_mut().enumerate() {
                *entry += part.gram()[packed(i.max(j)) + i.min(j)];
            }
        }
    }
    sum
}

/// Gaussian elimination with row pivoting: the triangle, the right-hand side carried along, and ln |det|.
fn eliminate(m: &Matrix, right: &[f64]) -> (Matrix, Vec<f64>, f64) {
    let (mut u, mut v, d) = (m.clone(), right.to_vec(), m.len());
    let mut ln_det = 0.0;
    for k in 0..d {
        let pivot = (k..d).max_by(|&a, &b| u[a][k].abs().total_cmp(&u[b][k].abs())).expect("k < d");
        u.swap(k, pivot);
        v.swap(k, pivot);
        ln_det += libm::log(u[k][k].abs());
        for i in k + 1..d {
            let factor = u[i][k] / u[k][k];
            let row = u[k].clone();
            add_vector(&mut u[i], -factor, &row);
            v[i] -= factor * v[k];
        }
    }
    (u, v, ln_det)
}

/// ln |det m|.
pub(crate) fn ln_det(m: &Matrix) -> f64 {
    eliminate(m, &vec![0.0; m.len()]).2
}

/// m⁻¹v.
pub(crate) fn solve(m: &Matrix, v: &[f64]) -> Vec<f64> {
    let (u, right, _) = eliminate(m, v);
    back_substitute(&u, &right)
}

/// u⁻¹v for an upper triangle.
pub(crate) fn back_substitute(u: &Matrix, v: &[f64]) -> Vec<f64> {
    let d = v.len();
    let mut x = vec![0.0; d];
    for i in (0..d).rev() {
        x[i] = (v[i] - dot(&u[i][i + 1..], &x[i + 1..])) / u[i][i];
    }
    x
}

/// The upper triangle U with positive diagonal for which m = UᵀU.
pub(crate) fn upper_cholesky(m: &Matrix) -> Matrix {
    let d = m.len();
    let mut u = zeros(d);
    for j in 0..d {
        for i in 0..=j {
            let rest = m[i][j] - (0..i).map(|k| u[k][i] * u[k][j]).sum::<f64>();
            u[i][j] = if i == j { rest.sqrt() } else { rest / u[i][i] };
        }
    }
    u
}

/// The first index of the largest value.
pub(crate) fn argmax(values: impl IntoIterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (index, value) in values.into_iter().enumerate() {
        if value > best.1 {
            best = (index, value);
        }
    }
    best.0
}
