//! The resolved experiment: what was written, with every default filled in. It can be run again and gives
//! the same rows.

use serde_json::Value as Json;

use super::contender::OWN;
use super::curves::Curves;
use super::library::DataSource;
use super::source::{Entry, Table, Value};
use crate::settings::{BOTH_THRESHOLDS, Kind, Section, Setting, THRESHOLD, Variant, nested_defaults};

/// The whole file with defaults, what is written first and in its order: the order of sweeps is that of cells.
/// `algorithms` are its `[[algorithm]]` tables.
pub(crate) fn complete(root: &Table, algorithms: &[&Table]) -> toml::Table {
    let mut whole = toml::Table::new();
    for Entry { key, node, .. } in &root.0 {
        let section = Section::ALL.into_iter().find(|section| section.key() == key);
        let value = match (section, node.table()) {
            (Some(Section::Algorithm), _) => complete_algorithms(algorithms).into(),
            (Some(section), Some(table)) => complete_section(section, table).into(),
            _ if key == "curves" => Curves::read(root).to_toml().into(),
            _ => node.to_toml(),
        };
        whole.insert(key.clone(), value);
    }
    for (key, default) in [("seed", 0), ("repetitions", 1)] {
        whole.entry(key).or_insert(toml::Value::Integer(default));
    }
    // Relays are written down where an experiment speaks of them, and nowhere else.
    for section in Section::ALL.into_iter().filter(|section| *section != Section::Topology) {
        let empty = || complete_section(section, &Table::default()).into();
        whole.entry(section.key()).or_insert_with(empty);
    }
    whole
}

/// Writes the whole hash of the data that was read where the experiment says `any` or only its first digits, so
/// that the experiment kept with results names exactly what they were made of. A sweep over several sources
/// keeps what is written: one key cannot name them all.
pub(super) fn pin_hash(resolved: &mut toml::Table, sources: &[DataSource]) {
    let Some(toml::Value::Table(environment)) = resolved.get_mut(Section::Environment.key()) else { return };
    let named = |source: &&DataSource| {
        environment.get("data").and_then(toml::Value::as_str).is_some_and(|path| path == source.path)
    };
    if let [source] = sources
        && named(&source)
        && matches!(environment.get("hash"), Some(toml::Value::String(_)))
    {
        environment.insert("hash".into(), source.hash.clone().into());
    }
}

fn complete_algorithms(tables: &[&Table]) -> Vec<toml::Value> {
    let one = |table: &&Table| {
        let mut own = complete_section(Section::Algorithm, table);
        own.extend(OWN.iter().filter_map(|key| Some(((*key).into(), table.get(key)?.node.to_toml()))));
        own.into()
    };
    tables.iter().map(one).collect()
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

/// One table with the defaults of its variants, what is written first.
pub(super) fn complete_section(section: Section, table: &Table) -> toml::Table {
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
    for entry in &table.0 {
        let default = first.defaults.get(&entry.key).unwrap_or(&Json::Null);
        if let Some(setting) = first.setting(&entry.key) {
            whole.insert(entry.key.clone(), written_value(&setting, entry, default));
        }
    }
    for (key, default) in &first.defaults {
        // Variants of a sweep may differ in a default: then it cannot be written once for all.
        let common = variants.iter().all(|variant| variant.defaults.get(key) == Some(default));
        let replaced = BOTH_THRESHOLDS.contains(&key.as_str()) && table.get(THRESHOLD.key).is_some();
        if let Some(value) = from_json(default)
            && common
            && !replaced
        {
            whole.entry(key.clone()).or_insert(value);
        }
    }
    whole
}

/// What was written, with floats where floats are meant, so that 5 and 5.0 are the same experiment.
fn written_value(setting: &Setting, entry: &Entry, default: &Json) -> toml::Value {
    match (&setting.kind, &entry.node.value) {
        (Kind::Table(_), Value::Table(table)) => {
            let defaults = if default.is_null() { nested_defaults(setting.key) } else { default };
            let mut whole = toml::Table::new();
            for inner in setting.kind.settings() {
                let default = &defaults[inner.key];
                let value = match table.get(inner.key) {
                    Some(entry) => Some(written_value(&inner, entry, default)),
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
