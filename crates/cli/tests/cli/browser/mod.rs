//! The report in a real browser: nothing goes wrong, everything can be used, every number is that of the
//! Parquet files.

mod accessibility;
mod chromium;

use std::path::Path;

use posse_testing::skip;
use serde_json::Value;

use crate::command::{directory_with, posse};
use crate::frames::{Columns, column, read};

const EXPERIMENT: &str = r#"
title = "<b>Sharing</b> & \"quotes\" </script>"
description = "Two ways to share, and none."
seed = 3
repetitions = 3
horizon = 600
agents = 8
[environment]
dimension = 4
arms = 5
[curves]
groups = 2
[[algorithm]]
name = "lin-ucb"
[[algorithm]]
name = "async-lin-ucb"
threshold = [1.5, 3, 20]
[[algorithm]]
name = "sync-lin-ucb"
round_threshold = [1, 10]
[[check]]
says = "sharing helps"
kind = "order"
metric = "regret"
below = { algorithm = "async-lin-ucb" }
above = { algorithm = "lin-ucb" }
[[check]]
says = "and this does not hold"
level = "expect"
kind = "range"
metric = "regret"
high = 0
"#;

/// Means over seeds and standard errors, computed from Parquet alone.
struct Tables {
    summary: Columns,
    curves: Columns,
    agents: Columns,
    messages: Columns,
}

impl Tables {
    fn read(results: &Path) -> Self {
        let table = |name: &str| read(&results.join(format!("{name}.parquet")));
        Self {
            summary: table("summary"),
            curves: table("curves"),
            agents: table("agents"),
            messages: table("messages"),
        }
    }

    /// The groups, in order.
    fn groups(&self) -> Vec<String> {
        let mut groups = column(&self.summary, "group").to_vec();
        groups.dedup();
        groups
    }
}

/// The mean and its standard error of the sum of `metrics` over the rows that all of `with` hold for.
fn estimate(table: &Columns, with: &[(&str, &str)], metrics: &[&str]) -> Option<(f64, f64)> {
    let rows = column(table, "id").len();
    let fits = |row: &usize| with.iter().all(|(name, value)| column(table, name)[*row] == *value);
    let number = |name: &str, row: usize| column(table, name)[row].parse::<f64>().unwrap();
    let values: Vec<f64> =
        (0..rows).filter(fits).map(|row| metrics.iter().map(|metric| number(metric, row)).sum()).collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (!values.is_empty()).then(|| (mean, (squares / (count - 1.0) / count).sqrt()))
}

/// The metrics that a name on the page adds up.
fn metrics(name: &str) -> Vec<&str> {
    match name {
        "scalars" => vec!["scalars_up", "scalars_down"],
        "bytes" => vec!["bytes_up", "bytes_down"],
        "control messages" => vec!["control_messages"],
        other => vec![other],
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

fn same(shown: f64, stored: f64) -> bool {
    (shown - stored).abs() <= 1e-12 * stored.abs()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// What is written in a cell is its exact value, rounded to the digits that are shown.
fn check_text(cell: &Value) {
    let (text, exact) = (cell["text"].as_str().unwrap(), number(&cell["value"]));
    let (digits, unit) = match text.find(|letter: char| "kMGTP".contains(letter)) {
        Some(end) => (&text[..end], &text[end..]),
        None => (text, ""),
    };
    let factor = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        other => panic!("{other} in {text}"),
    };
    let mut parts = digits.split('±');
    let mut check = |exact: f64| {
        let part = parts.next().unwrap();
        let decimals = part.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let half = 0.5 * 0.1f64.powi(decimals as i32) * 1.000_001;
        let shown: f64 = part.parse().unwrap();
        assert!((shown - exact / factor).abs() <= half, "{text} is not {exact}");
    };
    check(exact);
    // An error that has no digit among those shown, or is 0, is left out.
    if let (Some(error), true) = (cell["error"].as_str(), digits.contains('±')) {
        check(error.parse().unwrap());
    }
    assert_eq!(parts.next(), None, "{text}");
}

#[test]
fn the_report_works_in_a_browser_and_its_numbers_are_those_of_the_files() {
    let Some(chromium) = chromium::find() else {
        skip(
            "the report was not opened in a browser, because there is no Chromium here: install it, or name it in CHROMIUM",
        );
        return;
    };
    let directory = directory_with(EXPERIMENT);
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "r", "-q"]).code, 0);
    assert_eq!(posse(directory.path(), &["report", "r", "-q"]).code, 0);
    let page = std::fs::read_to_string(directory.path().join("r/report.html")).unwrap();
    let tables = Tables::read(&directory.path().join("r"));
    for width in [1200, 400] {
        let found = chromium::probe(&chromium, directory.path(), &page, width);
        assert_eq!(list(&found["problems"]), [] as [Value; 0]);
        assert_eq!(list(&found["resources"]), [] as [Value; 0], "it needs nothing but itself");
        assert_eq!(found["pageIsTooWide"], false, "at {width}");
        check_use(&found);
        check_summary(&found, &tables);
        check_data(&found["data"]["views"], &tables);
        check_pictures(&found);
        check_tables(&found, &tables);
    }
}

