//! Which combinations of the data are measured with noise, so that running sums can be released again and again.
//!
//! Leaf j is what arrived between release j − 1 and release j. Release k is the sum of the leaves 1 to k, that is
//! row k of A·x, where A is the lower triangle of ones. A factorisation A = B·C measures C·x with noise that is
//! independent in every measurement, and releases B times the measurements. One interaction is in one leaf, so
//! it moves the measurements by at most the longest column of C, and the noise of release k has the variance of row k of B.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use crate::evidence::packed;
use crate::privacy::repair::diagonalise;

/// The most releases of one stream: the factors are kept as two triangles of numbers.
pub const MAX_RELEASES: u64 = 512;

/// Up to this many releases the factorisation is the optimal one; beyond, finding it takes longer than it saves.
const OPTIMAL_UP_TO: usize = 32;

/// Entries of C are multiples of one over this, so that measurements can be computed in integers.
const PARTS: f64 = (1u64 << PART_BITS) as f64;
/// The binary digits of an entry of C after the point.
pub(crate) const PART_BITS: u32 = 20;

/// How the noise of successive releases is correlated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// The factorisation with the smallest mean error for up to 32 releases, and the square root of A beyond.
    #[default]
    Factorisation,
    /// A binary tree: every measurement is a sum over 2ˡ leaves.
    Tree,
}

/// A = B·C for a number of releases that is known beforehand.
#[derive(Clone, Debug, PartialEq)]
pub struct Factors {
    releases: usize,
    /// The lower triangle of C in multiples of 2⁻²⁰, row after row.
    c: Vec<u32>,
    /// The lower triangle of B, row after row.
    b: Vec<f64>,
    /// ‖column‖² of C, the largest, over the first 1, 2, … rows: what that many releases tell of one leaf.
    loss: Vec<f64>,
}

impl Factors {
    /// The factors for at most `releases` releases, which must be from 1 to [`MAX_RELEASES`].
    #[must_use]
    pub fn new(mechanism: Mechanism, releases: u64) -> Self {
        let n = releases.clamp(1, MAX_RELEASES) as usize;
        let real = match mechanism {
            Mechanism::Tree => tree(n),
            Mechanism::Factorisation if n <= OPTIMAL_UP_TO => optimal(n),
            Mechanism::Factorisation => square_root(n),
        };
        // Rounded down, so that no column becomes longer than the accountant believes.
        let c: Vec<u32> = real.iter().map(|entry| libm::floor(entry * PARTS) as u32).collect();
        let at = |k: usize, j: usize| f64::from(c[packed(k) + j]) / PARTS;
        // B·C = A, row by row, from the diagonal to the left. It uses C as it was rounded, so that releases
        // are the sums and not nearly the sums.
        let mut b = vec![0.0; packed(n)];
        for k in 0..n {
            for j in (0..=k).rev() {
                let later: f64 = (j + 1..=k).map(|i| b[packed(k) + i] * at(i, j)).sum();
                b[packed(k) + j] = (1.0 - later) / at(j, j);
            }
        }
        let mut squares = vec![0.0; n];
        let loss = (0..n).map(|k| {
            (0..=k).for_each(|j| squares[j] += at(k, j) * at(k, j));
            squares.iter().copied().fold(0.0, f64::max)
        });
        Self { releases: n, loss: loss.collect(), c, b }
    }

    /// The factors of releases that are no running sums: each is measured by itself, and one unit may be in all of them. So what
    /// is lost adds up with every release.
    #[must_use]
    pub fn of_repeats(releases: u64) -> Self {
        let n = releases.clamp(1, MAX_RELEASES) as usize;
        let identity = || (0..n).flat_map(|k| (0..=k).map(move |j| k == j));
        Self {
            releases: n,
            c: identity().map(|one| u32::from(one) << PART_BITS).collect(),
            b: identity().map(|one| f64::from(u8::from(one))).collect(),
            loss: (1..=n).map(|k| k as f64).collect(),
        }
    }

    /// How many releases there are.
    #[must_use]
    pub const fn releases(&self) -> u64 {
        self.releases as u64
    }

