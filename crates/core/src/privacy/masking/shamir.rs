//! Shares of a secret of 256 bits, of which any `threshold` give the secret and fewer give nothing (Shamir, 1979).
//!
//! The secret is cut into pieces of seven bytes. Each piece is the value at 0 of a random polynomial over the integers modulo the
//! prime 2⁶¹ − 1, and share x has the values at x.

use crate::privacy::sampler::Bits;

const PRIME: u64 = (1 << 61) - 1;
/// Bytes of a secret in one piece: a piece is below the prime.
const PIECE_BYTES: usize = 7;
const PIECES: usize = 5;

/// One share of a secret: a value of each of its polynomials, all below 2⁶¹ − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretShare([u64; PIECES]);

impl SecretShare {
    /// Bytes of an encoded share.
    pub const BYTES: usize = 8 * PIECES;

    /// The share as bytes, for messages and states.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        self.0.iter().flat_map(|piece| piece.to_le_bytes()).collect()
    }

    /// The share with this encoding, or `None` if there is none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut pieces = [0; PIECES];
        if bytes.len() != Self::BYTES {
            return None;
        }
        for (piece, bytes) in pieces.iter_mut().zip(bytes.chunks_exact(8)) {
            *piece = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        pieces.iter().all(|piece| *piece < PRIME).then_some(Self(pieces))
    }
}

fn add(a: u64, b: u64) -> u64 {
    (a + b) % PRIME
}

fn subtract(a: u64, b: u64) -> u64 {
    (a + PRIME - b) % PRIME
}

fn multiply(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
}

/// a⁻¹ = a^(p − 2), for a ≠ 0.
fn inverse(a: u64) -> u64 {
    let (mut result, mut square, mut exponent) = (1, a, PRIME - 2);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    result
}

fn uniform(bits: &mut Bits<'_>) -> u64 {
    loop {
        let draw = bits() >> 3;
        if draw < PRIME {
            return draw;
        }
    }
}

/// Shares 1, 2, …, `shares` of a secret, of which `threshold` (at least 1) are needed.
pub(super) fn split(
    secret: &[u8; 32],
    threshold: usize,
    shares: usize,
    bits: &mut Bits<'_>,
) -> Vec<SecretShare> {
    let mut all = vec![SecretShare([0; PIECES]); shares];
    for (place, piece) in secret.chunks(PIECE_BYTES).enumerate() {
        let mut bytes = [0; 8];
        bytes[..piece.len()].copy_from_slice(piece);
        let mut coefficients = vec![u64::from_le_bytes(bytes)];
        coefficients.extend((1..threshold).map(|_| uniform(bits)));
        for (x, share) in (1..).zip(&mut all) {
            share.0[place] = coefficients.iter().rev().fold(0, |value, c| add(multiply(value, x), *c));
        }
    }
    all
}

/// The secret that these shares give, each with its number. `None` if they give none; wrong shares may also give a wrong
/// secret. Numbers must be different, and not 0.
pub(super) fn combine(shares: &[(u64, SecretShare)]) -> Option<[u8; 32]> {
    // Value at 0 of the polynomial through the points: Σ yᵢ·Π xⱼ/(xⱼ − xᵢ).
    let weights: Vec<u64> = shares
        .iter()
        .map(|(own, _)| {
            let others = shares.iter().map(|(x, _)| *x).filter(|x| x != own);
            let (above, below) = others
                .fold((1, 1), |(above, below), x| (multiply(above, x), multiply(below, subtract(x, *own))));
            multiply(above, inverse(below))
        })
        .collect();
    let mut secret = [0; 32];
    for (place, bytes) in secret.chunks_mut(PIECE_BYTES).enumerate() {
        let terms = shares.iter().zip(&weights).map(|((_, share), weight)| multiply(share.0[place], *weight));
        let piece = terms.fold(0, add).to_le_bytes();
        let (used, rest) = piece.split_at(bytes.len());
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.copy_from_slice(used);
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    fn secret(seed: u64) -> [u8; 32] {
        let mut stream = Seed(seed).stream("secret", 0, 0);
        std::array::from_fn(|_| stream.next_u64() as u8)
    }

    /// Every subset of up to six shares, for every threshold.
    #[test]
    fn as_many_shares_as_the_threshold_give_the_secret_and_fewer_do_not() {
        for threshold in 1..=6usize {
            let secret = if threshold == 3 { [0xff; 32] } else { secret(threshold as u64) };
            let mut stream = Seed(9).stream("shares", threshold as u64, 0);
            let shares = split(&secret, threshold, 6, &mut || stream.next_u64());
            for subset in 1u32..64 {
                let chosen: Vec<(u64, SecretShare)> =
                    (0..6).filter(|i| subset >> i & 1 == 1).map(|i| (i + 1, shares[i as usize])).collect();
                let whole = combine(&chosen) == Some(secret);
                assert_eq!(whole, chosen.len() >= threshold, "{threshold} of {chosen:?}");
            }
        }
    }

    /// With one share less, every secret is as possible as every other: for each there is a missing share that gives it.
    #[test]
    fn one_share_less_fits_any_secret() {
        let mut stream = Seed(3).stream("shares", 0, 0);
        let shares = split(&secret(1), 2, 2, &mut || stream.next_u64());
        // The line through (1, share) and (0, other piece) has a value at 2: 2·share − piece.
        let other = secret(2);
        let mut missing = [0; PIECES];
        for (place, piece) in other.chunks(PIECE_BYTES).enumerate() {
            let mut bytes = [0; 8];
            bytes[..piece.len()].copy_from_slice(piece);
            missing[place] = subtract(multiply(2, shares[0].0[place]), u64::from_le_bytes(bytes));
        }
        assert_eq!(combine(&[(1, shares[0]), (2, SecretShare(missing))]), Some(other));
        assert_eq!(combine(&[(1, shares[0]), (2, shares[1])]), Some(secret(1)));
    }

    #[test]
    fn shares_travel_as_bytes_and_bytes_beyond_the_prime_are_none() {
        let mut stream = Seed(4).stream("shares", 0, 0);
        for share in split(&secret(5), 3, 4, &mut || stream.next_u64()) {
            assert_eq!(SecretShare::from_bytes(&share.to_bytes()), Some(share));
        }
        let mut bytes = [0u8; SecretShare::BYTES];
        bytes[..8].copy_from_slice(&PRIME.to_le_bytes());
        assert_eq!(SecretShare::from_bytes(&bytes), None);
        assert_eq!(SecretShare::from_bytes(&bytes[1..]), None);
    }
}
