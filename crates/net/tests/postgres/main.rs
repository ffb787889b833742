//! Logs in PostgreSQL: real servers, with standbys where replication matters.

mod coordinators;
mod encryption;
mod fencing;
mod replication;
mod rows;
mod support;
mod throughput;
mod tokens;
