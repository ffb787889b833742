//! The tree mechanism: running sums released again and again, each with the noise of a few nodes.
//!
//! Leaf k is what arrived between release k − 1 and release k. A node of level l sums 2ˡ leaves and has noise
//! of its own, drawn once. Release k adds the noise of the nodes that make up [1, k]: one for each bit that
//! is set in k. So a leaf meets at most one node a level, ν of them in all, and the noise of release k has
//! the variance of popcount(k) nodes instead of k.

use crate::error::DecodeError;
use crate::evidence::{Evidence, packed};
use crate::privacy::noise::{Node, NoiseSource};
use crate::wire::v1;

/// Releases are multiples of one over this.
const GRID: f64 = (1u64 << 20) as f64;

/// Levels of a tree that is released `releases` times: ν with 2^(ν−1) ≤ releases < 2^ν.
#[must_use]
pub const fn depth(releases: u64) -> u32 {
    releases.ilog2() + 1
}

/// A tree over the sums of one stream of observations of dimension d.
///
/// A node's noise is symmetric like the (d+1)×(d+1) matrices [x; y][x; y]ᵀ it hides: variance σ² off the
/// diagonal and 2σ² on it. The part that hides y² is not drawn, because y² is not released.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    name: u64,
    sigma: f64,
    max_releases: u64,
    released: u64,
    /// Nodes that the next releases may still need: level, and its noise as a packed matrix and a vector.
    nodes: Vec<(u32, Vec<f64>)>,
}

impl Tree {
    /// A tree with so much noise a node, for at most so many releases.
    #[must_use]
    pub const fn new(name: u64, sigma: f64, max_releases: u64) -> Self {
        Self { name, sigma, max_releases, released: 0, nodes: Vec::new() }
    }

    /// Releases so far.
    #[must_use]
    pub const fn released(&self) -> u64 {
        self.released
    }