    /// Row `k` of C in multiples of 2⁻²⁰: the weights of leaves 1 to k in measurement k. `k` counts from 1.
    pub(crate) fn measured(&self, k: usize) -> &[u32] {
        &self.c[packed(k - 1)..packed(k)]
    }

    /// Row `k` of C: the weights of leaves 1 to k in measurement k. `k` counts from 1.
    #[must_use]
    pub fn weights(&self, k: u64) -> Vec<f64> {
        self.measured(k as usize).iter().map(|entry| f64::from(*entry) / PARTS).collect()
    }

    /// Row `k` of B: the weights of measurements 1 to k in release k. `k` counts from 1.
    pub(crate) fn released(&self, k: usize) -> &[f64] {
        &self.b[packed(k - 1)..packed(k)]
    }

    /// The variance of release `k` as a multiple of that of one measurement. `k` counts from 1.
    #[must_use]
    pub fn variance(&self, k: u64) -> f64 {
        self.released(k as usize).iter().map(|b| b * b).sum()
    }

    /// The largest variance of any release, as a multiple of that of one measurement.
    #[must_use]
    pub fn worst_variance(&self) -> f64 {
        (1..=self.releases()).map(|k| self.variance(k)).fold(0.0, f64::max)
    }

    /// How far one leaf moves the first `releases` measurements, squared: the longest column of C over that many rows.
    #[must_use]
    pub fn loss(&self, releases: u64) -> f64 {
        let place = releases.min(self.releases()) as usize;
        place.checked_sub(1).map_or(0.0, |place| self.loss[place])
    }
}

/// Node k covers the 2ˡ leaves up to k, where l is the number of zeros at the end of k in binary.
fn tree(n: usize) -> Vec<f64> {
    let mut c = vec![0.0; packed(n)];
    for k in 1..=n {
        let leaves = 1 << k.trailing_zeros();
        c[packed(k - 1) + k - leaves..packed(k)].fill(1.0);
    }
    c
}

/// The square root of A, a Toeplitz matrix with the coefficients of (1 − z)^(−1/2), scaled to columns of length 1 at most.
fn square_root(n: usize) -> Vec<f64> {
    let mut coefficients = vec![1.0; n];
    for k in 1..n {
        coefficients[k] = coefficients[k - 1] * (2 * k - 1) as f64 / (2 * k) as f64;
    }
    let norm = coefficients.iter().map(|c| c * c).sum::<f64>().sqrt();
    (0..n).flat_map(|k| (0..=k).map(move |j| k - j)).map(|lag| coefficients[lag] / norm).collect()
}