/// Verdicts, sorting, hiding, axes, reading points.
fn check_use(found: &Value) {
    let verdicts: Vec<&str> =
        list(&found["verdicts"]).iter().map(|verdict| verdict.as_str().unwrap()).collect();
    assert_eq!(verdicts, ["✓ PASS", "≠ DEVIATES"]);
    for sorted in list(&found["sorted"]) {
        assert_eq!(sorted["focused"], true);
        let states = list(&sorted["states"]);
        assert_ne!(states[0]["way"], states[1]["way"]);
        for state in states.iter().filter(|_| sorted["name"] != "setting") {
            let values: Vec<f64> = list(&state["column"]).iter().map(number).collect();
            let rising = state["way"] == "ascending";
            assert!(values.is_sorted_by(|a, b| if rising { a <= b } else { a >= b }), "{sorted}");
        }
    }
    let hidden = &found["hidden"];
    assert_eq!(hidden["pressed"], "false");
    assert_eq!(number(&hidden["before"]), number(&hidden["after"]) + 1.0);
    assert_eq!(found["backAgain"], hidden["before"]);
    assert_ne!(found["otherAxis"]["before"], found["otherAxis"]["after"]);
    assert_eq!((&found["tip"]["hidden"], &found["tipGone"]), (&false.into(), &true.into()));
    assert!(found["tip"]["text"].as_str().unwrap().contains("regret, after "), "{}", found["tip"]);
    assert_eq!(found["pointed"], true);
}

/// The summary: every group, every number.
fn check_summary(found: &Value, tables: &Tables) {
    let header: Vec<&str> = list(&found["header"]).iter().map(|name| name.as_str().unwrap()).collect();
    let rows = list(&found["summary"]);
    let names: Vec<&str> = rows.iter().map(|row| row[0]["text"].as_str().unwrap()).collect();
    assert_eq!(names, tables.groups());
    for row in rows {
        let group = row[0]["text"].as_str().unwrap();
        assert_eq!(number(&row[1]["value"]), 3.0);
        for (place, name) in header.iter().enumerate().skip(2) {
            let (mean, error) = estimate(&tables.summary, &[("group", group)], &metrics(name)).unwrap();
            let cell = &row[place];
            assert!(same(number(&cell["value"]), mean), "{group} {name}: {cell} {mean}");
            assert!(same(number(&cell["error"]), error), "{group} {name}: {cell} {error}");
            check_text(cell);
        }
    }
}

/// The numbers behind lines and dots.
fn check_data(views: &Value, tables: &Tables) {
    let mut points = 0;
    for (view, plot) in views.as_object().unwrap() {
        let (figure, unit) = view.split_once('/').unwrap();
        for series in list(&plot["series"]) {
            let name = series["name"].as_str().unwrap();
            for place in 0..list(&series["x"]).len() {
                let (x, y) = (number(&series["x"][place]), number(&series["y"][place]));
                let step = x.to_string();
                let expected = match figure {
                    "over-time" => {
                        let with = [("group", name), ("agents", "all"), ("step", &step)];
                        estimate(&tables.curves, &with, &metrics(unit))
                    }
                    "by-agents" => {
                        let (group, part) = name.rsplit_once(", agents ").unwrap();
                        let part = format!("{part} by activity");
                        let with = [("group", group), ("agents", &part), ("step", &step)];
                        estimate(&tables.curves, &with, &metrics(unit))
                    }
                    "trade-off" => {
                        let group = match series["label"][place].as_str() {
                            None => name.trim_end_matches(" (nothing sent)").to_owned(),
                            Some(value) if name.starts_with("async") => format!("{name}/threshold={value}"),
                            Some(value) => format!("{name}/round_threshold={value}"),
                        };
                        let with = [("group", group.as_str())];
                        let (sent, _) = estimate(&tables.summary, &with, &metrics(unit)).unwrap();
                        assert!(same(x, sent), "{view} {name}: {x} {sent}");
                        estimate(&tables.summary, &with, &["regret"])
                    }
                    other => panic!("{other}"),
                };
                let (mean, error) = expected.unwrap_or_else(|| panic!("{view} {name} at {x}"));
                assert!(same(y, mean), "{view} {name} at {x}: {y} {mean}");
                assert!(same(number(&series["ye"][place]), error), "{view} {name} at {x}");
                points += 1;
            }
        }
    }
    assert!(points > 1000, "{points}");
}

