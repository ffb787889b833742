//! The index: every figure of the papers in one scroll.

use super::Record;
use crate::check::Judgement;
use crate::figures::{Figure, Status};

/// The index as Markdown. `records` has what is known of each figure, in their order.
pub(super) fn index(figures: &[Figure], records: &[Option<Record>]) -> String {
    let known: Vec<&Record> = records.iter().flatten().collect();
    let minutes: f64 = known.iter().map(|record| record.processor_minutes).sum();
    let cells: usize = known.iter().map(|record| record.cells).sum();
    let mut text = format!(
        "# Figures and tables of the four papers\n\nResults of record, made by `posse reproduce --all --gallery docs/figures`: {} of {} figures, {cells} cells, {:.1} \
         processor-hours. Each picture leads to a page with the claims, the numbers with error bars, cost and settings. PASS holds; \
         DEVIATES is something a paper reports that did not come out here; FAIL is a claim of ours that must hold and does not.\n",
        known.len(),
        figures.len(),
        minutes / 60.0
    );
    text.push_str(&deviations(&known));
    let mut paper = "";
    for (figure, record) in figures.iter().zip(records) {
        if figure.paper != paper {
            paper = figure.paper;
            text.push_str(&format!("\n## {paper}\n"));
        }
        text.push_str(&match record {
            Some(record) => entry(record),
            None => absent(figure),
        });
    }
    text
}

/// What did not come out as published, in one list.
fn deviations(records: &[&Record]) -> String {
    let mut text = String::new();
    for record in records {
        for check in record.checks.iter().filter(|check| check.result != Judgement::Pass) {
            text.push_str(&format!(
                "- [{}]({}/README.md) {}: {}\n",
                record.id,
                record.id,
                check.result.word(),
                check.says
            ));
        }
    }
    if text.is_empty() { text } else { format!("\n## What deviates, or cannot be told yet\n\n{text}") }
}

fn entry(record: &Record) -> String {
    let count = |result: Judgement| record.checks.iter().filter(|check| check.result == result).count();
    let picture = record.pictures.first().map_or_else(String::new, |picture| {
        format!("[![{}]({}/{picture})]({}/README.md)\n\n", record.shows, record.id, record.id)
    });
    format!(
        "\n### [{}]({}/README.md): {}\n\n{picture}{} PASS, {} DEVIATES, {} FAIL, {} INCONCLUSIVE; {} cells with {} seeds, {:.1} processor-minutes.\n",
        record.id,
        record.id,
        record.shows,
        count(Judgement::Pass),
        count(Judgement::Deviates),
        count(Judgement::Fail),
        count(Judgement::Inconclusive),
        record.cells,
        record.seeds,
        record.processor_minutes
    )
}

fn absent(figure: &Figure) -> String {
    let why = match figure.status {
        Status::Available => "can be run, and was not run at full size for this page",
        Status::NeedsData => "needs data that posse does not come with",
        Status::NotYet => "cannot be run yet",
    };
    format!("\n### {}: {}\n\nNot here: it {why}. `posse reproduce {}`\n", figure.id, figure.shows, figure.id)
}
