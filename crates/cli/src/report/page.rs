//! The page: one HTML file with its style, its script, its pictures and its numbers inside.

use serde_json::{Value, json};

use super::comparison;
use super::draw;
use super::figure::{Figure, FigureView, Form, NumberRow, Numbers, Plot, Series, Xy};
use super::material::{Line, Material};
use super::style::{DASHES, MARKERS, colours, readable, shapes};
use super::svg::{breakable, escape};
use crate::check::{Judgement, Verdict};
use crate::experiment::DataSource;
use crate::statement::{self, Statement};
use crate::table::Estimate;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A column of the summary: heading, and what is added up.
type SummaryColumn = (&'static str, &'static [&'static str]);

/// The columns of every summary.
const COLUMNS: [SummaryColumn; 7] = [
    ("regret", &["regret"]),
    ("messages", &["messages"]),
    ("control messages", &["control_messages"]),
    ("scalars", &["scalars_up", "scalars_down"]),
    ("bytes", &["bytes_up", "bytes_down"]),
    ("reward", &["reward"]),
    ("rounds", &["rounds"]),
];

/// The whole report as one HTML page.
pub(super) fn page(material: &Material<'_>, figures: &[Figure]) -> String {
    let manifest = &material.made.manifest;
    let title = manifest.title.as_deref().unwrap_or(&manifest.experiment);
    let sections = [
        contents(material, figures),
        verdicts(material),
        figures.iter().map(figure).collect::<String>(),
        comparison::section(material),
        summary(material),
        privacy(material),
        failures(material),
        provenance(material),
    ];
    let description = format!(
        "Results of the experiment {}: claims and verdicts, figures, numbers with error bars, provenance.",
        manifest.experiment
    );
    format!(
        "{}<meta name=\"generator\" content=\"{}\">\n</head>\n<body>\n{}<main>\n{}</main>\n\
         <footer>Made by {} with <code>posse report</code>. Everything is in this file.</footer>\n\
         <div id=\"tip\" role=\"status\" hidden></div>\n\
         <script type=\"application/json\" id=\"data\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        head(title, &description),
        escape(&manifest.posse.to_string()),
        header(material, title),
        sections.concat(),
        escape(&manifest.posse.to_string()),
        data(material, figures),
    )
}

/// A page in the same hand as a report, without figures of its own: its title, a sentence on what it shows, and its body.
pub(crate) fn plain(title: &str, description: &str, body: &str) -> String {
    format!("{}</head>\n<body>\n{body}</body>\n</html>\n", head(title, description))
}

/// The beginning of every page, up to the end of its head, which stays open.
fn head(title: &str, description: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"description\" content=\"{}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>\n{}{STYLE}</style>\n",
        escape(description),
        escape(title),
        palette(),
    )
}

/// Colours by day and by night, of lines and of letters.
fn palette() -> String {
    let colours = colours();
    let list = |dark: bool| -> String {
        let colour = |(place, (light, night)): (usize, &(String, String))| {
            let colour = if dark { night } else { light };
            format!("--c{place}:{colour};--t{place}:{};", readable(colour, dark))
        };
        colours.iter().enumerate().map(colour).collect()
    };
    let classes: String = (0..colours.len())
        .map(|place| format!(".c{place}{{color:var(--c{place})}}.c{place} .end{{fill:var(--t{place})}}"))
        .collect();
    format!(
        ":root{{{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}\n{classes}\n{}\n",
        list(false),
        list(true),
        shapes("var(--ink)", "var(--grid)", "var(--paper)")
    )
}

/// Title, warnings, and what was run.
fn header(material: &Material<'_>, title: &str) -> String {
    let manifest = &material.made.manifest;
    let config = &manifest.config;
    let warnings: String = material
        .warnings()
        .iter()
        .map(|warning| format!("<p class=\"warning\" role=\"note\">{}</p>\n", escape(warning)))
        .collect();
    let description = config["description"]
        .as_str()
        .map_or_else(String::new, |text| format!("<p>{}</p>\n", escape(text.trim())));
    let mut algorithms: Vec<&str> = Vec::new();
    for group in &material.made.experiment.groups {
        let name = group.config.algorithm.name();
        if !algorithms.contains(&name) {
            algorithms.push(name);
        }
    }
    let interactions = match &config["horizon_each"] {
        Value::Null => words(&config["horizon"]),
        each => format!("{} of each agent", words(each)),
    };
    let facts = [
        ("experiment", manifest.experiment.clone()),
        ("algorithms", algorithms.join(", ")),
        ("agents", words(&config["agents"])),
        ("interactions", interactions),
        ("world", words(&config["environment"]["kind"])),
        ("settings", material.made.experiment.groups.len().to_string()),
        ("seeds each", words(&config["repetitions"])),
        ("cells done", format!("{} of {}", material.rows.len(), material.made.cells.len())),
    ];
    let facts: String = facts
        .iter()
        .map(|(name, value)| {
            let long = if value.len() > 24 { " class=\"long\"" } else { "" };
            format!("<div{long}><dt>{name}</dt><dd>{}</dd></div>\n", escape(value))
        })
        .collect();
    format!(
        "<header>\n<h1>{}</h1>\n{warnings}{description}<dl class=\"facts\">\n{facts}</dl>\n</header>\n",
        escape(title)
    )
}

/// A setting in words; a sweep as a list.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Null => "–".into(),
        other => other.to_string(),
    }
}

