//! Where the privacy noise of a deployed agent comes from: the operating system's generator.
//!
//! An agent's journal brings it back by doing everything again, and what it says then must be what it said
//! before: noise that was drawn anew would be a second release of the same sums. So the system is asked for a
//! secret of 256 bits, not for every number; the journal keeps the secret, and the noise of a measurement is a
//! function of both. Without the secret it cannot be told from noise that was drawn.

use posse_core::privacy::{Bits, Measurement, NoiseSource};
use ring::hmac::{HMAC_SHA256, Key, sign};
use ring::rand::{SecureRandom, SystemRandom};

/// What the noise of an agent follows from, until it starts again.
///
/// Every start of the agent draws another one. If its state was brought back from an old copy, other
/// observations are then released with other noise: with the same, their difference would be bare.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) [u8; 32]);

impl Secret {
    /// From the operating system's generator.
    ///
    /// # Panics
    /// If the system has no random numbers: nothing private can go on then.
    pub(super) fn draw() -> Self {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).expect("the system's random generator answers");
        Self(bytes)
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(super) fn noise(&self) -> Box<dyn NoiseSource> {
        Box::new(SecretNoise(Key::new(HMAC_SHA256, &self.0)))
    }
}

/// A number for this process that no other process draws, by which the coordinator tells two processes with the
/// same identity apart.
///
/// # Panics
/// If the system has no random numbers.
pub(crate) fn instance() -> u64 {
    let Secret(bytes) = Secret::draw();
    let (number, _) = bytes.split_first_chunk::<8>().expect("there are 32 bytes");
    u64::from_le_bytes(*number).max(1)
}

/// Random bits that are a function of a secret and of the measurement: HMAC-SHA-256 in counter mode.
struct SecretNoise(Key);

impl std::fmt::Debug for SecretNoise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretNoise(…)")
    }
}

impl NoiseSource for SecretNoise {
    fn bits(&mut self, measurement: Measurement) -> Box<Bits<'_>> {
        let [kind, id] = measurement.stream.words();
        let mut blocks = Blocks::new(&self.0, [kind, id, measurement.number]);
        Box::new(move || blocks.next())
    }

    fn key_bits(&mut self, round: u64) -> Box<Bits<'_>> {
        // No stream of sums is of this kind.
        let mut blocks = Blocks::new(&self.0, [u64::MAX, 0, round]);
        Box::new(move || blocks.next())
    }

    fn is_secret(&self) -> bool {
        true
    }
}

/// The random bits of a measurement, or of the keys of a round.
struct Blocks<'k> {
    key: &'k Key,
    /// What the bits are for.
    purpose: [u64; 3],
    block: u64,
    ready: [u64; 4],
    left: usize,
}

impl<'k> Blocks<'k> {
    const fn new(key: &'k Key, purpose: [u64; 3]) -> Self {
        Self { key, purpose, block: 0, ready: [0; 4], left: 0 }
    }

    fn next(&mut self) -> u64 {
        if self.left == 0 {
            let mut message = [0; 32];
            let [kind, id, number] = self.purpose;
            let words = [kind, id, number, self.block];
            for (place, word) in message.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            let tag = sign(self.key, &message);
            for (word, bytes) in self.ready.iter_mut().zip(tag.as_ref().chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            }
            self.block += 1;
            self.left = 4;
        }
        self.left -= 1;
        self.ready[3 - self.left]
    }
}

#[cfg(test)]
mod tests {
    use posse_core::privacy::{StreamId, discrete_gaussian};

    use super::*;

    const FIRST: Measurement = Measurement { stream: StreamId::Cluster(1), number: 1 };

    fn drawn(secret: &Secret, measurement: Measurement) -> Vec<f64> {
        let mut source = secret.noise();
        let mut bits = source.bits(measurement);
        (0..20_000).map(|_| discrete_gaussian(1 << 40, &mut *bits) as f64 / (1u64 << 20) as f64).collect()
    }

    #[test]
    fn noise_is_standard_normal() {
        let values = drawn(&Secret([7; 32]), FIRST);
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square = values.iter().map(|x| x * x).sum::<f64>() / n;
        let beyond = values.iter().filter(|x| x.abs() > 1.959_964).count() as f64 / n;
        assert!(mean.abs() < 5.0 / n.sqrt(), "{mean}");
        assert!((square - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{square}");
        assert!((beyond - 0.05).abs() < 5.0 * (0.05 * 0.95 / n).sqrt(), "{beyond}");
    }

    #[test]
    fn a_measurement_has_its_noise_and_no_other_one_or_secret_has_it() {
        let secret = Secret([7; 32]);
        let own = drawn(&secret, FIRST);
        assert_eq!(drawn(&secret, FIRST), own);
        let others = [
            drawn(&secret, Measurement { stream: StreamId::Cluster(2), ..FIRST }),
            drawn(&secret, Measurement { stream: StreamId::User(1), ..FIRST }),
            drawn(&secret, Measurement { number: 2, ..FIRST }),
            drawn(&Secret([8; 32]), FIRST),
        ];
        for other in others {
            let n = own.len() as f64;
            let along = own.iter().zip(&other).map(|(a, b)| a * b).sum::<f64>() / n;
            assert!(along.abs() < 5.0 / n.sqrt(), "they have something in common: {along}");
        }
    }

    #[test]
    fn secrets_are_all_different_and_nothing_shows_them() {
        assert_ne!(Secret::draw().0, Secret::draw().0);
        assert_eq!(format!("{:?}", Secret([7; 32]).noise()), "SecretNoise(…)");
        assert!(Secret::from_bytes(&[1; 31]).is_none() && Secret::from_bytes(&[1; 32]).is_some());
    }
}
