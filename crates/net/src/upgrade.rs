//! Settings as earlier versions wrote them, made into those of this one.
//!
//! Until format 1 a length of time was a bare number: microseconds in an algorithm, milliseconds or seconds elsewhere.

use serde_json::{Value, json};

/// Settings of algorithms that are lengths of time.
const DEADLINES: [&str; 2] = ["round_deadline", "phase_deadline"];

/// Changes the settings of an algorithm, which may lie in tables within tables.
pub(crate) fn algorithm(settings: &mut Value) {
    let Value::Object(settings) = settings else { return };
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
