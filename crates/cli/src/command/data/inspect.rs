//! `posse data inspect`: what is in a prepared directory.

use std::path::{Path, PathBuf};

use posse_data::decision_log::DECISIONS;
use posse_data::recommender::USERS;
use posse_data::store::{ColumnKind, Manifest, StoredTable, scan};
use serde_json::{Value, json};

use super::{Ending, print, print_json};

/// Show what is in a prepared directory: counts, settings, sources and histograms
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory with the prepared data
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Ending> {
    let manifest = Manifest::read(&args.directory)?;
    let histograms = histograms(&args.directory, &manifest)?;
    if args.json {
        let histograms: serde_json::Map<String, Value> =
            histograms.iter().map(|histogram| (histogram.of.clone(), json!(histogram.bars))).collect();
        print_json(&json!({ "manifest": manifest, "histograms": histograms }))?;
    } else {
        print(&describe(&manifest, &histograms))?;
    }
    Ok(Ending::Done)
}

/// How often there is what.
struct Histogram {
    of: String,
    bars: Vec<(String, u64)>,
}

/// The width of the longest bar, in characters.
const BAR: u64 = 40;
/// How many bars a histogram of numbers has at most.
const BARS: u64 = 10;

fn describe(manifest: &Manifest, histograms: &[Histogram]) -> String {
    let mut text = format!("{} ({})\n", manifest.name, manifest.kind);
    let mut line = |key: &str, value: String| text.push_str(&format!("  {key:<9} {value}\n"));
    line("hash", manifest.hash.clone());
    line("licence", manifest.licence.clone());
    let settings: Vec<String> =
        manifest.settings.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    line("settings", settings.join(", "));
    for source in &manifest.sources {
        line("source", format!("{}, {} bytes, sha256 {}", source.file, source.bytes, source.sha256));
    }
    for StoredTable { file, rows, columns, .. } in &manifest.tables {
        line("table", format!("{file}: {rows} rows, {} columns", columns.len()));
    }
    for (what, count) in manifest.counts.iter().filter(|(what, _)| !what.starts_with("class ")) {
        line("count", format!("{count} {what}"));
    }
    for Histogram { of, bars } in histograms {
        text.push_str(&format!("\n{of}\n"));
        let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
        let (names, counts) =
            (width(bars, |(name, _)| name.clone()), width(bars, |(_, count)| count.to_string()));
        for (name, count) in bars {
            let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
            text.push_str(&format!("  {name:<names$}  {count:>counts$}  {bar}\n"));
        }
    }
    text
}

fn width(bars: &[(String, u64)], column: impl Fn(&(String, u64)) -> String) -> usize {
    bars.iter().map(|bar| column(bar).chars().count()).max().unwrap_or(0)
}

/// One or two histograms that say most about this kind of data.
fn histograms(directory: &Path, manifest: &Manifest) -> anyhow::Result<Vec<Histogram>> {
    let mut all = Vec::new();
    if let (Some(classes), "table") = (manifest.names.get("classes"), manifest.kind.as_str()) {
        let rows = |class: &String| manifest.counts.get(&format!("class {class}")).copied().unwrap_or(0);
        let bars = classes.iter().map(|class| (class.clone(), rows(class))).collect();
        all.push(Histogram { of: "rows by class".into(), bars });
    }
    if let ("recommender", Ok(users)) = (manifest.kind.as_str(), manifest.table(USERS, directory)) {
        let mut bars = Vec::new();
        scan(directory, users, |columns| {
            for &events in columns[1].wholes() {
                let place = events.max(1).ilog10() as usize;
                bars.resize(bars.len().max(place + 1), 0);
                bars[place] += 1;
            }
            Ok(())
        })?;
        let name =
            |place: usize| format!("{} to {}", 10u64.pow(place as u32), 10u64.pow(place as u32 + 1) - 1);
        let bars = bars.into_iter().enumerate().map(|(place, count)| (name(place), count)).collect();
        all.push(Histogram { of: "users by number of events".into(), bars });
    }
    if let ("log", Ok(decisions)) = (manifest.kind.as_str(), manifest.table(DECISIONS, directory)) {
        let (mut rewards, mut propensities) = (Vec::new(), Vec::new());
        scan(directory, decisions, |columns| {
            rewards.extend(columns[4].numbers());
            propensities.extend(columns[5].numbers());
            Ok(())
        })?;
        all.push(Histogram { of: "rows by reward".into(), bars: spread(&rewards) });
        all.push(Histogram { of: "rows by propensity".into(), bars: spread(&propensities) });
    }
    let Some(table) = manifest.tables.first() else { return Ok(all) };
    let whole =
        |name: &str| table.columns.iter().position(|column| *column == (name.to_owned(), ColumnKind::Whole));
    if manifest.kind == "clusters"
        && let (Some(rows), Some(wanted)) = (whole("rows"), whole("wanted"))
    {
        let mut bars = vec![0u64; BARS as usize];
        scan(directory, table, |columns| {
            for (&rows, &wanted) in columns[rows].wholes().iter().zip(columns[wanted].wholes()) {
                let share = wanted as f64 / rows as f64;
                bars[((share * BARS as f64) as usize).min(BARS as usize - 1)] += 1;
            }
            Ok(())
        })?;
        let name = |index: usize| {
            format!("{:.1} to {:.1}", index as f64 / BARS as f64, (index + 1) as f64 / BARS as f64)
        };
        let bars = bars.into_iter().enumerate().map(|(index, count)| (name(index), count)).collect();
        all.push(Histogram { of: "arms by mean reward".into(), bars });
    }
    Ok(all)
}

/// How many values there are of each, or in each of some ranges if there are too many different ones.
fn spread(values: &[f64]) -> Vec<(String, u64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.first().copied().unwrap_or(0.0), sorted.last().copied().unwrap_or(0.0));
    let mut different = sorted.clone();
    different.dedup();
    if different.len() as u64 <= BARS {
        let count = |value: &f64| sorted.iter().filter(|other| *other == value).count() as u64;
        return different.iter().map(|value| (value.to_string(), count(value))).collect();
    }
    let width = (high - low) / BARS as f64;
    let mut bars: Vec<(String, u64)> = (0..BARS)
        .map(|bar| (format!("{:.3} to {:.3}", low + width * bar as f64, low + width * (bar + 1) as f64), 0))
        .collect();
    for value in sorted {
        bars[(((value - low) / width) as usize).min(BARS as usize - 1)].1 += 1;
    }
    bars
}
