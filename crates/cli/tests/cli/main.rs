//! Tests of the real binary.

mod checks;
mod command;
mod compare;
mod data;
mod errors;
mod experiments;
mod frames;
mod golden;
mod listing;
mod reproduce;
mod results;
mod resume;
mod run;
