//! Shuffles that are never written down: a bijection of `0..size` with a key, one place at a time.

use posse_core::Stream;

/// A random order of `0..size`. Any place can be asked for on its own, in constant memory.
///
/// A Feistel network permutes the numbers of just enough bits; places that come out beyond the end go
/// through it again until they do not (cycle walking), fewer than four times on average. Twelve rounds,
/// because with few of them small sizes have favourite places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shuffle {
    size: u64,
    half: u32,
    keys: [u64; 12],
}

impl Shuffle {
    /// An order of `size` things with the key that `stream` gives.
    pub(super) fn new(size: u64, stream: &mut Stream) -> Self {
        let bits = u64::BITS - size.saturating_sub(1).leading_zeros();
        Self { size, half: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| stream.next_u64()) }
    }

    /// The number that the shuffled order has at `place`, which must be below `size`.
    pub(super) fn at(&self, place: u64) -> u64 {
        debug_assert!(place < self.size, "a place is one of those shuffled");
        let mut at = self.permute(place);
        while at >= self.size {
            at = self.permute(at);
        }
        at
    }

    fn permute(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let (mut left, mut right) = (value >> self.half, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        (left << self.half) | right
    }
}

/// The finaliser of SplitMix64: every bit of the input reaches every bit of the output.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use posse_core::Seed;

    use super::*;

    #[test]
    fn everything_comes_once() {
        for size in [1, 2, 3, 10, 64, 65, 1000] {
            let shuffle = Shuffle::new(size, &mut Seed(1).stream("test", size, 0));
            let mut order: Vec<u64> = (0..size).map(|place| shuffle.at(place)).collect();
            order.sort_unstable();
            assert!(order.into_iter().eq(0..size), "{size}");
        }
    }

    #[test]
    fn every_thing_is_equally_likely_at_every_place() {
        let mut counts = [[0u32; 7]; 7];
        for key in 0..21_000 {
            let shuffle = Shuffle::new(7, &mut Seed(2).stream("test", key, 0));
            (0..7).for_each(|place| counts[place as usize][shuffle.at(place) as usize] += 1);
        }
        // 3 000 with standard deviation 51.
        assert!(counts.iter().flatten().all(|count| count.abs_diff(3_000) < 300), "{counts:?}");
    }
}