/// Every view has its picture, and lines lie where the numbers are.
fn check_pictures(found: &Value) {
    let mut lines = 0;
    for view in list(&found["views"]) {
        let name = view["view"].as_str().unwrap();
        assert_eq!(view["alone"], true, "{name}");
        assert!(number(&view["width"]) > 250.0 && number(&view["height"]) > 100.0, "{name}");
        match name.split_once('/').unwrap().0 {
            "agents" => assert_eq!(number(&view["boxes"]), 6.0),
            "kinds" => assert!(number(&view["bars"]) > 10.0),
            _ => {
                for series in list(&view["series"]) {
                    lines += check_line(&found["data"]["views"][name], view, series);
                }
            }
        }
    }
    assert!(lines > 20, "{lines}");
}

/// How many points of a drawn line were compared.
fn check_line(plot: &Value, view: &Value, series: &Value) -> usize {
    let pair = |key: &str| -> (f64, f64) {
        let (low, high) = view["axes"][key].as_str().unwrap().split_once(' ').unwrap();
        (low.parse().unwrap(), high.parse().unwrap())
    };
    let place = |axis: &str, value: f64| {
        let ((low, high), (from, to)) = (pair(&format!("{axis}Domain")), pair(&format!("{axis}Range")));
        let log = view["axes"][format!("{axis}Log")] == "true";
        let share = if log { (value / low).ln() / (high / low).ln() } else { (value - low) / (high - low) };
        from + share * (to - from)
    };
    let data = list(&plot["series"]).iter().find(|own| own["name"] == series["name"]).unwrap();
    if data["form"] == "level" {
        return 0;
    }
    let path = series["line"].as_str().unwrap();
    let drawn: Vec<(f64, f64)> = path
        .split(['M', 'L'])
        .filter_map(|part| part.split_once(' '))
        .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
        .collect();
    let has_place = |(x, y): &(f64, f64)| {
        (view["axes"]["xLog"] != "true" || *x > 0.0) && (view["axes"]["yLog"] != "true" || *y > 0.0)
    };
    let meant = list(&data["x"]).iter().zip(list(&data["y"])).map(|(x, y)| (number(x), number(y)));
    let meant: Vec<(f64, f64)> = meant.filter(has_place).collect();
    assert_eq!(drawn.len(), meant.len(), "{}", series["name"]);
    for ((x, y), (at, value)) in drawn.iter().zip(&meant) {
        assert!(
            (x - place("x", *at)).abs() < 0.02 && (y - place("y", *value)).abs() < 0.02,
            "{}",
            series["name"]
        );
    }
    usize::from(!drawn.is_empty())
}

/// The tables under the figures.
fn check_tables(found: &Value, tables: &Tables) {
    for table in list(&found["tables"]) {
        let (figure, unit) = table["view"].as_str().unwrap().split_once('/').unwrap();
        let header: Vec<&str> = list(&table["header"]).iter().map(|name| name.as_str().unwrap()).collect();
        assert!(!list(&table["rows"]).is_empty(), "{figure} {unit}");
        for row in list(&table["rows"]) {
            let group = row[0]["text"].as_str().unwrap();
            for (place, name) in header.iter().enumerate().skip(1) {
                let cell = &row[place];
                if cell["value"].is_null() {
                    assert!(figure == "kinds" && cell["text"] == "", "{figure} {group} {name}");
                    continue;
                }
                check_text(cell);
                let expected = match figure {
                    "agents" => estimate(&tables.agents, &[("group", group), ("metric", unit)], &[name]),
                    "kinds" => {
                        let (kind, way) = name.rsplit_once(' ').unwrap();
                        let with = [("group", group), ("direction", way), ("kind", kind)];
                        let metrics: &[&str] =
                            if unit == "messages" { &["messages", "control_messages"] } else { &[unit] };
                        estimate(&tables.messages, &with, metrics)
                    }
                    // The others are views of what was compared as data.
                    _ => continue,
                };
                let (mean, _) = expected.unwrap_or_else(|| panic!("{figure} {group} {name}"));
                assert!(same(number(&cell["value"]), mean), "{figure} {group} {name}: {cell} {mean}");
            }
        }
    }
}
