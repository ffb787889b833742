//! The network runtime as a whole: real sockets on loopback, real files.

mod administration;
mod delivery;
mod door;
mod faults;
mod formats;
mod limits;
mod log;
mod operations;
mod privacy;
mod proxy;
mod retraction;
mod security;
mod sidecar;
mod silence;
mod support;
mod tls;
