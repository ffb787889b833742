//! Noise and its price, computed once more: from the definition of (ε, δ), by search, and with full matrices.

use posse_core::{Evidence, ModelConfig, PrivacyConfig, packed};

use super::{Matrix, Pair, dot, zeros};

/// A number as it enters private sums: towards zero to a multiple of 2⁻¹⁵ of its bound, which counts as a power of two.
pub(super) fn cut(value: f64, bound: f64) -> f64 {
    let unit = libm::exp2(libm::floor(libm::log2(bound)) - 15.0);
    libm::trunc(value / unit) * unit
}

/// Sums as full matrices.
pub(super) fn full(evidence: &Evidence) -> Pair {
    let d = evidence.dimension();
    let entry = |i: usize, j: usize| evidence.gram()[packed(i.max(j)) + i.min(j)];
    let v = (0..d).map(|i| (0..d).map(|j| entry(i, j)).collect()).collect();
    Pair { v, b: evidence.moment().to_vec() }
}

pub(super) fn same(a: &Pair, b: &Pair) -> bool {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-8 * a.abs().max(b.abs()).max(1.0);
    a.v.iter().flatten().zip(b.v.iter().flatten()).all(close) && a.b.iter().zip(&b.b).all(close)
}

/// Eigenvalues, and eigenvectors as rows, of a symmetric matrix: Jacobi's rotations until nothing is left beside the diagonal.
fn eigen(m: &Matrix) -> (Vec<f64>, Matrix) {
    let d = m.len();
    let (mut a, mut vectors) = (m.clone(), zeros(d));
    (0..d).for_each(|i| vectors[i][i] = 1.0);
    for _ in 0..60 {
        for p in 0..d {
            for q in p + 1..d {
                // The angle that makes a_pq zero.
                let angle = 0.5 * libm::atan2(2.0 * a[p][q], a[q][q] - a[p][p]);
                let (s, c) = (libm::sin(angle), libm::cos(angle));
                for row in &mut a {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
                for matrix in [&mut a, &mut vectors] {
                    let (x, y) = (matrix[p].clone(), matrix[q].clone());
                    matrix[p] = x.iter().zip(&y).map(|(x, y)| c * x - s * y).collect();
                    matrix[q] = x.iter().zip(&y).map(|(x, y)| s * x + c * y).collect();
                }
            }
        }
    }
    ((0..d).map(|i| a[i][i]).collect(), vectors)
}

pub(super) fn smallest(m: &Matrix) -> f64 {
    eigen(m).0.into_iter().fold(f64::INFINITY, f64::min)
}

/// The matrix with every eigenvalue raised to `floor` at least.
pub(super) fn repaired(m: &Matrix, floor: f64) -> Matrix {
    let (values, vectors) = eigen(m);
    let mut sum = zeros(m.len());
    for (value, vector) in values.iter().zip(&vectors) {
        for (row, x) in sum.iter_mut().zip(vector) {
            super::add_vector(row, value.max(floor) * x, vector);
        }
    }
    sum
}

/// The δ at which two unit normals that are μ apart are (ε, δ)-indistinguishable: ∫ max(0, p − e^ε·q), by Simpson's rule from where
/// the first outweighs the second.
fn delta(mu: f64, epsilon: f64) -> f64 {
    let first = 0.5 * mu + epsilon / mu;
    let (steps, width) = (4000, (f64::max(first, mu) + 10.0 - first) / 4000.0);
    let density = |x: f64| {
        let p = libm::exp(-0.5 * (x - mu) * (x - mu)) / (2.0 * std::f64::consts::PI).sqrt();
        p * (1.0 - libm::exp(epsilon - mu * x + 0.5 * mu * mu))
    };
    let weight = |step: i32| match step {
        0 | 4000 => 1.0,
        odd if odd % 2 == 1 => 4.0,
        _ => 2.0,
    };
    (0..=steps).map(|step| weight(step) * density(first + f64::from(step) * width)).sum::<f64>() * width / 3.0
}

/// μ: how far two worlds may be apart, in standard deviations, for a promise of (ε, δ).
pub(super) fn loss(epsilon: f64, failure: f64) -> f64 {
    if epsilon > 1e6 {
        // Where nothing is hidden: ε = μ²/2 and what is small beside it.
        return (2.0 * epsilon).sqrt();
    }
    let (mut low, mut high) = (1e-9, 100.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if delta(middle, epsilon) > failure { high = middle } else { low = middle }
    }
    low
}

/// The noise of releases that a promise needs.
pub(super) struct Noisy {
    /// Variance of one measurement of Σxxᵀ off its diagonal.
    measurement: f64,
    /// Variance of release 1, 2, …, as a multiple of that.
    releases: Vec<f64>,
    /// Standard deviation in Σxy over that in Σxxᵀ.
    pub(super) vector_ratio: f64,
    dimension: f64,
}

impl Noisy {
    /// With a = [x; y/κ], replacing an interaction moves Σaaᵀ by √2·(X̄² + Ȳ²/κ²) at most, and noise in any direction of it is √2·σ. One
    /// interaction is in `copies` measurements.
    fn new(
        privacy: &PrivacyConfig,
        dimension: usize,
        vector_ratio: f64,
        copies: f64,
        releases: Vec<f64>,
    ) -> Self {
        let (x, y) = (privacy.feature_bound, privacy.reward_bound / vector_ratio);
        let apart = x * x + y * y;
        let deviation = apart * copies.sqrt() / loss(privacy.epsilon, privacy.delta);
        Self { measurement: deviation * deviation, releases, vector_ratio, dimension: dimension as f64 }
    }

    /// A binary tree: release k is the sum of as many nodes as k has ones in binary, and a leaf is in a node of each level.
    pub(super) fn of_a_tree(privacy: &PrivacyConfig, dimension: usize, vector_ratio: f64) -> Self {
        let nodes = |k: u64| (k + 1 - (k & k.wrapping_neg())..=k).collect::<Vec<_>>();
        let all = 1..=privacy.max_releases;
        let copies = all.clone().map(|leaf| all.clone().filter(|k| nodes(*k).contains(&leaf)).count()).max();
        let releases = all.map(|k| f64::from(k.count_ones())).collect();
        Self::new(privacy, dimension, vector_ratio, copies.unwrap_or(1) as f64, releases)
    }

    /// The factorisation of running sums with the smallest mean error, found by trying.
    pub(super) fn of_the_best_factors(privacy: &PrivacyConfig, dimension: usize) -> Self {
        let ratio = privacy.vector_noise * privacy.reward_bound / privacy.feature_bound;
        let releases = best_factors(privacy.max_releases as usize);
        Self::new(privacy, dimension, ratio, 1.0, releases)
    }

    /// The variance of release `k`, off the diagonal of Σxxᵀ.
    pub(super) fn variance(&self, k: u64) -> f64 {
        self.measurement * self.releases[k as usize - 1]
    }

    /// β over sums with noise of this variance, whose smallest eigenvalue is `lowest` after it was raised.
    pub(super) fn width(
        &self,
        model: &ModelConfig,
        privacy: &PrivacyConfig,
        variance: f64,
        lowest: f64,
        count: u64,
    ) -> f64 {
        let (d, lambda) = (self.dimension, model.regularization);
        let odds = privacy.streams as f64 * privacy.max_releases as f64 / privacy.noise_failure;
        let deviation = variance.sqrt();
        let matrix = deviation * (2.0 * d.sqrt() + 2.0 * libm::log(2.0 * odds).sqrt());
        let vector = self.vector_ratio * deviation * (d.sqrt() + (2.0 * libm::log(odds)).sqrt());
        let floor = 4.0 * d.sqrt() * deviation;
        let off = if lowest > floor * (1.0 + 1e-9) { matrix } else { 2.0 * matrix + floor };
        let known = lowest + lambda;
        let streams = privacy.streams as f64 / privacy.noise_failure;
        let chance = 2.0 * libm::log(streams) + d * libm::log(1.0 + count as f64 / (d * known));
        let rewards = model.noise * ((1.0 + matrix / known) * chance).sqrt();
        let moved = (vector + off * model.norm_bound) / known.sqrt();
        model.width_scale * privacy.private_width * (rewards + moved + lambda.sqrt() * model.norm_bound)
    }
}

/// The variances of releases under the lower triangle C with columns of length 1 for which their sum is smallest: B = A·C⁻¹, A the
/// triangle of ones. Every entry is moved up and down until no move of 10⁻⁷ helps.
fn best_factors(n: usize) -> Vec<f64> {
    let variances = |raw: &Matrix| -> Vec<f64> {
        let mut c = raw.clone();
        let column = |c: &Matrix, j: usize| c.iter().map(|row| row[j] * row[j]).sum::<f64>().sqrt();
        let lengths: Vec<f64> = (0..n).map(|j| column(&c, j)).collect();
        c.iter_mut()
            .for_each(|row| row.iter_mut().zip(&lengths).for_each(|(entry, length)| *entry /= length));
        let row = |k: usize| {
            let mut b = vec![0.0; n];
            for j in (0..=k).rev() {
                let later = dot(&b[j + 1..=k], &(j + 1..=k).map(|i| c[i][j]).collect::<Vec<_>>());
                b[j] = (1.0 - later) / c[j][j];
            }
            dot(&b, &b)
        };
        (0..n).map(row).collect()
    };
    let mut best: Matrix = (0..n)
        .map(|k| (0..n).map(|j| if j > k { 0.0 } else { 0.5 / (k - j + 1) as f64 }).collect())
        .collect();
    let cost = |c: &Matrix| variances(c).iter().sum::<f64>();
    let mut step = 0.1;
    while step > 1e-7 {
        let mut helped = false;
        for (k, j) in (0..n).flat_map(|k| (0..=k).map(move |j| (k, j))) {
            for sign in [1.0, -1.0] {
                let mut other = best.clone();
                other[k][j] += sign * step;
                if other[j][j] > 0.0 && cost(&other) < cost(&best) {
                    (best, helped) = (other, true);
                }
            }
        }
        if !helped {
            step *= 0.5;
        }
    }
    variances(&best)
}