/// Where everything on the page is.
fn contents(material: &Material<'_>, figures: &[Figure]) -> String {
    let entry = |id: &str, title: &str| format!("<li><a href=\"#{id}\">{}</a></li>\n", escape(title));
    let mut list = entry("checks", "Checks");
    list.extend(figures.iter().map(|figure| entry(&figure.id, &figure.title)));
    if comparison::has_pairs(material) {
        list.push_str(&entry("comparison", "Comparison seed by seed"));
    }
    list.push_str(&entry("summary", "Summary"));
    list.push_str(&entry("provenance", "Provenance"));
    format!("<nav aria-label=\"Contents\"><ul class=\"contents\">\n{list}</ul></nav>\n")
}

/// What became of the checks.
fn verdicts(material: &Material<'_>) -> String {
    let rows: String = match &material.verdicts {
        None => "<p>The checks of this experiment are judged when all of its cells are there.</p>\n".into(),
        Some(verdicts) if verdicts.is_empty() => "<p>This experiment has no checks.</p>\n".into(),
        Some(verdicts) => {
            let note = if material.made.manifest.quick {
                "<p>QUICK: the checks are about the full experiment. Run it without <code>--quick</code> for verdicts.</p>\n"
            } else {
                ""
            };
            let rows: String = verdicts.iter().map(verdict).collect();
            format!(
                "{note}<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"verdicts\"><table class=\"verdicts\"><thead><tr><th scope=\"col\">verdict</th>\
                 <th scope=\"col\">claim</th><th scope=\"col\">numbers</th></tr></thead><tbody>\n{rows}</tbody>\
                 </table></div>\n"
            )
        }
    };
    format!("<section id=\"checks\"><h2>Checks</h2>\n{rows}</section>\n")
}

/// So many lines of numbers stand beside a claim; the others can be opened.
const MAX_CLAIM_LINES: usize = 3;

