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
    /// The publisher's terms of use.
    pub licence: String,
    /// The files to read, in this order.
    pub files: Vec<PathBuf>,
    /// How the files are written: separator, header and encoding.
    pub format: Format,
    /// The column that holds the class of a row.
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
    /// The first column holds the class.
    First,
    /// The last column holds the class.
    Last,
    /// In the column of this name, or of this number from 1 if there is no header.
    Named(String),
}

/// Which columns hold categories. Each category becomes a feature that is 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Categorical {
    /// No column holds categories.
    None,
    /// Every column holds categories.
    All,
    /// Those of these names, or numbers from 1 if there is no header.
    Named(Vec<String>),
}

#[cfg(test)]
mod tests;
