//! The accountant's statement: what a private run may claim, in words and as a document.

use std::fmt::Write;

use posse_core::PrivacyReport;
use serde_json::{Value, json};

use crate::experiment::Group;
use crate::row::Row;
use crate::table::compact;

/// What the private runs of one setting may claim: all of them together, so the worst of them counts.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// The setting.
    pub(crate) setting: String,
    /// How many runs it is about.
    runs: usize,
    report: PrivacyReport,
}

/// A statement for each setting that is private, in the order of the plan.
pub(crate) fn statements(groups: &[Group], rows: &[Row<'_>]) -> Vec<Statement> {
    let own = rows.chunk_by(|one, other| one.cell.group == other.cell.group);
    let statement = |own: &[Row<'_>]| {
        let reports = own.iter().filter_map(|row| row.tally().privacy.as_deref().cloned());
        let report = reports.reduce(|all, other| all.and(&other))?;
        Some(Statement { setting: groups[own[0].cell.group].id.clone(), runs: own.len(), report })
    };
    own.filter_map(statement).collect()
}

/// All statements, for people; nothing if nothing is private.
pub(crate) fn report(groups: &[Group], rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    for statement in statements(groups, rows) {
        let _ = writeln!(text, "\nprivacy of {}", statement.setting);
        for line in statement.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

impl Statement {
    /// The statement in words, line by line.
    pub(crate) fn lines(&self) -> Vec<String> {
        lines(&self.report, self.runs)
    }

    /// The statement as a document.
    pub(crate) fn document(&self) -> Value {
        let mut value = json!({ "setting": self.setting, "runs": self.runs });
        if let (Value::Object(all), Value::Object(own)) = (&mut value, json!(self.report.statement())) {
            all.extend(own);
        }
        value
    }
}

/// What a report says in words, over so many runs.
pub(crate) fn lines(report: &PrivacyReport, runs: usize) -> Vec<String> {
    let PrivacyReport { epsilon, epsilon_budget, delta, rho, most_of_a_user, user_epsilon, .. } = report;
    let over = if runs > 1 { format!(" over {runs} runs") } else { String::new() };
    let mut lines = vec![
        format!("one interaction: ε = {epsilon:.3} of {epsilon_budget} at δ = {delta:e} (ρ = {rho:.5} zCDP)"),
        format!("one user with {most_of_a_user} interactions: ε = {} at the same δ", compact(*user_epsilon)),
        format!("guarantee: {}", report.guarantee()),
        format!(
            "{} releases of {} trees{over}, an interaction in at most {}; {} streams exhausted; {} \
             observations clipped; {} sums repaired",
            report.releases,
            report.trees,
            report.trees_of_one,
            report.exhausted,
            report.clipped,
            report.repairs
        ),
    ];
    if let Some(signal) = report.signal_to_shift {
        let warning = if signal < 1.0 { ": below 1, noise decides more than data" } else { "" };
        lines.push(format!("signal to shift: {signal:.3} at worst{warning}"));
    }
    lines.extend(report.uncovered().iter().map(|channel| format!("not covered: {channel}")));
    lines
}
