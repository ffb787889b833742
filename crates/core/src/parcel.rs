//! Evidence wrapped for travel: as its matrix, or as a low-rank factor when that is smaller.

use std::sync::{Arc, OnceLock};

use crate::columns::FactorColumns;
use crate::evidence::{Evidence, packed};
use crate::rounded::Rounded;
use crate::wire::is_zero;

/// Evidence as it travels.
///
/// After n observations Σxxᵀ has rank n at most, and for n < (d+1)/2 its pivoted Cholesky factor has fewer
/// scalars than the matrix. The factor is a function of the matrix alone, so it reveals nothing more.
#[derive(Clone, Debug, PartialEq)]
pub enum Parcel {
    /// The packed matrix and the vector.
    Dense(Evidence),
    /// The factor of the matrix, and the vector.
    LowRank(LowRank),
    /// The factor of the matrix and the vector, in fewer bits.
    Rounded(Rounded),
}

/// Evidence whose matrix is FFᵀ, with F one column a pivot.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// The row that each column eliminated; later columns are zero there.
    pub(crate) pivots: Vec<u32>,
    /// Columns one after the other, without the rows eliminated before: d, d−1, d−2 … numbers.
    pub(crate) columns: Vec<f64>,
    pub(crate) moment: Vec<f64>,
    pub(crate) count: u64,
    /// The evidence, once it was asked for. Validation and the coordinator need the same matrix, one after the other.
    unpacked: OnceLock<Arc<Evidence>>,
}

impl PartialEq for LowRank {
    fn eq(&self, other: &Self) -> bool {
        (&self.pivots, &self.columns, &self.moment, self.count)
            == (&other.pivots, &other.columns, &other.moment, other.count)
    }
}

impl Parcel {
    /// Wraps `evidence` in the smaller of the two forms.
    #[must_use]
    pub fn wrap(evidence: &Evidence) -> Self {
        let d = evidence.dimension();
        if d > 0 && evidence.count() == 0 {
            return Self::LowRank(LowRank::new(Vec::new(), Vec::new(), evidence.moment().to_vec(), 0));
        }
        if 2 * evidence.count() < d as u64 + 1 {
            let rank = usize::try_from(evidence.count()).expect("less than half the dimension");
            let (pivots, columns) = pivoted_cholesky(d, evidence.gram(), rank);
            if columns.len() < packed(d) {
                let (moment, count) = (evidence.moment().to_vec(), evidence.count());
                return Self::LowRank(LowRank::new(pivots, columns, moment, count));
            }
        }
        Self::Dense(evidence.clone())
    }

    /// Wraps `evidence` with what single precision keeps of it, or whole if single precision cannot hold it.
    #[must_use]
    pub fn wrap_rounded(evidence: &Evidence) -> Self {
        Rounded::upload(evidence).map_or_else(|| Self::wrap(evidence), Self::Rounded)
    }

    /// The evidence inside. A low-rank parcel gives the matrix back up to rounding; its sender must count
    /// this result as sent, so that both sides hold the same numbers. A parcel is unpacked once, however often and by
    /// however many parts of a program it is asked.
    #[must_use]
    pub fn evidence(&self) -> &Evidence {
        match self {
            Self::Dense(evidence) => evidence,
            Self::LowRank(parcel) => parcel.unpacked.get_or_init(|| Arc::new(parcel.unpack())),
            Self::Rounded(parcel) => parcel.evidence(),
        }
    }

    /// The same without keeping it: for senders, whose parcels wait until they are acknowledged.
    pub(crate) fn to_evidence(&self) -> Evidence {
        match self {
            Self::Dense(evidence) => evidence.clone(),
            Self::LowRank(parcel) => parcel.unpack(),
            Self::Rounded(parcel) => parcel.unpack(),
        }
    }

    /// Whether [`evidence`](Self::evidence) has nothing left to compute.
    #[must_use]
    pub fn is_unpacked(&self) -> bool {
        match self {
            Self::Dense(_) => true,
            Self::LowRank(parcel) => parcel.unpacked.get().is_some(),
            Self::Rounded(parcel) => parcel.is_unpacked(),
        }
    }

    /// Returns how many features the observations inside have.
    #[must_use]
    pub fn dimension(&self) -> usize {
        match self {
            Self::Dense(evidence) => evidence.dimension(),
            Self::LowRank(parcel) => parcel.moment.len(),
            Self::Rounded(parcel) => parcel.dimension,
        }
    }

    /// Returns how many observations are inside.
    #[must_use]
    pub const fn count(&self) -> u64 {
        match self {
            Self::Dense(evidence) => evidence.count(),
            Self::LowRank(parcel) => parcel.count,
            Self::Rounded(parcel) => parcel.count,
        }
    }

