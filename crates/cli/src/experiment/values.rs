//! Is a value of the kind that its key takes? One value, or a list of them: a sweep.

use posse_core::TimeSpan;
use std::collections::BTreeSet;

use super::diagnostic::Diagnostic;
use super::source::{Entry, Node, Value, label};
use crate::settings::{Kind, Setting};
use crate::suggest::closest;

/// Checks the value of a setting.
pub(super) fn check_setting(setting: &Setting, entry: &Entry, found: &mut Vec<Diagnostic>) {
    let Entry { key, node, .. } = entry;
    match (&setting.kind, &node.value) {
        (Kind::Table(_), Value::Table(table)) => {
            let settings = setting.kind.settings();
            for inner in &table.0 {
                match settings.iter().find(|setting| setting.key == inner.key) {
                    Some(setting) => check_setting(setting, inner, found),
                    None => found.push(unknown_inner_key(&settings, key, inner)),
                }
            }
        }
        (Kind::Tables(_), Value::List(nodes)) => {
            let settings = setting.kind.settings();
            for node in nodes {
                check_listed_table(&settings, key, node, found);
            }
        }
        (Kind::Table(_) | Kind::Tables(_), _) => found.push(wrong_type(key, node, &setting.kind.expected())),
        (kind, _) => check_sweep(key, kind, node, found),
    }
}

/// One of several tables of the same kind, such as an override: no sweeps inside.
fn check_listed_table(settings: &[Setting], key: &str, node: &Node, found: &mut Vec<Diagnostic>) {
    let Some(table) = node.table() else {
        found.push(wrong_type(key, node, "a table"));
        return;
    };
    for inner in &table.0 {
        match settings.iter().find(|setting| setting.key == inner.key) {
            Some(setting) if fits(&setting.kind, &inner.node) => {}
            Some(setting) => found.push(wrong_type(&inner.key, &inner.node, &setting.kind.expected())),
            None => found.push(unknown_inner_key(settings, key, inner)),
        }
    }
    let required = settings[0].key;
    if table.get(required).is_none() {
        found.push(Diagnostic::new(&node.span, format!("this `{key}` has no `{required}`")));
    }
}

/// A key that a table inside a section does not have.
fn unknown_inner_key(settings: &[Setting], owner: &str, entry: &Entry) -> Diagnostic {
    let keys: Vec<&str> = settings.iter().map(|setting| setting.key).collect();
    let near = closest(&entry.key, keys.iter().copied()).map(did_you_mean);
    let help = near.unwrap_or_else(|| format!("its settings are {}", keys.join(", ")));
    Diagnostic::new(&entry.span, format!("unknown key `{}` for `{owner}`", entry.key)).help(help)
}

/// A scalar, or a list of scalars: a sweep.
pub(super) fn check_sweep(key: &str, kind: &Kind, node: &Node, found: &mut Vec<Diagnostic>) {
    check_list(key, node, found);
    for element in node.elements() {
        if fits(kind, element) {
            check_size(key, kind, element, found);
            continue;
        }
        let help = match (kind, element.scalar()) {
            (Kind::OneOf(words), Some(toml::Value::String(word))) => {
                closest(word, words.iter().copied()).map(did_you_mean)
            }
            _ => None,
        };
        found.push(wrong_type(key, element, &kind.expected()).maybe_help(help));
    }
}

/// Sizes are limited before anything of that size is made, or the check itself could run out of memory.
fn check_size(key: &str, kind: &Kind, node: &Node, found: &mut Vec<Diagnostic>) {
    if let (Kind::Size(most), Some(toml::Value::Integer(size))) = (kind, node.scalar())
        && u64::try_from(*size).is_ok_and(|size| size > *most)
    {
        let message = format!("`{key}` is {size}: it must be at most {most}");
        found.push(Diagnostic::new(&node.span, message));
    }
}

/// A sweep has values, and each of them once.
pub(super) fn check_list(key: &str, node: &Node, found: &mut Vec<Diagnostic>) {
    if node.elements().is_empty() {
        let message = format!("`{key}` is an empty list: a sweep needs at least one value");
        found.push(Diagnostic::new(&node.span, message));
    }
    let mut seen = BTreeSet::new();
    for element in node.elements() {
        if !seen.insert(element.scalar().map(label)) && element.scalar().is_some() {
            let message = format!("`{key}` lists {} twice: every cell runs once", element.describe());
            found.push(Diagnostic::new(&element.span, message));
        }
    }
}

/// Whether a value is of a kind.
pub(crate) fn fits(kind: &Kind, node: &Node) -> bool {
    match (kind, node.scalar()) {
        (Kind::Number | Kind::Threshold, Some(toml::Value::Integer(_) | toml::Value::Float(_))) => true,
        (Kind::Threshold, Some(toml::Value::String(word))) => word == "inf",
        (Kind::Span, Some(toml::Value::String(text))) => text.parse::<TimeSpan>().is_ok(),
        (Kind::Whole | Kind::Size(_), Some(toml::Value::Integer(number))) => *number >= 0,
        (Kind::Switch, Some(toml::Value::Boolean(_))) | (Kind::Text, Some(toml::Value::String(_))) => true,
        (Kind::OneOf(words), Some(toml::Value::String(word))) => words.contains(&word.as_str()),
        _ => false,
    }
}

/// The number that a written value stands for, to compare and to draw by: a length of time counts in milliseconds.
pub(crate) fn quantity(text: &str) -> Option<f64> {
    let span = || text.parse::<TimeSpan>().ok().map(|span| span.as_micros() as f64 / 1000.0);
    text.parse().ok().or_else(span)
}

/// A value that is of another kind than expected.
pub(crate) fn wrong_type(key: &str, node: &Node, expected: &str) -> Diagnostic {
    Diagnostic::new(&node.span, format!("`{key}` is {}: expected {expected}", node.describe()))
}

/// The help line of an error that suggests `word` instead.
pub(crate) fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}
