//! What `posse algorithms` and `posse worlds` print: variants, and the settings of one.

use serde_json::{Value, json};

use crate::settings::{Kind, Setting, THRESHOLD, Variant, nested_defaults};

/// A line for each: name and summary, names in a column.
pub(super) fn names<'v>(variants: impl IntoIterator<Item = (&'v str, &'v str)>) -> String {
    let lines: Vec<(&str, &str)> = variants.into_iter().collect();
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, summary)| format!("  {name:<width$}  {summary}\n")).collect()
}

/// The settings of a variant: key, default, range and meaning.
pub(super) fn settings(variant: &Variant) -> String {
    let mut text = format!("{}: {}\n", variant.name, variant.summary);
    let lines = lines(variant);
    if lines.is_empty() {
        return text + "\nIt has no settings.\n";
    }
    let width =
        |column: fn(&Line) -> &str| lines.iter().map(|line| column(line).chars().count()).max().unwrap_or(0);
    let (keys, defaults) = (width(|line| &line.key), width(|line| &line.default).max("default".len()));
    text.push_str(&format!("\n  {:<keys$}  {:<defaults$}  meaning (allowed)\n", "key", "default"));
    let indent = keys + defaults + 6;
    for Line { key, default, meaning, allowed } in &lines {
        let allowed = if allowed.is_empty() { String::new() } else { format!(" ({allowed})") };
        let mut rows =
            wrapped(&format!("{meaning}{allowed}"), WIDTH.saturating_sub(indent).max(30)).into_iter();
        text.push_str(&format!(
            "  {key:<keys$}  {default:<defaults$}  {}\n",
            rows.next().unwrap_or_default()
        ));
        rows.for_each(|row| text.push_str(&format!("{:indent$}{row}\n", "")));
    }
    text
}

/// Columns of a terminal that listings keep to.
const WIDTH: usize = 100;

/// Words in lines of at most `width` columns. A word that is longer than a line has one of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// A variant with its settings as JSON.
pub(super) fn to_json(variant: &Variant) -> Value {
    let to_json = |(key, setting, default): (String, Setting, Value)| {
        json!({
            "key": key,
            "symbol": setting.symbol(),
            "default": default,
            "meaning": setting.meaning(),
            "allowed": allowed(&setting),
            "documentation": setting.documentation,
        })
    };
    let settings: Vec<Value> = flat(variant).into_iter().map(to_json).collect();
    json!({ "name": variant.name, "summary": variant.summary, "settings": settings })
}

struct Line {
    key: String,
    default: String,
    meaning: String,
    allowed: String,
}

/// The settings of a variant as text.
fn lines(variant: &Variant) -> Vec<Line> {
    let line = |(key, setting, default): (String, Setting, Value)| Line {
        key,
        default: match default {
            Value::Null => "not set".into(),
            Value::String(word) => word,
            other => other.to_string(),
        },
        meaning: match setting.symbol() {
            "" => setting.meaning(),
            symbol => format!("{symbol}: {}", setting.meaning()),
        },
        allowed: allowed(&setting),
    };
    flat(variant).into_iter().map(line).collect()
}

/// All settings with paths and defaults, those of inner tables after their table.
fn flat(variant: &Variant) -> Vec<(String, Setting, Value)> {
    let mut all = Vec::new();
    for (key, default) in &variant.defaults {
        let Some(setting) = variant.setting(key) else { continue };
        match setting.kind {
            Kind::Table(_) => {
                // A table that is always there is no more than the settings in it.
                if default.is_null() {
                    all.push((key.clone(), setting, Value::Null));
                }
                let defaults = if default.is_null() { nested_defaults(key) } else { default };
                let path = |setting: &Setting| format!("{key}.{}", setting.key);
                let inner = setting.kind.settings().into_iter();
                all.extend(inner.map(|inner| (path(&inner), inner, defaults[inner.key].clone())));
            }
            Kind::Tables(_) => all.push((key.clone(), setting, Value::Null)),
            _ => all.push((key.clone(), setting, default.clone())),
        }
    }
    if variant.takes_threshold() {
        all.push((THRESHOLD.key.into(), THRESHOLD, Value::Null));
    }
    all
}

/// What a setting takes, in words.
fn allowed(setting: &Setting) -> String {
    match setting.kind {
        Kind::OneOf(words) => words.join(", "),
        Kind::Switch => "true, false".into(),
        _ => setting.range().into(),
    }
}
