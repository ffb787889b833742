//! Logs in PostgreSQL: real servers, with standbys where replication matters.

mod coordinators;
mod fencing;
mod replication;
mod rows;
mod support;
mod tokens;
