//! Tests of the real binary.

mod command;
mod errors;
mod experiments;
mod listing;
mod results;
mod run;
