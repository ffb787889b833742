//! Observations as statistics see them, and how some of them travel together.

use super::message::NetworkEvidence;
use super::sparse::Sparse;
use super::statistic::Precondition;
use crate::error::{DecodeError, ProtocolError};
use crate::parcel::LowRank;
use crate::wire::v1;

/// The gradient φ of a chosen arm with its reward.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) phi: Sparse,
    pub(crate) reward: f64,
}

impl Row {
    pub(crate) fn save(&self) -> v1::GradientState {
        let (indices, values) = (self.phi.indices().to_vec(), self.phi.values().to_vec());
        v1::GradientState { indices, values, reward: self.reward }
    }

    pub(crate) fn restored(state: v1::GradientState, parameters: usize) -> Result<Self, DecodeError> {
        let phi = Sparse::restored(state.indices, state.values, parameters);
        let phi = phi.filter(|_| state.reward.is_finite());
        let phi = phi.ok_or(DecodeError::invalid("gradient", "its numbers do not fit together"))?;
        Ok(Self { phi, reward: state.reward })
    }
}

/// What rows add up to, for travel.
pub(crate) fn wrap(kind: Precondition, rows: &[Row], parameters: usize) -> NetworkEvidence {
    let count = rows.len() as u64;
    let mut moment = vec![0.0; parameters];
    rows.iter().for_each(|row| row.phi.add_to(row.reward, &mut moment));
    match kind {
        Precondition::Full => {
            let (pivots, columns) = pivoted_cholesky(rows, parameters);
            NetworkEvidence::Full(LowRank::new(pivots, columns, moment, count))
        }
        Precondition::Diagonal => {
            let mut squares = vec![0.0; parameters];
            for row in rows {
                row.phi.iter().for_each(|(index, value)| squares[index] += value * value);
            }
            NetworkEvidence::Diagonal { squares, moment, count }
        }
    }
}

/// What several parts of a round, which were checked, add up to, for travel.
pub(crate) fn joined<'e>(
    kind: Precondition,
    parts: impl Iterator<Item = &'e NetworkEvidence>,
    parameters: usize,
) -> NetworkEvidence {
    let parts: Vec<&NetworkEvidence> = parts.filter(|part| part.count() > 0).collect();
    if let [alone] = parts.as_slice() {
        return (*alone).clone();
    }
    let count = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.count()));
    let (mut rows, mut sums) = (Vec::new(), vec![0.0; parameters]);
    let mut vector = vec![0.0; parameters];
    for part in parts {
        let moment = match part {
            NetworkEvidence::Full(factor) => {
                rows.extend(unwrap(factor).expect("it was checked when it came"));
                &factor.moment
            }
            NetworkEvidence::Diagonal { squares, moment, .. } => {
                sums.iter_mut().zip(squares).for_each(|(sum, value)| *sum += value);
                moment
            }
        };
        vector.iter_mut().zip(moment).for_each(|(sum, value)| *sum += value);
    }
    match kind {
        Precondition::Full => {
            let (pivots, columns) = pivoted_cholesky(&rows, parameters);
            NetworkEvidence::Full(LowRank::new(pivots, columns, vector, count))
        }
        Precondition::Diagonal => NetworkEvidence::Diagonal { squares: sums, moment: vector, count },
    }
}

