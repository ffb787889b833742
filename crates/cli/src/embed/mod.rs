//! What programs call that run posse's experiments inside themselves. The Python package is one of them.
//!
//! Nothing in here prints to stdout, ends the process or takes over Ctrl-C: the embedding program shows, stops and
//! decides. Errors are texts for people, word for word those of the command.

mod algorithm;
mod command;
mod experiment;

pub use algorithm::{Listed, algorithm, algorithms, world};
pub use command::command;
pub use experiment::{Failure, Outcome, Plan, PlanOptions, Table, figures};
pub use posse_data::parquet_file::Values;

pub use crate::progress::Shared as Progress;
pub use crate::settings::outside::{
    AlgorithmFactory, Factory, OutsideKind, OutsideSetting, WorldFactory, register,
};

/// The panic of a machine or a world from outside whose own code failed. A cell in which it happens fails with `text`,
/// and the program that embeds posse finds in `cause` what it put there.
///
/// Machines have no other way to report it: an error of theirs means that their caller or their peer is at fault. Raise it
/// with [`std::panic::resume_unwind`], which prints nothing.
#[derive(Debug)]
pub struct OutsideFailure {
    /// What went wrong, for people.
    pub text: String,
    /// What went wrong, for the embedding program.
    pub cause: Box<dyn std::any::Any + Send>,
}

/// An error with its causes, as the command prints it.
fn in_words(error: &anyhow::Error) -> String {
    format!("{error:#}").trim_end().to_owned()
}
