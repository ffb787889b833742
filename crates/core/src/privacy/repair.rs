//! Sums with noise may have negative eigenvalues: clipping them is post-processing and costs no privacy.

use crate::evidence::packed;

/// Raises every eigenvalue of a packed symmetric matrix to at least `floor`; whether any had to be.
///
/// Eigenvectors come from Jacobi's rotations in a fixed order: slow for large matrices, but the same bits on
/// every processor, and dimensions are small where this is needed.
pub fn repair(gram: &mut [f64], dimension: usize, floor: f64) -> bool {
    let d = dimension;
    let mut a = vec![0.0; d * d];
    for i in 0..d {
        for j in 0..=i {
            a[i * d + j] = gram[packed(i) + j];
            a[j * d + i] = gram[packed(i) + j];
        }
    }
    let vectors = diagonalise(&mut a, d);
    if (0..d).all(|k| a[k * d + k] >= floor) {
        return false;
    }
    let values: Vec<f64> = (0..d).map(|k| a[k * d + k].max(floor)).collect();
    for i in 0..d {
        for j in 0..=i {
            let sum = (0..d).map(|k| values[k] * vectors[i * d + k] * vectors[j * d + k]).sum();
            gram[packed(i) + j] = sum;
        }
    }
    true
}

/// The smallest eigenvalue of a packed symmetric matrix.
#[must_use]
pub fn smallest_eigenvalue(gram: &[f64], dimension: usize) -> f64 {
    let d = dimension;
    let mut a = vec![0.0; d * d];
    for i in 0..d {
        for j in 0..=i {
            a[i * d + j] = gram[packed(i) + j];
            a[j * d + i] = gram[packed(i) + j];
        }
    }
    diagonalise(&mut a, d);
    (0..d).map(|k| a[k * d + k]).fold(f64::INFINITY, f64::min)
}

/// Turns the symmetric `a` into a diagonal matrix and returns the rotations, eigenvectors in columns.
pub(super) fn diagonalise(a: &mut [f64], d: usize) -> Vec<f64> {
    let mut v = vec![0.0; d * d];
    for k in 0..d {
        v[k * d + k] = 1.0;
    }
    let norm: f64 = a.iter().map(|x| x * x).sum();
    // Convergence is quadratic: a handful of sweeps is usual.
    for _ in 0..64 {
        let off: f64 =
            (0..d).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i * d + j] * a[i * d + j]).sum();
        if off <= norm * 1e-30 {
            break;
        }
        for p in 0..d {
            for q in p + 1..d {
                rotate(a, &mut v, d, p, q);
            }
        }
    }
    v
}

/// One rotation that makes a_pq zero.
fn rotate(a: &mut [f64], v: &mut [f64], d: usize, p: usize, q: usize) {
    let apq = a[p * d + q];
    if apq == 0.0 {
        return;
    }
    let theta = (a[q * d + q] - a[p * d + p]) / (2.0 * apq);
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    for k in 0..d {
        let (kp, kq) = (a[k * d + p], a[k * d + q]);
        a[k * d + p] = c * kp - s * kq;
        a[k * d + q] = s * kp + c * kq;
    }
    for k in 0..d {
        let (pk, qk) = (a[p * d + k], a[q * d + k]);
        a[p * d + k] = c * pk - s * qk;
        a[q * d + k] = s * pk + c * qk;
        let (kp, kq) = (v[k * d + p], v[k * d + q]);
        v[k * d + p] = c * kp - s * kq;
        v[k * d + q] = s * kp + c * kq;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    fn symmetric(d: usize, seed: u64) -> Vec<f64> {
        let mut stream = Seed(seed).stream("matrix", 0, 0);
        (0..packed(d)).map(|_| stream.normal()).collect()
    }

    #[test]
    fn a_matrix_that_is_fine_keeps_its_bits() {
        let mut gram = symmetric(4, 1);
        for i in 0..4 {
            gram[packed(i) + i] += 20.0;
        }
        let before = gram.clone();
        assert!(!repair(&mut gram, 4, 1.0));
        assert_eq!(gram, before);
    }

    #[test]
    fn repaired_matrices_have_no_eigenvalue_below_the_floor_and_are_as_near_as_can_be() {
        for seed in 0..50 {
            let d = 1 + seed as usize % 9;
            let (mut gram, before) = (symmetric(d, seed), symmetric(d, seed));
            let lowest = smallest_eigenvalue(&gram, d);
            let floor = 0.5;
            assert_eq!(repair(&mut gram, d, floor), lowest < floor);
            assert!(smallest_eigenvalue(&gram, d) >= floor - 1e-9, "{seed}");
            // No entry moves by more than the lowest eigenvalue had to.
            let moved = gram.iter().zip(&before).fold(0.0_f64, |m, (a, b)| m.max((a - b).abs()));
            assert!(moved <= (floor - lowest).max(0.0) + 1e-9, "{seed}: {moved}");
            assert!(!repair(&mut gram, d, floor - 1e-6), "once is enough");
        }
    }

    #[test]
    fn eigenvalues_of_a_known_matrix() {
        // [[2, 1], [1, 2]] has 1 and 3.
        assert!((smallest_eigenvalue(&[2.0, 1.0, 2.0], 2) - 1.0).abs() < 1e-14);
        assert_eq!(smallest_eigenvalue(&[-3.0], 1), -3.0);
    }
}
