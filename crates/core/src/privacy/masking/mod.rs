//! Secure aggregation: the coordinator learns the sum of what agents send, and nothing else.
//!
//! The protocol is that of Bonawitz et al. (2017). A round has four exchanges:
//!
//! 1. **Keys.** Every agent draws two key pairs and the seed of a mask of its own, and publishes the public keys.
//! 2. **Shares.** Every agent divides the seed and the secret key of its masks into shares, any `threshold` of which give the
//!    whole, and sends one of each to every other agent, sealed.
//! 3. **Masks.** Every agent adds to its numbers the mask of its seed and, for every other agent, a mask that both of
//!    them can compute: one adds it, the other subtracts it. What the coordinator receives looks like random numbers.
//! 4. **Opening.** The coordinator names the survivors, whose numbers arrived. Every survivor opens its shares: of the
//!    seeds of survivors, and of the secret keys of agents that dropped out after the second exchange. With them the coordinator
//!    takes the masks out of the *sum*. Nobody opens both shares of one agent, so that no single agent's numbers come out.
//!
//! Everything here computes with integers modulo 2¹²⁸ and knows nothing of what they mean. [`Participant`] is an agent's side
//! of a round and [`Collection`] the coordinator's. Decision 0132 says what is promised against whom and what is left
//! out of the paper.

mod boxes;
mod collection;
mod collection_state;
mod config;
mod keys;
mod masks;
mod message;
mod participant;
mod shamir;
#[cfg(test)]
mod tests;

pub(crate) use collection::{Collected, Collection, Stage};
pub use config::{MOST_PARTICIPANTS, SecureAggregation};
pub use message::{OpenedShare, PublicKeys, SealedShares, SecureDownlink, SecureOutcome, SecureUplink};
pub(crate) use participant::Participant;
pub use shamir::SecretShare;
