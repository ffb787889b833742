//! Boxes: two shares that one agent seals for another, so that the coordinator can pass them on and not read them.

use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};

use super::keys::{Bytes32, derive};
use super::shamir::SecretShare;
use crate::ids::{AgentId, RoundId};

/// The two shares that an agent holds of another one's secrets. It opens one of them at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldShares {
    /// Of the seed of its own mask, for when it survives.
    pub(super) seed: SecretShare,
    /// Of the secret key of its masks in common, for when it drops out.
    pub(super) key: SecretShare,
}

/// Which of the two shares is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Seed,
    Key,
}

/// Where a box goes: each has a key of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) round: RoundId,
    pub(super) from: AgentId,
    pub(super) to: AgentId,
}

impl Route {
    fn cipher(self, shared: &Bytes32) -> ChaCha20Poly1305 {
        let key = derive("posse box of shares", shared, &[self.round.0, self.from.0, self.to.0]);
        ChaCha20Poly1305::new(&key.into())
    }

    /// Seals two shares with what both ends agreed on. Every route has its own key, so that the nonce need not differ.
    pub(super) fn seal(self, shared: &Bytes32, shares: HeldShares) -> Vec<u8> {
        let both = [shares.seed.to_bytes(), shares.key.to_bytes()].concat();
        let sealed = self.cipher(shared).encrypt(&Nonce::default(), &both[..]);
        sealed.expect("eighty bytes are not too many for the cipher")
    }

    /// The shares in a box, or `None` if it was not sealed for this route or holds something else.
    pub(super) fn open(self, shared: &Bytes32, sealed: &[u8]) -> Option<HeldShares> {
        let both = self.cipher(shared).decrypt(&Nonce::default(), sealed).ok()?;
        let (seed, key) = both.split_at_checked(SecretShare::BYTES)?;
        Some(HeldShares { seed: SecretShare::from_bytes(seed)?, key: SecretShare::from_bytes(key)? })
    }

    /// What the sender of a share publishes of it, so that a share that is opened later can be told from a wrong one. Shares are
    /// as random as their secret, so that a hash tells nothing.
    pub(super) fn commit(self, kind: Kind, share: SecretShare) -> Bytes32 {
        let words = [self.round.0, self.from.0, self.to.0, u64::from(kind == Kind::Key)];
        derive("posse share", &share.to_bytes(), &words)
    }
}
