//! A table of rows with features and a label each.

use posse_core::ConfigError;

use super::data::require;

/// Rows of a labelled data set: features, one class a row, and perhaps a group a row.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledTable {
    width: usize,
    features: Vec<f64>,
    labels: Vec<u32>,
    classes: u32,
    groups: Vec<u32>,
}

impl LabelledTable {
    /// A table of `labels.len()` rows with `width` features each, one row after the other. Labels are
    /// `0..classes`. `groups` says which cluster a row belongs to; it may be empty.
    pub fn new(
        width: usize,
        features: Vec<f64>,
        labels: Vec<u32>,
        classes: u32,
        groups: Vec<u32>,
    ) -> Result<Self, ConfigError> {
        let rows = labels.len();
        require(width > 0 && rows > 0, "rows", rows, "at least 1, with a feature")?;
        let full = width.checked_mul(rows) == Some(features.len());
        require(full, "features", features.len(), "as many for each row")?;
        let highest = labels.iter().copied().max().unwrap_or(0);
        require(highest < classes, "label", highest, "below the number of classes")?;
        let grouped = groups.is_empty() || groups.len() == rows;
        require(grouped, "groups", groups.len(), "one for each row, or none")?;
        let wrong = features.iter().copied().find(|x| !x.is_finite());
        match wrong {
            Some(value) => Err(ConfigError::new("features", value, "finite numbers")),
            None => Ok(Self { width, features, labels, classes, groups }),
        }
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// How many features a row has.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// How many classes there are.
    #[must_use]
    pub const fn classes(&self) -> u32 {
        self.classes
    }

    /// The features of a row.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f64] {
        &self.features[row * self.width..][..self.width]
    }

    /// The class of each row.
    #[must_use]
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The group of each row; empty if the table has none.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_together_is_refused_by_name() {
        let refused = |width, features: &[f64], labels: &[u32], classes, groups: &[u32]| {
            LabelledTable::new(width, features.to_vec(), labels.to_vec(), classes, groups.to_vec())
                .err()
                .map(|error| error.name)
        };
        assert_eq!(refused(2, &[1.0, 2.0, 3.0, 4.0], &[0, 1], 2, &[]), None);
        assert_eq!(refused(2, &[1.0, 2.0, 3.0, 4.0], &[0, 1], 2, &[5, 7]), None);
        assert_eq!(refused(2, &[], &[], 2, &[]), Some("rows"));
        assert_eq!(refused(0, &[], &[0], 2, &[]), Some("rows"));
        assert_eq!(refused(2, &[1.0, 2.0, 3.0], &[0, 1], 2, &[]), Some("features"));
        assert_eq!(refused(1, &[1.0, f64::NAN], &[0, 1], 2, &[]), Some("features"));
        assert_eq!(refused(1, &[1.0, 2.0], &[0, 2], 2, &[]), Some("label"));
        assert_eq!(refused(1, &[1.0, 2.0], &[0, 1], 2, &[1]), Some("groups"));
    }
}
