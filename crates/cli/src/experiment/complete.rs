//! The resolved experiment: what was written, with every default filled in. It can be run again and gives
//! the same rows.

use serde_json::Value as Json;

use super::contender::AGENTS;
use super::curves::Curves;
use super::source::{Entry, Table, Value};
use crate::settings::{BOTH_THRESHOLDS, Kind, Section, Setting, THRESHOLD, Variant, nested_defaults};

/// The whole file with defaults. `algorithms` are its `[[algorithm]]` tables.
pub(crate) fn complete(root: &Table, algorithms: &[&Table]) -> toml::Table {
    let mut whole = toml::Table::new();
    let defaults = [("seed", Some(0)), ("repetitions", Some(1))];
    for (key, default) in [("title", None), ("description", None), ("prepare", None)]
        .into_iter()
        .chain(defaults)
        .chain([("horizon", None), ("horizon_each", None), ("agents", None)])
    {
        let written = root.get(key).map(|entry| entry.node.to_toml());
        if let Some(value) = written.or_else(|| default.map(toml::Value::Integer)) {
            whole.insert(key.into(), value);
        }
    }
    let empty = Table::default();
    for section in Section::ALL {
        if section == Section::Algorithm {
            let tables = algorithms.iter().map(|table| {
                let mut own = complete_section(section, table);
                own.extend(table.get(AGENTS).map(|entry| (AGENTS.into(), entry.node.to_toml())));
                own.into()
            });
            whole.insert(section.key().into(), tables.collect::<Vec<toml::Value>>().into());
        } else {
            let table = root.get(section.key()).and_then(|entry| entry.node.table()).unwrap_or(&empty);
            whole.insert(section.key().into(), complete_section(section, table).into());
        }
    }
    if root.get("curves").is_some() {
        whole.insert("curves".into(), Curves::read(root).to_toml().into());
    }
    if let Some(checks) = root.get("check") {
        whole.insert("check".into(), checks.node.to_toml());
    }
    whole
}

/// The same as JSON, with infinity as "inf".
pub(crate) fn to_json(value: &toml::Value) -> Json {
    match value {
        toml::Value::Float(number) if !number.is_finite() => number.to_string().into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Boolean(switch) => (*switch).into(),
        toml::Value::String(text) => text.clone().into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(values) => values.iter().map(to_json).collect(),
        toml::Value::Table(table) => table
            .iter()
            .map(|(key, value)| (key.clone(), to_json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

/// One table with the defaults of its variants.
fn complete_section(section: Section, table: &Table) -> toml::Table {
    let written = section.tag().and_then(|tag| table.get(tag));
    let names: Vec<String> = match written {
        Some(entry) => {
            entry.node.elements().iter().filter_map(|node| Some(node.scalar()?.as_str()?.into())).collect()
        }
        None => section.default_variant().into_iter().map(String::from).collect(),
    };
    let mut variants: Vec<Variant> = section.variants();
    variants.retain(|variant| names.contains(&variant.name));
    let mut whole = toml::Table::new();
    if let Some(tag) = section.tag() {
        let name = written.map_or_else(|| names[0].clone().into(), |entry| entry.node.to_toml());
        whole.insert(tag.into(), name);
    }
    let Some(first) = variants.first() else { return whole };
    for (key, default) in &first.defaults {
        // Variants of a sweep may differ in a default: then it cannot be written once for all.
        let common = variants.iter().all(|variant| variant.defaults.get(key) == Some(default));
        let replaced = BOTH_THRESHOLDS.contains(&key.as_str()) && table.get(THRESHOLD.key).is_some();
        let setting = first.setting(key);
        match (table.get(key), setting) {
            (Some(entry), Some(setting)) => {
                whole.insert(key.clone(), written_value(setting, entry, default));
            }
            (None, _) if common && !replaced => {
                if let Some(value) = from_json(default) {
                    whole.insert(key.clone(), value);
                }
            }
            _ => {}
        }
    }
    if let Some(entry) = table.get(THRESHOLD.key) {
        whole.insert(THRESHOLD.key.into(), written_value(&THRESHOLD, entry, &Json::Null));
    }
    whole
}

/// What was written, with floats where floats are meant, so that 5 and 5.0 are the same experiment.
fn written_value(setting: &Setting, entry: &Entry, default: &Json) -> toml::Value {
    match (&setting.kind, &entry.node.value) {
        (Kind::Table(settings), Value::Table(table)) => {
            let nested = nested_defaults(setting.key);
            let defaults = if default.is_null() { &nested } else { default };
            let mut whole = toml::Table::new();
            for inner in *settings {
                let default = &defaults[inner.key];
                let value = match table.get(inner.key) {
                    Some(entry) => Some(written_value(inner, entry, default)),
                    None => from_json(default),
                };
                if let Some(value) = value {
                    whole.insert(inner.key.into(), value);
                }
            }
            whole.into()
        }
        (Kind::Number | Kind::Threshold, _) => as_floats(entry.node.to_toml()),
        _ => entry.node.to_toml(),
    }
}

/// Integers and "inf" as floats, in lists too.
fn as_floats(value: toml::Value) -> toml::Value {
    match value {
        toml::Value::Integer(number) => (number as f64).into(),
        toml::Value::String(_) => f64::INFINITY.into(),
        toml::Value::Array(values) => values.into_iter().map(as_floats).collect::<Vec<_>>().into(),
        other => other,
    }
}

/// A default as it would be written; `None` if it is not set.
fn from_json(value: &Json) -> Option<toml::Value> {
    Some(match value {
        Json::Null => return None,
        Json::Bool(switch) => (*switch).into(),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64()?.into(),
        },
        Json::String(text) => text.clone().into(),
        Json::Array(values) if values.is_empty() => return None,
        Json::Array(values) => values.iter().filter_map(from_json).collect::<Vec<_>>().into(),
        Json::Object(map) => {
            let table: toml::Table =
                map.iter().filter_map(|(key, value)| Some((key.clone(), from_json(value)?))).collect();
            table.into()
        }
    })
}
