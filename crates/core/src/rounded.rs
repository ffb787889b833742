//! Evidence in few bits: the pivoted factor of its matrix with rounded entries, and the vector in single precision.
//!
//! In a pivoted Cholesky factor no entry of a column is larger than its pivot. So a column is its pivot and numbers
//! between −1 and 1, which are rounded to a grid of 2^bits points. The product of a rounded factor with itself is
//! positive semidefinite whatever the rounding did, and where the matrix has no evidence the error is of second order.

use std::sync::{Arc, OnceLock};

use crate::columns::FactorColumns;
use crate::evidence::{Evidence, multiply};
use crate::factor::Factor;
use crate::parcel::{LowRank, pivoted_cholesky};
use crate::ridge::Ridge;
use crate::workers::ThisThread;

/// Bits of an entry in an upload: what is rounded off is as small as in single precision.
const UPLOAD_BITS: u32 = 24;
/// Bits of an entry that are tried for a snapshot, in turn.
const SNAPSHOT_BITS: [u32; 7] = [6, 8, 10, 12, 14, 18, 24];
/// Pivots below this share of the first are left out. What they hold is below 2⁻³⁶ of the matrix, and numbers divided
/// by them would be mostly rounding errors.
const SMALLEST_ROOT: f64 = 1.0 / 262_144.0;

/// Evidence whose matrix is FFᵀ, with the entries of F rounded.
#[derive(Clone, Debug)]
pub struct Rounded {
    pub(crate) dimension: usize,
    pub(crate) count: u64,
    /// The row that each column eliminated; later columns are zero there.
    pub(crate) pivots: Vec<u32>,
    /// The largest entry of each column, in the row of its pivot.
    pub(crate) roots: Vec<f32>,
    /// Bits of each other entry, between 2 and 24.
    pub(crate) bits: u32,
    /// The other entries as shares of their root, column after column, without the rows eliminated before.
    pub(crate) shares: Vec<u8>,
    pub(crate) moment: RoundedMoment,
    /// The evidence, once it was asked for.
    unpacked: OnceLock<Arc<Evidence>>,
}

/// Σxy in single precision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RoundedMoment {
    /// One number for each feature.
    Whole(Vec<f32>),
    /// One number c for each column of the factor: Σxy = Fc. Sums over observations always have this form.
    Along(Vec<f32>),
}

impl PartialEq for Rounded {
    fn eq(&self, other: &Self) -> bool {
        (self.dimension, self.count, &self.pivots, &self.roots)
            == (other.dimension, other.count, &other.pivots, &other.roots)
            && (self.bits, &self.shares, &self.moment) == (other.bits, &other.shares, &other.moment)
    }
}

impl Rounded {
    pub(crate) fn new(
        (dimension, count): (usize, u64),
        (pivots, roots): (Vec<u32>, Vec<f32>),
        (bits, shares): (u32, Vec<u8>),
        moment: RoundedMoment,
    ) -> Self {
        Self { dimension, count, pivots, roots, bits, shares, moment, unpacked: OnceLock::new() }
    }

    /// Sums over observations with what single precision keeps of them, or `None` if it cannot hold them.
    pub(crate) fn upload(evidence: &Evidence) -> Option<Self> {
        let factor = ExactFactor::of(evidence)?;
        let mut rounded = factor.rounded(UPLOAD_BITS, evidence.count());
        let columns = rounded.columns();
        // The row of each pivot ends at its own column, so that one coordinate follows from those before.
        let mut along: Vec<f64> = Vec::with_capacity(columns.len());
        for (k, &pivot) in rounded.pivots.iter().enumerate() {
            let row = pivot as usize;
            let before: f64 = columns.iter().zip(&along).map(|(column, c)| column[row] * c).sum();
            along.push((evidence.moment()[row] - before) / columns[k][row]);
        }
        rounded.moment = RoundedMoment::Along(singles(&along)?);
        Some(rounded)
    }

