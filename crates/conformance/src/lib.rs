//! What every algorithm must do, whatever it computes.
//!
//! [`check`] plays a small federation with an algorithm and returns the first promise that it breaks. Run it in a
//! test of your own crate:
//!
//! ```
//! use posse_core::{Algorithm, LinUcb, Shape};
//!
//! let algorithm = Algorithm::LinUcb(LinUcb::default());
//! posse_conformance::check(&algorithm, Shape::shared(4)).unwrap();
//! ```
//!
//! The promises are those of [`Agent`](posse_core::Agent) and [`Coordinator`](posse_core::Coordinator): the same
//! calls give the same bytes; a restored machine goes on as if nothing had happened; every observation is counted
//! once; an error changes nothing; what an agent foresees it chooses; the order of arms does not matter; and over
//! links that lose and repeat frames nothing is counted twice and everything arrives in the end.
#![forbid(unsafe_code)]

mod delivery;
mod host;
mod machines;
pub mod planted;
mod relay_links;
mod relays;
mod tree;

use std::fmt;

use posse_core::{Algorithm, Shape};

/// A promise that an algorithm broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise, for example "a restored agent goes on with the same choices".
    pub promise: &'static str,
    /// What happened instead, and when.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it does not hold that {}: {}", self.promise, self.what)
    }
}

impl std::error::Error for Violation {}

/// Plays an algorithm and says how it broke one promise, if it did.
type Promise = fn(&Algorithm, Shape) -> Result<(), Violation>;

/// `Ok` if the algorithm keeps every promise with arms of this `shape`, or else the first one that it breaks.
///
/// Settings should let agents speak within a few dozen interactions; otherwise there is little to see.
pub fn check(algorithm: &Algorithm, shape: Shape) -> Result<(), Violation> {
    let promises: [Promise; 10] = [
        machines::repeats,
        machines::restores,
        machines::counts_once,
        machines::shows_what_it_learns,
        machines::foresees_what_it_chooses,
        machines::ignores_the_order_of_arms,
        machines::takes_the_only_arm,
        machines::refuses_bad_input_unchanged,
        machines::refuses_foreign_states,
        delivery::survives_bad_links,
    ];
    promises.iter().try_for_each(|promise| promise(algorithm, shape))
}

/// `Ok` if the relays of an algorithm keep every promise with arms of this `shape`, or else the first one that they
/// break. Fails for algorithms that have no relays.
///
/// The promises are those of [`Relay`](posse_core::Relay): every observation is counted once, wherever it is; one relay
/// with all agents below it is as good as the coordinator without relays; a restored relay goes on as if nothing had
/// happened; and over bad links, with relays that restart from their logs, everything arrives in the end, once.
pub fn check_relays(algorithm: &Algorithm, shape: Shape) -> Result<(), Violation> {
    let promises: [Promise; 5] = [
        relays::relays_count_once,
        relays::one_relay_is_a_coordinator,
        relays::relays_restore,
        relays::relays_refuse_unchanged,
        relay_links::relays_survive_bad_links,
    ];
    promises.iter().try_for_each(|promise| promise(algorithm, shape))
}
