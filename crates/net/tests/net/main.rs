//! The network runtime as a whole: real sockets on loopback, real files.

mod delivery;
mod support;
