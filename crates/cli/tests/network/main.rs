//! The network runtime beside the simulator, and as real processes.

mod audit;
mod breaker;
mod failover;
mod flood;
mod foreign;
mod gate;
mod guide;
mod kills;
mod operators;
mod parity;
mod processes;
mod relays;
mod support;
