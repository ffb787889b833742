//! The arms of one offer: a small matrix, one row of features an arm, in contiguous memory.

use crate::error::InputError;
use crate::lanes::four_wide;

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

    /// Offers the arms whose features follow each other in `rows`, instead of all arms before, or says what is wrong and leaves
    /// no arms.
    ///
    /// It does what [`clear`](Arms::clear) and a [`push`](Arms::push) of each of them do, in less time. If the length of `rows`
    /// is no multiple of the dimension, the [`InputError::Dimension`] says how many features the last arm has.
    pub fn set_rows(&mut self, rows: &[f64]) -> Result<(), InputError> {
        self.check_length(rows)?;
        if self.features.len() != rows.len() {
            self.features.clear();
            self.features.resize(rows.len(), 0.0);
        }
        let copy = &mut self.features[..];
        let is_finite = four_wide().dispatch(|| copy_finite(copy, rows));
        self.keep_if(is_finite)
    }

    /// Does what [`set_rows`](Arms::set_rows) does with rows that the caller no longer needs, without copying them.
    pub fn take_rows(&mut self, rows: Vec<f64>) -> Result<(), InputError> {
        self.check_length(&rows)?;
        self.features = rows;
        let taken = &self.features[..];
        let is_finite = four_wide().dispatch(|| all_finite(taken));
        self.keep_if(is_finite)
    }

    /// Whether `rows` are whole arms. If not, there are no arms afterwards.
    fn check_length(&mut self, rows: &[f64]) -> Result<(), InputError> {
        let rest = rows.len().checked_rem(self.dimension).unwrap_or(rows.len());
        if rest != 0 {
            self.features.clear();
            return Err(InputError::Dimension { expected: self.dimension, got: rest });
        }
        Ok(())
    }

    /// Keeps the arms if all their features are finite; otherwise forgets them and says which feature is not.
    fn keep_if(&mut self, is_finite: bool) -> Result<(), InputError> {
        if is_finite {
            return Ok(());
        }
        let features = std::mem::take(&mut self.features);
        // The arm with the wrong feature says which of its features it is.
        features.chunks_exact(self.dimension).try_for_each(|row| check_features(self.dimension, row))
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

/// Copies `from` over `to`, which is as long, and says whether no entry is infinite or not a number: in one pass, because the offers of a
/// replay come from memory that no fast cache holds.
#[allow(clippy::eq_op, reason = "the difference of a number to itself is what tells")]
#[inline(always)]
fn copy_finite(to: &mut [f64], from: &[f64]) -> bool {
    let mut bits = 0;
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
        bits |= (from - from).to_bits();
    }
    bits == 0
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

    /// What pushing arms one by one gives: the plain version of `set_rows` and `take_rows`.
    fn pushed(dimension: usize, rows: &[f64]) -> Result<Arms, InputError> {
        let mut arms = Arms::new(dimension);
        rows.chunks(dimension).try_for_each(|row| arms.push(row)).map(|()| arms)
    }

    #[test]
    fn rows_that_follow_each_other_are_taken_like_arms_one_by_one() {
        let numbers: Vec<f64> = (0..75).map(|place| f64::from(place) * 1e300 - 4e301).collect();
        let mut arms = Arms::new(25);
        // Longer and shorter offers after each other use the same memory.
        for length in [75, 25, 50, 0, 75] {
            arms.set_rows(&numbers[..length]).unwrap();
            assert_eq!(arms, pushed(25, &numbers[..length]).unwrap());
            arms.take_rows(numbers[..length].to_vec()).unwrap();
            assert_eq!(arms, pushed(25, &numbers[..length]).unwrap());
        }
    }

    #[test]
    fn rows_with_something_wrong_are_refused_like_arms_one_by_one_and_leave_none() {
        type Taking = fn(&mut Arms, &[f64]) -> Result<(), InputError>;
        let takings: [Taking; 2] =
            [|arms, rows| arms.set_rows(rows), |arms, rows| arms.take_rows(rows.to_vec())];
        let numbers: Vec<f64> = (0..75).map(f64::from).collect();
        for take in takings {
            for place in 0..numbers.len() {
                for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    let mut rows = numbers.clone();
                    rows[place] = wrong;
                    let mut arms = pushed(25, &numbers).unwrap();
                    let Err(InputError::Feature { index, value }) = take(&mut arms, &rows) else {
                        panic!("{wrong} at {place} was taken")
                    };
                    assert_eq!((index, value.to_bits()), (place % 25, wrong.to_bits()));
                    assert!(arms.is_empty());
                }
            }
            let mut arms = pushed(25, &numbers).unwrap();
            assert_eq!(take(&mut arms, &numbers[..60]), Err(InputError::Dimension { expected: 25, got: 10 }));
            assert!(arms.is_empty());
            assert_eq!(take(&mut Arms::new(0), &[1.0]), Err(InputError::Dimension { expected: 0, got: 1 }));
        }
    }
}
