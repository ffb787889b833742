//! What observations add up to: Σxxᵀ, Σxy and their number. Additive, and what travels.

use std::cell::RefCell;
use std::sync::Arc;

use crate::arms::check_features;
use crate::error::{InputError, ProtocolError};
use crate::lanes::four_wide;
use crate::outer::AddOuter;

/// Scalars of a packed symmetric matrix of dimension `d`: its lower triangle.
#[must_use]
pub const fn packed(d: usize) -> usize {
    d * (d + 1) / 2
}

/// The sufficient statistics of linear regression over some observations, without any regulariser.
///
/// The Gram matrix Σxxᵀ is stored as its lower triangle, row after row: entry (i, j), i ≥ j, is at
/// `i(i+1)/2 + j`. The wire format is the same.
#[derive(Clone, Debug)]
pub struct Evidence {
    gram: Vec<f64>,
    moment: Vec<f64>,
    count: u64,
    /// The last model that was made of exactly these numbers in this process. Any change of them forgets it, and it never
    /// travels.
    modelled: Option<Modelled>,
}

/// That a model was made of some evidence: with which regularisation, and the information that it had.
#[derive(Clone, Copy, Debug)]
struct Modelled {
    regularization: f64,
    information: f64,
}

/// Evidence is its numbers; whether a model was made of them does not matter.
impl PartialEq for Evidence {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.gram == other.gram && self.moment == other.moment
    }
}

/// The most observations that are believed: widths count in `f64`, and sums of counts never wrap.
pub(crate) const MAX_OBSERVATIONS: u64 = 1 << 53;

thread_local! {
    /// The last evidence without observations that was asked for: thousands of agents begin with the same.
    static NOTHING: RefCell<Option<Arc<Evidence>>> = const { RefCell::new(None) };
}

impl Evidence {
    /// No observations, in memory that all who ask for the same dimension share.
    pub(crate) fn nothing(dimension: usize) -> Arc<Self> {
        NOTHING.with_borrow_mut(|known| match known {
            Some(nothing) if nothing.dimension() == dimension => Arc::clone(nothing),
            _ => Arc::clone(known.insert(Arc::new(Self::none(dimension)))),
        })
    }

    /// No observations yet, of `dimension` features each.
    #[must_use]
    pub fn none(dimension: usize) -> Self {
        Self::from_parts_unchecked(vec![0.0; packed(dimension)], vec![0.0; dimension], 0)
    }

    /// Evidence from its parts, checked for everything that can be checked cheaply: see
    /// [`check`](Self::check).
    pub fn from_parts(gram: Vec<f64>, moment: Vec<f64>, count: u64) -> Result<Self, ProtocolError> {
        let evidence = Self::from_parts_unchecked(gram, moment, count);
        evidence.check()?;
        Ok(evidence)
    }

    /// Whether these numbers are possible: shapes agree, all are finite, no diagonal entry is negative, no
    /// entry exceeds what its diagonal allows, without observations everything is zero, and there are not
    /// more than 2⁵³ of them.
    pub fn check(&self) -> Result<(), ProtocolError> {
        let d = self.dimension();
        if self.gram.len() != packed(d) {
            return Err(ProtocolError::Evidence("the matrix and the vector have different dimensions"));
        }
        if !self.is_finite() {
            return Err(ProtocolError::Evidence("not all numbers are finite"));
        }
        if self.count == 0 {
            let nothing = self.gram.iter().chain(&self.moment).all(|&v| v == 0.0);
            return nothing.then_some(()).ok_or(ProtocolError::Evidence("numbers without observations"));
        }
        if self.count > MAX_OBSERVATIONS {
            return Err(ProtocolError::Evidence("more observations than can be counted"));
        }
        let diagonal: Vec<f64> = (0..d).map(|i| self.gram[packed(i) + i]).collect();
        if diagonal.iter().any(|&square| square < 0.0) {
            return Err(ProtocolError::Evidence("a negative sum of squares"));
        }
        for (i, &own) in diagonal.iter().enumerate() {
            let row = &self.gram[packed(i)..packed(i) + i];
            // Whole rows without a branch, which processors do several entries of at a time.
            let is_possible = row.iter().zip(&diagonal).fold(true, |is_possible, (off, other)| {
                // The square of a tiny feature is rounded to a multiple of 5e-324, perhaps to nothing.
                let underflow = f64::MIN_POSITIVE * (1.0 + own.max(*other));
                is_possible & (off * off <= own * other * (1.0 + 1e-9) + underflow)
            });
            if !is_possible {
                return Err(ProtocolError::Evidence("a matrix that is not positive semidefinite"));
            }
        }
        Ok(())
    }

    /// Whether these numbers may have been released with noise: shapes agree, all are finite, and there are
    /// not more than 2⁵³ observations.
    pub(crate) fn check_release(&self) -> Result<(), ProtocolError> {
        if self.gram.len() != packed(self.dimension()) {
            return Err(ProtocolError::Evidence("the matrix and the vector have different dimensions"));
        }
        if !self.is_finite() || self.gram.iter().chain(&self.moment).any(|v| v.abs() > 1e150) {
            return Err(ProtocolError::Evidence("not all numbers are finite"));
        }
        if self.count > MAX_OBSERVATIONS {
            return Err(ProtocolError::Evidence("more observations than can be counted"));
        }
        Ok(())
    }