    /// All that a coordinator knows, in as few bits as `tolerance` allows: with V̂ the matrix that arrives and V the
    /// one that was sent, (1 − tolerance)²V ≤ V̂ ≤ (1 + tolerance)²V, λI included. So no width is wrong by a larger
    /// share, now or after more is learned. The estimate is that of `model`, in single precision.
    ///
    /// `None` if no number of bits is enough.
    pub(crate) fn snapshot(evidence: &Evidence, model: &Ridge, tolerance: f64) -> Option<Self> {
        let (d, ridge) = (evidence.dimension(), model.regularization());
        let factor = ExactFactor::of(evidence)?;
        let (above, below) = ((1.0 + tolerance) * (1.0 + tolerance), (1.0 - tolerance) * (1.0 - tolerance));
        let mut test = Factor::new(d, ridge);
        let mut is_positive = |ridge: f64, scale: f64, sign: f64, rounded: &[f64]| {
            let difference =
                evidence.gram().iter().zip(rounded).map(|(g, r)| sign * (scale * g - r)).collect();
            let difference = Evidence::from_parts_unchecked(difference, vec![0.0; d], 1);
            test.refresh(ridge, [&difference].into_iter(), &ThisThread)
        };
        for bits in SNAPSHOT_BITS {
            let mut rounded = factor.rounded(bits, evidence.count());
            let gram = rounded.gram();
            if is_positive((above - 1.0) * ridge, above, 1.0, &gram)
                && is_positive((1.0 - below) * ridge, below, -1.0, &gram)
            {
                // Not Σxy, which belongs to the matrix that was sent: with the one that arrives, it would give
                // another estimate.
                let moment = multiply(&gram, ridge, &model.estimate());
                rounded.moment = RoundedMoment::Whole(singles(&moment)?);
                return Some(rounded);
            }
        }
        None
    }

    /// The evidence inside, computed once.
    pub(crate) fn evidence(&self) -> &Arc<Evidence> {
        self.unpacked.get_or_init(|| Arc::new(self.unpack()))
    }

    pub(crate) fn is_unpacked(&self) -> bool {
        self.unpacked.get().is_some()
    }

    pub(crate) fn unpack(&self) -> Evidence {
        let moment = match &self.moment {
            RoundedMoment::Whole(moment) => moment.iter().map(|v| f64::from(*v)).collect(),
            RoundedMoment::Along(along) => {
                let mut moment = vec![0.0; self.dimension];
                for (column, c) in self.columns().iter().zip(along) {
                    moment.iter_mut().zip(column).for_each(|(b, f)| *b += f64::from(*c) * f);
                }
                moment
            }
        };
        Evidence::from_parts_unchecked(self.gram(), moment, self.count)
    }

    /// Numbers that travel.
    pub(crate) fn scalars(&self) -> usize {
        let moment = match &self.moment {
            RoundedMoment::Whole(numbers) | RoundedMoment::Along(numbers) => numbers.len(),
        };
        LowRank::column_scalars(self.dimension, self.pivots.len()) + moment
    }

    /// Bytes that `rank` columns of dimension `d` have beside their roots.
    pub(crate) const fn share_bytes(d: usize, rank: usize, bits: u32) -> usize {
        ((LowRank::column_scalars(d, rank) - rank) * bits as usize).div_ceil(8)
    }

    /// FFᵀ, packed.
    fn gram(&self) -> Vec<f64> {
        let mut factor = FactorColumns::zeros(self.dimension, self.pivots.len());
        for (into, column) in factor.iter_mut().zip(self.columns()) {
            into.copy_from_slice(&column);
        }
        factor.gram()
    }

    /// The columns of F, zeros filled in.
    fn columns(&self) -> Vec<Vec<f64>> {
        let step = 1.0 / half_range(self.bits);
        let mut eliminated = vec![false; self.dimension];
        let mut bits = PackedBits { bytes: &self.shares, at: 0 };
        let columns = self.pivots.iter().zip(&self.roots).map(|(&pivot, &root)| {
            let root = f64::from(root);
            eliminated[pivot as usize] = true;
            let entry = |row: usize| match (row == pivot as usize, eliminated[row]) {
                (true, _) => root,
                (_, true) => 0.0,
                _ => root * step * (f64::from(bits.next(self.bits)) - half_range(self.bits)),
            };
            (0..self.dimension).map(entry).collect()
        });
        columns.collect()
    }
}

/// A factor before it is rounded.
struct ExactFactor {
    dimension: usize,
    pivots: Vec<u32>,
    roots: Vec<f32>,
    /// The other entries as shares of their root.
    shares: Vec<f64>,
}

impl ExactFactor {
    /// `None` if single precision cannot hold the pivots.
    fn of(evidence: &Evidence) -> Option<Self> {
        let dimension = evidence.dimension();
        let most = usize::try_from(evidence.count()).unwrap_or(usize::MAX).min(dimension);
        let (mut pivots, columns) = pivoted_cholesky(dimension, evidence.gram(), most);
        let (mut roots, mut shares) = (Vec::with_capacity(pivots.len()), Vec::with_capacity(columns.len()));
        let mut eliminated = vec![false; dimension];
        let mut numbers = columns.into_iter();
        for &pivot in &pivots {
            let column: Vec<(usize, f64)> =
                (0..dimension).filter(|row| !eliminated[*row]).zip(&mut numbers).collect();
            let root = column.iter().find(|(row, _)| *row == pivot as usize)?.1 as f32;
            let first = *roots.first().unwrap_or(&root);
            if f64::from(root) < f64::from(first) * SMALLEST_ROOT {
                break;
            }
            if !root.is_normal() {
                return None;
            }
            eliminated[pivot as usize] = true;
            let others = column.iter().filter(|(row, _)| *row != pivot as usize);
            shares.extend(others.map(|(_, value)| value / f64::from(root)));
            roots.push(root);
        }
        pivots.truncate(roots.len());
        Some(Self { dimension, pivots, roots, shares })
    }

