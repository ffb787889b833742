//! Examines prepared logs of decisions.

use std::path::Path;

use super::{Health, Histogram, Severity};
use crate::decision_log::{DECISIONS, LOG_ITEMS};
use crate::error::DataError;
use crate::store::{Manifest, scan};

pub(super) fn examine(directory: &Path, manifest: &Manifest, health: &mut Health) -> Result<(), DataError> {
    let mut names = Vec::new();
    scan(directory, manifest.table(LOG_ITEMS, directory)?, |columns| {
        names.extend(columns[0].texts().iter().cloned());
        Ok(())
    })?;
    let mut taken = vec![0u64; names.len()];
    let (mut rows, mut least, mut most, mut has_time) = (0u64, f64::INFINITY, 0.0f64, false);
    scan(directory, manifest.table(DECISIONS, directory)?, |columns| {
        for (action, p) in columns[2].wholes().iter().zip(columns[5].numbers()) {
            taken[*action as usize] += 1;
            (rows, least, most) = (rows + 1, least.min(*p), most.max(*p));
        }
        has_time |= columns[3].texts().iter().any(|time| !time.is_empty());
        Ok(())
    })?;
    health.fact("propensities", format!("{} to {}", short(least), short(most)));
    if manifest.settings.get("propensity").is_some_and(|word| word != "logged") {
        health.found(
            Severity::Problem,
            "the log has no propensities: all actions count as equally likely",
            "Unless it was made at random, every estimate but `dm` is wrong. Name the column with --propensity.",
        );
    } else if least < 0.001 {
        health.found(
            Severity::Notice,
            format!("the smallest propensity is {}", short(least)),
            "A single such row can decide an estimate: `posse evaluate` clips its weight and says so.",
        );
    }
    let never: Vec<&String> =
        names.iter().zip(&taken).filter(|(_, count)| **count == 0).map(|(name, _)| name).collect();
    if !never.is_empty() {
        health.found(
            Severity::Problem,
            format!("{} of {} actions were never taken, such as {:?}", never.len(), names.len(), never[0]),
            "The log says nothing about them: leave them out of the file of items.",
        );
    }
    if has_time {
        health.found(Severity::Good, "rows are in the order of time", "");
    } else {
        health.found(
            Severity::Notice,
            "rows have no time",
            "A policy learns from the first rows and is judged on the others. Name the column with --time to have the order checked.",
        );
    }
    let mut bars: Vec<(String, u64)> = names.into_iter().zip(taken).collect();
    bars.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    bars.truncate(20);
    health.histograms.push(Histogram { of: "rows by action, the 20 most frequent".into(), bars });
    Ok(())
}

/// A probability with three digits that matter.
fn short(p: f64) -> String {
    if p >= 0.001 { format!("{p:.3}") } else { format!("{p:.1e}") }
}
