//! posse sim.
#![forbid(unsafe_code)]

pub mod world;
