//! The index: every figure of the papers in one scroll.

use super::{Record, cost, counts};
use crate::check::Judgement;
use crate::figures::{self, Figure, Status};

/// The index as Markdown. `records` has what is known of each figure, in their order.
pub(super) fn index(figures: &[Figure], records: &[Option<Record>]) -> String {
    let known: Vec<&Record> = records.iter().flatten().collect();
    let minutes: f64 = known.iter().map(|record| record.processor_minutes).sum();
    let clock: f64 = known.iter().filter_map(|record| Some(record.clock?.seconds / 60.0)).sum();
    let cells: usize = known.iter().map(|record| record.cells).sum();
    let mut text = format!(
        "# Figures and tables of the four papers\n\nResults of record, made by `posse reproduce --all --out results --gallery docs/figures`: {} of {} figures at full size, {cells} cells, {:.1} \
         minutes of one processor, {clock:.0} minutes by the clock. Each picture leads to a page with the claims, the numbers with error bars, cost and settings. PASS holds; \
         DEVIATES is something a paper reports that did not come out here; FAIL is a claim of ours that must hold and does not; INCONCLUSIVE is what the \
         seeds cannot tell from noise.\n\n",
        known.len(),
        figures.len(),
        minutes
    );
    text.push_str(&table(figures, records));
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

/// All figures with their verdicts and cost, a line each.
fn table(figures: &[Figure], records: &[Option<Record>]) -> String {
    let mut text = String::from(
        "| figure | shows | verdicts | cells | processor-minutes | minutes by the clock |\n|---|---|---|---:|---:|---:|\n",
    );
    for (figure, record) in figures.iter().zip(records) {
        text.push_str(&match record {
            Some(record) => format!(
                "| [{}]({}/README.md) | {} | {} | {} | {:.1} | {} |\n",
                record.id,
                record.id,
                record.shows,
                counts(record),
                record.cells,
                record.processor_minutes,
                record.clock.map_or_else(String::new, |clock| format!("{:.1}", clock.seconds / 60.0))
            ),
            None => format!("| {} | {} | {} | | | |\n", figure.id, figure.shows, reason(figure)),
        });
    }
    text
}

/// What did not come out as published, in one list.
fn deviations(records: &[&Record]) -> String {
    let mut text = String::new();
    for record in records {
        for check in record.checks.iter().filter(|check| check.result != Judgement::Pass) {
            let why = check.why.as_ref().map_or_else(String::new, |why| format!(". {why}"));
            text.push_str(&format!(
                "- [{}]({}/README.md) **{}** {}{why}\n",
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
    let picture = record.pictures.first().map_or_else(String::new, |picture| {
        format!("[![{}]({}/{picture})]({}/README.md)\n\n", record.shows, record.id, record.id)
    });
    format!(
        "\n### [{}]({}/README.md): {}\n\n{picture}{}; {} cells with {} seeds, {}.\n",
        record.id,
        record.id,
        record.shows,
        counts(record),
        record.cells,
        record.seeds,
        cost(record)
    )
}

fn absent(figure: &Figure) -> String {
    let text = figures::current_text(&figure.id);
    let can_fetch = text.as_deref().and_then(figures::data_set).is_some();
    let fetch = if figure.status == Status::NeedsData && can_fetch { " --fetch" } else { "" };
    // What is known of it without results of record, if its experiment says something.
    let description = text.as_deref().and_then(figures::description);
    format!(
        "\n### {}: {}\n\nNot here: {}. `posse reproduce {}{fetch}`\n{}",
        figure.id,
        figure.shows,
        reason(figure),
        figure.id,
        description.map_or_else(String::new, |text| format!("\n{text}\n"))
    )
}

/// Why a figure has no page.
const fn reason(figure: &Figure) -> &'static str {
    match figure.status {
        Status::Available => "not run at full size yet",
        Status::NeedsData => "needs its publisher's data, which was not at hand",
        Status::NotYet => "cannot be run yet",
    }
}
