//! The network runtime beside the simulator, and as real processes.

mod breaker;
mod foreign;
mod kills;
mod parity;
mod processes;
mod support;
