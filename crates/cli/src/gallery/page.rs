//! The page of one figure.

use std::path::PathBuf;

use super::{Record, cost, counts};
use crate::report::Material;
use crate::table::{self, align, compact};

/// Most bytes of a picture on a page: beyond that, a browser does not like to draw it.
const LARGEST_PICTURE: u64 = 250_000;
/// Most pictures of a page.
const MAX_PICTURES: usize = 3;
/// Most lines of numbers under a claim, and of the table.
const MAX_NUMBERS: usize = 12;
const MAX_LINES: usize = 60;

/// Keeps the pictures that say most, removes the others, and returns their names. What the experiment plans comes first, then
/// trade-offs, then what happens over time.
pub(super) fn chosen(written: Vec<PathBuf>) -> anyhow::Result<Vec<String>> {
    let wanted = [
        "figure-",
        "trade-off-messages",
        "by-number-of-agents-each",
        "over-time-each",
        "over-time-regret",
        "over-time-messages",
    ];
    let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let rank = |path: &PathBuf| wanted.iter().position(|prefix| name(path).starts_with(prefix));
    let mut kept: Vec<(usize, PathBuf)> = Vec::new();
    let mut planned: Vec<String> = Vec::new();
    for path in written {
        let small = std::fs::metadata(&path)?.len() <= LARGEST_PICTURE;
        // A planned figure has a view for each unit of communication. The first is the one that was planned.
        let figure = name(&path).splitn(3, '-').take(2).collect::<Vec<_>>().join("-");
        let again = figure.starts_with("figure-") && planned.contains(&figure);
        match rank(&path) {
            Some(rank) if small && !again => {
                planned.push(figure);
                kept.push((rank, path));
            }
            _ => std::fs::remove_file(&path)?,
        }
    }
    kept.sort();
    // Where the experiment says what its figure shows, nothing else is needed.
    let count = kept.iter().filter(|(rank, _)| *rank == 0).count();
    let most = if count > 0 { count.min(MAX_PICTURES) } else { MAX_PICTURES };
    for (_, path) in kept.iter().skip(most) {
        std::fs::remove_file(path)?;
    }
    kept.truncate(most);
    Ok(kept.iter().map(|(_, path)| format!("{}.svg", name(path))).collect())
}

/// The page of one figure as Markdown.
pub(super) fn page(record: &Record, material: &Material<'_>, experiment: &str) -> String {
    let Record { id, paper, shows, .. } = record;
    let mut text = format!(
        "# {id}: {shows}\n\n*{paper}*. [All figures](../README.md)\n\n**{}**; {} cells, {} seeds for each setting, {}.\n\n",
        counts(record),
        record.cells,
        record.seeds,
        cost(record)
    );
    for picture in &record.pictures {
        text.push_str(&format!("![{shows}]({picture})\n\n"));
    }
    text.push_str(&format!("## What is claimed, and what is run\n\n{}\n", preface(experiment)));
    text.push_str(&claims(record));
    text.push_str(&published(material));
    text.push_str(&numbers(record, material));
    text.push_str(&format!(
        "\n## Cost and settings\n\n{} cells, {}, on a machine with {}, by {}. All settings: [experiments/{id}.toml](../../../experiments/{id}.toml). To run it again:\n\n```sh\nposse reproduce {id} --out results/{id}\n```\n",
        record.cells,
        cost(record),
        record.host,
        record.posse
    ));
    text
}

/// The claims with their verdicts, the numbers behind them, and why one does not hold.
fn claims(record: &Record) -> String {
    let mut text = String::from("## What became of the claims\n\n");
    if record.checks.is_empty() {
        text.push_str("This experiment makes no claim that a program could judge.\n");
    }
    for check in &record.checks {
        text.push_str(&format!("- **{}** {}\n", check.result.word(), check.says));
        for line in check.numbers.iter().take(MAX_NUMBERS) {
            text.push_str(&format!("  - {}\n", line.replace('*', "\\*")));
        }
        if check.numbers.len() > MAX_NUMBERS {
            text.push_str(&format!("  - and {} more\n", check.numbers.len() - MAX_NUMBERS));
        }
        if let Some(why) = &check.why {
            text.push_str(&format!("  - *Why:* {why}\n"));
        }
    }
    text
}

/// What the paper published, if the experiment has it point by point.
fn published(material: &Material<'_>) -> String {
    let mut lines = vec![["published", "at", "value"].map(String::from)];
    for figure in material.figures() {
        for own in &figure.published {
            lines.extend(own.points.iter().map(|(x, y)| [own.name.clone(), compact(*x), compact(*y)]));
        }
    }
    if lines.len() == 1 {
        return String::new();
    }
    format!("\n## Published numbers\n\nThe picture has them beside ours.\n\n```text\n{}```\n", align(&lines))
}

/// Means with errors, setting by setting.
fn numbers(record: &Record, material: &Material<'_>) -> String {
    let summary = table::summary(material.groups(), material.figures(), &material.rows);
    let lines: Vec<&str> = summary.lines().collect();
    let shown = lines[..lines.len().min(MAX_LINES)].join("\n");
    let rest = if lines.len() > MAX_LINES {
        format!("\nand {} lines more in summary.parquet", lines.len() - MAX_LINES)
    } else {
        String::new()
    };
    let failed: String = material.failures.iter().map(|(id, why)| format!("\n{id} failed: {why}")).collect();
    format!(
        "\n## Numbers\n\nMeans over {} seeds, with standard errors. All of them, cell by cell: [summary.parquet](summary.parquet).\n\n```text\n{shown}{rest}{failed}\n```\n",
        record.seeds
    )
}

/// What the experiment says about itself: the comment at its top.
fn preface(experiment: &str) -> String {
    let comment = experiment.lines().take_while(|line| line.starts_with('#'));
    let mut text = String::new();
    let mut in_table = false;
    for line in comment {
        let line = line.trim_start_matches('#');
        // What is indented is a table or a formula, and keeps its columns.
        let table = line.starts_with("   ");
        if table != in_table {
            text.push_str("```");
            text.push_str(if table { "text\n" } else { "\n" });
            in_table = table;
        }
        text.push_str(if table { line.trim_end() } else { line.trim() });
        text.push('\n');
    }
    if in_table {
        text.push_str("```\n");
    }
    text
}
