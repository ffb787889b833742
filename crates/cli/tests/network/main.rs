//! The network runtime beside the simulator, and as real processes.

mod foreign;
mod parity;
mod processes;
