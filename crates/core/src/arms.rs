//! The arms of one offer: a small matrix, one row of features an arm, in contiguous memory.

use pulp::Arch;

use crate::error::InputError;

/// The arms an agent chooses among. Every feature in here is finite: adding an arm is the check.
///
/// Reuse one `Arms` for many offers ([`clear`](Arms::clear) keeps its memory).
#[derive(Clone, Debug, PartialEq)]
pub struct Arms {
    dimension: usize,
    features: Vec<f64>,
}

impl Arms {
    /// No arms yet, of `dimension` features each.
    #[must_use]
    pub const fn new(dimension: usize) -> Self {
        Self { dimension, features: Vec::new() }
    }

    /// Arms from rows of equal length.
    pub fn from_rows<R: AsRef<[f64]>>(dimension: usize, rows: &[R]) -> Result<Self, InputError> {
        let mut arms = Self::new(dimension);
        rows.iter().try_for_each(|row| arms.push(row.as_ref()))?;
        Ok(arms)
    }

    /// Adds an arm, or says what is wrong with its features and adds nothing.
    pub fn push(&mut self, features: &[f64]) -> Result<(), InputError> {
        check_features(self.dimension, features)?;
        self.features.extend_from_slice(features);
        Ok(())
    }

    /// Adds the arms whose features follow each other in `rows`, or says what is wrong and adds nothing.
    ///
    /// It does what [`push`](Arms::push) does for each of them, in less time. If the length of `rows` is no multiple of the
    /// dimension, the [`InputError::Dimension`] says how many features the last arm has.
    pub fn push_rows(&mut self, rows: &[f64]) -> Result<(), InputError> {
        let rest = rows.len().checked_rem(self.dimension).unwrap_or(rows.len());
        if rest != 0 {
            return Err(InputError::Dimension { expected: self.dimension, got: rest });
        }
        let before = self.features.len();
        self.features.extend_from_slice(rows);
        // The copy is in the fastest cache now, where the rows may not have been.
        let copied = &self.features[before..];
        if !Arch::new().dispatch(|| all_finite(copied)) {
            self.features.truncate(before);
            // The arm with the wrong feature says which of its features it is.
            rows.chunks_exact(self.dimension).try_for_each(|row| check_features(self.dimension, row))?;
        }
        Ok(())
    }

    /// Forgets all arms and keeps the memory.
    pub fn clear(&mut self) {
        self.features.clear();
    }

    /// Forgets all arms and takes arms of `dimension` features from now on.
    pub fn reset(&mut self, dimension: usize) {
        self.dimension = dimension;
        self.features.clear();
    }

    /// Returns how many arms are on offer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.features.len() / self.dimension.max(1)
    }

    /// Whether there is nothing to choose from.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.features.is_empty()
    }

    /// Returns how many features each arm has.
    #[must_use]
    pub const fn dimension(&self) -> usize {
        self.dimension
    }

    /// The features of arm `index`.
    ///
    /// # Panics
    /// If there is no such arm.
    #[must_use]
    pub fn row(&self, index: usize) -> &[f64] {
        &self.features[index * self.dimension..(index + 1) * self.dimension]
    }

    /// All arms, restricted to `width` features from `first` on.
    pub(crate) fn columns(&self, first: usize, width: usize) -> Columns<'_> {
        debug_assert!(first + width <= self.dimension, "columns lie inside the features");
        Columns { features: &self.features, stride: self.dimension, first, width }
    }

    /// All features of all arms.
    pub(crate) fn all(&self) -> Columns<'_> {
        self.columns(0, self.dimension)
    }
}

/// Some consecutive features of every arm: what a block of a model scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns<'a> {
    pub(crate) features: &'a [f64],
    pub(crate) stride: usize,
    pub(crate) first: usize,
    pub(crate) width: usize,
}

impl<'a> Columns<'a> {
    pub(crate) fn len(&self) -> usize {
        self.features.len() / self.stride
    }

