//! What a report is made of: the results, setting by setting.

use crate::check::{self, Verdict};
use crate::experiment::{FigurePlan, Group};
use crate::metric::METRICS;
use crate::results::Made;
use crate::row::Row;
use crate::silence;
use crate::table::{Estimate, differ_in_agents};

/// Everything that a report says.
#[derive(Debug)]
pub(crate) struct Material<'a> {
    pub(super) made: &'a Made,
    /// The rows that there are, in the order of the plan.
    pub(crate) rows: Vec<Row<'a>>,
    /// Settings with at least one row.
    pub(super) lines: Vec<Line<'a>>,
    /// Cells that failed, and why.
    pub(crate) failures: Vec<(&'a str, &'a str)>,
    /// How many cells have not run.
    pub(crate) missing: usize,
    /// What became of the checks; `None` if it cannot be said yet.
    pub(crate) verdicts: Option<Vec<Verdict>>,
}

/// The rows of one setting: they differ in their seed only.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) group: &'a Group,
    pub(super) rows: Vec<Row<'a>>,
}

impl<'a> Material<'a> {
    pub(crate) fn new(made: &'a Made) -> Self {
        let (mut rows, mut failures, mut missing) = (Vec::new(), Vec::new(), 0);
        for (cell, outcome) in made.cells.iter().zip(&made.outcomes) {
            match outcome {
                Some(Ok(record)) => rows.push(Row { cell, record }),
                Some(Err(error)) => failures.push((cell.id.as_str(), error.as_str())),
                None => missing += 1,
            }
        }
        let whole = missing == 0 && made.manifest.shard.is_none();
        let verdicts = whole.then(|| check::judge(&made.experiment, &rows));
        let chunks = rows.chunk_by(|one, other| one.cell.group == other.cell.group);
        let lines = chunks
            .map(|own| Line { group: &made.experiment.groups[own[0].cell.group], rows: own.to_vec() })
            .collect();
        Self { made, rows, lines, failures, missing, verdicts }
    }

    /// All settings of the experiment.
    pub(crate) fn groups(&self) -> &'a [Group] {
        &self.made.experiment.groups
    }

    /// What the figures of the experiment show.
    pub(crate) fn figures(&self) -> &'a [FigurePlan] {
        &self.made.experiment.figures
    }

    /// Whether settings differ in the number of agents, so that their sums cannot be compared.
    pub(super) fn differ_in_agents(&self) -> bool {
        differ_in_agents(&self.made.experiment.groups)
    }

    /// Whether the experiment says how many interactions each agent has, and not all together.
    pub(super) fn counts_each_agent(&self) -> bool {
        !self.made.manifest.config["horizon_each"].is_null()
    }

    /// What a reader must know before looking at any number: nothing, if all is there.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.made.manifest.quick {
            warnings.push(
                "QUICK: fewer agents, interactions and repetitions than the experiment asks for".into(),
            );
        }
        let cells = self.made.cells.len();
        if self.missing > 0 {
            warnings.push(format!(
                "PARTIAL: {} of {cells} cells have not run, and the checks are not judged",
                self.missing
            ));
        }
        if let Some(shard) = self.made.manifest.shard {
            warnings.push(format!(
                "PARTIAL: this is shard {shard}, and the checks are judged when all are merged"
            ));
        }
        warnings.extend(silence::silent(&self.made.experiment.groups, &self.rows));
        if !self.failures.is_empty() {
            warnings.push(format!("{} of {cells} cells failed", self.failures.len()));
        }
        warnings
    }
}

impl Line<'_> {
    /// The mean over seeds of something about a row, with its standard error.
    pub(super) fn estimate(&self, of: impl Fn(&Row<'_>) -> f64) -> Estimate {
        let values: Vec<f64> = self.rows.iter().map(of).collect();
        Estimate::of(values.iter().copied())
    }

    /// The mean over seeds of the sum of some metrics at the end.
    pub(super) fn total(&self, metrics: &[&str]) -> Estimate {
        self.estimate(|row| sum(metrics, row.tally()))
    }
}

/// The sum of some metrics: `bytes_up` and `bytes_down` make bytes.
pub(super) fn sum(metrics: &[&str], tally: &posse_sim::Tally) -> f64 {
    METRICS.iter().filter(|metric| metrics.contains(&metric.name)).map(|m| (m.of)(tally).as_f64()).sum()
}
