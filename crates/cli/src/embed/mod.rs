//! What programs call that run posse's experiments inside themselves. The Python package is one of them.
//!
//! Nothing in here prints to stdout, ends the process or takes over Ctrl-C: the embedding program shows, stops and
//! decides. Errors are texts for people, word for word those of the command.

mod algorithm;
mod experiment;

pub use algorithm::{Listed, algorithm, algorithms};
pub use experiment::{Failure, Outcome, Plan, PlanOptions, Table, figures};
pub use posse_data::parquet_file::Values;

pub use crate::progress::Shared as Progress;
