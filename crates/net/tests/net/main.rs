//! The network runtime as a whole: real sockets on loopback, real files.

mod administration;
mod batches;
mod copies;
mod delivery;
mod door;
mod faults;
mod formats;
mod limits;
mod liveness;
mod log;
mod operations;
mod presence;
mod privacy;
mod proxy;
mod relay;
mod relay_faults;
mod retraction;
mod secure;
mod security;
mod sidecar;
mod silence;
mod support;
mod tls;
mod traces;
