//! posse sim.
#![forbid(unsafe_code)]

pub mod network;
mod observer;
mod simulation;
mod tally;
pub mod world;

pub use observer::{Event, Observer, Stage};
pub use simulation::{RunConfig, RunError};
pub use tally::Tally;
