//! The accountant's statement: what a private run may claim, in words and as a document.

use std::fmt::Write;

use posse_core::PrivacyReport;
use posse_core::privacy::Unit;
use serde_json::{Value, json};

use crate::experiment::Group;
use crate::row::Row;
use crate::table::compact;

/// What the private runs of one setting may claim: all of them together, so the worst of them counts.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// The id of the setting that the statement is about.
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
    let PrivacyReport { epsilon, epsilon_budget, delta, mu, most_of_a_user, user_epsilon, .. } = report;
    let over = if runs > 1 { format!(" over {runs} runs") } else { String::new() };
    let mut lines = Vec::new();
    if report.void.is_some() {
        lines.push(format!("one {}: ε = none", report.unit.name()));
    } else {
        lines.push(format!(
            "one {}: ε = {epsilon:.3} of {epsilon_budget} at δ = {delta:e} (μ = {mu:.5} in Gaussian privacy)",
            report.unit.name()
        ));
        if report.unit == Unit::Interaction {
            let all = compact(*user_epsilon);
            lines.push(format!("one user with {most_of_a_user} interactions: ε = {all} at the same δ"));
        }
    }
    lines.push(format!("guarantee: {}", report.guarantee()));
    let noise = &report.calibration;
    if report.unit == Unit::Agent {
        lines.extend(of_updates(report, &over));
        lines.extend(uncovered(report));
        return lines;
    }
    let users = if noise.user_mu > 0.0 {
        format!("; {:.2} in Σxxᵀ of a user", noise.user_noise)
    } else {
        String::new()
    };
    let release = match report.secure_aggregation {
        None => "of a release of a cluster",
        Some(_) => "of an agent's part of a sum",
    };
    lines.push(format!(
        "noise: σ = {:.2} at most in Σxxᵀ {release}, {:.2} in Σxy{users}",
        noise.cluster_noise, noise.cluster_vector_noise
    ));
    let clipped = report.clipped.map_or_else(String::new, |n| format!("; {n} observations clipped"));
    lines.push(format!(
        "{} releases of {} streams{over}; {} clusters silent{clipped}; {} beyond the cap of their user; {} sums repaired",
        report.releases, report.streams, report.silent, report.beyond_cap, report.repairs
    ));
    if let Some(signal) = report.signal_to_noise {
        let warning = if signal < 1.0 { ": below 1, the last releases may be mostly noise" } else { "" };
        lines.push(format!("signal to noise: {signal:.3} at worst{warning}"));
    }
    lines.extend(uncovered(report));
    lines
}

/// What agents that share updates of a network have released.
fn of_updates(report: &PrivacyReport, over: &str) -> [String; 2] {
    let noise = &report.calibration;
    let clipped = report.clipped.map_or_else(String::new, |n| format!("; {n} cut to their bound"));
    [
        format!("noise: σ = {:.2} in every number of an update", noise.cluster_noise),
        format!(
            "{} updates of {} agents{over}; {} agents silent{clipped}",
            report.releases, report.streams, report.silent
        ),
    ]
}

fn uncovered(report: &PrivacyReport) -> impl Iterator<Item = String> {
    report.uncovered().into_iter().map(|channel| format!("not covered: {channel}"))
}
