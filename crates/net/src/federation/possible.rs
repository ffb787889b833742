//! Whether observations can have given these sums: the rank that so many observations allow, a moment that is a
//! combination of the features, and the federation's bounds on features and rewards.
//!
//! For n observations (x, y) with |x| ≤ L and |y| ≤ Y, let G = Σxxᵀ and b = Σxy. Then
//! - G has rank n at most,
//! - tr G ≤ nL²,
//! - b lies in the range of G, and bᵀG⁺b ≤ Σy² ≤ nY².
//!
//! All of it is read off one pivoted Cholesky factor G = LLᵀ of rank r. With the rows of the r pivots first,
//! L₁₁z = b₁ gives |z|² = bᵀG⁺b, and what L₂₁z leaves of b₂ is the part outside the range. Rounding is relative to
//! the largest diagonal entry: a direction with less than [`FLOOR`] of it counts as absent, and b may then be off by
//! the square root of that.

use posse_core::{Evidence, ProtocolError, packed};

/// Room for rounding in sums of squares.
const SLACK: f64 = 1.0 + 1e-9;
/// Room for rounding in what rewards explain. Along the faintest direction that counts, rounding of the matrix is
/// about 1e-16 / [`FLOOR`] of what is there; the most that rewards can explain, nY², is reached by rewards of ±Y.
const EXPLAINED_SLACK: f64 = 1.0 + 1e-3;
/// Diagonal entries below this part of the largest one are rounding.
const FLOOR: f64 = 1e-10;

/// `Ok` if observations within the bounds can have given this evidence.
pub(super) fn check(
    evidence: &Evidence,
    feature_bound: Option<f64>,
    reward_bound: Option<f64>,
) -> Result<(), ProtocolError> {
    let (dimension, count) = (evidence.dimension(), evidence.count() as f64);
    let diagonal = |i: usize| evidence.gram()[packed(i) + i];
    let trace: f64 = (0..dimension).map(diagonal).sum();
    if feature_bound.is_some_and(|bound| trace > count * bound * bound * SLACK) {
        return Err(ProtocolError::Evidence("features are longer than feature_bound allows"));
    }
    // Observations without feature i have no reward along it. The square of a feature below 1e-154 may be lost.
    if (0..dimension).any(|i| diagonal(i) == 0.0 && evidence.moment()[i].abs() > 1e-14 * (1.0 + count)) {
        return Err(ProtocolError::Evidence("rewards along a feature that no arm had"));
    }
    if evidence.count() >= dimension as u64 && reward_bound.is_none() {
        return Ok(());
    }
    let factor = Factor::of(evidence, usize::try_from(evidence.count()).unwrap_or(dimension).min(dimension));
    if factor.left > FLOOR * factor.largest {
        return Err(ProtocolError::Evidence("a matrix of higher rank than there are observations"));
    }
    let Some(bound) = reward_bound else { return Ok(()) };
    let squares = count * bound * bound;
    let (explained, outside) = factor.solve(evidence.moment());
    // A direction that counts as absent may hold up to FLOOR of the largest diagonal entry.
    let absent = 4.0 * FLOOR * factor.largest;
    if explained > squares * EXPLAINED_SLACK || outside * outside > squares * absent {
        return Err(ProtocolError::Evidence("rewards are larger than reward_bound allows"));
    }
    Ok(())
}

/// The pivoted Cholesky factor of a Gram matrix.
struct Factor {
    /// For each column, the row of its pivot and the column itself, rows of earlier pivots being zero.
    columns: Vec<(usize, Vec<f64>)>,
    /// The largest diagonal entry of the matrix, and of what is left of it.
    largest: f64,
    left: f64,
}

impl Factor {
    fn of(evidence: &Evidence, rank: usize) -> Self {
        let d = evidence.dimension();
        let gram = evidence.gram();
        let entry = |i: usize, j: usize| if i >= j { gram[packed(i) + j] } else { gram[packed(j) + i] };
        let mut left: Vec<f64> = (0..d).map(|i| entry(i, i)).collect();
        let largest = left.iter().copied().fold(0.0, f64::max);
        let mut columns: Vec<(usize, Vec<f64>)> = Vec::with_capacity(rank);
        for _ in 0..rank {
            let Some(pivot) = (0..d).max_by(|&a, &b| left[a].total_cmp(&left[b])) else { break };
            if left[pivot] <= FLOOR * largest {
                break;
            }
            let root = left[pivot].sqrt();
            let mut column: Vec<f64> = (0..d).map(|i| entry(i, pivot)).collect();
            for (_, earlier) in &columns {
                let factor = earlier[pivot];
                column.iter_mut().zip(earlier).for_each(|(value, own)| *value -= own * factor);
            }
            for (row, _) in &columns {
                column[*row] = 0.0;
            }
            for (value, left) in column.iter_mut().zip(&mut left) {
                *value /= root;
                *left -= *value * *value;
            }
            left[pivot] = 0.0;
            column[pivot] = root;
            columns.push((pivot, column));
        }
        Self { columns, largest, left: left.into_iter().fold(0.0, f64::max) }
    }

