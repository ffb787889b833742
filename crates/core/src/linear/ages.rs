//! Evidence by age: what came in last is in small buckets, what is older in larger ones, and a window is the sum
//! of the newest. Nothing is ever subtracted.
//!
//! The age of an observation is how many the coordinator has taken in since. Only the coordinator counts; agents
//! hold what it sent them and hear how much of that it has forgotten since.
//!
//! Which window is best depends on how fast the world changes, which nobody knows. So every upload is first
//! predicted by windows of 64, 128, 256 … observations and by everything. Two neighbours differ in squared error by
//! θᵀGθ − 2θᵀΣxy, the same constant apart. The sum of these differences is a likelihood ratio, reset at two
//! barriers: a window counts as worse than its half once the sum has climbed from the lower barrier to zero, which
//! in a world that stands still happens in a share [`FALSE_ALARM`] of the time.
//!
//! Memory: about 9·ln(n/64) + 8 sums of d(d + 3)/2 numbers after n observations, 170 kB for d = 25 and n = 20 000.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::DecodeError;
use crate::evidence::{Evidence, multiply};
use crate::ridge::Ridge;
use crate::wire::{self, v1};

/// Observations that two neighbouring buckets may have together and still become one.
const UNIT: u64 = 16;
/// Neighbours also become one if together they have at most one observation for so many newer ones.
const RESOLUTION: u64 = 4;
/// Observations of the smallest window that is tried. Each other one is twice the one before.
const SMALLEST: u64 = 64;
/// Share of the time in which a window that is as good as its half counts as worse.
const FALSE_ALARM: f64 = 0.02;
/// By how many times more likely than not the smaller window must seem before that takes time to be forgotten.
const HYSTERESIS: f64 = 1e4;

/// What is kept, newest first.
#[derive(Clone, Debug)]
pub(crate) struct Ages {
    regularization: f64,
    /// σ², the variance of the noise.
    variance: f64,
    /// Observations in the window, or `None` if it is chosen by how well it predicts.
    window: Option<u64>,
    buckets: VecDeque<Arc<Evidence>>,
    /// Observations ever taken in.
    total: u64,
    /// For each window that is tried, by how much its double predicts worse; the last stands for everything.
    leads: Vec<f64>,
}

impl Ages {
    pub(crate) fn new(regularization: f64, noise: f64, window: Option<u64>) -> Self {
        let variance = (noise * noise).max(1e-12);
        Self { regularization, variance, window, buckets: VecDeque::new(), total: 0, leads: Vec::new() }
    }

    /// Observations ever taken in.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Takes in an upload, and returns the sum over the window.
    pub(crate) fn take_in(&mut self, upload: &Evidence) -> Evidence {
        if self.window.is_none() {
            self.compare(upload);
        }
        self.total += upload.count();
        self.buckets.push_front(Arc::new(upload.clone()));
        self.merge();
        let window = self.window.or_else(|| self.best());
        if let Some(window) = self.window {
            let kept = self.within(window).count();
            self.buckets.truncate(kept);
        }
        let mut sum = Evidence::none(upload.dimension());
        self.within(window.unwrap_or(u64::MAX)).for_each(|bucket| sum.add(bucket));
        sum
    }

    /// The newest buckets with at most `window` observations, and the newest one in any case.
    fn within(&self, window: u64) -> impl Iterator<Item = &Arc<Evidence>> {
        let mut count: u64 = 0;
        self.buckets
            .iter()
            .enumerate()
            .take_while(move |(place, bucket)| {
                count = count.saturating_add(bucket.count());
                *place == 0 || count <= window
            })
            .map(|(_, bucket)| bucket)
    }

    /// The smallest window that is better than its double, or `None` for everything.
    fn best(&self) -> Option<u64> {
        self.leads.iter().position(|lead| *lead > 0.0).map(|place| SMALLEST << place)
    }

    /// Lets all windows predict an upload.
    fn compare(&mut self, upload: &Evidence) {
        let dimension = upload.dimension();
        let mut sum = Evidence::none(dimension);
        let mut model = Ridge::new(dimension, self.regularization);
        let mut losses = Vec::with_capacity(self.leads.len() + 1);
        let mut loss = |sum: &Evidence| {
            // Sums of positive semidefinite matrices have a model; should rounding say otherwise, the model before
            // stands in.
            let _ = model.refresh([sum].into_iter());
            let theta = model.estimate();
            let fitted = multiply(upload.gram(), 0.0, &theta);
            let parts = theta.iter().zip(&fitted).zip(upload.moment());
            parts.map(|((theta, fitted), moment)| theta * (fitted - 2.0 * moment)).sum::<f64>()
        };
        for bucket in &self.buckets {
            while sum.count() > 0 && sum.count() + bucket.count() > SMALLEST << losses.len() {
                losses.push(loss(&sum));
            }
            sum.add(bucket);
        }
        if !sum.is_empty() {
            losses.push(loss(&sum));
        }
        self.leads.resize(losses.len().saturating_sub(1), f64::NAN);
        let lowest = 2.0 * self.variance * libm::log(FALSE_ALARM);
        let highest = 2.0 * self.variance * libm::log(HYSTERESIS);
        for (lead, pair) in self.leads.iter_mut().zip(losses.windows(2)) {
            // A new window begins with the benefit of the doubt.
            let before = if lead.is_nan() { lowest } else { *lead };
            *lead = (before + pair[1] - pair[0]).clamp(lowest, highest);
        }
    }

    /// Makes one bucket of two neighbours while they are small for their age.
    fn merge(&mut self) {
        let (mut place, mut newer) = (0, 0);
        while place + 1 < self.buckets.len() {
            let (count, next) = (self.buckets[place].count(), self.buckets[place + 1].count());
            if count + next <= UNIT.max(newer / RESOLUTION) {
                let older = self.buckets.remove(place + 1).expect("there is one more");
                Arc::make_mut(&mut self.buckets[place]).add(&older);
            } else {
                newer += count;
                place += 1;
            }
        }
    }

    pub(crate) fn save(&self) -> v1::AgesState {
        v1::AgesState {
            buckets: self.buckets.iter().map(|bucket| wire::evidence_to_wire(bucket)).collect(),
            total: self.total,
            leads: self.leads.clone(),
        }
    }

    /// What was saved; `self` gives the settings.
    pub(crate) fn restored(&self, state: v1::AgesState, dimension: usize) -> Result<Self, DecodeError> {
        let mut buckets = VecDeque::new();
        for bucket in state.buckets {
            let bucket = wire::evidence_from_wire(bucket)?;
            if bucket.dimension() != dimension || bucket.is_empty() {
                return Err(DecodeError::invalid("ages", "a bucket has another dimension or nothing in it"));
            }
            buckets.push_back(Arc::new(bucket));
        }
        if !state.leads.iter().all(|lead| lead.is_finite()) || state.leads.len() > 50 {
            return Err(DecodeError::invalid("ages", "a comparison of windows is not a finite number"));
        }
        let counts = buckets.iter().try_fold(0_u64, |sum, bucket| sum.checked_add(bucket.count()));
        if counts.is_none_or(|counts| counts > state.total) {
            return Err(DecodeError::invalid("ages", "more observations are kept than were taken in"));
        }
        Ok(Self { buckets, total: state.total, leads: state.leads, ..self.clone() })
    }
}
