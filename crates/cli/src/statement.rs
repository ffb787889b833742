//! The accountant's statement: what a private run may claim, in words and as a document.

use std::fmt::Write;

use posse_core::PrivacyReport;
use serde_json::{Value, json};

use crate::experiment::Group;
use crate::row::Row;
use crate::table::compact;

/// For each group of private cells, what the worst of them may claim; nothing if none is private.
pub(crate) fn report(groups: &[Group], rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    for own in rows.chunk_by(|one, other| one.cell.group == other.cell.group) {
        let reports = own.iter().filter_map(|row| row.tally().privacy.as_deref().cloned());
        let Some(all) = reports.reduce(|all, other| all.and(&other)) else { continue };
        let _ = writeln!(text, "\nprivacy of {}", groups[own[0].cell.group].id);
        text.push_str(&words(&all, own.len()));
    }
    text
}

/// The statement in words, over so many runs.
fn words(report: &PrivacyReport, runs: usize) -> String {
    let PrivacyReport { epsilon, epsilon_budget, delta, rho, most_of_a_user, user_epsilon, .. } = report;
    let mut text = String::new();
    let out = &mut text;
    let mut line = |words: String| {
        let _ = writeln!(out, "  {words}");
    };
    line(format!(
        "one interaction: ε = {epsilon:.3} of {epsilon_budget} at δ = {delta:e} (ρ = {rho:.5} zCDP)"
    ));
    line(format!(
        "one user with {most_of_a_user} interactions: ε = {} at the same δ",
        compact(*user_epsilon)
    ));
    line(format!("guarantee: {}", report.guarantee()));
    let over = if runs > 1 { format!(" over {runs} runs") } else { String::new() };
    line(format!(
        "{} releases of {} trees{over}, an interaction in at most {}; {} streams exhausted; {} observations \
         clipped; {} sums repaired",
        report.releases, report.trees, report.trees_of_one, report.exhausted, report.clipped, report.repairs
    ));
    if let Some(signal) = report.signal_to_shift {
        let warning = if signal < 1.0 { ": below 1, noise decides more than data" } else { "" };
        line(format!("signal to shift: {signal:.3} at worst{warning}"));
    }
    for channel in report.uncovered() {
        line(format!("not covered: {channel}"));
    }
    text
}

/// The statement as a document.
pub(crate) fn document(report: &PrivacyReport) -> Value {
    let mut value = json!(report);
    value["guarantee"] = report.guarantee().into();
    value["uncovered"] = report.uncovered().into();
    value
}
