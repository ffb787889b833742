//! Results of record as pages that people can look at: one for each figure, and an index that shows all of them.
//!
//! A page has what was claimed, what came out, what became of the claims, the figures, the cost and the settings. Beside it lie
//! the numbers (`summary.parquet`) and `record.json`, which says by hashes which experiment and which numbers it was made of. A
//! test compares them, so that no page can outlive its experiment unnoticed.

mod index;
mod page;

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::check::{Judgement, Verdict};
use crate::command::minutes;
use crate::figures::{self, Figure};
use crate::report::{Material, write_svg};
use crate::results::{Build, Clock, Host, Made, durable};

const RECORD: &str = "record.json";
const SUMMARY: &str = "summary.parquet";

/// What a page was made of.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The id of the figure.
    pub(crate) id: String,
    /// The paper that published it.
    pub(crate) paper: String,
    /// What the figure shows, in a line.
    pub(crate) shows: String,
    /// SHA-256 of what the experiment says: its text without comments, empty lines and `processor_minutes`.
    pub(crate) experiment_sha256: String,
    /// SHA-256 of the numbers beside the page.
    pub(crate) summary_sha256: String,
    /// The build of posse that ran it.
    pub(crate) posse: Build,
    /// The class of machine that it ran on.
    pub(crate) host: Host,
    /// How many cells there are.
    pub(crate) cells: usize,
    /// How many seeds each setting ran with.
    pub(crate) seeds: u64,
    /// What all cells took, on one processor.
    pub(crate) processor_minutes: f64,
    /// What its run took by the clock, on all processors of that machine, if the results say so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) clock: Option<Clock>,
    /// The cell that takes the least time, by its place in the plan: a test runs it again.
    pub(crate) quickest_cell: usize,
    /// What the beginning of that cell added up to, if even that cell takes long: the test then runs the beginning.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) beginning: Option<Beginning>,
    /// What became of the claims.
    pub(crate) checks: Vec<Verdict>,
    /// The pictures, the first of which the index shows.
    pub(crate) pictures: Vec<String>,
}

/// What a run added up to after its first interactions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Beginning {
    /// How many interactions these were, of all agents together.
    pub(crate) interactions: u64,
    /// Their regret, reward, messages, rounds and bytes sent by agents.
    pub(crate) regret: f64,
    pub(crate) reward: f64,
    pub(crate) messages: u64,
    pub(crate) rounds: u64,
    pub(crate) bytes_up: u64,
}

/// Cells that took more processor-seconds than this are not run again as a whole by a test.
const QUICK: f64 = 0.3;
/// The share of such a cell that is run again.
const BEGINNING: f64 = 0.04;

impl Beginning {
    /// The beginning of a run, if the run takes long.
    fn of(run: &crate::row::Record) -> Option<Self> {
        if run.seconds <= QUICK {
            return None;
        }
        let most = BEGINNING * run.tally.interactions as f64;
        let point = run.curve.iter().rev().find(|point| point.interactions as f64 <= most)?;
        Some(Self {
            interactions: point.interactions,
            regret: point.regret,
            reward: point.reward,
            messages: point.messages(),
            rounds: point.rounds,
            bytes_up: point.up.bytes,
        })
    }
}

/// Writes the page of a figure, whose experiment has this text, and what belongs to it into a directory of pages.
pub(crate) fn write_page(pages: &Path, (figure, text): (&Figure, &str), made: &Made) -> anyhow::Result<()> {
    let own = pages.join(&figure.id);
    if own.exists() {
        std::fs::remove_dir_all(&own).with_context(|| format!("cannot replace {}", own.display()))?;
    }
    std::fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
    let material = Material::new(made);
    let pictures = page::chosen(write_svg(&material, &own, false)?)?;
    // Not a copy of the file in the results: an earlier build may have named some cells otherwise.
    made.write_summary(&own.join(SUMMARY), &material.rows)?;
    let seconds = |cell: &usize| match &made.outcomes[*cell] {
        Some(Ok(record)) => record.seconds,
        _ => f64::INFINITY,
    };
    let quickest = (0..made.cells.len()).min_by(|a, b| seconds(a).total_cmp(&seconds(b))).unwrap_or(0);
    let record = Record {
        id: figure.id.clone(),
        paper: figure.paper.into(),
        shows: figure.shows.clone(),
        experiment_sha256: sha256(essence(text).as_bytes()),
        summary_sha256: sha256(&std::fs::read(own.join(SUMMARY))?),
        posse: made.manifest.posse.clone(),
        host: made.manifest.host.clone(),
        cells: made.cells.len(),
        seeds: made.experiment.repetitions,
        processor_minutes: minutes(made),
        clock: made.manifest.clock,
        quickest_cell: quickest,
        beginning: made.outcomes[quickest].as_ref().and_then(|run| Beginning::of(run.as_ref().ok()?)),
        checks: material.verdicts.clone().unwrap_or_default(),
        pictures,
    };
    durable::replace_text(&own.join("README.md"), &page::page(&record, &material, text))?;
    durable::replace_text(&own.join(RECORD), &(serde_json::to_string_pretty(&record)? + "\n"))
}

/// Writes the index of all pages in a directory, which may still be empty.
pub(crate) fn write_index(pages: &Path) -> anyhow::Result<()> {
    let records: Vec<Option<Record>> = figures::all()
        .iter()
        .map(|figure| {
            let text = std::fs::read(pages.join(&figure.id).join(RECORD)).ok()?;
            serde_json::from_slice(&text).ok()
        })
        .collect();
    std::fs::create_dir_all(pages).with_context(|| format!("cannot make {}", pages.display()))?;
    durable::replace_text(&pages.join("README.md"), &index::index(&figures::all(), &records))
}

/// What became of the claims of a page, in numbers: `3 PASS, 1 DEVIATES`.
fn counts(record: &Record) -> String {
    let all = [Judgement::Pass, Judgement::Deviates, Judgement::Fail, Judgement::Inconclusive];
    let count = |result: Judgement| record.checks.iter().filter(|check| check.result == result).count();
    let words: Vec<String> = all
        .into_iter()
        .filter(|result| count(*result) > 0)
        .map(|result| format!("{} {}", count(result), result.word()))
        .collect();
    if words.is_empty() { "no claim to judge".into() } else { words.join(", ") }
}

/// What a figure cost: `3.3 processor-minutes, 1.7 minutes by the clock`.
fn cost(record: &Record) -> String {
    let processor = format!("{:.1} processor-minutes", record.processor_minutes);
    let Some(clock) = record.clock else { return processor };
    let by_the_clock = format!("{:.1} minutes by the clock", clock.seconds / 60.0);
    match record.cells.saturating_sub(clock.cells) {
        0 => format!("{processor}, {by_the_clock}"),
        all if all == record.cells => format!("{processor}; all cells had run before"),
        some => format!("{processor}, {by_the_clock} ({some} cells had run before)"),
    }
}

/// What an experiment says, line by line. Comments can be corrected and its time measured anew without making a page stale.
fn essence(text: &str) -> String {
    let says = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#') && !line.starts_with("processor_minutes")
    };
    text.lines().filter(says).map(|line| format!("{}\n", line.trim())).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