/// The pivoted Cholesky factor of Σφφᵀ, without forming it: at most as many columns as rows.
fn pivoted_cholesky(rows: &[Row], parameters: usize) -> (Vec<u32>, Vec<f64>) {
    let mut left = vec![0.0; parameters];
    let dense: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| {
            let mut dense = vec![0.0; parameters];
            row.phi.add_to(1.0, &mut dense);
            dense.iter().zip(&mut left).for_each(|(value, left)| *left += value * value);
            dense
        })
        .collect();
    let largest = left.iter().fold(0.0_f64, |a, &b| a.max(b));
    let floor = largest * f64::EPSILON * parameters as f64;
    let (mut pivots, mut columns) = (Vec::new(), Vec::new());
    let mut earlier: Vec<Vec<f64>> = Vec::new();
    let mut eliminated = vec![false; parameters];
    for _ in 0..rows.len().min(parameters) {
        let open = (0..parameters).filter(|&i| !eliminated[i]);
        let largest =
            open.fold(None, |best: Option<usize>, i| best.filter(|&b| left[b] >= left[i]).or(Some(i)));
        let Some(pivot) = largest.filter(|&p| left[p] > floor) else { break };
        let root = left[pivot].sqrt();
        let mut column = vec![0.0; parameters];
        for row in &dense {
            let weight = row[pivot];
            column.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
        }
        for other in &earlier {
            let weight = other[pivot];
            column.iter_mut().zip(other).for_each(|(sum, value)| *sum -= weight * value);
        }
        for i in 0..parameters {
            if eliminated[i] {
                column[i] = 0.0;
                continue;
            }
            column[i] = if i == pivot { root } else { column[i] / root };
            left[i] -= column[i] * column[i];
            columns.push(column[i]);
        }
        eliminated[pivot] = true;
        pivots.push(pivot as u32);
        earlier.push(column);
    }
    (pivots, columns)
}

/// Rows that add up to the same as those that were wrapped.
pub(crate) fn unwrap(factor: &LowRank) -> Result<Vec<Row>, ProtocolError> {
    let mut rest = factor.moment.clone();
    let mut pivots = factor.pivots.iter();
    let (mut rows, mut sound) = (Vec::new(), true);
    factor.for_each_column(|column| {
        let pivot = *pivots.next().expect("a pivot for each column") as usize;
        // The moment is a combination of the columns, and later ones are zero at this pivot.
        let reward = if column[pivot] == 0.0 { 0.0 } else { rest[pivot] / column[pivot] };
        sound &= reward.abs() <= 1e100;
        rest.iter_mut().zip(column).for_each(|(rest, value)| *rest -= reward * value);
        rows.push(Row { phi: Sparse::from_dense(column), reward });
    });
    if sound { Ok(rows) } else { Err(ProtocolError::Evidence("the vector does not follow from the matrix")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Evidence, packed};
    use crate::random::Seed;

    fn rows(count: usize, parameters: usize) -> Vec<Row> {
        let mut stream = Seed(5).stream("test", 0, 0);
        let mut row = || {
            let dense: Vec<f64> =
                (0..parameters).map(|_| if stream.below(2) == 0 { 0.0 } else { stream.normal() }).collect();
            Row { phi: Sparse::from_dense(&dense), reward: stream.normal() }
        };
        (0..count).map(|_| row()).collect()
    }

    fn sum(rows: &[Row], parameters: usize) -> Evidence {
        let mut evidence = Evidence::none(parameters);
        for row in rows {
            let mut dense = vec![0.0; parameters];
            row.phi.add_to(1.0, &mut dense);
            evidence.observe(&dense, row.reward).unwrap();
        }
        evidence
    }

    #[test]
    fn rows_that_travelled_add_up_to_the_same() {
        for (count, parameters) in [(0, 5), (1, 9), (4, 9), (9, 9), (30, 9)] {
            let rows = rows(count, parameters);
            let NetworkEvidence::Full(factor) = wrap(Precondition::Full, &rows, parameters) else {
                panic!("a whole matrix")
            };
            assert!(factor.columns.len() <= packed(parameters));
            let (before, after) = (sum(&rows, parameters), sum(&unwrap(&factor).unwrap(), parameters));
            let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-9);
            assert!(close(before.gram(), after.gram()), "{count} {parameters}");
            assert!(close(before.moment(), after.moment()), "{count} {parameters}");
        }
    }

    #[test]
    fn a_full_factor_has_as_many_scalars_as_the_packed_matrix() {
        let evidence = wrap(Precondition::Full, &rows(40, 9), 9);
        assert_eq!(evidence.scalars(), packed(9) + 9);
        assert_eq!(evidence.count(), 40);
        assert_eq!(wrap(Precondition::Diagonal, &rows(40, 9), 9).scalars(), 18);
    }
}
