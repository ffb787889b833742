//! What changed between two documents of `posse bench --json`.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::bail;
use serde_json::Value;

/// Fields that are times, where less is better, or rates, where more is.
const TIMES: [&str; 4] = ["micros", "posse_micros", "milliseconds", "coordinator_micros"];
const RATES: [&str; 7] = [
    "posse_rate",
    "core_per_second",
    "library_per_second",
    "durable_per_second",
    "batched_per_second",
    "sidecar_per_second",
    "busy_sidecar_per_second",
];

/// The times of each measurement in all rounds of a document, in the unit of the field. A rate counts as its reciprocal.
type Times = BTreeMap<String, Vec<f64>>;

/// A table of every measurement that both documents have.
pub(super) fn table(before: &Value, after: &Value) -> anyhow::Result<String> {
    let (before, after) = (times(before), times(after));
    let mut text =
        String::from("                                                              change        noise\n");
    let mut shared = 0;
    for (name, after) in &after {
        let Some(before) = before.get(name) else { continue };
        shared += 1;
        let change = least(after) / least(before);
        let noise = spread(before).max(spread(after));
        let single = before.len() < 2 || after.len() < 2;
        let verdict = match change {
            _ if single => "noise unknown: one round only",
            change if change > noise => "slower",
            change if change < 1.0 / noise => "faster",
            _ => "",
        };
        let (percent, bound) = (100.0 * (change - 1.0), 100.0 * (noise - 1.0));
        let _ = writeln!(text, "{name:<58} {percent:>+8.1} %   +-{bound:>5.1} %  {verdict}");
    }
    if shared == 0 {
        bail!(
            "the two documents have no measurement in common: name the same suites, with or without --quick"
        );
    }
    Ok(text)
}

/// The least of several times: what else the machine does only adds.
fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// How much the times of one document differ from round to round, as a factor of at least 1.
fn spread(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max) / least(times)
}

fn times(document: &Value) -> Times {
    let mut found = Times::new();
    let rounds = document.get("rounds").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for round in rounds.iter().filter_map(Value::as_object) {
        for (group, rows) in round {
            match rows {
                Value::Array(rows) => rows.iter().for_each(|row| read(group, row, &mut found)),
                row => read(group, row, &mut found),
            }
        }
    }
    found
}

/// Adds the times of one row, called after its group and everything in it that is a name or a size.
fn read(group: &str, row: &Value, found: &mut Times) {
    let Some(row) = row.as_object() else { return };
    let mut name = group.to_owned();
    for field in ["name", "solver", "along", "dimension", "agents", "users", "size"] {
        match row.get(field) {
            Some(Value::String(text)) => name += &format!(" {text}"),
            Some(Value::Number(number)) => name += &format!(" {field}={number}"),
            _ => {}
        }
    }
    for (field, value) in row {
        let Some(value) = value.as_f64().filter(|value| *value > 0.0) else { continue };
        let time = if TIMES.contains(&&**field) {
            value
        } else if RATES.contains(&&**field) {
            1.0 / value
        } else {
            continue;
        };
        let name = if group == "network" { format!("{name} {field}") } else { name.clone() };
        found.entry(name).or_default().push(time);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(times: &[f64]) -> Value {
        let round =
            |time: &f64| json!({"interactions": [{"dimension": 25, "posse_micros": time, "ratio": 3.0}]});
        json!({"rounds": times.iter().map(round).collect::<Vec<_>>()})
    }

    #[test]
    fn a_change_beyond_the_noise_is_named_and_one_within_is_not() {
        let line = |before: &[f64], after: &[f64]| {
            let text = table(&document(before), &document(after)).unwrap();
            text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line(&[1.0, 1.1], &[1.5, 1.6]), "interactions dimension=25 +50.0 % +- 10.0 % slower");
        assert_eq!(line(&[1.0, 1.1], &[0.5, 0.51]), "interactions dimension=25 -50.0 % +- 10.0 % faster");
        assert_eq!(line(&[1.0, 1.1], &[1.05, 1.1]), "interactions dimension=25 +5.0 % +- 10.0 %");
        assert!(line(&[1.0], &[2.0, 2.0]).ends_with("one round only"));
    }

    #[test]
    fn a_rate_that_falls_is_slower() {
        let rates = |rate: f64| json!({"rounds": [{"gradients": [{"posse_rate": rate}]}, {"gradients": [{"posse_rate": rate}]}]});
        assert!(table(&rates(2.0), &rates(1.0)).unwrap().contains("slower"));
    }

    #[test]
    fn documents_about_different_things_are_refused() {
        assert!(table(&document(&[1.0]), &json!({"rounds": []})).is_err());
        assert!(table(&json!({"interactions": []}), &document(&[1.0])).is_err());
    }
}