fn verdict(verdict: &Verdict) -> String {
    let (class, sign) = match verdict.result {
        Judgement::Pass => ("pass", "✓"),
        Judgement::Fail => ("fail", "✗"),
        Judgement::Deviates => ("deviates", "≠"),
        Judgement::Inconclusive => ("inconclusive", "?"),
    };
    let item = |line: &str| format!("<li>{}</li>", escape(line));
    let lines: Vec<String> = verdict.numbers.iter().map(|line| item(line)).collect();
    let why = verdict
        .why
        .as_ref()
        .map_or_else(String::new, |why| format!("<ul>{}</ul>", item(&format!("why: {why}"))));
    // A claim about many settings does not fill the page with their numbers.
    let numbers = match lines.split_at_checked(MAX_CLAIM_LINES) {
        Some((first, rest)) if rest.len() > 1 => format!(
            "<ul>{}</ul><details><summary>{} more</summary><ul>{}</ul></details>",
            first.concat(),
            rest.len(),
            rest.concat()
        ),
        _ => format!("<ul>{}</ul>", lines.concat()),
    };
    format!(
        "<tr><td class=\"{class}\"><span aria-hidden=\"true\">{sign}</span> {}</td><td>{}</td><td>{numbers}{why}</td></tr>\n",
        verdict.result.word(),
        escape(&verdict.says)
    )
}

/// A figure with its controls, its views and their numbers.
fn figure(figure: &Figure) -> String {
    let id = &figure.id;
    let choices: String = if figure.views.len() < 2 {
        String::new()
    } else {
        let choice = |(place, view): (usize, &FigureView)| {
            let checked = if place == 0 { " checked" } else { "" };
            format!(
                "<label><input type=\"radio\" name=\"{id}-view\" value=\"{}\"{checked}> {}</label>",
                view.name, view.name
            )
        };
        let all: String = figure.views.iter().enumerate().map(choice).collect();
        format!("<fieldset class=\"views\"><legend>show</legend>{all}</fieldset>")
    };
    let views: String =
        figure.views.iter().enumerate().map(|(place, own)| view(figure, own, place == 0)).collect();
    let title = escape(&figure.title);
    let tools: String = [("svg", "SVG"), ("png", "PNG"), ("csv", "CSV"), ("copy", "copy numbers")]
        .iter()
        .map(|(what, word)| {
            format!(
                "<button type=\"button\" data-save=\"{what}\" aria-label=\"{title}: {word}\">{word}</button>"
            )
        })
        .collect();
    format!(
        "<section class=\"figure\" id=\"{id}\"><h2>{}</h2>\n<div class=\"controls\">{choices}</div>\n{views}\
         <p class=\"caption\">{}</p>\n<div class=\"tools\"><span>save this figure:</span>{tools}<span class=\"said\" \
         role=\"status\"></span></div></section>\n",
        title,
        escape(&figure.caption)
    )
}

fn view(figure: &Figure, view: &FigureView, first: bool) -> String {
    let hidden = if first { "" } else { " hidden" };
    let (id, name) = (&figure.id, view.name);
    let (switches, legend) = match &view.plot {
        Plot::Xy(xy) => (switches(xy), legend(xy)),
        Plot::Boxes(boxes) => (switch_of_rows(boxes.axis.log), String::new()),
        Plot::Bars(bars) => (switch_of_rows(bars.axis.log), String::new()),
    };
    let (kind, canvas) = match &view.plot {
        Plot::Xy(_) => ("xy", format!("<div class=\"canvas\">{}</div>", draw(figure, view, false).inline())),
        _ => ("rows", both_scales(figure, view)),
    };
    format!(
        "<div class=\"view {kind}\" data-figure=\"{id}\" data-view=\"{name}\"{hidden}>\n{switches}\
         {canvas}\n{legend}<details class=\"numbers\"><summary>The numbers</summary>\n{}</details></div>\n",
        table(&view.numbers(), &format!("the numbers of {}, {name}", figure.title))
    )
}

