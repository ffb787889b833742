//! Masks: numbers that look random to everybody who does not know their seed.

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};

use super::keys::Bytes32;
use crate::ids::AgentId;

/// Whether a mask is added or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Plus,
    Minus,
}

impl Sign {
    /// How `own` uses the mask that it has in common with `other`: the one with the lower number adds it, the other takes it away.
    pub(super) fn of_pair(own: AgentId, other: AgentId) -> Self {
        if own < other { Self::Plus } else { Self::Minus }
    }

    pub(super) const fn opposite(self) -> Self {
        match self {
            Self::Plus => Self::Minus,
            Self::Minus => Self::Plus,
        }
    }
}

/// Adds the mask of `seed` to every number, or takes it away, modulo 2¹²⁸.
pub(super) fn apply(numbers: &mut [u128], seed: &Bytes32, sign: Sign) {
    let mut cipher = stream(seed);
    let mut block = [0; 16];
    for number in numbers {
        block.fill(0);
        cipher.apply_keystream(&mut block);
        let mask = u128::from_le_bytes(block);
        *number = match sign {
            Sign::Plus => number.wrapping_add(mask),
            Sign::Minus => number.wrapping_sub(mask),
        };
    }
}

/// Random bits that follow from a seed, 64 at a time.
pub(super) fn bits_of(seed: &Bytes32) -> impl FnMut() -> u64 + use<> {
    let mut cipher = stream(seed);
    move || {
        let mut block = [0; 8];
        cipher.apply_keystream(&mut block);
        u64::from_le_bytes(block)
    }
}

/// Seeds are used once, so that the nonce need not differ.
fn stream(seed: &Bytes32) -> ChaCha20 {
    ChaCha20::new(&(*seed).into(), &[0; 12].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_that_is_added_and_taken_away_is_gone_and_other_seeds_give_others() {
        let numbers = vec![0, 1, u128::MAX, 1 << 100];
        let mut masked = numbers.clone();
        apply(&mut masked, &[7; 32], Sign::Plus);
        assert!(masked.iter().zip(&numbers).all(|(a, b)| a != b));
        let mut other = numbers.clone();
        apply(&mut other, &[8; 32], Sign::Plus);
        assert!(masked.iter().zip(&other).all(|(a, b)| a != b));
        apply(&mut masked, &[7; 32], Sign::of_pair(AgentId(1), AgentId(2)).opposite());
        assert_eq!(masked, numbers);
    }
}
