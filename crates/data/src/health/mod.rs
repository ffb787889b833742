//! The health of prepared data: what a careful reader would look at before believing an experiment on it.
//!
//! [`examine`] reads a prepared directory once and returns [`Health`]: facts, histograms, and findings that say what
//! is wrong and what to do. Nothing is judged by taste: every finding names the number it rests on.

mod features;
mod log;
mod recommender;
mod spread;
mod table;

use std::path::Path;

use serde::Serialize;

use crate::error::DataError;
use crate::store::Manifest;

/// What was found in a prepared directory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Health {
    /// What it is: the name, the kind and the hash.
    pub facts: Vec<(String, String)>,
    /// What is worth knowing or wrong, the worst first.
    pub findings: Vec<Finding>,
    /// Histograms that show how values are spread, such as rows over classes.
    pub histograms: Vec<Histogram>,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How serious the finding is.
    pub level: Severity,
    /// What was found, with its number.
    pub what: String,
    /// What it means, and what to do; empty if nothing need be done.
    pub advice: String,
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Results of experiments on this data would mislead.
    Problem,
    /// Worth knowing before results are believed.
    Notice,
    /// The data is as it should be in this respect.
    Good,
}

impl Severity {
    /// The word that reports show for this severity.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Problem => "PROBLEM",
            Self::Notice => "notice",
            Self::Good => "good",
        }
    }
}

/// How many things fall into each range, or have each name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// What is counted, as a heading.
    pub of: String,
    /// Each range or name with its count.
    pub bars: Vec<(String, u64)>,
}

impl Health {
    #[allow(clippy::needless_pass_by_value, reason = "values are small, and literals read better")]
    fn fact(&mut self, name: &str, value: impl ToString) {
        self.facts.push((name.into(), value.to_string()));
    }

    fn found(&mut self, level: Severity, what: impl Into<String>, advice: impl Into<String>) {
        self.findings.push(Finding { level, what: what.into(), advice: advice.into() });
    }

    /// Whether something would make results mislead.
    #[must_use]
    pub fn has_problems(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == Severity::Problem)
    }
}

/// Examines a prepared directory and returns what was found, the worst first. Fails if the directory is not
/// prepared data or cannot be read.
pub fn examine(directory: &Path) -> Result<Health, DataError> {
    let manifest = Manifest::read(directory)?;
    let mut health = Health::default();
    health.fact("data set", &manifest.name);
    health.fact("kind", &manifest.kind);
    health.fact("content hash", &manifest.hash);
    for (what, count) in manifest.counts.iter().filter(|(what, _)| !what.starts_with("class ")) {
        health.fact(what, count);
    }
    match manifest.kind.as_str() {
        "recommender" => recommender::examine(directory, &manifest, &mut health)?,
        "table" => table::examine(directory, &manifest, &mut health)?,
        "log" => log::examine(directory, &manifest, &mut health)?,
        _ => {}
    }
    for source in &manifest.sources {
        health.fact("source", format!("{}, {} bytes, sha256 {}", source.file, source.bytes, source.sha256));
    }
    health.findings.sort_by_key(|finding| finding.level);
    Ok(health)
}

#[cfg(test)]
mod tests;
