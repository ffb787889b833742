//! posse sim.
#![forbid(unsafe_code)]