/// Rows are drawn twice, and the switch shows one of the two.
fn both_scales(figure: &Figure, view: &FigureView) -> String {
    let log_at_first = match &view.plot {
        Plot::Boxes(boxes) => boxes.axis.log,
        Plot::Bars(bars) => bars.axis.log,
        Plot::Xy(_) => false,
    };
    let one = |log: bool| {
        let mut other = view.clone();
        match &mut other.plot {
            Plot::Boxes(boxes) => boxes.axis.log = log,
            Plot::Bars(bars) => bars.axis.log = log,
            Plot::Xy(_) => {}
        }
        let hidden = if log == log_at_first { "" } else { " hidden" };
        format!(
            "<div class=\"canvas\" data-log=\"{log}\"{hidden}>{}</div>",
            draw(figure, &other, false).inline()
        )
    };
    // The one that is seen at first comes first.
    one(log_at_first) + &one(!log_at_first)
}

fn switch_of_rows(log: bool) -> String {
    let checked = if log { " checked" } else { "" };
    format!(
        "<div class=\"switches\"><label><input type=\"checkbox\" data-rows=\"log\"{checked}> log axis</label></div>\n"
    )
}

/// The switches with which the reader makes an axis linear or logarithmic.
fn switches(xy: &Xy) -> String {
    let switch = |axis: &str, log: bool| {
        let checked = if log { " checked" } else { "" };
        format!("<label><input type=\"checkbox\" data-axis=\"{axis}\"{checked}> log {axis}</label>")
    };
    format!("<div class=\"switches\">{}{}</div>\n", switch("x", xy.x.log), switch("y", xy.y.log))
}

/// Buttons that show and hide series.
fn legend(xy: &Xy) -> String {
    let hidden = xy.hidden();
    let entry = |(place, series): (usize, &Series)| {
        let beneath = hidden[place].map_or_else(String::new, |over| {
            format!(" <span class=\"beneath-note\">(under {})</span>", breakable(&xy.series[over].name))
        });
        let (dash, marker) = (DASHES[series.style.dash], MARKERS[series.style.marker]);
        let mark = if series.form == Form::Level {
            String::new()
        } else {
            format!("<path class=\"mark\" transform=\"translate(16 8)\" d=\"{marker}\"/>")
        };
        format!(
            "<li><button type=\"button\" aria-pressed=\"{}\" data-series=\"{place}\"><svg class=\"key c{}\" viewBox=\"0 0 32 16\" \
             aria-hidden=\"true\"><path class=\"line\" stroke-dasharray=\"{dash}\" d=\"M1 8H31\"/>{mark}</svg>{}{beneath}</button></li>\n",
            series.shown,
            series.style.colour,
            breakable(&series.name)
        )
    };
    let list = |shown: bool| -> String {
        let entries = xy.series.iter().enumerate().filter(|(_, series)| series.shown == shown);
        let entries: String = entries.map(entry).collect();
        format!("<ul class=\"legend\" aria-label=\"series: press to show or hide\">\n{entries}</ul>\n")
    };
    let waiting = xy.series.iter().filter(|series| !series.shown).count();
    // Where there are many, those that are not drawn at first do not stand in the way of the others.
    let more = match waiting {
        0 => String::new(),
        1 => format!("<details class=\"more\"><summary>1 more line</summary>\n{}</details>\n", list(false)),
        _ => format!(
            "<details class=\"more\"><summary>{waiting} more lines</summary>\n{}</details>\n",
            list(false)
        ),
    };
    format!("<p class=\"hint\">Press a name to hide or show its line.</p>\n{}{more}", list(true))
}

/// A table that says what a picture says.
fn table(numbers: &Numbers, label: &str) -> String {
    let head: String =
        numbers.header.iter().map(|name| format!("<th scope=\"col\">{}</th>", escape(name))).collect();
    let row = |(name, cells): &NumberRow| {
        let cells: String = cells
            .iter()
            .map(|cell| match cell {
                Some((mean, error)) => number(&Estimate { mean: *mean, error: *error }),
                None => "<td></td>".into(),
            })
            .collect();
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", breakable(name))
    };
    let rows: String = numbers.rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table><thead><tr>{head}</tr></thead>\
         <tbody>\n{rows}</tbody></table></div>\n",
        escape(label)
    )
}

