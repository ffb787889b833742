//! Settings compared seed by seed: what one brings more than another in the same worlds, with intervals.

use serde_json::{Value, json};

use super::material::Material;
use super::svg::{breakable, escape};
use crate::metric::Column;
use crate::statistics::{Paired, quantile};
use crate::table::compact;

/// What is compared, besides what the figures of the experiment show.
const COMPARED: [&str; 3] = ["regret", "reward", "messages"];
/// More settings than this are a page of their own.
const MAX_LINES: usize = 60;

/// Whether there is anything to compare: two settings and two seeds.
pub(super) fn has_pairs(material: &Material<'_>) -> bool {
    (2..=MAX_LINES).contains(&material.lines.len()) && material.lines.iter().any(|line| line.rows.len() > 1)
}

/// The columns that can be compared; the first is what the experiment is about.
fn columns(material: &Material<'_>) -> Vec<Column> {
    let planned = material.made.experiment.figures.iter().map(|plan| plan.y);
    let mut all: Vec<Column> = Vec::new();
    for column in planned.chain(COMPARED.into_iter().filter_map(Column::find)) {
        if !all.contains(&column) {
            all.push(column);
        }
    }
    all
}

/// A column of each setting: the seed and the value of every row.
fn values(material: &Material<'_>, column: Column) -> Vec<Vec<(u64, f64)>> {
    let of = |line: &super::material::Line<'_>| {
        line.rows.iter().map(|row| (row.cell.config.seed.0, column.of(row.tally()))).collect()
    };
    material.lines.iter().map(of).collect()
}

/// The setting that the others are compared with at first: the first one.
const REFERENCE: usize = 0;

/// The section of the page. The script changes the reference and the column.
pub(super) fn section(material: &Material<'_>) -> String {
    if !has_pairs(material) {
        return String::new();
    }
    let columns = columns(material);
    let option =
        |(place, name): (usize, String)| format!("<option value=\"{place}\">{}</option>", escape(&name));
    let metrics: String =
        columns.iter().map(|column| column.name.replace('_', " ")).enumerate().map(option).collect();
    let settings: String =
        material.lines.iter().map(|line| line.group.id.clone()).enumerate().map(option).collect();
    let all = values(material, columns[0]);
    let rows: String = material
        .lines
        .iter()
        .enumerate()
        .filter(|(place, _)| *place != REFERENCE)
        .map(|(place, line)| row(&line.group.id, &paired(&all[place], &all[REFERENCE])))
        .collect();
    format!(
        "<section id=\"comparison\"><h2>Comparison seed by seed</h2>\n\
         <p>Every setting met the same worlds, seed by seed. Differences from the reference are paired by seed; intervals \
         cover the mean difference with probability 0.95 (Student's t). One that does not reach over 0 is marked.</p>\n\
         <div class=\"controls\"><label>compare <select id=\"pair-metric\">{metrics}</select></label>\
         <label>with <select id=\"pair-reference\">{settings}</select></label></div>\n\
         <div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"comparison\"><table id=\"pairs\"><thead><tr>\
         <th scope=\"col\">setting</th><th scope=\"col\">difference</th><th scope=\"col\">interval</th>\
         <th scope=\"col\">pairs</th></tr></thead><tbody>\n{rows}</tbody></table></div></section>\n"
    )
}

fn paired(own: &[(u64, f64)], reference: &[(u64, f64)]) -> Paired {
    let differences: Vec<f64> = own
        .iter()
        .filter_map(|(seed, value)| Some(value - reference.iter().find(|(other, _)| other == seed)?.1))
        .collect();
    Paired::of(&differences)
}

fn row(name: &str, paired: &Paired) -> String {
    let Paired { pairs, difference, t, .. } = *paired;
    let half = if pairs < 2 {
        f64::NAN
    } else if t == 0.0 {
        0.0
    } else {
        quantile(pairs as f64 - 1.0) * (difference / t).abs()
    };
    let sign = |value: f64| if value > 0.0 { format!("+{}", compact(value)) } else { compact(value) };
    let interval = if half.is_nan() {
        "one pair says nothing".into()
    } else {
        format!("{} to {}", sign(difference - half), sign(difference + half))
    };
    let clear = half < difference.abs();
    format!(
        "<tr{}><th scope=\"row\">{}</th><td>{}</td><td>{interval}</td><td>{pairs}</td></tr>\n",
        if clear { " class=\"clear\"" } else { "" },
        breakable(name),
        sign(difference)
    )
}

/// The values behind the comparison, for the script: columns, settings, seeds, and quantiles of Student's t.
pub(super) fn data(material: &Material<'_>) -> Value {
    if !has_pairs(material) {
        return Value::Null;
    }
    let columns: Vec<Value> = columns(material)
        .into_iter()
        .map(|column| json!({ "name": column.name, "values": values(material, column) }))
        .collect();
    let most = material.lines.iter().map(|line| line.rows.len()).max().unwrap_or(0);
    let quantiles: Vec<f64> = (1..most.max(2)).map(|freedom| quantile(freedom as f64)).collect();
    let names: Vec<&str> = material.lines.iter().map(|line| line.group.id.as_str()).collect();
    json!({ "columns": columns, "names": names, "quantiles": quantiles })
}
