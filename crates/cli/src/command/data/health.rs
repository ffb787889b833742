//! `posse data health`: whether experiments on prepared data can be believed.

use std::path::{Path, PathBuf};

use anyhow::Context;
use posse_data::health::{Finding, Health, Histogram, Severity, examine};

use super::{Ending, print, print_json};
use crate::report::{escape, plain};
use crate::results::durable;

/// Look for what would make results mislead: rank, empty columns, order of time, popularity, propensities
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse data health data/lastfm --html lastfm.html

`posse data prepare` says the findings that matter most by itself. The exit code is 1 if there is a PROBLEM.")]
pub(super) struct Args {
    /// The directory with the prepared data
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Also write a page with everything
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Ending> {
    let health = examine(&args.directory)?;
    if let Some(path) = &args.html {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        durable::replace_text(path, &page(&args.directory, &health))?;
    }
    if args.json {
        print_json(&health)?;
    } else {
        print(&text(&health))?;
        if let Some(path) = &args.html {
            print(&format!("\nwrote {}\n", path.display()))?;
        }
    }
    Ok(if health.has_problems() { Ending::Failed } else { Ending::Done })
}

/// The facts and findings as text for the terminal.
fn text(health: &Health) -> String {
    let width = health.facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let facts = health.facts.iter().map(|(name, value)| format!("{name:<width$}  {value}\n"));
    let mut text: String = facts.collect();
    text.push('\n');
    for finding in &health.findings {
        text.push_str(&line(finding));
    }
    for Histogram { of, bars } in &health.histograms {
        text.push_str(&format!("\n{of}\n"));
        let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
        let names = bars.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let counts = bars.iter().map(|(_, count)| count.to_string().len()).max().unwrap_or(0);
        for (name, count) in bars {
            let bar = "#".repeat((count * 40).div_ceil(most) as usize);
            text.push_str(&format!("  {name:<names$}  {count:>counts$}  {bar}\n"));
        }
    }
    text
}

/// A finding in one or two lines.
pub(super) fn line(finding: &Finding) -> String {
    let Finding { level, what, advice } = finding;
    let advice = if advice.is_empty() { String::new() } else { format!("\n         {advice}") };
    format!("{:<8} {what}{advice}\n", level.word())
}

fn page(directory: &Path, health: &Health) -> String {
    let title = format!("Health of {}", directory.display());
    let facts: String = health
        .facts
        .iter()
        .map(|(name, value)| {
            format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape(name), escape(value))
        })
        .collect();
    let findings: String = health
        .findings
        .iter()
        .map(|finding| {
            let class = match finding.level {
                Severity::Problem => "fail",
                Severity::Notice => "deviates",
                Severity::Good => "pass",
            };
            format!(
                "<tr><td class=\"{class}\">{}</td><td>{}</td><td>{}</td></tr>\n",
                finding.level.word(),
                escape(&finding.what),
                escape(&finding.advice)
            )
        })
        .collect();
    let histograms: String = health.histograms.iter().map(histogram).collect();
    let body = format!(
        "<header><h1>{}</h1></header>\n<main>\n<section id=\"findings\"><h2>Findings</h2>\n\
         <div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"findings\"><table class=\"verdicts\"><thead><tr>\
         <th scope=\"col\">level</th><th scope=\"col\">what was found</th><th scope=\"col\">what to do</th></tr></thead>\
         <tbody>\n{findings}</tbody></table></div></section>\n{histograms}\
         <section id=\"facts\"><h2>Facts</h2>\n<table class=\"plain\"><tbody>\n{facts}</tbody></table></section>\n</main>\n\
         <footer>Made by <code>posse data health</code>. Everything is in this file.</footer>\n",
        escape(&title)
    );
    plain(&title, "What would make results on this data mislead, and the facts about it.", &body)
}

fn histogram(histogram: &Histogram) -> String {
    let most = histogram.bars.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let rows: String = histogram
        .bars
        .iter()
        .map(|(name, count)| {
            let width = 100.0 * *count as f64 / most as f64;
            // A bar is never thinner than can be seen, so nothing has none.
            let bar = if *count == 0 {
                String::new()
            } else {
                format!("<span style=\"width:{width:.1}%\"></span>")
            };
            format!(
                "<tr><th scope=\"row\">{}</th><td>{count}</td><td class=\"length c0\">{bar}</td></tr>\n",
                escape(name)
            )
        })
        .collect();
    format!(
        "<section><h2>{}</h2>\n<table class=\"histogram\"><tbody>\n{rows}</tbody></table></section>\n",
        escape(&histogram.of)
    )
}
