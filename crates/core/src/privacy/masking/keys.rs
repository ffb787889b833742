//! Keys: what two agents agree on, and what is derived from it.

use sha2::{Digest, Sha256};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

use crate::ids::{AgentId, RoundId};

/// 256 bits: a secret, a public key, or a hash.
pub(crate) type Bytes32 = [u8; 32];

/// The public key of a secret one.
pub(super) fn public_key(secret: &Bytes32) -> Bytes32 {
    x25519(*secret, X25519_BASEPOINT_BYTES)
}

/// The secret that two agents have in common: one computes it from its `secret` and the other's `public` key, the other the other way
/// round, and nobody else can. `None` if `public` is one of
/// the few points for which the result does not depend on the secret.
pub(super) fn agree(secret: &Bytes32, public: &Bytes32) -> Option<Bytes32> {
    let shared = x25519(*secret, *public);
    (shared != [0; 32]).then_some(shared)
}

/// A hash of these words and bytes for one purpose. Different purposes never give the same hash.
pub(super) fn derive(purpose: &str, bytes: &[u8], words: &[u64]) -> Bytes32 {
    let mut hash = Sha256::new();
    // Lengths first, so that no two lists of parts are hashed as the same bytes.
    for length in [purpose.len(), bytes.len(), words.len()] {
        hash.update((length as u64).to_le_bytes());
    }
    hash.update(purpose);
    hash.update(bytes);
    words.iter().for_each(|word| hash.update(word.to_le_bytes()));
    hash.finalize().into()
}

/// The seed of the mask that two agents have in common in a round, from what they agreed on.
pub(super) fn pair_seed(shared: &Bytes32, round: RoundId, one: AgentId, other: AgentId) -> Bytes32 {
    let (low, high) = (one.0.min(other.0), one.0.max(other.0));
    derive("posse pair of masks", shared, &[round.0, low, high])
}

/// What is published of the seed of an agent's own mask before it is needed, so that a wrong one is recognised.
pub(super) fn commit_seed(seed: &Bytes32, round: RoundId, agent: AgentId) -> Bytes32 {
    derive("posse seed of a mask", seed, &[round.0, agent.0])
}
