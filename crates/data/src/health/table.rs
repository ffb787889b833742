//! Examines prepared labelled tables.

use std::path::Path;

use super::{Health, Histogram, Severity, features};
use crate::error::DataError;
use crate::labelled::ROWS;
use crate::store::{Column, Manifest, scan};

pub(super) fn examine(directory: &Path, manifest: &Manifest, health: &mut Health) -> Result<(), DataError> {
    let mut rows = Vec::new();
    let mut width = 0;
    scan(directory, manifest.table(ROWS, directory)?, |columns| {
        let numbers: Vec<&Column> =
            columns.iter().filter(|column| matches!(column, Column::Number(_))).collect();
        width = numbers.len();
        for row in 0..columns[0].len() {
            rows.extend(numbers.iter().map(|column| column.numbers()[row]));
        }
        Ok(())
    })?;
    features::examine(&rows, width, "rows", health);
    let Some(classes) = manifest.names.get("classes") else { return Ok(()) };
    let count = |class: &String| manifest.counts.get(&format!("class {class}")).copied().unwrap_or(0);
    let bars: Vec<(String, u64)> = classes.iter().map(|class| (class.clone(), count(class))).collect();
    let all: u64 = bars.iter().map(|(_, count)| count).sum();
    if let Some((class, most)) = bars.iter().max_by_key(|(_, count)| *count)
        && *most * 10 > all * 7
    {
        health.found(
            Severity::Notice,
            format!("class {class:?} makes up {:.0} % of the rows", 100.0 * *most as f64 / all as f64),
            "Always choosing it earns as much: compare rewards with that, not with choosing at random.",
        );
    }
    health.histograms.push(Histogram { of: "rows by class".into(), bars });
    Ok(())
}