    /// Adds one observation. An observation that would overflow is refused and nothing changes.
    pub fn observe(&mut self, x: &[f64], y: f64) -> Result<(), InputError> {
        check_observation(self.dimension(), x, y)?;
        self.add_observation(x, y);
        Ok(())
    }

    /// Adds an observation that was checked before.
    #[inline]
    pub(crate) fn add_observation(&mut self, x: &[f64], y: f64) {
        let dimension = self.dimension();
        self.modelled = None;
        four_wide().dispatch(AddOuter {
            gram: &mut self.gram,
            observations: x,
            stride: dimension.max(1),
            dimension,
        });
        for (b, xi) in self.moment.iter_mut().zip(x) {
            *b += y * xi;
        }
        self.count += 1;
    }

    /// Adds observations that were checked before, one after the other: features and reward of each.
    pub(crate) fn add_observations(&mut self, observations: &[f64]) {
        let dimension = self.dimension();
        self.modelled = None;
        let stride = dimension + 1;
        four_wide().dispatch(AddOuter { gram: &mut self.gram, observations, stride, dimension });
        for row in observations.chunks_exact(stride) {
            let (x, y) = row.split_at(dimension);
            for (b, xi) in self.moment.iter_mut().zip(x) {
                *b += y[0] * xi;
            }
            self.count += 1;
        }
    }

    /// Adds the observations that `other` holds.
    ///
    /// # Panics
    /// If the dimensions differ: check what comes from elsewhere first.
    pub fn add(&mut self, other: &Self) {
        assert_eq!(self.dimension(), other.dimension(), "evidence of one dimension adds up");
        self.modelled = None;
        add_assign(&mut self.gram, &other.gram);
        add_assign(&mut self.moment, &other.moment);
        self.count += other.count;
    }

    /// This and evidence from elsewhere together, unless that is more than numbers can hold.
    pub(crate) fn checked_sum(&self, other: &Self) -> Result<Self, ProtocolError> {
        let mut sum = self.clone();
        sum.modelled = None;
        sum.count = self.count.saturating_add(other.count);
        add_assign(&mut sum.gram, &other.gram);
        add_assign(&mut sum.moment, &other.moment);
        if sum.is_finite() && sum.count <= MAX_OBSERVATIONS {
            Ok(sum)
        } else {
            Err(ProtocolError::Evidence("it overflows what is there"))
        }
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.gram.fill(0.0);
        self.moment.fill(0.0);
        self.count = 0;
        self.modelled = None;
    }

    /// The number of features d.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.moment.len()
    }

    /// Σxxᵀ as a packed lower triangle: d(d+1)/2 numbers, row after row.
    #[must_use]
    pub fn gram(&self) -> &[f64] {
        &self.gram
    }

    /// Returns Σxy: d numbers.
    #[must_use]
    pub fn moment(&self) -> &[f64] {
        &self.moment
    }

    /// The number of observations in the sums.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Whether there are no observations.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether every number is finite, as it must stay.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        // Without a branch for each, which is what almost all callers pay for.
        let are_finite = |numbers: &[f64]| numbers.iter().fold(true, |all, number| all & number.is_finite());
        are_finite(&self.gram) && are_finite(&self.moment)
    }

    /// The same observations as if every reward had been xᵀθ: the moment is Σxxᵀθ.
    #[must_use]
    pub(crate) fn with_predictions_of(&self, theta: &[f64]) -> Self {
        Self::from_parts_unchecked(self.gram.clone(), multiply(&self.gram, 0.0, theta), self.count)
    }

    /// The same sums, said to be over `count` observations.
    pub(crate) fn with_count(self, count: u64) -> Self {
        Self { count, modelled: None, ..self }
    }

    pub(crate) fn set_moment(&mut self, moment: &[f64]) {
        self.modelled = None;
        self.moment.copy_from_slice(moment);
    }

    pub(crate) fn gram_mut(&mut self) -> &mut [f64] {
        self.modelled = None;
        &mut self.gram
    }

    pub(crate) const fn from_parts_unchecked(gram: Vec<f64>, moment: Vec<f64>, count: u64) -> Self {
        Self { gram, moment, count, modelled: None }
    }

    /// The information that a model of exactly this evidence had, if one with this `regularization` was made: then a model
    /// fits it, and all who are handed it need not try again.
    pub(crate) fn known_information(&self, regularization: f64) -> Option<f64> {
        self.modelled.filter(|known| known.regularization == regularization).map(|known| known.information)
    }

    /// Remembers that a model was made of exactly this evidence. Only [`Ridge`](crate::ridge::Ridge) can say so.
    pub(crate) const fn note_model(&mut self, regularization: f64, information: f64) {
        self.modelled = Some(Modelled { regularization, information });
    }
}

