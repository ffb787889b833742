//! One stream of running sums that is released again and again.

use crate::error::DecodeError;
use crate::evidence::{Evidence, packed};
use crate::privacy::budget::Share;
use crate::privacy::fixed::{Leaf, Units, measure};
use crate::privacy::noise::{Measurement, NoiseSource, StreamId};
use crate::wire::v1;

/// The observations of a stream, in the leaves between its releases, and what was measured of them.
///
/// Leaves are raw and stay with the agent. Measurements carry their noise and were drawn once each; every release is
/// computed from them, so that releasing again what was released costs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct ReleaseStream {
    id: StreamId,
    dimension: usize,
    /// One for each release so far, and one that is filling.
    leaves: Vec<Leaf>,
    measured: Vec<Vec<f64>>,
}

/// Sums with noise as they may leave the agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// The sums. The matrix may be indefinite.
    pub evidence: Evidence,
    /// The variance of the noise in every number of Σxxᵀ off the diagonal; on it, twice that. That in Σxy follows
    /// from it by [`Budget::vector_ratio`](crate::privacy::Budget::vector_ratio).
    pub variance: f64,
}

impl ReleaseStream {
    /// Returns a stream of sums over no observations.
    pub(crate) fn new(id: StreamId, dimension: usize) -> Self {
        Self { id, dimension, leaves: vec![Leaf::new(dimension)], measured: Vec::new() }
    }

    /// Returns how many releases the stream has made.
    #[must_use]
    pub const fn released(&self) -> u64 {
        self.measured.len() as u64
    }

    /// Takes in an observation that is within its bounds.
    pub(crate) fn add(&mut self, units: Units, x: &[f64], y: f64) {
        self.filling().add(units, x, y);
    }

    /// Counts an interaction whose reward never came: it adds nothing to the sums.
    pub(crate) fn add_nothing(&mut self) {
        self.filling().count += 1;
    }

    fn filling(&mut self) -> &mut Leaf {
        self.leaves.last_mut().expect("there is always a leaf that is filling")
    }

    /// The next release, or `None` if there is none left.
    pub(crate) fn release(
        &mut self,
        share: &Share,
        units: Units,
        source: &mut dyn NoiseSource,
    ) -> Option<Release> {
        let number = self.released() + 1;
        if number > share.factors.releases() {
            return None;
        }
        let weights = share.factors.measured(number as usize);
        let mut bits = source.bits(Measurement { stream: self.id, number });
        let measured = measure(
            &self.leaves,
            weights,
            [share.sigma, share.vector_sigma],
            units,
            self.dimension,
            &mut *bits,
        );
        self.measured.push(measured);
        self.leaves.push(Leaf::new(self.dimension));
        self.last(share, units)
    }

    /// The newest release once more, if there was one.
    pub(crate) fn last(&self, share: &Share, units: Units) -> Option<Release> {
        let number = self.released();
        if number == 0 {
            return None;
        }
        let mut sums = vec![0.0; packed(self.dimension) + self.dimension];
        for (weight, measured) in share.factors.released(number as usize).iter().zip(&self.measured) {
            sums.iter_mut().zip(measured).for_each(|(sum, value)| *sum += weight * value);
        }
        let count = self.leaves.iter().take(self.measured.len()).map(|leaf| leaf.count).sum();
        let evidence = units.evidence(&sums, self.dimension, count);
        Some(Release { evidence, variance: share.variance(number) })
    }

    pub(crate) fn save(&self) -> v1::StreamState {
        let [kind, id] = self.id.words();
        v1::StreamState {
            user: kind == 1,
            id,
            leaves: self
                .leaves
                .iter()
                .map(|leaf| v1::LeafState { count: leaf.count, sums: leaf.sums.clone() })
                .collect(),
            measured: self.measured.iter().map(|m| v1::MeasurementState { numbers: m.clone() }).collect(),
        }
    }

    /// The stream that was saved, for at most `releases` releases.
    pub(crate) fn restored(
        state: v1::StreamState,
        dimension: usize,
        releases: u64,
    ) -> Result<Self, DecodeError> {
        let entries = packed(dimension) + dimension;
        let id = if state.user { StreamId::User(state.id) } else { StreamId::Cluster(state.id) };
        let sound = state.leaves.len() == state.measured.len() + 1
            && state.measured.len() as u64 <= releases
            && state.leaves.iter().all(|leaf| leaf.sums.len() == entries)
            && state
                .measured
                .iter()
                .all(|m| m.numbers.len() == entries && m.numbers.iter().all(|v| v.is_finite()));
        if !sound {
            return Err(DecodeError::invalid(
                "stream",
                "its leaves and measurements do not fit its releases",
            ));
        }
        let leaf = |leaf: v1::LeafState| Leaf { sums: leaf.sums, count: leaf.count };
        Ok(Self {
            id,
            dimension,
            leaves: state.leaves.into_iter().map(leaf).collect(),
            measured: state.measured.into_iter().map(|m| m.numbers).collect(),
        })
    }

