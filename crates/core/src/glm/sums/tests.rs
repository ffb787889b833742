use pulp::WithSimd;

use super::*;
use crate::evidence::packed;
use crate::lanes::{four_wide, widest};
use crate::random::Seed;

/// Some blocks and a point.
struct Stored {
    dimension: usize,
    blocks: Vec<LaneRow>,
    theta: Vec<f64>,
}

impl Stored {
    fn random(dimension: usize, interactions: usize) -> Self {
        let mut stream = Seed(4).stream("test", dimension as u64, 0);
        let rows = interactions.div_ceil(LANES) * (dimension + 1);
        // Lanes beyond the last interaction hold numbers, too: they must not count.
        let blocks = (0..rows).map(|_| LaneRow(std::array::from_fn(|_| stream.uniform() - 0.5))).collect();
        let theta = (0..dimension).map(|_| stream.normal()).collect();
        Self { dimension, blocks, theta }
    }

    fn clicks(&self, link: LinkFunction, count: usize) -> Clicks<'_> {
        Clicks { blocks: &self.blocks, count, link, theta: &self.theta }
    }

    /// Gradient and Hessian block by block, with all sums in memory: the order of additions.
    fn plain(&self, link: LinkFunction, count: usize) -> (Vec<u64>, Vec<u64>) {
        let d = self.dimension;
        let mut gradient = vec![[0.0; LANES]; d];
        let mut curvature = vec![[0.0; LANES]; packed(d)];
        for (index, block) in self.blocks.chunks_exact(d + 1).enumerate() {
            for lane in (0..LANES).filter(|lane| index * LANES + lane < count) {
                let mut z = 0.0;
                for (row, theta) in block.iter().zip(&self.theta) {
                    z += row.0[lane] * theta;
                }
                let (error, slope) = (link.mean(z) - block[d].0[lane], link.slope(z));
                for i in 0..d {
                    gradient[i][lane] += error * block[i].0[lane];
                    let weighted = slope * block[i].0[lane];
                    for j in 0..=i {
                        curvature[packed(i) + j][lane] += weighted * block[j].0[lane];
                    }
                }
            }
        }
        let totals = |sums: &[Lanes]| sums.iter().map(|lanes| lanes.iter().sum::<f64>().to_bits()).collect();
        (totals(&gradient), totals(&curvature))
    }
}

/// How a kernel is run: with the vectors that were found, or with others.
enum With {
    Widest,
    FourWide,
    One,
    Two,
    Four,
    Eight,
}

impl With {
    const ALL: [Self; 6] = [Self::Widest, Self::FourWide, Self::One, Self::Two, Self::Four, Self::Eight];

    fn run<K: WithSimd>(&self, kernel: K) -> K::Output {
        match self {
            Self::Widest => widest().dispatch(kernel),
            Self::FourWide => four_wide().dispatch(kernel),
            Self::One => kernel.with_simd(pulp::Scalar),
            Self::Two => kernel.with_simd(pulp::Scalar128b),
            Self::Four => kernel.with_simd(pulp::Scalar256b),
            Self::Eight => kernel.with_simd(pulp::Scalar512b),
        }
    }
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

fn totals(sums: &[LaneRow]) -> Vec<u64> {
    sums.iter().map(|sum| sum.total().to_bits()).collect()
}

fn agree(stored: &Stored, link: LinkFunction, count: usize) {
    let (gradient, curvature) = stored.plain(link, count);
    for (number, with) in With::ALL.iter().enumerate() {
        let what = format!("{link:?}, {} features, {count} clicks, vectors {number}", stored.dimension);
        let clicks = stored.clicks(link, count);
        let mut own = vec![LaneRow::ZERO; stored.dimension];
        with.run(AddGradient { clicks, gradient: &mut own });
        assert!(totals(&own) == gradient, "{what}");
        let mut own = vec![LaneRow::ZERO; stored.dimension];
        let mut matrix = vec![0.0; packed(stored.dimension)];
        with.run(AddCurvature { clicks, gradient: &mut own, curvature: &mut matrix });
        assert!(totals(&own) == gradient, "{what}, with a Hessian");
        assert!(bits(&matrix) == curvature, "{what}");
    }
}

#[test]
fn every_vector_width_rounds_as_plain_loops_do() {
    for dimension in (1..=40).chain([53, 64, 67]) {
        let stored = Stored::random(dimension, 47);
        for count in [0, 1, 7, 8, 9, 31, 32, 33, 40, 47] {
            agree(&stored, LinkFunction::Logistic, count);
        }
    }
}

#[test]
fn chunks_of_blocks_round_as_plain_loops_do() {
    // A chunk has 256 clicks.
    for dimension in [1, 2, 3, 4, 5, 7, 8, 9, 12, 25, 33] {
        let stored = Stored::random(dimension, 1031);
        for count in [255, 256, 257, 264, 265, 511, 512, 513, 700, 768, 1024, 1030, 1031] {
            agree(&stored, LinkFunction::Logistic, count);
        }
    }
}

#[test]
fn every_link_rounds_as_plain_loops_do() {
    for link in LinkFunction::all() {
        for dimension in [1, 6, 17] {
            let stored = Stored::random(dimension, 600);
            for count in [3, 50, 256, 599] {
                agree(&stored, link, count);
            }
        }
    }
}