    /// Whether there is nothing inside.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Dense(evidence) => evidence.is_empty() && evidence.check().is_ok(),
            Self::LowRank(parcel) => {
                parcel.count == 0 && parcel.pivots.is_empty() && parcel.moment.iter().all(|&v| v == 0.0)
            }
            Self::Rounded(parcel) => parcel.count == 0 && parcel.evidence().check().is_ok(),
        }
    }

    /// The same matrix and count, with nothing said about rewards.
    #[must_use]
    pub(crate) fn without_moment(mut self) -> Self {
        if let Self::Rounded(parcel) = &self {
            self = Self::Dense(parcel.unpack());
        }
        match &mut self {
            Self::Dense(evidence) => evidence.set_moment(&vec![0.0; evidence.dimension()]),
            Self::LowRank(parcel) => {
                parcel.moment.fill(0.0);
                parcel.unpacked = OnceLock::new();
            }
            Self::Rounded(_) => {}
        }
        self
    }

    /// Scalars of the matrix and the vector as they travel: a vector of zeros does not.
    #[must_use]
    pub fn scalars(&self) -> u64 {
        let matrix = match self {
            Self::Dense(evidence) => evidence.gram().len(),
            Self::LowRank(parcel) => parcel.columns.len(),
            Self::Rounded(parcel) => return parcel.scalars() as u64,
        };
        (matrix + if self.has_moment() { self.dimension() } else { 0 }) as u64
    }

    /// Whether the vector travels, which it does unless it is zero.
    pub(crate) fn has_moment(&self) -> bool {
        match self {
            Self::Dense(evidence) => !is_zero(evidence.moment()),
            Self::LowRank(parcel) => !is_zero(&parcel.moment),
            Self::Rounded(_) => true,
        }
    }
}

impl LowRank {
    pub(crate) const fn new(pivots: Vec<u32>, columns: Vec<f64>, moment: Vec<f64>, count: u64) -> Self {
        Self { pivots, columns, moment, count, unpacked: OnceLock::new() }
    }

    fn unpack(&self) -> Evidence {
        let mut columns = FactorColumns::zeros(self.moment.len(), self.pivots.len());
        let mut packed = self.packed_columns();
        for column in columns.iter_mut() {
            packed.next(column);
        }
        Evidence::from_parts_unchecked(columns.gram(), self.moment.clone(), self.count)
    }

    /// Calls `visit` with each column of F, zeros filled in.
    pub(crate) fn for_each_column(&self, mut visit: impl FnMut(&[f64])) {
        let mut column = vec![0.0; self.moment.len()];
        let mut packed = self.packed_columns();
        for _ in &self.pivots {
            packed.next(&mut column);
            visit(&column);
        }
    }

    fn packed_columns(&self) -> PackedColumns<'_> {
        let places = (0..self.moment.len() as u32).collect();
        PackedColumns { pivots: &self.pivots, done: 0, places, numbers: &self.columns }
    }

    /// Scalars that `rank` columns of dimension `d` have: rd − r(r−1)/2.
    pub(crate) const fn column_scalars(d: usize, rank: usize) -> usize {
        rank * d - rank * rank.saturating_sub(1) / 2
    }
}

/// Columns of a factor, to be read one after the other.
struct PackedColumns<'a> {
    pivots: &'a [u32],
    /// How many columns were read.
    done: usize,
    /// How many rows above each row are in the next column: the place of its own number, if it is. So no number needs a branch
    /// that is hard to foresee.
    places: Vec<u32>,
    /// The next column and those after it.
    numbers: &'a [f64],
}

impl PackedColumns<'_> {
    /// Writes the next column into `column`, zeros filled in.
    fn next(&mut self, column: &mut [f64]) {
        for (value, place) in column.iter_mut().zip(&self.places) {
            // A row that is eliminated may have no number behind it.
            *value = self.numbers.get(*place as usize).copied().unwrap_or_default();
        }
        for eliminated in &self.pivots[..self.done] {
            column[*eliminated as usize] = 0.0;
        }
        self.numbers = &self.numbers[column.len() - self.done..];
        for below in &mut self.places[self.pivots[self.done] as usize + 1..] {
            *below -= 1;
        }
        self.done += 1;
    }
}