/// A table cell with the rounded number; its attributes hold all digits for scripts.
fn number(estimate: &Estimate) -> String {
    let error = estimate.error.map_or_else(String::new, |error| format!(" data-e=\"{error:?}\""));
    format!("<td data-v=\"{:?}\"{error}>{}</td>", estimate.mean, estimate.with_error())
}

/// The columns of this summary.
fn columns(material: &Material<'_>) -> Vec<SummaryColumn> {
    let mut columns = COLUMNS.to_vec();
    if material.differ_in_agents() {
        columns.insert(1, ("regret each", &["regret_each"]));
    }
    // Trainings fail nowhere but in trouble.
    if material.rows.iter().any(|row| row.tally().failed_trainings > 0) {
        columns.push(("failed trainings", &["failed_trainings"]));
    }
    columns
}

/// A row for each setting; every column sorts.
fn summary(material: &Material<'_>) -> String {
    let columns = columns(material);
    let heading = |name: &str| {
        format!("<th scope=\"col\" aria-sort=\"none\"><button type=\"button\">{name}</button></th>")
    };
    let head: String =
        ["setting", "seeds"].into_iter().chain(columns.iter().map(|(name, _)| *name)).map(heading).collect();
    let row = |line: &Line<'_>| {
        let cells: String = columns.iter().map(|(_, metrics)| number(&line.total(metrics))).collect();
        let seeds = line.rows.len();
        format!(
            "<tr><th scope=\"row\">{}</th><td data-v=\"{seeds}\">{seeds}</td>{cells}</tr>\n",
            breakable(&line.group.id)
        )
    };
    let rows: String = material.lines.iter().map(row).collect();
    format!(
        "<section id=\"summary\"><h2>Summary</h2>\n<p>Means over seeds ± one standard error. Press a heading to sort.</p>\n\
         <div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"summary\"><table class=\"sortable\"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div></section>\n"
    )
}

/// The accountant's statements, if anything is private.
fn privacy(material: &Material<'_>) -> String {
    let statements = statement::statements(&material.made.experiment.groups, &material.rows);
    if statements.is_empty() {
        return String::new();
    }
    let one = |statement: &Statement| {
        let lines: String =
            statement.lines().iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
        format!("<h3>{}</h3>\n<ul>\n{lines}</ul>\n", escape(&statement.setting))
    };
    let all: String = statements.iter().map(one).collect();
    format!(
        "<section id=\"privacy\"><h2>Privacy</h2>\n<p>What the accountant can show for each private setting, the worst of \
         its runs. Noise of simulations follows from the seed: only a deployment keeps the promise.</p>\n{all}</section>\n"
    )
}

/// The section that lists cells that failed; empty if none did.
fn failures(material: &Material<'_>) -> String {
    const SHOWN: usize = 50;
    if material.failures.is_empty() {
        return String::new();
    }
    let line =
        |(id, error): &(&str, &str)| format!("<li><code>{}</code>: {}</li>\n", escape(id), escape(error));
    let lines: String = material.failures.iter().take(SHOWN).map(line).collect();
    let more = material.failures.len().saturating_sub(SHOWN);
    let rest = if more == 0 { String::new() } else { format!("<li>and {more} more</li>\n") };
    format!("<section id=\"failures\"><h2>Cells that failed</h2><ul>\n{lines}{rest}</ul></section>\n")
}