/// Checks an observation before it may change anything: length, finiteness, and that its squares are
/// finite too.
pub(crate) fn check_observation(dimension: usize, x: &[f64], y: f64) -> Result<(), InputError> {
    check_features(dimension, x)?;
    if !y.is_finite() {
        return Err(InputError::Reward { value: y });
    }
    // One overflowing product would poison the sums for good; 1e140² leaves room for 1e28 observations.
    const LARGEST: f64 = 1e140;
    if y.abs() > LARGEST || !x.iter().fold(true, |fits, v| fits & (v.abs() <= LARGEST)) {
        return Err(InputError::Overflow);
    }
    Ok(())
}

/// (M + ridge·I)v for a packed symmetric matrix M.
pub(crate) fn multiply(matrix: &[f64], ridge: f64, v: &[f64]) -> Vec<f64> {
    let mut product: Vec<f64> = v.iter().map(|v| ridge * v).collect();
    for i in 0..v.len() {
        let row = &matrix[packed(i)..=packed(i) + i];
        for j in 0..i {
            product[i] += row[j] * v[j];
            product[j] += row[j] * v[i];
        }
        product[i] += row[i] * v[i];
    }
    product
}

pub(crate) fn add_assign(sum: &mut [f64], other: &[f64]) {
    for (a, b) in sum.iter_mut().zip(other) {
        *a += b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_add_up_to_their_outer_products() {
        let mut evidence = Evidence::none(3);
        evidence.observe(&[1.0, 2.0, -1.0], 0.5).unwrap();
        evidence.observe(&[0.0, 1.0, 3.0], -2.0).unwrap();
        assert_eq!(evidence.gram(), [1.0, 2.0, 5.0, -1.0, 1.0, 10.0]);
        assert_eq!(evidence.moment(), [0.5, -1.0, -6.5]);
        assert_eq!(evidence.count(), 2);
        assert_eq!(evidence.check(), Ok(()));
    }

    #[test]
    fn a_refused_observation_changes_nothing() {
        let mut evidence = Evidence::none(2);
        evidence.observe(&[1.0, 1.0], 1.0).unwrap();
        let before = evidence.clone();
        assert!(evidence.observe(&[1.0, f64::NAN], 1.0).is_err());
        assert!(evidence.observe(&[1.0, 1.0], f64::INFINITY).is_err());
        assert_eq!(evidence.observe(&[1e200, 1.0], 1.0), Err(InputError::Overflow));
        assert!(evidence.observe(&[1.0], 1.0).is_err());
        assert_eq!(evidence, before);
    }

    #[test]
    fn squares_that_underflow_do_not_make_observations_impossible() {
        for tiny in [1e-150, 1e-155, 1.3e-161, 1e-163, 1e-170, 1e-250, 1e-308] {
            for large in [1.0, 1e20, 1e60, 1e100, 1e140] {
                let mut evidence = Evidence::none(3);
                evidence.observe(&[tiny, large, 1.0], 1.0).unwrap();
                evidence.observe(&[-tiny, large, 3.0 * tiny], 1.0).unwrap();
                assert_eq!(evidence.check(), Ok(()), "{tiny} beside {large}");
            }
        }
    }

    #[test]
    fn every_change_forgets_the_model_that_was_made_before() {
        let changes: [fn(&mut Evidence); 8] = [
            |evidence| evidence.observe(&[1.0, 0.0], 1.0).unwrap(),
            |evidence| evidence.add_observations(&[1.0, 0.0, 1.0]),
            |evidence| evidence.add(&evidence.clone()),
            |evidence| *evidence = evidence.checked_sum(&Evidence::none(2)).unwrap(),
            Evidence::clear,
            |evidence| *evidence = evidence.clone().with_count(7),
            |evidence| evidence.set_moment(&[0.5, 0.5]),
            |evidence| evidence.gram_mut()[0] = 2.0,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut evidence = Evidence::none(2);
            evidence.observe(&[1.0, 1.0], 1.0).unwrap();
            evidence.note_model(0.5, 3.0);
            assert_eq!(evidence.known_information(0.5), Some(3.0));
            assert_eq!(evidence.known_information(1.0), None, "that is another model");
            change(&mut evidence);
            assert_eq!(evidence.known_information(0.5), None, "change {number}");
        }
        let mut evidence = Evidence::none(2);
        evidence.note_model(0.5, 3.0);
        assert_eq!(evidence.with_predictions_of(&[1.0, 1.0]).known_information(0.5), None);
        assert_eq!(evidence, Evidence::none(2), "a model that was made is no part of the numbers");
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let refused = |gram: &[f64], moment: &[f64], count| {
            Evidence::from_parts(gram.to_vec(), moment.to_vec(), count).unwrap_err()
        };
        refused(&[1.0, 0.0], &[0.0, 0.0], 1);
        refused(&[1.0, 0.0, f64::NAN], &[0.0, 0.0], 1);
        refused(&[-1.0, 0.0, 1.0], &[0.0, 0.0], 1);
        refused(&[1.0, 2.0, 1.0], &[0.0, 0.0], 1);
        refused(&[1.0, 0.0, 1.0], &[0.0, 0.0], 0);
    }
}
