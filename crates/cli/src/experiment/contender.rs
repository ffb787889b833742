//! Who runs in an experiment: each `[[algorithm]]`, once for each of its names.

use super::complete::complete_section;
use super::source::{Entry, Node, Span, Table, Value, label};
use crate::settings::Section;

/// The key that says how many agents there are: at the top, or for one algorithm.
pub(super) const AGENTS: &str = "agents";

/// What an `[[algorithm]]` may say for itself instead of the top: how many agents it runs with, and how many
/// interactions each of them has.
pub(super) const OWN: [&str; 2] = [AGENTS, super::resolve::HORIZON_EACH];

/// One `[[algorithm]]` with one name.
pub(super) struct Contender {
    pub(super) name: String,
    /// The settings of the algorithm.
    pub(super) table: Table,
    pub(super) header: Span,
    /// What it says instead of the top, of the keys in [`OWN`].
    own: Vec<Entry>,
}

/// All of them, in the order written.
pub(super) fn contenders(written: &[&Node]) -> Vec<Contender> {
    written.iter().flat_map(|node| of_table(node)).collect()
}

fn of_table(node: &Node) -> Vec<Contender> {
    let Some(table) = node.table() else { return Vec::new() };
    let names = table.get("name").map_or(&[][..], |entry| entry.node.elements());
    let with_name = |name: &Node| {
        let is_own = |entry: &&Entry| OWN.contains(&entry.key.as_str());
        let entries = table.0.iter().filter(|entry| !is_own(entry)).map(|entry| match entry.key.as_str() {
            "name" => Entry { node: name.clone(), ..entry.clone() },
            _ => entry.clone(),
        });
        let text = name.scalar().and_then(toml::Value::as_str).unwrap_or_default();
        Contender {
            name: text.into(),
            table: Table(entries.collect()),
            header: name.span.clone(),
            own: table.0.iter().filter(is_own).cloned().collect(),
        }
    };
    names.iter().map(with_name).collect()
}

/// What each contender runs in, apart from itself: what all share, with its own number of agents and of their
/// interactions. Once such a number differs, it is told apart everywhere, as in a sweep.
pub(super) fn worlds(contenders: &[Contender], shared: &Table) -> Vec<Table> {
    let differs = |key: &str| contenders.iter().any(|contender| contender.said(key).is_some());
    let own = |contender: &Contender| {
        let entry = |entry: &Entry| match contender.said(&entry.key) {
            _ if !differs(&entry.key) => entry.clone(),
            Some(own) => listed(own),
            None => listed(entry),
        };
        Table(shared.0.iter().map(entry).collect())
    };
    contenders.iter().map(own).collect()
}

impl Contender {
    /// What it says of a key instead of the top.
    fn said(&self, key: &str) -> Option<&Entry> {
        self.own.iter().find(|entry| entry.key == key)
    }
}

/// An entry as a sweep, if of one value.
fn listed(entry: &Entry) -> Entry {
    let node = match &entry.node.value {
        Value::List(_) => entry.node.clone(),
        _ => Node { span: entry.node.span.clone(), value: Value::List(vec![entry.node.clone()]) },
    };
    Entry { node, ..entry.clone() }
}

/// Settings by which a contender differs from others of the same name, defaults among them. They go into its
/// ids.
pub(super) fn distinct_settings(contenders: &[Contender], index: usize) -> Vec<(Vec<String>, String)> {
    let own = &contenders[index];
    let all = |contender: &Contender| scalars(&complete_section(Section::Algorithm, &contender.table));
    let others = contenders.iter().enumerate().filter(|(other, _)| *other != index);
    let namesakes: Vec<_> = others
        .filter(|(_, contender)| contender.name == own.name)
        .map(|(_, contender)| all(contender))
        .collect();
    let mut settings = all(own);
    settings.retain(|setting| namesakes.iter().any(|other| !other.contains(setting)));
    settings
}

/// The scalars of a table with their paths, those of inner tables too.
fn scalars(table: &toml::Table) -> Vec<(Vec<String>, String)> {
    let mut all = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => all.extend(scalars(inner).into_iter().map(|(mut path, value)| {
                path.insert(0, key.clone());
                (path, value)
            })),
            toml::Value::Array(_) => {}
            value => all.push((vec![key.clone()], label(value))),
        }
    }
    all
}