    /// Whether there is no release left.
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        self.released >= self.max_releases
    }

    /// `evidence` as it may be released next: with this release's noise, and with `shift` on the diagonal.
    /// `None` if there is no release left.
    pub fn release(
        &mut self,
        evidence: &Evidence,
        shift: f64,
        source: &mut dyn NoiseSource,
    ) -> Option<Evidence> {
        if self.is_exhausted() {
            return None;
        }
        let d = evidence.dimension();
        self.released += 1;
        let level = self.released.trailing_zeros();
        // Nodes below the new one lie inside it.
        self.nodes.retain(|(other, _)| *other > level);
        let mut noise = vec![0.0; packed(d) + d];
        source.fill(Node { tree: self.name, level, index: self.released >> level }, &mut noise);
        noise.iter_mut().for_each(|value| *value *= self.sigma);
        for i in 0..d {
            noise[packed(i) + i] *= std::f64::consts::SQRT_2;
        }
        self.nodes.push((level, noise));

        let mut sums: Vec<f64> = evidence.gram().iter().chain(evidence.moment()).copied().collect();
        for (_, noise) in &self.nodes {
            sums.iter_mut().zip(noise).for_each(|(sum, noise)| *sum += noise);
        }
        for i in 0..d {
            sums[packed(i) + i] += shift;
        }
        // The last bits of a sum of floating-point numbers may tell of its terms: a grid hides them.
        sums.iter_mut().for_each(|sum| *sum = (*sum * GRID).round() / GRID);
        let moment = sums.split_off(packed(d));
        Some(Evidence::from_parts_unchecked(sums, moment, evidence.count()))
    }

    pub(crate) fn save(&self) -> v1::TreeState {
        let node = |(level, noise): &(u32, Vec<f64>)| v1::NodeState { level: *level, noise: noise.clone() };
        v1::TreeState {
            name: self.name,
            released: self.released,
            nodes: self.nodes.iter().map(node).collect(),
        }
    }

    /// The tree that was saved; `self` gives everything that does not change.
    pub(crate) fn restored(&self, state: v1::TreeState, dimension: usize) -> Result<Self, DecodeError> {
        let entries = packed(dimension) + dimension;
        let mut expected = (0..64).rev().filter(|level| state.released >> level & 1 == 1);
        let nodes: Vec<_> = state.nodes.into_iter().map(|node| (node.level, node.noise)).collect();
        let sound = nodes.iter().all(|(level, noise)| {
            expected.next() == Some(*level) && noise.len() == entries && noise.iter().all(|v| v.is_finite())
        });
        if !sound || expected.next().is_some() || state.released > self.max_releases {
            return Err(DecodeError::invalid("tree", "its nodes are not those of its releases"));
        }
        Ok(Self { name: state.name, released: state.released, nodes, ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AgentId;
    use crate::privacy::noise::SeededNoise;
    use crate::random::Seed;

    /// Remembers which nodes were drawn, and gives each a value of its own.
    #[derive(Debug, Default)]
    struct Drawn(Vec<Node>);

    impl NoiseSource for Drawn {
        fn fill(&mut self, node: Node, out: &mut [f64]) {
            assert!(!self.0.contains(&node), "{node:?} was drawn twice");
            self.0.push(node);
            out.fill((1u64 << (self.0.len() - 1)) as f64);
        }
    }

    fn nothing(d: usize) -> Evidence {
        Evidence::none(d)
    }

    #[test]
    fn o18_every_leaf_lies_in_at_most_one_node_a_level_and_releases_use_the_bits_of_their_number() {
        let (mut drawn, releases) = (Drawn::default(), 21);
        let mut tree = Tree::new(3, 1.0, releases);
        for k in 1..=releases {
            let release = tree.release(&nothing(2), 0.0, &mut drawn).unwrap();
            // The off-diagonal entry is a sum of distinct powers of two: the nodes that it contains.
            let used = release.gram()[1] as u64;
            let nodes: Vec<Node> =
                (0..drawn.0.len()).filter(|n| used >> n & 1 == 1).map(|n| drawn.0[n]).collect();
            assert_eq!(nodes.len() as u32, k.count_ones());
            // Together they cover 1..=k without overlap.
            let mut leaves: Vec<u64> =
                nodes.iter().flat_map(|n| ((n.index - 1) << n.level) + 1..=n.index << n.level).collect();
            leaves.sort_unstable();
            assert!(leaves.into_iter().eq(1..=k), "release {k}: {nodes:?}");
        }
        for leaf in 1..=releases {
            let around =
                drawn.0.iter().filter(|n| ((n.index - 1) << n.level) < leaf && leaf <= n.index << n.level);
            assert!(around.count() as u32 <= depth(releases));
        }
        assert_eq!(tree.release(&nothing(2), 0.0, &mut drawn), None, "release number max_releases + 1");
        assert_eq!(tree.released(), releases);
    }

    /// Variances over 10 000 trees, each within five standard deviations of its estimate.
    #[test]
    fn o18_the_noise_of_release_k_has_the_variance_of_popcount_k_nodes() {
        let (trees, sigma, d) = (10_000, 3.0, 2);
        let mut squares = [[0.0; 5]; 13];
        for seed in 0..trees {
            let mut source = SeededNoise::new(Seed(seed), AgentId(0));
            let mut tree = Tree::new(1, sigma, 13);
            for sums in &mut squares {
                let release = tree.release(&nothing(d), 7.0, &mut source).unwrap();
                let shift = [7.0, 0.0, 7.0];
                let gram = release.gram().iter().zip(shift).map(|(v, s)| v - s);
                for (sum, value) in sums.iter_mut().zip(gram.chain(release.moment().iter().copied())) {
                    *sum += value * value;
                }
            }
        }
        let n = trees as f64;
        for (k, sums) in (1u64..).zip(&squares) {
            let nodes = f64::from(k.count_ones());
            for (entry, factor) in [2.0, 1.0, 2.0, 1.0, 1.0].into_iter().enumerate() {
                let expected = factor * nodes * sigma * sigma;
                let off = (sums[entry] / n - expected).abs() / (expected * (2.0 / n).sqrt());
                assert!(off < 5.0, "release {k}, entry {entry}: {} is not {expected}", sums[entry] / n);
            }
        }
    }

    #[test]
    fn a_restored_tree_goes_on_with_the_same_noise() {
        let mut source = SeededNoise::new(Seed(1), AgentId(2));
        let fresh = Tree::new(9, 2.0, 16);
        let mut tree = fresh.clone();
        for _ in 0..16 {
            tree = fresh.restored(tree.save(), 3).unwrap();
            tree.release(&nothing(3), 0.0, &mut source).unwrap();
        }
        let mut whole = fresh.clone();
        let mut last = None;
        while let Some(release) = whole.release(&nothing(3), 0.0, &mut source) {
            last = Some(release);
        }
        assert_eq!(tree, whole);
        assert!(last.is_some());
        let mut wrong = tree.save();
        wrong.released += 1;
        fresh.restored(wrong, 3).unwrap_err();
        fresh.restored(tree.save(), 4).unwrap_err();
    }

    #[test]
    fn depths_are_those_of_the_largest_power_of_two() {
        assert_eq!([1, 2, 3, 4, 15, 16, 1024].map(depth), [1, 2, 2, 3, 4, 5, 11]);
    }
}
