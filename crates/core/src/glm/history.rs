//! An agent's own interactions, stored for sums over all of them: the one family that must keep raw data.

use super::link::LinkFunction;
use super::sums::{AddCurvature, AddGradient, Clicks, LaneRow};
use crate::evidence::packed;
use crate::exponential::LANES;
use crate::lanes::widest;

/// Interactions in blocks of [`LANES`]: within a block, a feature of all its interactions lies together,
/// and the rewards come last. Sums run over whole blocks in vector registers, and lanes are added up at
/// the very end, so that every processor rounds alike.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct History {
    dimension: usize,
    blocks: Vec<LaneRow>,
    count: usize,
}

impl History {
    pub(crate) const fn new(dimension: usize) -> Self {
        Self { dimension, blocks: Vec::new(), count: 0 }
    }

    pub(crate) fn push(&mut self, x: &[f64], y: f64) {
        debug_assert_eq!(x.len(), self.dimension, "checked before");
        let lane = self.count % LANES;
        if lane == 0 {
            self.blocks.resize(self.blocks.len() + self.stride(), LaneRow::ZERO);
        }
        let first = self.blocks.len() - self.stride();
        for (row, value) in self.blocks[first..].iter_mut().zip(x.iter().chain([&y])) {
            row.0[lane] = *value;
        }
        self.count += 1;
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Features and reward of an interaction; features go into `x`.
    pub(crate) fn read(&self, index: usize, x: &mut [f64]) -> f64 {
        let block = &self.blocks[index / LANES * self.stride()..][..self.stride()];
        for (value, row) in x.iter_mut().zip(block) {
            *value = row.0[index % LANES];
        }
        block[self.dimension].0[index % LANES]
    }

    /// Removes the `oldest` first interactions; the others keep their order.
    pub(crate) fn forget(&mut self, oldest: usize) {
        if oldest == 0 {
            return;
        }
        let mut kept = Self::new(self.dimension);
        let mut x = vec![0.0; self.dimension];
        for index in oldest..self.count {
            let y = self.read(index, &mut x);
            kept.push(&x, y);
        }
        *self = kept;
    }

    /// Σ x(μ(xᵀθ) − y) over the first `count` interactions.
    pub(crate) fn gradient(&self, link: LinkFunction, theta: &[f64], count: usize) -> Vec<f64> {
        let mut gradient = vec![LaneRow::ZERO; self.dimension];
        let clicks = Clicks { blocks: &self.blocks, count, link, theta };
        widest().dispatch(AddGradient { clicks, gradient: &mut gradient });
        gradient.iter().map(LaneRow::total).collect()
    }

    /// The same gradient, and Σ μ'(xᵀθ)xxᵀ packed.
    pub(crate) fn gradient_and_curvature(
        &self,
        link: LinkFunction,
        theta: &[f64],
        count: usize,
    ) -> (Vec<f64>, Vec<f64>) {
        let mut gradient = vec![LaneRow::ZERO; self.dimension];
        let mut curvature = vec![0.0; packed(self.dimension)];
        let clicks = Clicks { blocks: &self.blocks, count, link, theta };
        widest().dispatch(AddCurvature { clicks, gradient: &mut gradient, curvature: &mut curvature });
        (gradient.iter().map(LaneRow::total).collect(), curvature)
    }

    /// Rows of features one after the other, and the rewards: what a saved state holds.
    pub(crate) fn save(&self) -> (Vec<f64>, Vec<f64>) {
        let (mut features, mut rewards) = (vec![0.0; self.count * self.dimension], Vec::new());
        for (index, x) in features.chunks_exact_mut(self.dimension.max(1)).enumerate() {
            rewards.push(self.read(index, x));
        }
        (features, rewards)
    }

    /// The inverse of [`save`](Self::save), if the numbers fit together.
    pub(crate) fn restored(dimension: usize, features: &[f64], rewards: &[f64]) -> Option<Self> {
        let finite = features.iter().chain(rewards).all(|v| v.is_finite());
        if dimension == 0 || features.len() != rewards.len() * dimension || !finite {
            return None;
        }
        let mut history = Self::new(dimension);
        for (x, y) in features.chunks_exact(dimension).zip(rewards) {
            history.push(x, *y);
        }
        Some(history)
    }

    const fn stride(&self) -> usize {
        self.dimension + 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Seed;

    type Row = (Vec<f64>, f64);

    fn filled(d: usize, n: usize, seed: u64) -> (History, Vec<Row>, Vec<f64>) {
        let mut stream = Seed(seed).stream("test", 0, 0);
        let mut history = History::new(d);
        let rows: Vec<Row> =
            (0..n).map(|_| ((0..d).map(|_| stream.normal()).collect(), stream.uniform())).collect();
        rows.iter().for_each(|(x, y)| history.push(x, *y));
        (history, rows, (0..d).map(|_| stream.normal()).collect())
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_plain_loop(d in 1usize..12, n in 0usize..40, part in 0usize..40, seed: u64) {
            let (history, rows, theta) = filled(d, n, seed);
            let part = part.min(n);
            for link in LinkFunction::all() {
                let (gradient, curvature) = history.gradient_and_curvature(link, &theta, part);
                prop_assert_eq!(&gradient, &history.gradient(link, &theta, part));
                for i in 0..d {
                    let plain: f64 =
                        rows[..part].iter().map(|(x, y)| x[i] * (link.mean(dot(x, &theta)) - y)).sum();
                    prop_assert!((gradient[i] - plain).abs() <= 1e-11 * (1.0 + plain.abs()));
                    for j in 0..=i {
                        let plain: f64 =
                            rows[..part].iter().map(|(x, _)| x[i] * x[j] * link.slope(dot(x, &theta))).sum();
                        prop_assert!((curvature[packed(i) + j] - plain).abs() <= 1e-10 * (1.0 + plain.abs()));
                    }
                }
            }
        }

        #[test]
        fn what_is_stored_can_be_read_saved_and_forgotten(d in 1usize..6, n in 0usize..30, old in 0usize..30) {
            let (history, rows, _) = filled(d, n, 1);
            let mut x = vec![0.0; d];
            for (index, (features, reward)) in rows.iter().enumerate() {
                prop_assert_eq!(history.read(index, &mut x), *reward);
                prop_assert_eq!(&x, features);
            }
            let (features, rewards) = history.save();
            prop_assert_eq!(History::restored(d, &features, &rewards).unwrap(), history.clone());
            let old = old.min(n);
            let mut young = history;
            young.forget(old);
            prop_assert_eq!(young.save().1, &rewards[old..]);
        }
    }

    #[test]
    fn saved_numbers_that_do_not_fit_are_refused() {
        assert!(History::restored(2, &[1.0, 2.0, 3.0], &[1.0]).is_none());
        assert!(History::restored(1, &[f64::NAN], &[1.0]).is_none());
    }
}
