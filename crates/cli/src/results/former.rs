//! Results that were written before format 4: some settings had other names then, and times of the network were
//! numbers of milliseconds. They are read as what they are called today.

use posse_core::TimeSpan;
use serde_json::Value as Json;
use toml::Value as Toml;

/// Settings that have another name now: section, former key, key.
const RENAMED: [(&str, &str, &str); 9] = [
    ("algorithm", "history_limit", "max_history"),
    ("algorithm", "full_limit", "max_full_parameters"),
    ("algorithm", "most_evaluations", "max_evaluations"),
    ("algorithm", "least_growth", "min_growth"),
    ("algorithm", "most_growth", "max_growth"),
    ("algorithm", "least_news", "min_news"),
    ("algorithm", "most_withheld", "max_withheld"),
    ("environment", "most", "max_count"),
    ("network", "resend", "resend_after"),
];

/// Settings that were numbers of milliseconds, by section and today's key.
const TIMES: [(&str, &str); 9] = [
    ("network", "interval"),
    ("network", "reward_delay"),
    ("network", "wait"),
    ("network", "resend_after"),
    ("network", "latency"),
    ("network", "jitter"),
    ("network", "partition_every"),
    ("network", "partition_length"),
    ("faults", "downtime"),
];

/// Brings the text of an experiment up to date. What is not TOML is left to the reader, who says where it is wrong.
pub(super) fn experiment(text: String) -> String {
    let Ok(mut root) = text.parse::<toml::Table>() else { return text };
    for (section, key, today) in RENAMED {
        for table in toml_tables(&mut root, section) {
            if let Some(value) = table.remove(key) {
                table.insert(today.into(), value);
            }
        }
    }
    for (section, key) in TIMES {
        for value in toml_tables(&mut root, section).into_iter().filter_map(|table| table.get_mut(key)) {
            let numbers = match value {
                Toml::Array(values) => values.iter_mut().collect(),
                one => vec![one],
            };
            for number in numbers {
                if let Some(span) =
                    number.as_float().or_else(|| number.as_integer().map(|whole| whole as f64))
                {
                    *number = milliseconds(span).into();
                }
            }
        }
    }
    root.to_string()
}

/// Brings the settings in a manifest up to date.
pub(super) fn config(config: &mut Json) {
    for (section, key, today) in RENAMED {
        for table in json_tables(config, section) {
            if let Some(value) = table.remove(key) {
                table.insert(today.into(), value);
            }
        }
    }
    for (section, key) in TIMES {
        for value in json_tables(config, section).into_iter().filter_map(|table| table.get_mut(key)) {
            let numbers = match value {
                Json::Array(values) => values.iter_mut().collect(),
                one => vec![one],
            };
            for number in numbers {
                if let Some(span) = number.as_f64() {
                    *number = milliseconds(span).into();
                }
            }
        }
    }
}

/// So many milliseconds, as a length of time is written today.
fn milliseconds(number: f64) -> String {
    TimeSpan::from_micros((number * 1000.0).round() as u64).to_string()
}

/// The table, or the tables of an array.
fn toml_tables<'t>(root: &'t mut toml::Table, section: &str) -> Vec<&'t mut toml::Table> {
    match root.get_mut(section) {
        Some(Toml::Table(table)) => vec![table],
        Some(Toml::Array(tables)) => tables.iter_mut().filter_map(Toml::as_table_mut).collect(),
        _ => Vec::new(),
    }
}

/// The same of JSON.
fn json_tables<'t>(config: &'t mut Json, section: &str) -> Vec<&'t mut serde_json::Map<String, Json>> {
    match config.get_mut(section) {
        Some(Json::Object(table)) => vec![table],
        Some(Json::Array(tables)) => tables.iter_mut().filter_map(Json::as_object_mut).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_names_and_milliseconds_are_read_as_todays() {
        let text = "[network]\ninterval = 0.5\nresend = 250\nlatency = [0, 100.0]\n[[algorithm]]\nmost_growth = 3.0\n";
        let upgraded: toml::Table = experiment(text.into()).parse().unwrap();
        let network = &upgraded["network"];
        assert_eq!(network["interval"].as_str(), Some("500us"));
        assert_eq!(network["resend_after"].as_str(), Some("250ms"));
        assert_eq!(network["latency"][1].as_str(), Some("100ms"));
        assert_eq!(upgraded["algorithm"][0]["max_growth"].as_float(), Some(3.0));

        let mut json = serde_json::json!({
            "network": { "interval": 0.5, "resend": 250, "latency": [0, 100.0] },
            "algorithm": [{ "most_growth": 3.0 }],
        });
        config(&mut json);
        assert_eq!(json, serde_json::to_value(upgraded).unwrap());
    }
}
