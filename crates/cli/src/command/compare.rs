//! `posse compare`: what a change did to the numbers.

use std::path::PathBuf;

use anyhow::bail;

use super::{Ending, print, print_json};
use crate::metric::Metric;
use crate::results::Made;
use crate::row::Record;
use crate::statistics::{Paired, mean};
use crate::table::{align, compact};

/// Compare two results of the same experiment, group by group
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse compare results/before results/after

Differences are those of B from A, paired by seed, with Student's t and the probability p of a difference as
large if there were none. Lines with p < 0.01 are marked *; changed numbers without enough seeds to tell,
with ~.")]
pub(crate) struct Args {
    /// The directory of results to compare with
    #[arg(value_name = "DIR_A")]
    a: PathBuf,
    /// The directory of results whose differences are shown
    #[arg(value_name = "DIR_B")]
    b: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Below this a difference is marked.
const SIGNIFICANT: f64 = 0.01;
const COMPARED: [&str; 2] = ["regret", "messages"];
const HEADER: [&str; 7] = ["group", "metric", "A", "B", "B - A", "t", "p"];

/// One metric of one group in both.
struct Line<'a> {
    group: &'a str,
    metric: &'static Metric,
    a: f64,
    b: f64,
    paired: Paired,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let (a, b) = (Made::read(&args.a)?, Made::read(&args.b)?);
    let found = b.manifest.differences(&a.manifest);
    if !found.is_empty() {
        let list: String = found.iter().map(|line| format!("\n  - {line}")).collect();
        bail!("{} and {} are not of the same experiment:{list}", args.b.display(), args.a.display());
    }
    let lines = lines(&a, &b);
    if args.json {
        let line = |line: &Line<'_>| {
            serde_json::json!({
                "group": line.group, "metric": line.metric.name, "a": line.a, "b": line.b,
                "difference": line.paired.difference, "pairs": line.paired.pairs,
                "t": line.paired.t, "p": line.paired.p,
            })
        };
        print_json(&lines.iter().map(line).collect::<Vec<_>>())?;
    } else {
        print(&text(&a, &b, &lines))?;
    }
    Ok(Ending::Done)
}

/// Every group that both have pairs of.
fn lines<'a>(a: &'a Made, b: &Made) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for (index, group) in a.experiment.groups.iter().enumerate() {
        let pairs: Vec<(&Record, &Record)> = a
            .cells
            .iter()
            .zip(&a.outcomes)
            .filter(|(cell, _)| cell.group == index)
            .filter_map(|(cell, one)| {
                let place = b.cells.iter().position(|other| other.id == cell.id)?;
                Some((one.as_ref()?.as_ref().ok()?, b.outcomes[place].as_ref()?.as_ref().ok()?))
            })
            .collect();
        if pairs.is_empty() {
            continue;
        }
        for metric in COMPARED.into_iter().filter_map(Metric::find) {
            let of = |record: &Record| (metric.of)(&record.tally).as_f64();
            let differences: Vec<f64> = pairs.iter().map(|(one, other)| of(other) - of(one)).collect();
            lines.push(Line {
                group: &group.id,
                metric,
                a: mean(pairs.iter().map(|(one, _)| of(one))),
                b: mean(pairs.iter().map(|(_, other)| of(other))),
                paired: Paired::of(&differences),
            });
        }
    }
    lines
}

/// The comparison as a table for the terminal.
fn text(a: &Made, b: &Made, lines: &[Line<'_>]) -> String {
    let row = |line: &Line<'_>| {
        let Paired { difference, t, p, .. } = line.paired;
        let mark = if p < SIGNIFICANT {
            " *"
        } else if p.is_nan() {
            " ~"
        } else {
            ""
        };
        let sign = if difference > 0.0 { "+" } else { "" };
        [
            line.group.to_owned(),
            line.metric.name.into(),
            compact(line.a),
            compact(line.b),
            format!("{sign}{}{mark}", compact(difference)),
            if t.is_nan() { "-".into() } else { format!("{t:.2}") },
            if p.is_nan() { "-".into() } else { format!("{p:.4}") },
        ]
    };
    let rows: Vec<[String; 7]> =
        std::iter::once(HEADER.map(String::from)).chain(lines.iter().map(row)).collect();
    let changed = lines.iter().filter(|line| line.paired.difference != 0.0).count();
    let significant = lines.iter().filter(|line| line.paired.p < SIGNIFICANT).count();
    let quick = if a.manifest.quick { "QUICK: scaled down\n" } else { "" };
    format!(
        "{quick}A: {}\nB: {}\n\n{}\n{} of {} lines differ, {significant} significantly (p < {SIGNIFICANT})\n",
        a.manifest.posse,
        b.manifest.posse,
        align(&rows),
        changed,
        lines.len(),
    )
}
