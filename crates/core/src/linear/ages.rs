//! Evidence by age: what came in last is in small buckets, what is older in larger ones, and a window is the sum
//! of the newest. Nothing is ever subtracted.
//!
//! The age of an observation is how many the coordinator has taken in since. Only the coordinator counts; agents
//! hold what it sent them and hear how much of that it has forgotten since.
//!
//! An upload holds observations since the agent's last one. It is put where the mean of their ages is: what an agent
//! withheld for long does not pass for new.
//!
//! Memory: about 9·ln(n/32) + 8 sums of d(d + 3)/2 numbers after n observations, 170 kB for d = 25 and n = 20 000. Where
//! agents may lie, a bucket also keeps what each agent has in it by itself: as many sums more as it has agents.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::error::{DecodeError, ProtocolError};
use crate::evidence::{Evidence, MAX_OBSERVATIONS, multiply};
use crate::ids::AgentId;
use crate::linear::windows::Windows;
use crate::ridge::Ridge;
use crate::wire::{self, v1};

/// Observations that two neighbouring buckets may have together and still become one.
const UNIT: u64 = 8;
/// Neighbours also become one if together they have at most one observation for so many newer ones.
const RESOLUTION: u64 = 4;

/// What is kept, newest first.
#[derive(Clone, Debug)]
pub(crate) struct Ages {
    regularization: f64,
    /// Observations in the window, or `None` if it is chosen by how well it predicts.
    window: Option<u64>,
    windows: Windows,
    buckets: VecDeque<Arc<Bucket>>,
    /// Observations ever taken in.
    total: u64,
}

/// Observations of about the same age.
#[derive(Clone, Debug)]
struct Bucket {
    /// All observations, believed or not.
    count: u64,
    /// The sum over agents that are believed.
    sum: Evidence,
    /// What each agent has in it, believed or not. Empty where all agents are believed.
    by_agent: BTreeMap<AgentId, Evidence>,
}

impl Bucket {
    fn add(&mut self, older: &Self) {
        self.count += older.count;
        self.sum.add(&older.sum);
        for (agent, part) in &older.by_agent {
            match self.by_agent.get_mut(agent) {
                Some(sum) => sum.add(part),
                None => drop(self.by_agent.insert(*agent, part.clone())),
            }
        }
    }
}

impl Ages {
    pub(crate) fn new(dimension: usize, regularization: f64, noise: f64, window: Option<u64>) -> Self {
        let windows = Windows::new(dimension, (noise * noise).max(1e-12));
        Self { regularization, window, windows, buckets: VecDeque::new(), total: 0 }
    }

    /// Observations ever taken in.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Refuses to take in more observations, forgotten ones among them, than can be counted.
    pub(crate) fn check_room_for(&self, count: u64) -> Result<(), ProtocolError> {
        match self.total.checked_add(count) {
            Some(total) if total <= MAX_OBSERVATIONS => Ok(()),
            _ => Err(ProtocolError::Evidence("more observations than can be counted")),
        }
    }

    /// Takes in an upload of an agent that is believed, without keeping whose it is. `age` is the mean age of its
    /// observations.
    pub(crate) fn take_in(&mut self, upload: &Evidence, age: u64) {
        self.compare(upload);
        self.insert(age, Bucket { count: upload.count(), sum: upload.clone(), by_agent: BTreeMap::new() });
    }

    /// Takes in an upload and keeps whose it is. It joins the sums, and helps to choose the window, if the agent is
    /// `believed`.
    pub(crate) fn take_in_from(&mut self, agent: AgentId, upload: &Evidence, age: u64, believed: bool) {
        if believed {
            self.compare(upload);
        }
        let sum = if believed { upload.clone() } else { Evidence::none(upload.dimension()) };
        let by_agent = BTreeMap::from([(agent, upload.clone())]);
        self.insert(age, Bucket { count: upload.count(), sum, by_agent });
    }

