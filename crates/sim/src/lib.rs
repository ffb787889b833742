//! posse sim.
#![forbid(unsafe_code)]

mod curve;
mod invariants;
pub mod network;
mod observer;
mod simulation;
mod tally;
pub mod world;

pub use curve::Curve;
pub use invariants::Invariants;
pub use observer::{Event, Observer, Stage};
pub use simulation::{RunConfig, RunError};
pub use tally::Tally;
