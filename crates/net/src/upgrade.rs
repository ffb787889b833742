//! Settings as earlier versions wrote them, made into those of this one.
//!
//! Until format 1 a length of time was a bare number: microseconds in an algorithm, milliseconds or seconds elsewhere. Some
//! settings of algorithms had other names.

use serde_json::{Value, json};

/// Settings of algorithms that are lengths of time.
const DEADLINES: [&str; 2] = ["round_deadline", "phase_deadline"];

/// Settings of algorithms that have another name now, with today's.
const RENAMED: [(&str, &str); 7] = [
    ("history_limit", "max_history"),
    ("full_limit", "max_full_parameters"),
    ("most_evaluations", "max_evaluations"),
    ("least_growth", "min_growth"),
    ("most_growth", "max_growth"),
    ("least_news", "min_news"),
    ("most_withheld", "max_withheld"),
];

/// Changes the settings of an algorithm, which may lie in tables within tables.
pub(crate) fn algorithm(settings: &mut Value) {
    let Value::Object(settings) = settings else { return };
    for (former, today) in RENAMED {
        if let Some(value) = settings.shift_remove(former) {
            settings.insert(today.into(), value);
        }
    }
    for (name, value) in settings {
        if DEADLINES.contains(&name.as_str()) {
            span(value, "us");
        }
        algorithm(value);
    }
}

/// Changes the rules that an agent keeps in its state.
#[cfg(feature = "agent")]
pub(crate) fn rules(rules: &mut Value) {
    if let Some(value) = rules.get_mut("resend_after") {
        span(value, "us");
    }
    if let Some(settings) = rules.get_mut("algorithm") {
        algorithm(settings);
    }
}

/// Changes the settings of a federation that are kept beside its log.
#[cfg(feature = "coordinator")]
pub(crate) fn federation(settings: &mut Value) {
    for (name, unit) in [("resend_after", "ms"), ("quarantine", "s"), ("deadline", "s")] {
        if let Some(value) = settings.get_mut(name) {
            span(value, unit);
        }
    }
    if let Some(settings) = settings.get_mut("algorithm") {
        algorithm(settings);
    }
    if let Value::Object(settings) = settings
        && let Some(megabytes) = settings.shift_remove("snapshot_every")
    {
        settings.insert("snapshot_megabytes".into(), megabytes);
    }
}

/// A bare number, with its unit.
fn span(value: &mut Value, unit: &str) {
    if let Some(number) = value.as_u64() {
        *value = json!(format!("{number}{unit}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_names_and_bare_numbers_become_todays() {
        let mut settings = json!({
            "name": "exchange-lin-ucb", "most_growth": 3.0, "round_deadline": 30,
            "nested": { "history_limit": 5 },
        });
        algorithm(&mut settings);
        let expected = json!({
            "name": "exchange-lin-ucb", "max_growth": 3.0, "round_deadline": "30us",
            "nested": { "max_history": 5 },
        });
        assert_eq!(settings, expected);
    }
}
