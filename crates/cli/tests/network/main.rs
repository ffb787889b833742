//! The network runtime beside the simulator, and as real processes.

mod audit;
mod failover;
mod flood;
mod foreign;
mod guide;
mod kills;
mod operators;
mod parity;
mod processes;
mod relays;
mod support;
