//! Scaling: how raw features become those that arms have.

use serde::{Deserialize, Serialize};

/// How the features of a labelled table are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Scale {
    /// Rows to length one, then each column to mean 0 and variance 1: what the code of Federated Neural
    /// Bandits does.
    #[default]
    Published,
    /// Each column to mean 0 and variance 1.
    Columns,
    /// Rows to length one, as theory wants it.
    Rows,
    /// Features stay as they are in the file.
    None,
}

impl Scale {
    /// Every scale that can be chosen.
    pub const ALL: [Self; 4] = [Self::Published, Self::Columns, Self::Rows, Self::None];

    /// The word for this scale in settings and manifests.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Columns => "columns",
            Self::Rows => "rows",
            Self::None => "none",
        }
    }

    /// Whether rows are scaled to length one, before anything else.
    pub(super) const fn scales_rows(self) -> bool {
        matches!(self, Self::Published | Self::Rows)
    }

    /// Whether each column is scaled to mean 0 and variance 1.
    pub(super) const fn scales_columns(self) -> bool {
        matches!(self, Self::Published | Self::Columns)
    }
}

/// Scales a row to length one; a row of zeros stays.
pub(super) fn to_unit_length(row: &mut [f64]) {
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    if length > 0.0 {
        row.iter_mut().for_each(|x| *x /= length);
    }
}

/// Means and deviations of columns, gathered row by row (Welford, 1962).
#[derive(Clone, Debug)]
pub(super) struct Moments {
    rows: f64,
    means: Vec<f64>,
    squares: Vec<f64>,
}

impl Moments {
    pub(super) fn new(width: usize) -> Self {
        Self { rows: 0.0, means: vec![0.0; width], squares: vec![0.0; width] }
    }

    pub(super) fn add(&mut self, row: &[f64]) {
        self.rows += 1.0;
        for ((mean, square), x) in self.means.iter_mut().zip(&mut self.squares).zip(row) {
            let before = x - *mean;
            *mean += before / self.rows;
            *square += before * (x - *mean);
        }
    }

    /// What takes columns to mean 0 and variance 1; constant ones to 0.
    pub(super) fn standardiser(&self) -> Standardiser {
        let deviation = |square: &f64| {
            let variance = square / self.rows;
            if variance > 0.0 { variance.sqrt() } else { 1.0 }
        };
        Standardiser { means: self.means.clone(), deviations: self.squares.iter().map(deviation).collect() }
    }
}

/// x ↦ (x − mean)/deviation, column by column.
#[derive(Clone, Debug)]
pub(super) struct Standardiser {
    pub(super) means: Vec<f64>,
    pub(super) deviations: Vec<f64>,
}

impl Standardiser {
    pub(super) fn apply(&self, row: &mut [f64]) {
        for ((x, mean), deviation) in row.iter_mut().zip(&self.means).zip(&self.deviations) {
            *x = (*x - mean) / deviation;
        }
    }
}
