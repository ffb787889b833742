//! An agent's own observations as a network is trained on them: in blocks, without the zeros they share.

/// Observations that are worked on together. Fixed, so that sums are split the same way everywhere.
pub(crate) const BLOCK: usize = 4;

/// A number of each observation of a block.
pub(crate) type ObservationBlock = [f32; BLOCK];

/// More kinds of zeros than this are not told apart.
const MAX_GROUPS: usize = 32;

/// Observations in groups of those whose features are zero in the same places. Arms made of disjoint blocks
/// have few such groups and many zeros, which then cost nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Observations {
    dimension: usize,
    groups: Vec<SupportGroup>,
    count: usize,
}

/// Observations whose features may differ from zero in the same places.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SupportGroup {
    /// The features that may differ from zero, by index in rising order.
    pub(crate) support: Vec<u32>,
    /// For each block of observations, one entry for each place.
    pub(crate) features: Vec<ObservationBlock>,
    /// One entry for each block.
    pub(crate) rewards: Vec<ObservationBlock>,
    pub(crate) count: usize,
}

impl Observations {
    pub(crate) const fn new(dimension: usize) -> Self {
        Self { dimension, groups: Vec::new(), count: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn groups(&self) -> &[SupportGroup] {
        &self.groups
    }

    pub(crate) fn push(&mut self, x: &[f64], y: f64) {
        let differs = |j: &u32| x[*j as usize] != 0.0;
        let support: Vec<u32> = (0..self.dimension as u32).filter(differs).collect();
        // The last group takes every pattern that came too late for a group of its own.
        let full = self.groups.len() == MAX_GROUPS;
        let known = self.groups.iter().position(|group| group.support == support);
        let group = match known.or(full.then_some(MAX_GROUPS - 1)) {
            Some(index) => &mut self.groups[index],
            None => {
                let is_last = self.groups.len() + 1 == MAX_GROUPS;
                let support = if is_last { (0..self.dimension as u32).collect() } else { support };
                let group = SupportGroup { support, features: Vec::new(), rewards: Vec::new(), count: 0 };
                self.groups.push(group);
                self.groups.last_mut().expect("it was just pushed")
            }
        };
        group.push(x, y);
        self.count += 1;
    }

    /// Rows of features one after the other, and the rewards, group by group: what a saved state holds.
    pub(crate) fn save(&self) -> (Vec<f64>, Vec<f64>) {
        let (mut features, mut rewards) = (Vec::with_capacity(self.count * self.dimension), Vec::new());
        for group in &self.groups {
            for index in 0..group.count {
                let start = features.len();
                features.resize(start + self.dimension, 0.0);
                let (block, place) = (index / BLOCK, index % BLOCK);
                let columns = &group.features[block * group.support.len()..];
                for (j, column) in group.support.iter().zip(columns) {
                    features[start + *j as usize] = f64::from(column[place]);
                }
                rewards.push(f64::from(group.rewards[block][place]));
            }
        }
        (features, rewards)
    }

    /// The inverse of [`save`](Self::save), if the numbers fit together.
    pub(crate) fn restored(dimension: usize, features: &[f64], rewards: &[f64]) -> Option<Self> {
        let finite = features.iter().chain(rewards).all(|v| v.is_finite());
        if dimension == 0 || features.len() != rewards.len() * dimension || !finite {
            return None;
        }
        let mut observations = Self::new(dimension);
        for (x, y) in features.chunks_exact(dimension).zip(rewards) {
            observations.push(x, *y);
        }
        Some(observations)
    }
}

impl SupportGroup {
    fn push(&mut self, x: &[f64], y: f64) {
        let place = self.count % BLOCK;
        if place == 0 {
            self.features.resize(self.features.len() + self.support.len(), [0.0; BLOCK]);
            self.rewards.push([0.0; BLOCK]);
        }
        let first = self.features.len() - self.support.len();
        for (column, j) in self.features[first..].iter_mut().zip(&self.support) {
            column[place] = x[*j as usize] as f32;
        }
        self.rewards.last_mut().expect("a block was opened")[place] = y as f32;
        self.count += 1;
    }

    /// Its blocks: features, rewards, and how many observations are in the block.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (&[ObservationBlock], &ObservationBlock, usize)> {
        let width = self.support.len();
        let blocks = self.rewards.iter().enumerate();
        blocks.map(move |(index, rewards)| {
            let features = &self.features[index * width..(index + 1) * width];
            (features, rewards, (self.count - index * BLOCK).min(BLOCK))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    /// Rows with zeros in `kinds` different patterns.
    fn filled(dimension: usize, count: usize, kinds: u64) -> Observations {
        let mut stream = Seed(3).stream("test", 0, 0);
        let mut observations = Observations::new(dimension);
        for _ in 0..count {
            let kind = stream.below(kinds);
            let x: Vec<f64> = (0..dimension)
                .map(|j| if kind >> j & 1 == 0 { f64::from(stream.normal() as f32) } else { 0.0 })
                .collect();
            observations.push(&x, f64::from(stream.normal() as f32));
        }
        observations
    }

    #[test]
    fn what_is_saved_is_what_was_pushed() {
        for (dimension, count, kinds) in [(1, 0, 1), (3, 1, 1), (5, 23, 4), (9, 200, 64)] {
            let observations = filled(dimension, count, kinds);
            let (features, rewards) = observations.save();
            assert_eq!(rewards.len(), count);
            let restored = Observations::restored(dimension, &features, &rewards).unwrap();
            assert!(restored == observations, "{dimension} {count} {kinds}");
        }
    }

    #[test]
    fn zeros_are_not_stored_and_their_patterns_are_bounded() {
        let mut observations = Observations::new(6);
        for step in 0..10 {
            let mut x = [0.0; 6];
            x[2 * (step % 3)] = 1.0;
            observations.push(&x, 0.0);
        }
        assert_eq!(observations.groups().len(), 3);
        assert!(observations.groups().iter().all(|group| group.support.len() == 1));
        let many = filled(12, 500, 1 << 12);
        assert_eq!(many.groups().len(), MAX_GROUPS);
        assert_eq!(many.groups().iter().map(|group| group.count).sum::<usize>(), 500);
    }

    #[test]
    fn saved_numbers_that_do_not_fit_are_refused() {
        assert!(Observations::restored(2, &[1.0, 2.0, 3.0], &[1.0]).is_none());
        assert!(Observations::restored(1, &[f64::NAN], &[1.0]).is_none());
    }
}