    /// The factor in so many bits, with a vector of zeros.
    fn rounded(&self, bits: u32, count: u64) -> Rounded {
        let half = half_range(bits);
        let mut packed = vec![0; Rounded::share_bytes(self.dimension, self.pivots.len(), bits)];
        for (place, share) in self.shares.iter().enumerate() {
            // Rounding may have made an entry larger than its pivot.
            let level = (libm::round(share * half) + half).clamp(0.0, 2.0 * half) as u32;
            write(&mut packed, place * bits as usize, bits, level);
        }
        let moment = RoundedMoment::Whole(Vec::new());
        Rounded::new(
            (self.dimension, count),
            (self.pivots.clone(), self.roots.clone()),
            (bits, packed),
            moment,
        )
    }
}

/// Levels of the grid above zero: it has as many below.
fn half_range(bits: u32) -> f64 {
    f64::from((1_u32 << (bits - 1)) - 1)
}

/// The numbers in single precision, unless one of them is too large.
fn singles(numbers: &[f64]) -> Option<Vec<f32>> {
    let singles: Vec<f32> = numbers.iter().map(|v| *v as f32).collect();
    singles.iter().all(|v| v.is_finite()).then_some(singles)
}

/// Writes the lowest `bits` of a value, the first of them into the lowest free bit of a byte.
fn write(bytes: &mut [u8], mut at: usize, mut bits: u32, mut value: u32) {
    while bits > 0 {
        let (free, shift) = (8 - (at % 8) as u32, at % 8);
        bytes[at / 8] |= (value << shift) as u8;
        let written = free.min(bits);
        value = value.checked_shr(written).unwrap_or(0);
        (at, bits) = (at + written as usize, bits - written);
    }
}

