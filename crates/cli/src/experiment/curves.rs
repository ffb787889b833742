//! `[curves]`: whether curves are also kept for groups of agents.

use posse_sim::GroupBy;

use super::diagnostic::Diagnostic;
use super::source::{Entry, Table, Value};
use super::values::{did_you_mean, fits, wrong_type};
use crate::settings::Kind;
use crate::suggest::closest;

/// More than a plot can show.
const MAX_GROUPS: u64 = 20;
const GROUPS: &str = "groups";
const BY: &str = "by";
const ORDERS: [(&str, GroupBy); 2] = [("activity", GroupBy::Activity), ("id", GroupBy::Id)];

/// Which curves are kept besides those of all agents together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Curves {
    /// Into how many groups agents are divided; 0 if they are not.
    pub(crate) groups: usize,
    /// The order in which agents are divided into groups.
    pub(crate) by: GroupBy,
}

impl Curves {
    /// Reads the `[curves]` table of a checked experiment.
    pub(super) fn read(root: &Table) -> Self {
        let Some(table) = root.get("curves").and_then(|entry| entry.node.table()) else {
            return Self::default();
        };
        let scalar = |key: &str| table.get(key).and_then(|entry| entry.node.scalar());
        let word = scalar(BY).and_then(toml::Value::as_str);
        Self {
            groups: scalar(GROUPS).and_then(toml::Value::as_integer).map_or(0, |groups| groups as usize),
            by: ORDERS.iter().find(|(name, _)| Some(*name) == word).map_or_else(Default::default, |by| by.1),
        }
    }

    /// With all defaults, as it would be written.
    pub(super) fn to_toml(self) -> toml::Table {
        let by = ORDERS.iter().find(|(_, by)| *by == self.by).map_or("", |(name, _)| name);
        let entries: [(&str, toml::Value); 2] = [(GROUPS, (self.groups as i64).into()), (BY, by.into())];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Everything that is wrong with `[curves]`.
pub(super) fn check(entry: &Entry, found: &mut Vec<Diagnostic>) {
    let Some(table) = entry.node.table() else {
        let message = format!("`curves` is {}: expected a table", entry.node.describe());
        found.push(Diagnostic::new(&entry.node.span, message).help("write [curves]"));
        return;
    };
    for Entry { key, span, node } in &table.0 {
        let words: &'static [&'static str] = &["activity", "id"];
        let kind = match key.as_str() {
            GROUPS => Kind::Size(MAX_GROUPS),
            BY => Kind::OneOf(words),
            _ => {
                let near = closest(key, [GROUPS, BY]).map(did_you_mean);
                let help = near.unwrap_or_else(|| format!("its settings are {GROUPS}, {BY}"));
                found.push(Diagnostic::new(span, format!("unknown key `{key}` in [curves]")).help(help));
                continue;
            }
        };
        if matches!(node.value, Value::List(_)) || !fits(&kind, node) {
            found.push(wrong_type(key, node, &kind.expected()));
        } else if node
            .scalar()
            .and_then(toml::Value::as_integer)
            .is_some_and(|size| size > MAX_GROUPS.cast_signed())
        {
            let message = format!("`{key}` is {}: at most {MAX_GROUPS} can be told apart", node.describe());
            found.push(Diagnostic::new(&node.span, message));
        }
    }
}