    pub(crate) fn row(&self, index: usize) -> &'a [f64] {
        &self.features[index * self.stride + self.first..][..self.width]
    }
}

/// `Ok` if `features` has the right length and every entry is finite.
pub(crate) fn check_features(dimension: usize, features: &[f64]) -> Result<(), InputError> {
    if features.len() != dimension {
        return Err(InputError::Dimension { expected: dimension, got: features.len() });
    }
    if all_finite(features) {
        return Ok(());
    }
    let index = features.iter().position(|x| !x.is_finite()).expect("some feature was not finite");
    Err(InputError::Feature { index, value: features[index] })
}

/// Whether no entry is infinite or not a number.
#[allow(clippy::eq_op, reason = "the difference of a number to itself is what tells")]
#[inline(always)]
fn all_finite(features: &[f64]) -> bool {
    // x − x is zero, unless x is infinite or not a number. Gathering bits without an early exit runs in vector registers,
    // and the bits of one entry need not wait for those of the entry before, as sums would.
    features.iter().fold(0, |bits, x| bits | (x - x).to_bits()) == 0
}

/// The index of the largest score: the lowest among equals, with NaN counted as −∞.
#[inline]
pub(crate) fn best(scores: impl Iterator<Item = f64>) -> Result<usize, InputError> {
    let (mut best, mut leader, mut first) = (usize::MAX, f64::NEG_INFINITY, usize::MAX);
    for (index, score) in scores.enumerate() {
        if score > leader {
            (best, leader) = (index, score);
        } else if first == usize::MAX && score == f64::NEG_INFINITY {
            first = index;
        }
    }
    // Without any score above −∞, the first −∞ wins.
    let winner = if best == usize::MAX { first } else { best };
    if winner == usize::MAX { Err(InputError::NoFiniteScore) } else { Ok(winner) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lowest_index_and_nan_never_wins() {
        assert_eq!(best([1.0, 3.0, 3.0].into_iter()), Ok(1));
        assert_eq!(best([f64::NAN, -1.0, f64::NAN].into_iter()), Ok(1));
        assert_eq!(best([f64::NEG_INFINITY, f64::NEG_INFINITY].into_iter()), Ok(0));
        assert_eq!(best([f64::NAN].into_iter()), Err(InputError::NoFiniteScore));
    }

    #[test]
    fn a_bad_arm_is_named_and_not_added() {
        let mut arms = Arms::new(2);
        arms.push(&[1.0, 2.0]).unwrap();
        assert_eq!(arms.push(&[1.0]), Err(InputError::Dimension { expected: 2, got: 1 }));
        assert_eq!(
            arms.push(&[0.0, f64::INFINITY]),
            Err(InputError::Feature { index: 1, value: f64::INFINITY })
        );
        assert_eq!(arms.len(), 1);
        assert_eq!(arms.row(0), [1.0, 2.0]);
    }

    #[test]
    fn rows_that_follow_each_other_are_added_like_arms_one_by_one() {
        let numbers: Vec<f64> = (0..75).map(|place| f64::from(place) * 1e300 - 4e301).collect();
        let (mut together, mut apart) = (Arms::new(25), Arms::new(25));
        together.push_rows(&numbers).unwrap();
        numbers.chunks(25).for_each(|row| apart.push(row).unwrap());
        assert_eq!(together, apart);
        together.push_rows(&[]).unwrap();
        for place in 0..numbers.len() {
            for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut rows = numbers.clone();
                rows[place] = wrong;
                let Err(InputError::Feature { index, value }) = together.push_rows(&rows) else {
                    panic!("{wrong} at {place} was taken")
                };
                assert_eq!((index, value.to_bits()), (place % 25, wrong.to_bits()));
            }
        }
        assert_eq!(together.push_rows(&numbers[..60]), Err(InputError::Dimension { expected: 25, got: 10 }));
        assert_eq!(Arms::new(0).push_rows(&[1.0]), Err(InputError::Dimension { expected: 0, got: 1 }));
        assert_eq!(together, apart, "nothing was added");
    }
}