    /// |z|² for the z with Lz = `moment` in the rows of the pivots, and the largest entry that Lz misses elsewhere.
    fn solve(&self, moment: &[f64]) -> (f64, f64) {
        let mut rest = moment.to_vec();
        let mut squares = 0.0;
        for (pivot, column) in &self.columns {
            let z = rest[*pivot] / column[*pivot];
            squares += z * z;
            rest.iter_mut().zip(column).for_each(|(rest, own)| *rest -= z * own);
            rest[*pivot] = 0.0;
        }
        (squares, rest.into_iter().fold(0.0, |largest, rest| rest.abs().max(largest)))
    }
}

#[cfg(test)]
mod tests {
    use posse_core::Seed;

    use super::*;

    /// Evidence of `n` observations in the span of `rank` directions, with features and rewards within 1.
    fn honest(d: usize, n: u64, rank: usize, seed: u64) -> Evidence {
        let mut stream = Seed(seed).stream("honest", 0, 0);
        let basis: Vec<Vec<f64>> = (0..rank)
            .map(|k| {
                let scale = 10_f64.powi(-(2 * k as i32 % 9));
                (0..d).map(|_| scale * stream.normal()).collect()
            })
            .collect();
        let mut evidence = Evidence::none(d);
        for _ in 0..n {
            let mut x = vec![0.0; d];
            for direction in &basis {
                let weight = stream.normal();
                x.iter_mut().zip(direction).for_each(|(x, own)| *x += weight * own);
            }
            let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
            x.iter_mut().for_each(|x| *x /= norm);
            evidence.observe(&x, if stream.uniform() < 0.5 { -1.0 } else { 1.0 }).unwrap();
        }
        evidence
    }

    #[test]
    fn whatever_observations_give_is_possible_however_thin_or_steep() {
        for seed in 0..200 {
            let d = 1 + (seed % 12) as usize;
            for n in [1, 2, 5, 40, 2000] {
                for rank in [1, 2, d] {
                    let evidence = honest(d, n, rank.min(d), seed);
                    assert_eq!(
                        check(&evidence, Some(1.0), Some(1.0)),
                        Ok(()),
                        "d {d}, n {n}, rank {rank}, seed {seed}"
                    );
                    assert_eq!(check(&evidence, None, None), Ok(()));
                }
            }
        }
    }

    fn parts(gram: &[f64], moment: &[f64], count: u64) -> Result<(), ProtocolError> {
        let evidence = Evidence::from_parts(gram.to_vec(), moment.to_vec(), count).unwrap();
        check(&evidence, Some(1.0), Some(1.0))
    }

    #[test]
    fn more_rank_than_observations_is_impossible_with_and_without_bounds() {
        let thin = [0.5, 0.0, 0.5];
        assert!(parts(&thin, &[0.0, 0.0], 1).is_err());
        assert!(parts(&thin, &[0.0, 0.0], 2).is_ok());
        let evidence = Evidence::from_parts(thin.to_vec(), vec![0.0, 0.0], 1).unwrap();
        assert!(check(&evidence, None, None).is_err());
    }

    #[test]
    fn a_moment_outside_the_range_of_the_matrix_is_impossible() {
        // All features are multiples of (1, 1)/√2, the rewards are not.
        let flat = [1.0, 1.0, 1.0];
        assert!(parts(&flat, &[1.0, 1.0], 2).is_ok());
        assert!(parts(&flat, &[1.0, 0.5], 2).is_err());
        // A feature that no observation had.
        assert!(parts(&[1.0, 0.0, 0.0], &[1.0, 0.5], 2).is_err());
        let evidence = Evidence::from_parts(vec![1.0, 0.0, 0.0], vec![1.0, 0.5], 2).unwrap();
        assert!(check(&evidence, None, None).is_err());
        // Tiny features, large rewards along them.
        assert!(parts(&[1e-4, 0.0, 1e-4], &[0.014, 0.0], 2).is_ok());
        assert!(parts(&[1e-4, 0.0, 1e-4], &[0.5, 0.0], 2).is_err());
    }
}