    /// Puts a bucket in front of the first whose middle is at least as old.
    fn insert(&mut self, age: u64, bucket: Bucket) {
        let mut newer = 0;
        let is_older = |other: &Arc<Bucket>| {
            let middle = newer + other.count / 2;
            newer += other.count;
            middle >= age
        };
        let place = self.buckets.iter().position(is_older).unwrap_or(self.buckets.len());
        self.total += bucket.count;
        self.buckets.insert(place, Arc::new(bucket));
        self.merge();
        if let Some(window) = self.window {
            let kept = self.within(window).count();
            self.buckets.truncate(kept);
        }
    }

    /// How many observations are kept in the sum, at most.
    pub(crate) fn reach(&self) -> u64 {
        self.window.or_else(|| self.windows.best()).unwrap_or(u64::MAX)
    }

    /// Whether it is certain that what is older than the window holds no longer. Never of windows of fixed length.
    pub(crate) fn has_changed_for_certain(&self) -> bool {
        self.window.is_none() && self.windows.is_certain()
    }

    /// The sum over the window, of agents that are believed.
    pub(crate) fn sum(&self, dimension: usize) -> Evidence {
        let mut sum = Evidence::none(dimension);
        self.within(self.reach()).for_each(|bucket| sum.add(&bucket.sum));
        sum
    }

    /// What one agent has in the window, believed or not.
    pub(crate) fn sum_of(&self, agent: AgentId, dimension: usize) -> Evidence {
        let mut sum = Evidence::none(dimension);
        self.within(self.reach())
            .filter_map(|bucket| bucket.by_agent.get(&agent))
            .for_each(|part| sum.add(part));
        sum
    }

    /// What each agent that is remembered has in the window, believed or not: nothing, if all it said is older.
    pub(crate) fn sums_by_agent(&self, dimension: usize) -> BTreeMap<AgentId, Evidence> {
        let known = self.buckets.iter().flat_map(|bucket| bucket.by_agent.keys());
        let mut sums: BTreeMap<AgentId, Evidence> =
            known.map(|agent| (*agent, Evidence::none(dimension))).collect();
        for (agent, part) in self.within(self.reach()).flat_map(|bucket| &bucket.by_agent) {
            sums.entry(*agent).and_modify(|sum| sum.add(part));
        }
        sums
    }

    /// Makes all sums anew of the agents that are believed.
    pub(crate) fn believe_only(&mut self, is_believed: impl Fn(AgentId) -> bool) {
        for bucket in self.buckets.iter_mut().map(Arc::make_mut) {
            let mut sum = Evidence::none(bucket.sum.dimension());
            bucket
                .by_agent
                .iter()
                .filter(|(agent, _)| is_believed(**agent))
                .for_each(|(_, part)| sum.add(part));
            bucket.sum = sum;
        }
    }

    /// The newest buckets with at most `window` observations, and the newest one in any case.
    fn within(&self, window: u64) -> impl Iterator<Item = &Arc<Bucket>> {
        let mut count: u64 = 0;
        self.buckets
            .iter()
            .enumerate()
            .take_while(move |(place, bucket)| {
                count = count.saturating_add(bucket.count);
                *place == 0 || count <= window
            })
            .map(|(_, bucket)| bucket)
    }

    /// Lets all windows predict an upload, if the window is chosen by that.
    fn compare(&mut self, upload: &Evidence) {
        if self.window.is_some() {
            return;
        }
        let dimension = upload.dimension();
        let mut sum = Evidence::none(dimension);
        let mut model = Ridge::new(dimension, self.regularization);
        let mut predictions = Vec::new();
        let mut loss = |sum: &Evidence| {
            // Sums of positive semidefinite matrices have a model; should rounding say otherwise, the model before
            // stands in.
            let _ = model.refresh([sum].into_iter());
            let theta = model.estimate();
            let fitted = multiply(upload.gram(), 0.0, &theta);
            let parts = theta.iter().zip(&fitted).zip(upload.moment());
            parts.map(|((theta, fitted), moment)| theta * (fitted - 2.0 * moment)).sum::<f64>()
        };
        let mut count = 0;
        for bucket in &self.buckets {
            while count > 0 && count + bucket.count > self.windows.size(predictions.len()) {
                predictions.push(loss(&sum));
            }
            sum.add(&bucket.sum);
            count += bucket.count;
        }
        if count > 0 {
            predictions.push(loss(&sum));
        }
        self.windows.compare(&predictions, upload.count(), self.total);
    }

