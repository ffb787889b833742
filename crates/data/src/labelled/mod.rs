//! Labelled tables: rows with features and a class, from any text file, as worlds.
//!
//! [`prepare_table`] keeps the rows, for the classification world; [`prepare_clusters`] makes clusters of
//! them, for the world of clustered arms.

mod clusters;
mod encode;
mod scale;
mod table;

use std::path::PathBuf;

use crate::records::Format;

pub use clusters::{CLUSTERS, ClusterSettings, prepare_clusters};
pub use scale::Scale;
pub use table::{ROWS, TableSettings, prepare_table};

/// Files of a labelled table, read one after the other.
#[derive(Clone, Debug)]
pub struct LabelledFiles {
    /// Which data set it is.
    pub name: String,
    /// The terms of whoever publishes it.
    pub licence: String,
    /// The files.
    pub files: Vec<PathBuf>,
    /// How they are laid out.
    pub format: Format,
    /// Where the class is.
    pub label: Label,
    /// Which columns hold categories; all others hold numbers.
    pub categorical: Categorical,
    /// What to take for a number that is missing: an empty field, `?`, `NA` or `NaN`. Without it, a missing
    /// number is an error.
    pub missing: Option<f64>,
    /// How many of the features to take, the first ones; `None` is all.
    pub features: Option<usize>,
}

/// Where the class of a row is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// In the first column.
    First,
    /// In the last column.
    Last,
    /// In the column of this name, or of this number from 1 if there is no header.
    Named(String),
}

/// Which columns hold categories. Each category becomes a feature that is 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Categorical {
    /// None of them.
    None,
    /// All of them.
    All,
    /// Those of these names, or numbers from 1 if there is no header.
    Named(Vec<String>),
}

#[cfg(test)]
mod tests;
