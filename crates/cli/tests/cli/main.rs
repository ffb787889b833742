//! Tests of the real binary.

mod bench;
mod browser;
mod checks;
mod command;
mod compare;
mod data;
mod documents;
mod errors;
mod events;
mod experiments;
mod fetch;
mod figures;
mod frames;
mod gallery;
mod golden;
mod listing;
mod privacy;
mod publishers;
mod raw_files;
mod report;
mod reproduce;
mod results;
mod resume;
mod run;
mod start;