/// The factor of a packed positive semidefinite matrix, at most `rank` columns: pivots, and the columns
/// without the rows already eliminated. It stops early when nothing but rounding is left.
pub(crate) fn pivoted_cholesky(d: usize, gram: &[f64], rank: usize) -> (Vec<u32>, Vec<f64>) {
    let entry = |i: usize, j: usize| if i >= j { gram[packed(i) + j] } else { gram[packed(j) + i] };
    let mut left: Vec<f64> = (0..d).map(|i| entry(i, i)).collect();
    let largest = left.iter().fold(0.0_f64, |a, &b| a.max(b));
    let floor = largest * f64::EPSILON * d as f64;
    let (mut pivots, mut columns) = (Vec::with_capacity(rank), Vec::new());
    // Full columns, kept for the eliminations that follow.
    let mut full: Vec<Vec<f64>> = Vec::with_capacity(rank);
    let mut eliminated = vec![false; d];
    for _ in 0..rank {
        let candidate = (0..d)
            .filter(|&i| !eliminated[i])
            .fold(None, |best: Option<usize>, i| best.filter(|&b| left[b] >= left[i]).or(Some(i)));
        let Some(pivot) = candidate.filter(|&p| left[p] > floor) else { break };
        let root = left[pivot].sqrt();
        let mut column = vec![0.0; d];
        for i in (0..d).filter(|&i| !eliminated[i]) {
            let mut value = entry(i, pivot);
            for earlier in &full {
                value -= earlier[i] * earlier[pivot];
            }
            column[i] = if i == pivot { root } else { value / root };
            left[i] -= column[i] * column[i];
            columns.push(column[i]);
        }
        eliminated[pivot] = true;
        pivots.push(pivot as u32);
        full.push(column);
    }
    (pivots, columns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Seed;

    fn random_evidence(d: usize, n: u64, seed: u64) -> Evidence {
        let mut stream = Seed(seed).stream("test", 0, 0);
        let mut evidence = Evidence::none(d);
        for _ in 0..n {
            let x: Vec<f64> = (0..d).map(|_| stream.normal()).collect();
            evidence.observe(&x, stream.normal()).unwrap();
        }
        evidence
    }

    /// Columns of F number by number, and FFᵀ entry by entry: how every number is rounded.
    fn plainly_unpacked(parcel: &LowRank) -> (Vec<Vec<f64>>, Vec<f64>) {
        let d = parcel.moment.len();
        let (mut columns, mut gram) = (Vec::new(), vec![0.0; packed(d)]);
        let (mut eliminated, mut numbers) = (vec![false; d], parcel.columns.iter());
        for &pivot in &parcel.pivots {
            let column: Vec<f64> =
                eliminated.iter().map(|gone| if *gone { 0.0 } else { *numbers.next().unwrap() }).collect();
            eliminated[pivot as usize] = true;
            for i in 0..d {
                for j in 0..=i {
                    gram[packed(i) + j] += column[i] * column[j];
                }
            }
            columns.push(column);
        }
        (columns, gram)
    }

    #[test]
    fn unpacking_rounds_as_plain_loops_do() {
        let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        for d in (1..=40).chain([64, 67, 100]) {
            for rank in (0..=12).chain([d / 2, d]) {
                let evidence = random_evidence(d, rank as u64, 3);
                let (pivots, columns) = pivoted_cholesky(d, evidence.gram(), rank);
                let parcel = LowRank::new(pivots, columns, evidence.moment().to_vec(), rank as u64);
                let (columns, gram) = plainly_unpacked(&parcel);
                assert!(bits(parcel.unpack().gram()) == bits(&gram), "{d} features, rank {rank}");
                let mut visited = Vec::new();
                parcel.for_each_column(|column| visited.push(column.to_vec()));
                assert_eq!(visited, columns);
            }
        }
    }

    proptest! {
        #[test]
        fn a_parcel_gives_back_what_was_wrapped(d in 1usize..14, n in 0u64..20, seed: u64) {
            let evidence = random_evidence(d, n, seed);
            let parcel = Parcel::wrap(&evidence);
            let back = parcel.evidence();
            prop_assert_eq!(back.count(), evidence.count());
            prop_assert_eq!(back.moment(), evidence.moment());
            let scale = evidence.gram().iter().fold(1e-300_f64, |a, b| a.max(b.abs()));
            for (a, b) in back.gram().iter().zip(evidence.gram()) {
                prop_assert!((a - b).abs() <= 1e-13 * scale, "{} {}", a, b);
            }
        }

        #[test]
        fn a_parcel_is_never_larger_than_the_matrix(d in 1usize..14, n in 0u64..20, seed: u64) {
            let parcel = Parcel::wrap(&random_evidence(d, n, seed));
            prop_assert!(parcel.scalars() <= (packed(d) + d) as u64);
            if 2 * n < d as u64 + 1 {
                let rank = n as usize;
                let moment = if n == 0 { 0 } else { d };
                prop_assert_eq!(parcel.scalars(), (LowRank::column_scalars(d, rank) + moment) as u64);
            }
        }
    }

    #[test]
    fn a_parcel_is_unpacked_once_and_by_whoever_asks_first() {
        let parcel = Parcel::wrap(&random_evidence(9, 2, 7));
        assert!(matches!(parcel, Parcel::LowRank(_)) && !parcel.is_unpacked());
        let first: *const Evidence = parcel.evidence();
        assert!(parcel.is_unpacked());
        assert!(std::ptr::eq(first, parcel.evidence()), "the same matrix, not another one");
        assert_eq!(parcel.to_evidence(), *parcel.evidence());
        // What is sent or compared does not depend on whether it was unpacked.
        assert_eq!(parcel, Parcel::wrap(&random_evidence(9, 2, 7)));
    }

    #[test]
    fn repeated_arms_have_the_rank_they_have() {
        let mut evidence = Evidence::none(9);
        for _ in 0..4 {
            evidence.observe(&[0.5, 1.0, 0.0, 0.0, -1.0, 0.25, 0.0, 0.0, 2.0], 1.0).unwrap();
        }
        let Parcel::LowRank(parcel) = Parcel::wrap(&evidence) else { panic!("rank one is low") };
        assert_eq!(parcel.pivots, [8]);
        assert_eq!(parcel.columns.len(), 9);
    }
}
