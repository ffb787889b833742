//! The page of one figure.

use std::path::PathBuf;

use super::Record;
use crate::report::Material;
use crate::table;

/// Most bytes of a picture on a page: beyond that, a browser does not like to draw it.
const LARGEST_PICTURE: u64 = 400_000;
/// Most pictures of a page.
const MOST_PICTURES: usize = 3;
/// Most lines of numbers under a claim, and of the table.
const MOST_NUMBERS: usize = 12;
const MOST_LINES: usize = 60;

/// Keeps the pictures that say most, removes the others, and returns their names. Trade-offs come first, then what happens over
/// time.
pub(super) fn chosen(written: Vec<PathBuf>) -> anyhow::Result<Vec<String>> {
    let wanted = [
        "figure-",
        "trade-off-regret",
        "trade-off",
        "by-number-of-agents-each",
        "over-time-each",
        "over-time-regret",
        "over-time-messages",
    ];
    let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let rank = |path: &PathBuf| wanted.iter().position(|prefix| name(path).starts_with(prefix));
    let mut kept: Vec<(usize, PathBuf)> = Vec::new();
    for path in written {
        let small = std::fs::metadata(&path)?.len() <= LARGEST_PICTURE;
        match rank(&path) {
            Some(rank) if small => kept.push((rank, path)),
            _ => std::fs::remove_file(&path)?,
        }
    }
    kept.sort();
    for (_, path) in kept.iter().skip(MOST_PICTURES) {
        std::fs::remove_file(path)?;
    }
    kept.truncate(MOST_PICTURES);
    Ok(kept.iter().map(|(_, path)| format!("{}.svg", name(path))).collect())
}

/// The page of one figure as Markdown.
pub(super) fn page(record: &Record, material: &Material<'_>, experiment: &str) -> String {
    let Record { id, paper, shows, .. } = record;
    let mut text = format!(
        "# {id}: {shows}\n\n*{paper}*\n\n## What is claimed, and what is run\n\n{}\n",
        preface(experiment)
    );
    for picture in &record.pictures {
        text.push_str(&format!("![{shows}]({picture})\n\n"));
    }
    text.push_str("## What became of the claims\n\n");
    if record.checks.is_empty() {
        text.push_str("This experiment makes no claim.\n");
    }
    for check in &record.checks {
        text.push_str(&format!("- **{}** {}\n", check.result.word(), check.says));
        for line in check.numbers.iter().take(MOST_NUMBERS) {
            text.push_str(&format!("  - {line}\n"));
        }
        if check.numbers.len() > MOST_NUMBERS {
            text.push_str(&format!("  - and {} more\n", check.numbers.len() - MOST_NUMBERS));
        }
    }
    let summary = table::summary(material.groups(), material.figures(), &material.rows);
    let lines: Vec<&str> = summary.lines().collect();
    let shown = lines[..lines.len().min(MOST_LINES)].join("\n");
    let rest = if lines.len() > MOST_LINES {
        format!("\nand {} lines more in summary.parquet", lines.len() - MOST_LINES)
    } else {
        String::new()
    };
    text.push_str(&format!(
        "\n## Numbers\n\nMeans over {} seeds, with standard errors. All of them, cell by cell: [summary.parquet](summary.parquet).\n\n```text\n{shown}{rest}\n```\n",
        record.seeds
    ));
    text.push_str(&format!(
        "\n## Cost and settings\n\n{} cells, {:.1} minutes of one processor, {}. All settings: [experiments/{id}.toml](../../../experiments/{id}.toml). To run it again:\n\n```sh\nposse reproduce {id} --out results/{id}\n```\n",
        record.cells, record.processor_minutes, record.posse
    ));
    text
}

/// What the experiment says about itself: the comment at its top.
fn preface(experiment: &str) -> String {
    let comment = experiment.lines().take_while(|line| line.starts_with('#'));
    let mut text = String::new();
    for line in comment {
        let line = line.trim_start_matches('#');
        // What is indented is a table or a formula.
        let line = if line.starts_with("   ") {
            format!("    {}", line.trim_start())
        } else {
            line.trim().to_owned()
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}