/// Reads what [`write()`] wrote.
struct PackedBits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl PackedBits<'_> {
    fn next(&mut self, bits: u32) -> u32 {
        let (mut value, mut have) = (0, 0);
        while have < bits {
            let part = u32::from(self.bytes[self.at / 8]) >> (self.at % 8);
            let took = (8 - (self.at % 8) as u32).min(bits - have);
            value |= (part & ((1 << took) - 1)) << have;
            (self.at, have) = (self.at + took as usize, have + took);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::evidence::packed;
    use crate::parcel::Parcel;
    use crate::random::Seed;

    const LAMBDA: f64 = 0.1;

    /// Observations whose directions are known unequally well.
    fn random_evidence(d: usize, n: u64, seed: u64) -> Evidence {
        let mut stream = Seed(seed).stream("test", 0, 0);
        let mut evidence = Evidence::none(d);
        for _ in 0..n {
            let x: Vec<f64> = (0..d).map(|i| stream.normal() / (1.0 + i as f64)).collect();
            evidence.observe(&x, stream.normal()).unwrap();
        }
        evidence
    }

    fn model(evidence: &Evidence) -> Ridge {
        let mut model = Ridge::new(evidence.dimension(), LAMBDA);
        model.refresh([evidence].into_iter()).unwrap();
        model
    }

    fn squared_width(model: &Ridge, x: &[f64]) -> f64 {
        let mut solved = x.to_vec();
        model.solve(&mut solved);
        solved.iter().zip(x).map(|(a, b)| a * b).sum()
    }

    fn largest(numbers: &[f64]) -> f64 {
        numbers.iter().fold(1e-300, |largest, v| largest.max(v.abs()))
    }

    proptest! {
        #[test]
        fn uploads_arrive_in_single_precision(d in 1usize..14, n in 0u64..40, seed: u64) {
            let evidence = random_evidence(d, n, seed);
            let parcel = Parcel::wrap_rounded(&evidence);
            prop_assert!(matches!(parcel, Parcel::Rounded(_)));
            let back = parcel.evidence();
            prop_assert_eq!((back.count(), back.dimension()), (n, d));
            prop_assert!(back.check().is_ok());
            let scale = largest(evidence.gram());
            for (a, b) in back.gram().iter().zip(evidence.gram()) {
                prop_assert!((a - b).abs() <= 1e-6 * scale, "{} {}", a, b);
            }
            let scale = largest(evidence.moment()).max(scale);
            for (a, b) in back.moment().iter().zip(evidence.moment()) {
                prop_assert!((a - b).abs() <= 1e-5 * scale, "{} {}", a, b);
            }
            prop_assert_eq!(&parcel.to_evidence(), back);
        }

        #[test]
        fn no_width_is_wrong_by_more_than_the_tolerance(
            d in 1usize..14, n in 0u64..200, later in 0u64..4, tolerance in 0.005..0.3, seed: u64,
        ) {
            let evidence = random_evidence(d, n, seed);
            let sent = model(&evidence);
            let rounded = Rounded::snapshot(&evidence, &sent, tolerance).unwrap();
            let arrived = model(rounded.evidence());
            let scale = largest(&sent.estimate());
            for (a, b) in arrived.estimate().iter().zip(sent.estimate()) {
                prop_assert!((a - b).abs() <= 1e-4 * scale, "{} {}", a, b);
            }
            // What the agent learns later is the same on both sides.
            let own = random_evidence(d, later, seed ^ 1);
            let sum = |base: &Evidence| model(&base.checked_sum(&own).unwrap());
            let (sent, arrived) = (sum(&evidence), sum(rounded.evidence()));
            let mut stream = Seed(seed).stream("arms", 0, 0);
            for _ in 0..20 {
                let x: Vec<f64> = (0..d).map(|_| stream.normal()).collect();
                let ratio = (squared_width(&arrived, &x) / squared_width(&sent, &x)).sqrt();
                prop_assert!(ratio * (1.0 + tolerance) >= 1.0 - 1e-9, "too narrow: {}", ratio);
                prop_assert!(ratio * (1.0 - tolerance) <= 1.0 + 1e-9, "too wide: {}", ratio);
            }
            let missing = -2.0 * d as f64 * libm::log1p(-tolerance);
            prop_assert!(sent.information() <= arrived.information() + missing + 1e-9);
        }

        #[test]
        fn bits_are_read_as_they_were_written(bits in 2u32..25, values in proptest::collection::vec(any::<u32>(), 0..40)) {
            let values: Vec<u32> = values.iter().map(|value| value & ((1 << bits) - 1)).collect();
            let mut bytes = vec![0; (values.len() * bits as usize).div_ceil(8)];
            for (place, value) in values.iter().enumerate() {
                write(&mut bytes, place * bits as usize, bits, *value);
            }
            let mut read = PackedBits { bytes: &bytes, at: 0 };
            let back: Vec<u32> = values.iter().map(|_| read.next(bits)).collect();
            prop_assert_eq!(back, values);
        }
    }

    #[test]
    fn a_lower_tolerance_takes_more_bits_and_both_far_fewer_than_sixty_four() {
        let evidence = random_evidence(25, 3000, 4);
        let model = model(&evidence);
        let bits = |tolerance| Rounded::snapshot(&evidence, &model, tolerance).unwrap().bits;
        assert!(
            bits(0.2) < bits(0.02) && bits(0.02) < bits(0.001),
            "{} {} {}",
            bits(0.2),
            bits(0.02),
            bits(0.001)
        );
        assert!(bits(0.02) <= 12, "{}", bits(0.02));
    }

    #[test]
    fn few_observations_take_few_columns() {
        let evidence = random_evidence(25, 3, 4);
        let rounded = Rounded::snapshot(&evidence, &model(&evidence), 0.02).unwrap();
        assert_eq!(rounded.pivots.len(), 3);
        let upload = Rounded::upload(&evidence).unwrap();
        assert!(matches!(&upload.moment, RoundedMoment::Along(along) if along.len() == 3));
        assert_eq!(upload.scalars(), 25 + 24 + 23 + 3);
    }

    #[test]
    fn unpacking_rounds_as_plain_loops_do() {
        for (d, n) in [(1, 1), (4, 3), (9, 40), (25, 4), (25, 60), (33, 12)] {
            let rounded = Rounded::upload(&random_evidence(d, n, 5)).unwrap();
            let mut plain = vec![0.0; packed(d)];
            for column in rounded.columns() {
                for i in 0..d {
                    for j in 0..=i {
                        plain[packed(i) + j] += column[i] * column[j];
                    }
                }
            }
            let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&rounded.gram()), bits(&plain), "{d} features, {n} observations");
        }
    }

    #[test]
    fn what_single_precision_cannot_hold_travels_whole() {
        let mut evidence = Evidence::none(2);
        evidence.observe(&[1e60, 1.0], 1.0).unwrap();
        assert!(matches!(Parcel::wrap_rounded(&evidence), Parcel::Dense(_) | Parcel::LowRank(_)));
        assert!(Rounded::snapshot(&evidence, &model(&evidence), 0.02).is_none());
    }
}