/// Who made the numbers, and of what.
fn provenance(material: &Material<'_>) -> String {
    let manifest = &material.made.manifest;
    let seeds: Vec<u64> = {
        let mut seeds: Vec<u64> = material.made.cells.iter().map(|cell| cell.config.seed.0).collect();
        seeds.sort_unstable();
        seeds.dedup();
        seeds
    };
    let seeds = match seeds[..] {
        [first, .., last] if seeds.len() as u64 == last - first + 1 => format!("{first} to {last}"),
        _ => seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    };
    let run = if manifest.quick { "QUICK: scaled down for a first look" } else { "full" };
    let facts = [
        ("experiment", manifest.experiment.clone()),
        ("run", run.to_owned()),
        ("posse", manifest.posse.version.clone()),
        ("commit", manifest.posse.commit.clone().unwrap_or_else(|| "not known".into())),
        ("machine", manifest.host.to_string()),
        ("seeds", seeds),
        (
            "part of the plan",
            manifest.shard.map_or_else(|| "all of it".into(), |shard| format!("shard {shard}")),
        ),
        (
            "cells",
            format!(
                "{} done, {} failed, {} not run",
                material.rows.len(),
                material.failures.len(),
                material.missing
            ),
        ),
        ("format of results", manifest.format.to_string()),
    ];
    let facts: String = facts
        .iter()
        .map(|(name, value)| format!("<tr><th scope=\"row\">{name}</th><td>{}</td></tr>\n", escape(value)))
        .collect();
    let data: String = manifest.data.iter().map(source).collect();
    let config = toml::to_string(&material.made.experiment.resolved).unwrap_or_default();
    format!(
        "<section id=\"provenance\"><h2>Provenance</h2>\n<table class=\"plain\"><tbody>\n{facts}{data}</tbody></table>\n\
         <details><summary>The experiment with all defaults: save it, and <code>posse run</code> gives these numbers again</summary>\n\
         <pre tabindex=\"0\">{}</pre></details></section>\n",
        escape(&config)
    )
}

/// Prepared data that cells read, with the publisher's files that it was made of.
fn source(source: &DataSource) -> String {
    let files: String = source
        .files
        .iter()
        .map(|file| format!("<li>{}: sha256 <code>{}</code></li>", escape(&file.file), escape(&file.sha256)))
        .collect();
    format!(
        "<tr><th scope=\"row\">data</th><td>{} ({}, {}), content <code>{}</code><ul>{files}</ul></td></tr>\n",
        escape(&source.path),
        escape(&source.name),
        escape(&source.kind),
        escape(&source.hash)
    )
}

/// The numbers behind lines and dots, for the script.
fn data(material: &Material<'_>, figures: &[Figure]) -> String {
    let series = |series: &Series| {
        let form = match series.form {
            Form::Line => "line",
            Form::Dots => "dots",
            Form::Level => "level",
        };
        let column =
            |of: &dyn Fn(&super::figure::Point) -> Value| series.points.iter().map(of).collect::<Vec<_>>();
        json!({
            "name": series.name, "form": form, "colour": series.style.colour, "dash": series.style.dash,
            "marker": series.style.marker, "shown": series.shown,
            "x": column(&|point| json!(point.x)), "y": column(&|point| json!(point.y)),
            "xe": column(&|point| json!(point.x_error)), "ye": column(&|point| json!(point.y_error)),
            "label": column(&|point| json!(point.label)),
        })
    };
    let mut views = serde_json::Map::new();
    for figure in figures {
        for view in &figure.views {
            if let Plot::Xy(xy) = &view.plot {
                let axis = |axis: &super::figure::Axis| json!({ "label": axis.label, "log": axis.log });
                let hidden = xy.hidden();
                let all: Vec<Value> = xy
                    .series
                    .iter()
                    .zip(hidden.into_iter().zip(xy.short_names()))
                    .map(|(own, (over, short))| {
                        let mut value = series(own);
                        value["over"] = json!(over);
                        value["short"] = json!(short);
                        value
                    })
                    .collect();
                let document = json!({ "x": axis(&xy.x), "y": axis(&xy.y), "series": all });
                views.insert(format!("{}/{}", figure.id, view.name), document);
            }
        }
    }
    let document = json!({
        "dashes": DASHES, "markers": MARKERS, "views": views, "experiment": material.made.manifest.experiment,
        "pairs": comparison::data(material),
    });
    // Nothing in it may end the script that it is in.
    document.to_string().replace('<', "\\u003c")
}