    /// Makes one bucket of two neighbours while they are small for their age.
    fn merge(&mut self) {
        let (mut place, mut newer) = (0, 0);
        while place + 1 < self.buckets.len() {
            let (count, next) = (self.buckets[place].count, self.buckets[place + 1].count);
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
        let (losses, leads) = self.windows.save();
        v1::AgesState {
            buckets: self.buckets.iter().map(|bucket| wire::evidence_to_wire(&bucket.sum)).collect(),
            parts: self
                .buckets
                .iter()
                .filter(|bucket| !bucket.by_agent.is_empty())
                .map(parts_to_wire)
                .collect(),
            total: self.total,
            leads,
            losses,
        }
    }

    /// What was saved; `self` gives the settings. `by_agent` says whether agents were kept apart.
    pub(crate) fn restored(
        &self,
        state: v1::AgesState,
        dimension: usize,
        by_agent: bool,
    ) -> Result<Self, DecodeError> {
        if state.parts.len() != if by_agent { state.buckets.len() } else { 0 } {
            return Err(DecodeError::invalid(
                "ages",
                "it must keep agents apart if they may lie, and only then",
            ));
        }
        let mut parts = state.parts.into_iter();
        let mut buckets = VecDeque::new();
        for sum in state.buckets {
            let sum = wire::evidence_from_wire(sum)?;
            let by_agent = parts.next().map_or(Ok(BTreeMap::new()), parts_from_wire)?;
            let counts = by_agent.values().try_fold(0_u64, |sum, part| sum.checked_add(part.count()));
            let count = if by_agent.is_empty() { sum.count() } else { counts.unwrap_or(0) };
            let strange = by_agent.values().chain([&sum]).any(|part| part.dimension() != dimension);
            if strange || count == 0 || sum.count() > count {
                return Err(DecodeError::invalid(
                    "ages",
                    "a bucket has another dimension or impossible counts",
                ));
            }
            buckets.push_back(Arc::new(Bucket { count, sum, by_agent }));
        }
        let windows = self.windows.restored(state.losses, state.leads);
        let strange = || DecodeError::invalid("ages", "the comparisons of windows are impossible");
        let windows = windows.ok_or_else(strange)?;
        let counts = buckets.iter().try_fold(0_u64, |sum, bucket| sum.checked_add(bucket.count));
        if counts.is_none_or(|counts| counts > state.total) {
            return Err(DecodeError::invalid("ages", "more observations are kept than were taken in"));
        }
        Ok(Self { buckets, total: state.total, windows, ..self.clone() })
    }
}

fn parts_to_wire(bucket: &Arc<Bucket>) -> v1::BucketParts {
    let part = |(agent, part): (&AgentId, &Evidence)| v1::AccountState {
        agent: agent.0,
        sums: Some(wire::evidence_to_wire(part)),
        ..Default::default()
    };
    v1::BucketParts { parts: bucket.by_agent.iter().map(part).collect() }
}

fn parts_from_wire(parts: v1::BucketParts) -> Result<BTreeMap<AgentId, Evidence>, DecodeError> {
    let part = |part: v1::AccountState| {
        Ok((AgentId(part.agent), wire::evidence_from_wire(part.sums.unwrap_or_default())?))
    };
    parts.parts.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_more_is_taken_in_than_can_be_counted_however_much_was_forgotten() {
        let mut ages = Ages::new(1, 0.1, 0.1, Some(10));
        for half in 1..=2 {
            let claim = Evidence::from_parts(vec![1.0], vec![1.0], MAX_OBSERVATIONS / 2).unwrap();
            assert!(ages.check_room_for(claim.count()).is_ok());
            ages.take_in(&claim, 0);
            assert_eq!(ages.total(), half * (MAX_OBSERVATIONS / 2));
            assert!(
                ages.sum(1).count() <= MAX_OBSERVATIONS / 2,
                "the newest bucket in any case, and no other"
            );
        }
        for count in [1, u64::MAX] {
            assert!(matches!(ages.check_room_for(count), Err(ProtocolError::Evidence(_))));
        }
    }
}
