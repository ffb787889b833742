//! The diagonal of a matrix of which the inverse is known.

use crate::evidence::packed;

/// The diagonal of V, given V⁻¹ as a packed triangle; `None` unless that is positive definite.
///
/// With V⁻¹ = LLᵀ, the diagonal of V = L⁻ᵀL⁻¹ has the squared lengths of the columns of L⁻¹. This takes p³/3
/// multiplications, so it is for networks of some hundreds of parameters.
pub(crate) fn diagonal_of_inverse(inverse: &[f64], parameters: usize) -> Option<Vec<f64>> {
    let mut factor = inverse.to_vec();
    for i in 0..parameters {
        for j in 0..=i {
            let (row, other) = (packed(i), packed(j));
            let known: f64 = (0..j).map(|k| factor[row + k] * factor[other + k]).sum();
            let rest = factor[row + j] - known;
            factor[row + j] = if i == j { rest.sqrt() } else { rest / factor[other + j] };
        }
        let root: f64 = factor[packed(i) + i];
        if root.is_nan() || root <= 0.0 {
            return None;
        }
    }
    let mut column = vec![0.0; parameters];
    let mut diagonal = Vec::with_capacity(parameters);
    for j in 0..parameters {
        for i in j..parameters {
            let row = packed(i);
            let known: f64 = (j..i).map(|k| factor[row + k] * column[k]).sum();
            let unit = f64::from(u8::from(i == j));
            column[i] = (unit - known) / factor[row + i];
        }
        diagonal.push(column[j..].iter().map(|v| v * v).sum());
    }
    Some(diagonal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neural::sparse::Sparse;
    use crate::neural::statistic::{Precondition, Statistic};
    use crate::random::Seed;

    #[test]
    fn the_diagonal_of_a_whole_statistic_is_that_of_the_diagonal_one() {
        let (p, lambda) = (23, 0.1);
        let mut stream = Seed(4).stream("test", 0, 0);
        let mut whole = Statistic::new(Precondition::Full, p, lambda);
        let mut squares = vec![lambda; p];
        for _ in 0..60 {
            let phi: Vec<f64> = (0..p).map(|_| stream.normal()).collect();
            squares.iter_mut().zip(&phi).for_each(|(sum, v)| *sum += v * v);
            whole.learn(&Sparse::from_dense(&phi), 1.0);
        }
        whole.fold();
        let found = diagonal_of_inverse(whole.told(), p).unwrap();
        for (found, sum) in found.iter().zip(&squares) {
            assert!((found - sum).abs() < 1e-9 * sum, "{found} is not {sum}");
        }
        assert_eq!(diagonal_of_inverse(&[1.0, 2.0, 1.0], 2), None);
        assert_eq!(diagonal_of_inverse(&[f64::NAN], 1), None);
    }
}
