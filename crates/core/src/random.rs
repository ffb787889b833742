//! Named, counter-based random streams: the same seed gives the same numbers, whatever asks for them and when.
//!
//! A [`Stream`] is identified by (seed, name, entity, step); two streams never share a number and adding
//! a new one changes no other. The generator is Philox 4×64 with ten rounds (Salmon et al., 2011): the
//! identity is the key and the counter itself, so opening a stream costs nothing.

use crate::lanes::four_wide;
use std::sync::LazyLock;

use pulp::{Simd, WithSimd};
use serde::{Deserialize, Serialize};

/// The master seed of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream called `name` that belongs to `entity` at `step`.
    #[must_use]
    pub fn stream(self, name: &str, entity: u64, step: u64) -> Stream {
        self.domain(name).stream(entity, step)
    }

    /// All streams called `name`: hash the name once, open many streams.
    #[must_use]
    pub fn domain(self, name: &str) -> Domain {
        // FNV-1a: any fixed hash will do, names are few and chosen by us.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Domain { key: [self.0, hash] }
    }
}

/// A family of streams with one name under one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    key: [u64; 2],
}

impl Domain {
    /// The stream of `entity` at `step`.
    #[must_use]
    pub const fn stream(self, entity: u64, step: u64) -> Stream {
        Stream { key: self.key, entity, step, block: 0, ready: [0; 4], left: 0 }
    }
}

/// A sequence of random numbers. Not for secrets: privacy noise of deployments comes from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u64; 2],
    entity: u64,
    step: u64,
    block: u64,
    ready: [u64; 4],
    left: usize,
}

impl Stream {
    /// The next 64 random bits of the stream.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        if self.left == 0 {
            self.refill();
        }
        self.left -= 1;
        self.ready[3 - self.left]
    }

    /// Fills `out` with draws from the standard normal distribution: the same numbers that as many calls of
    /// [`normal`](Self::normal) give, in less time.
    pub fn fill_normal(&mut self, out: &mut [f64]) {
        four_wide().dispatch(FillNormal { stream: self, out });
    }

    #[inline(always)]
    fn refill(&mut self) {
        self.ready = philox([self.block, self.step, self.entity, 0], self.key);
        self.block += 1;
        self.left = 4;
    }

    /// Uniform in [0, 1), on a grid of 2⁻⁵³.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        uniform(self.next_u64())
    }

    /// Uniform among `0..bound`, without bias.
    ///
    /// # Panics
    /// If `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is nothing to draw from");
        // Lemire's multiplication: the high word is the draw, a low word under the threshold is biased.
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            let low = wide as u64;
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (wide >> 64) as u64;
            }
        }
    }

    /// The next draw from the standard normal distribution.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        normal(&mut || self.next_u64())
    }
}

/// [`Stream::fill_normal`], compiled for the processor at hand: newer ones multiply whole words in fewer instructions.
struct FillNormal<'a> {
    stream: &'a mut Stream,
    out: &'a mut [f64],
}

impl WithSimd for FillNormal<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { stream, out } = self;
        let ziggurat = &*ZIGGURAT;
        let mut done = 0;
        while done < out.len() {
            // A whole block of random bits becomes four numbers, unless one of them needs more bits.
            if stream.left == 0
                && let Some(four) = out[done..].first_chunk_mut::<4>()
            {
                stream.refill();
                if let [Some(a), Some(b), Some(c), Some(d)] = stream.ready.map(|word| ziggurat.inside(word)) {
                    *four = [a, b, c, d];
                    stream.left = 0;
                    done += 4;
                    continue;
                }
            }
            out[done] = stream.normal();
            done += 1;
        }
    }
}

/// A standard normal from random bits, by the ziggurat of Marsaglia and Tsang with 256 layers.
#[inline]
pub fn normal(bits: &mut impl FnMut() -> u64) -> f64 {
    let ziggurat = &*ZIGGURAT;
    loop {
        let word = bits();
        if let Some(x) = ziggurat.inside(word) {
            return x;
        }
        let layer = (word & 0xff) as usize;
        let sign = if word & 0x100 == 0 { 1.0 } else { -1.0 };
        let x = uniform(word) * ziggurat.edge[layer];
        if layer == 0 {
            return sign * tail(bits);
        }
        let (low, high) = (ziggurat.height[layer], ziggurat.height[layer + 1]);
        if low + (high - low) * uniform(bits()) < density(x) {
            return sign * x;
        }
    }
}

/// A normal beyond the last layer, by Marsaglia's exponential rejection.
#[cold]
fn tail(bits: &mut impl FnMut() -> u64) -> f64 {
    loop {
        let x = -libm::log(1.0 - uniform(bits())) / TAIL;
        let y = -libm::log(1.0 - uniform(bits()));
        if 2.0 * y > x * x {
            return TAIL + x;
        }
    }
}