    pub(crate) const fn id(&self) -> StreamId {
        self.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AgentId;
    use crate::privacy::noise::SeededNoise;
    use crate::privacy::{Budget, Mechanism, PrivacyConfig};
    use crate::random::Seed;

    const D: usize = 2;

    fn config(mechanism: Mechanism, max_releases: u64) -> PrivacyConfig {
        PrivacyConfig { mechanism, max_releases, ..Default::default() }
    }

    fn share(config: &PrivacyConfig) -> (Share, Units) {
        (Budget::new(config, D, false).cluster, Units::new(config))
    }

    /// Variances over 4000 streams, each within five standard deviations of its estimate.
    #[test]
    fn o18_the_noise_of_release_k_has_the_variance_of_row_k() {
        for mechanism in [Mechanism::Factorisation, Mechanism::Tree] {
            let config = PrivacyConfig { vector_noise: 1.5, ..config(mechanism, 5) };
            let (share, units) = share(&config);
            let seeds = 4000;
            let mut squares = [[0.0; 5]; 5];
            for seed in 0..seeds {
                let mut source = SeededNoise::new(Seed(seed), AgentId(0));
                let mut stream = ReleaseStream::new(StreamId::Cluster(1), D);
                for sums in &mut squares {
                    let release = stream.release(&share, units, &mut source).unwrap().evidence;
                    let all = release.gram().iter().chain(release.moment());
                    sums.iter_mut().zip(all).for_each(|(sum, value)| *sum += value * value);
                }
                assert_eq!(
                    stream.release(&share, units, &mut source),
                    None,
                    "release number max_releases + 1"
                );
            }
            let n = seeds as f64;
            for (k, sums) in (1..).zip(&squares) {
                for (entry, factor) in [2.0, 1.0, 2.0, 2.25, 2.25].into_iter().enumerate() {
                    let expected = factor * share.variance(k);
                    let off = (sums[entry] / n - expected).abs() / (expected * (2.0 / n).sqrt());
                    assert!(
                        off < 5.0,
                        "{mechanism:?}: release {k}, entry {entry}: {} is not {expected}",
                        sums[entry] / n
                    );
                }
            }
        }
    }

    #[test]
    fn without_noise_releases_are_the_running_sums() {
        for mechanism in [Mechanism::Factorisation, Mechanism::Tree] {
            let (share, units) = share(&PrivacyConfig { epsilon: 1e30, ..config(mechanism, 40) });
            let mut stream = ReleaseStream::new(StreamId::Cluster(1), D);
            let mut source = SeededNoise::new(Seed(1), AgentId(0));
            let mut truth = Evidence::none(D);
            for k in 1..=40 {
                let (x, y) = units.snap(&[0.3, -0.6], f64::from(k % 3) - 1.0);
                stream.add(units, &x, y);
                truth.observe(&x, y).unwrap();
                let release = stream.release(&share, units, &mut source).unwrap();
                assert_eq!(release.evidence.count(), truth.count());
                let both = release.evidence.gram().iter().zip(truth.gram());
                let both = both.chain(release.evidence.moment().iter().zip(truth.moment()));
                both.for_each(|(a, b)| assert!((a - b).abs() < 1e-7, "{mechanism:?} {k}: {a} {b}"));
            }
        }
    }

    #[test]
    fn a_restored_stream_goes_on_with_the_same_noise() {
        let (share, units) = share(&config(Mechanism::Factorisation, 16));
        let mut source = SeededNoise::new(Seed(1), AgentId(2));
        let mut stream = ReleaseStream::new(StreamId::User(9), D);
        let mut whole = stream.clone();
        for _ in 0..16 {
            stream = ReleaseStream::restored(stream.save(), D, 16).unwrap();
            stream.add(units, &[0.5, 0.5], 1.0);
            whole.add(units, &[0.5, 0.5], 1.0);
            let release = stream.release(&share, units, &mut source);
            assert_eq!(whole.release(&share, units, &mut source), release);
            assert_eq!(stream.last(&share, units), release, "the same once more");
        }
        let mut wrong = stream.save();
        wrong.leaves.pop();
        ReleaseStream::restored(wrong, D, 16).unwrap_err();
        ReleaseStream::restored(stream.save(), D + 1, 16).unwrap_err();
        ReleaseStream::restored(stream.save(), D, 15).unwrap_err();
    }
}
