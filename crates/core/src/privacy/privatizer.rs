//! What stands between an agent's sums and the coordinator: clipping, trees, noise and the accountant.

use std::collections::BTreeMap;

use crate::error::{DecodeError, InputError};
use crate::evidence::Evidence;
use crate::ids::{AgentId, Incarnation};
use crate::privacy::accountant::{Accountant, Exhausted};
use crate::privacy::config::{Calibration, Clip, PrivacyConfig};
use crate::privacy::noise::{NoiseSource, SeededNoise};
use crate::privacy::repair::smallest_eigenvalue;
use crate::privacy::report::PrivacyReport;
use crate::privacy::tree::Tree;
use crate::random::Seed;
use crate::wire::{self, v1};

/// The private side of an agent: nothing leaves it but releases of its trees.
///
/// Its state must be kept before a release is sent: an agent that forgot a node and drew it again would give
/// its noise away.
#[derive(Debug)]
pub(crate) struct Privatizer {
    config: PrivacyConfig,
    calibration: Calibration,
    dimension: usize,
    noise: Box<dyn NoiseSource>,
    accountant: Accountant,
    streams: BTreeMap<u64, Stream>,
    clipped: u64,
    signal_to_shift: Option<f64>,
    life: Incarnation,
}

/// One stream of sums with its tree.
#[derive(Clone, Debug)]
struct Stream {
    tree: Tree,
    /// What was released last, to be said again if it must be.
    last: Option<Evidence>,
}

impl Privatizer {
    pub(crate) fn new(config: &PrivacyConfig, dimension: usize, id: AgentId, seed: Seed) -> Self {
        let calibration = config.calibration(dimension);
        Self {
            config: config.clone(),
            calibration,
            dimension,
            noise: Box::new(SeededNoise::new(seed, id)),
            accountant: Accountant::new(config.clone(), calibration),
            streams: BTreeMap::new(),
            clipped: 0,
            signal_to_shift: None,
            life: Incarnation(0),
        }
    }

    pub(crate) fn use_noise(&mut self, noise: Box<dyn NoiseSource>) {
        self.noise = noise;
    }

    pub(crate) fn begin_life(&mut self, life: Incarnation) {
        self.noise.begin_life(life);
        self.life = life;
    }

    /// The observation within its bounds, or an error if larger ones are refused.
    pub(crate) fn clip(&mut self, x: &[f64], y: f64) -> Result<(Vec<f64>, f64), InputError> {
        let (longest, largest) = (self.config.feature_bound, self.config.reward_bound);
        let length = x.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length <= longest && y.abs() <= largest {
            return Ok((x.to_vec(), y));
        }
        if self.config.clip == Clip::Refuse {
            return Err(if length > longest {
                InputError::FeatureBound { length, bound: longest }
            } else {
                InputError::RewardBound { value: y, bound: largest }
            });
        }
        // Rounding alone is no news.
        self.clipped += u64::from(length > longest * (1.0 + 1e-9) || y.abs() > largest);
        // Rounded down, so that no rounding makes it longer than the bound.
        let factor = if length > longest { longest / length * (1.0 - f64::EPSILON * 4.0) } else { 1.0 };
        Ok((x.iter().map(|v| v * factor).collect(), y.clamp(-largest, largest)))
    }

    /// A stream begins, over new interactions or over those of `parent`.
    pub(crate) fn open(&mut self, stream: u64, parent: Option<u64>) -> Result<(), Exhausted> {
        self.accountant.open_tree(stream, parent)?;
        let tree = Tree::new(stream, self.calibration.sigma, self.config.max_releases);
        self.streams.insert(stream, Stream { tree, last: None });
        Ok(())
    }

    pub(crate) fn close(&mut self, stream: u64) {
        self.accountant.close(stream);
        self.streams.remove(&stream);
    }

    pub(crate) fn may_split(&self, stream: u64) -> bool {
        self.accountant.may_reopen(stream)
    }

    /// Whether a stream of `total` observations, `released` of which were released, should and may be
    /// released again.
    pub(crate) fn is_due(&self, stream: u64, total: u64, released: u64) -> bool {
        self.has_release(stream) && self.config.is_due(total, released)
    }

    pub(crate) fn has_release(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_some_and(|stream| !stream.tree.is_exhausted())
    }

    pub(crate) const fn uses_raw_buffer(&self) -> bool {
        self.config.raw_buffer
    }

    /// The next release of a stream, or an error if there is none left.
    pub(crate) fn release(&mut self, stream: u64, sums: &Evidence) -> Result<Evidence, Exhausted> {
        self.accountant.release(stream)?;
        let own = self.streams.get_mut(&stream).expect("the accountant knows the same trees");
        let shift = self.calibration.bounds.shift();
        let released =
            own.tree.release(sums, shift, &mut *self.noise).expect("the accountant counts the same releases");
        own.last = Some(released.clone());
        let signal = smallest_eigenvalue(sums.gram(), self.dimension) / shift;
        self.signal_to_shift = Some(signal);
        Ok(released)
    }

    /// What was released last.
    pub(crate) fn last(&self, stream: u64) -> Option<&Evidence> {
        self.streams.get(&stream)?.last.as_ref()
    }

    pub(crate) fn report(&self, most_of_a_user: u64) -> PrivacyReport {
        let mut report = self.accountant.report(most_of_a_user, self.clipped);
        report.signal_to_shift = self.signal_to_shift;
        report.life = self.life.0;
        report
    }

    pub(crate) fn save(&self) -> v1::PrivacyState {
        let stream = |stream: &Stream| v1::StreamState {
            tree: Some(stream.tree.save()),
            last: stream.last.as_ref().map(wire::evidence_to_wire),
        };
        v1::PrivacyState {
            accountant: Some(self.accountant.save()),
            streams: self.streams.values().map(stream).collect(),
            clipped: self.clipped,
            signal_to_shift: self.signal_to_shift,
        }
    }

    /// Goes on from a saved state, or changes nothing.
    pub(crate) fn restore(&mut self, state: v1::PrivacyState) -> Result<(), DecodeError> {
        let fresh = Tree::new(0, self.calibration.sigma, self.config.max_releases);
        let mut streams = BTreeMap::new();
        for stream in state.streams {
            let tree = stream.tree.ok_or(DecodeError::invalid("stream", "it has no tree"))?;
            let name = tree.name;
            let tree = fresh.restored(tree, self.dimension)?;
            let last =
                stream.last.map(|last| wire::released_from_wire(last, Some(self.dimension))).transpose()?;
            streams.insert(name, Stream { tree, last });
        }
        let accountant = state.accountant.ok_or(DecodeError::invalid("privacy", "it has no accountant"))?;
        if !accountant.open.iter().map(|record| record.tree).eq(streams.keys().copied()) {
            return Err(DecodeError::invalid("privacy", "its accountant knows other trees"));
        }
        self.accountant.restore(&accountant);
        self.streams = streams;
        self.clipped = state.clipped;
        self.signal_to_shift = state.signal_to_shift;
        Ok(())
    }
}