/// Uniform in [0, 1), on a grid of 2⁻⁵³, from 64 bits.
#[inline]
fn uniform(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

const TAIL: f64 = 3.654_152_885_361_009;
/// Area of each of the 256 layers under exp(−x²/2).
const LAYER_AREA: f64 = 0.004_928_673_233_992_336;

struct Ziggurat {
    /// Right edges, widest layer first; the first is the tail's virtual edge, the last is 0.
    edge: [f64; 257],
    /// Heights exp(−edge²/2); the first is 0, for the base strip.
    height: [f64; 257],
}

impl Ziggurat {
    /// The draw that `word` stands for, unless it falls outside of what lies wholly under the density: one time in eighty.
    #[inline]
    fn inside(&self, word: u64) -> Option<f64> {
        let layer = (word & 0xff) as usize;
        let sign = if word & 0x100 == 0 { 1.0 } else { -1.0 };
        let x = uniform(word) * self.edge[layer];
        (x < self.edge[layer + 1]).then_some(sign * x)
    }
}

static ZIGGURAT: LazyLock<Ziggurat> = LazyLock::new(|| {
    let mut table = Ziggurat { edge: [0.0; 257], height: [0.0; 257] };
    table.edge[0] = LAYER_AREA / density(TAIL);
    table.edge[1] = TAIL;
    table.height[1] = density(TAIL);
    for layer in 2..256 {
        let height = table.height[layer - 1] + LAYER_AREA / table.edge[layer - 1];
        table.edge[layer] = (-2.0 * libm::log(height)).sqrt();
        table.height[layer] = height;
    }
    table.height[256] = 1.0;
    table
});

fn density(x: f64) -> f64 {
    libm::exp(-0.5 * x * x)
}

/// One block of Philox 4×64-10.
#[inline(always)]
fn philox(mut counter: [u64; 4], mut key: [u64; 2]) -> [u64; 4] {
    const MULTIPLIER: [u64; 2] = [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157];
    const WEYL: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B];
    for _ in 0..10 {
        let first = u128::from(MULTIPLIER[0]) * u128::from(counter[0]);
        let second = u128::from(MULTIPLIER[1]) * u128::from(counter[2]);
        counter = [
            (second >> 64) as u64 ^ counter[1] ^ key[0],
            second as u64,
            (first >> 64) as u64 ^ counter[3] ^ key[1],
            first as u64,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_known_answers() {
        let zeros = philox([0; 4], [0; 2]);
        assert_eq!(
            zeros,
            [0x1655_4d9e_ca36_314c, 0xdb20_fe9d_672d_0fdc, 0xd7e7_72ce_e186_176b, 0x7e68_b68a_ec7b_a23b]
        );
        let ones = philox([u64::MAX; 4], [u64::MAX; 2]);
        assert_eq!(
            ones,
            [0x87b0_92c3_013f_e90b, 0x438c_3c67_be8d_0224, 0x9cc7_d7c6_9cd7_77b6, 0xa09c_aebf_594f_0ba0]
        );
    }

    #[test]
    fn a_stream_does_not_depend_on_what_else_was_drawn() {
        let seed = Seed(7);
        let mut alone = seed.stream("noise", 3, 4);
        let expected: Vec<u64> = (0..10).map(|_| alone.next_u64()).collect();
        let mut other = seed.stream("arms", 3, 4);
        let mut again = seed.stream("noise", 3, 4);
        let drawn: Vec<u64> = (0..10)
            .map(|_| {
                other.next_u64();
                again.next_u64()
            })
            .collect();
        assert_eq!(drawn, expected);
        assert_ne!(seed.stream("noise", 4, 3).next_u64(), expected[0]);
        assert_ne!(Seed(8).stream("noise", 3, 4).next_u64(), expected[0]);
    }

    #[test]
    fn below_is_uniform_and_in_range() {
        let mut stream = Seed(1).stream("test", 0, 0);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[stream.below(7) as usize] += 1;
        }
        // Each count is 10 000 with standard deviation 93.
        assert!(seen.iter().all(|&count| count.abs_diff(10_000) < 500), "{seen:?}");
    }

    #[test]
    fn filling_gives_the_numbers_of_single_draws() {
        for length in [0, 1, 3, 4, 5, 27, 1000] {
            let mut single = Seed(3).stream("test", 1, length as u64);
            let mut filled = single.clone();
            for before in [0, 1, 2, 3] {
                // Begin in every place of a block.
                for _ in 0..before {
                    assert_eq!(single.next_u64(), filled.next_u64());
                }
                let mut out = vec![0.0; length];
                filled.fill_normal(&mut out);
                assert!(out.iter().all(|x| x.to_bits() == single.normal().to_bits()), "{length}");
                assert_eq!(single, filled);
            }
        }
    }

    #[test]
    fn normals_follow_the_normal_distribution_function() {
        let mut stream = Seed(2).stream("test", 0, 0);
        let draws = 400_000;
        let mut below = [0u32; 9];
        let points = [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0];
        let (mut sum, mut squares, mut beyond_tail) = (0.0, 0.0, 0u32);
        for _ in 0..draws {
            let x = stream.normal();
            sum += x;
            squares += x * x;
            beyond_tail += u32::from(x.abs() > TAIL);
            for (count, point) in below.iter_mut().zip(points) {
                *count += u32::from(x < point);
            }
        }
        let n = f64::from(draws);
        for (count, point) in below.into_iter().zip(points) {
            let expected = 0.5 * (1.0 + libm::erf(point / std::f64::consts::SQRT_2));
            let spread = (expected * (1.0 - expected) / n).sqrt();
            assert!((f64::from(count) / n - expected).abs() < 5.0 * spread, "at {point}");
        }
        assert!((sum / n).abs() < 5.0 / n.sqrt());
        assert!((squares / n - 1.0).abs() < 5.0 * (2.0 / n).sqrt());
        // P(|x| > 3.654…) = 2.58e-4: about 103 of 400 000.
        assert!((60..150).contains(&beyond_tail), "{beyond_tail}");
    }
}