/// The C with columns of length 1 that makes the mean variance of releases smallest (Denisov et al., 2022).
///
/// X = CᵀC minimises tr(A·X⁻¹·Aᵀ) among matrices with ones on the diagonal. The fixed point of
/// v → diag √(D½·AᵀA·D½), D = diag v, gives it. Every iterate is a valid factorisation, so that a few are enough:
/// what is missing to the fixed point costs accuracy of the last per mille and no privacy.
fn optimal(n: usize) -> Vec<f64> {
    // (AᵀA)_ij is the number of releases that contain both leaves.
    let gram = |i: usize, j: usize| (n - i.max(j)) as f64;
    let mut v: Vec<f64> = (0..n).map(|i| (n - i) as f64).map(f64::sqrt).collect();
    let mut root = vec![0.0; n * n];
    for _ in 0..12 {
        let mut scaled = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..n {
                scaled[i * n + j] = (v[i] * v[j]).sqrt() * gram(i, j);
            }
        }
        let vectors = diagonalise(&mut scaled, n);
        let values: Vec<f64> = (0..n).map(|k| scaled[k * n + k].max(0.0).sqrt()).collect();
        for i in 0..n {
            for j in 0..n {
                root[i * n + j] = (0..n).map(|k| values[k] * vectors[i * n + k] * vectors[j * n + k]).sum();
            }
        }
        v.iter_mut().enumerate().for_each(|(i, v)| *v = root[i * n + i]);
    }
    let x = |i: usize, j: usize| root[i * n + j] / (root[i * n + i] * root[j * n + j]).sqrt();
    // X = CᵀC with C lower triangular: Cholesky of X read from the last row and column to the first.
    let flipped = |i: usize, j: usize| x(n - 1 - i, n - 1 - j);
    let mut l = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let rest: f64 = (0..j).map(|k| l[i * n + k] * l[j * n + k]).sum();
            l[i * n + j] = if i == j {
                (flipped(i, i) - rest).max(1e-12).sqrt()
            } else {
                (flipped(i, j) - rest) / l[j * n + j]
            };
        }
    }
    let entry = |k: usize, j: usize| l[(n - 1 - j) * n + (n - 1 - k)].max(0.0);
    (0..n).flat_map(|k| (0..=k).map(move |j| (k, j))).map(|(k, j)| entry(k, j)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(mechanism: Mechanism, n: u64) -> Vec<f64> {
        let factors = Factors::new(mechanism, n);
        let sensitivity = factors.loss(n).sqrt();
        (1..=n).map(|k| sensitivity * factors.variance(k).sqrt()).collect()
    }

    fn worst(mechanism: Mechanism, n: u64) -> f64 {
        errors(mechanism, n).into_iter().fold(0.0, f64::max)
    }

    /// Multiples of the noise of one release, over 16 releases: the numbers of an independent computation with SciPy.
    #[test]
    fn sixteen_releases_have_the_known_errors() {
        assert!((worst(Mechanism::Tree, 16) - 4.47).abs() < 0.01, "{}", worst(Mechanism::Tree, 16));
        let optimal = worst(Mechanism::Factorisation, 16);
        assert!((optimal - 1.86).abs() < 0.015, "{optimal}");
        assert_eq!(errors(Mechanism::Factorisation, 1), [1.0]);
    }

    #[test]
    fn beyond_the_optimum_the_square_root_grows_with_the_logarithm() {
        let (last, first) = (worst(Mechanism::Factorisation, 32), worst(Mechanism::Factorisation, 33));
        assert!(last < first && first < 1.1 * last, "{last} {first}");
        assert!(worst(Mechanism::Factorisation, 512) < 3.2);
        assert!(worst(Mechanism::Factorisation, 512) < 0.4 * worst(Mechanism::Tree, 512));
    }

    #[test]
    fn factors_multiply_to_running_sums() {
        for mechanism in [Mechanism::Factorisation, Mechanism::Tree] {
            for n in [1, 2, 3, 7, 16, 32, 33, 100] {
                let factors = Factors::new(mechanism, n);
                for k in 1..=n as usize {
                    for leaf in 1..=k {
                        let sum: f64 = (leaf..=k)
                            .map(|i| factors.released(k)[i - 1] * f64::from(factors.measured(i)[leaf - 1]))
                            .sum();
                        assert!(
                            (sum / PARTS - 1.0).abs() < 1e-9,
                            "{mechanism:?} {n}: release {k}, leaf {leaf}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_loss_is_that_of_the_longest_column_so_far_and_never_shrinks() {
        for mechanism in [Mechanism::Factorisation, Mechanism::Tree] {
            let factors = Factors::new(mechanism, 13);
            for releases in 1..=13 {
                let column = |leaf: usize| {
                    let entry = |k: usize| f64::from(factors.measured(k)[leaf - 1]) / PARTS;
                    (leaf..=releases as usize).map(|k| entry(k) * entry(k)).sum::<f64>()
                };
                let expected = (1..=releases as usize).map(column).fold(0.0, f64::max);
                assert!((factors.loss(releases) - expected).abs() < 1e-12);
                assert!(factors.loss(releases) >= factors.loss(releases - 1));
            }
        }
        assert_eq!(Factors::new(Mechanism::Tree, 16).loss(16), 5.0, "a leaf is in a node of each level");
        let whole = Factors::new(Mechanism::Factorisation, 16).loss(16);
        assert!((whole - 1.0).abs() < 1e-3, "{whole}");
    }
}
