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
    let all = |contender: &Contender| complete_section(Section::Algorithm, &contender.table);
    let others = contenders.iter().enumerate().filter(|(other, _)| *other != index);
    let namesakes: Vec<toml::Table> = others
        .filter(|(_, contender)| contender.name == own.name)
        .map(|(_, contender)| all(contender))
        .collect();
    distinct(&all(own), &namesakes.iter().collect::<Vec<_>>())
}

/// The scalars of a table that some of the `others` do not have, with their paths.
///
/// An inner table, such as `privacy`, is compared with those of the others that have it too: all its defaults would
/// otherwise stand in the ids as soon as one of them has none. Its first setting stands for it where nothing else in the
/// id says that it is there.
fn distinct(own: &toml::Table, others: &[&toml::Table]) -> Vec<(Vec<String>, String)> {
    let mut all = Vec::new();
    for (key, value) in own {
        match value {
            toml::Value::Table(inner) => {
                let owners: Vec<&toml::Table> =
                    others.iter().filter_map(|other| other.get(key)?.as_table()).collect();
                let mut below = distinct(inner, &owners);
                if below.is_empty() && owners.len() < others.len() && !is_swept(inner) {
                    below.extend(first_scalar(inner));
                }
                all.extend(below.into_iter().map(|(path, value)| (joined(key, path), value)));
            }
            toml::Value::Array(_) => {}
            value if others.iter().all(|other| is_same(other.get(key), value)) => {}
            value => all.push((vec![key.clone()], label(value))),
        }
    }
    all
}

/// Whether another table has this scalar, too.
fn is_same(other: Option<&toml::Value>, value: &toml::Value) -> bool {
    let is_scalar = |other: &&toml::Value| !other.is_table() && !other.is_array();
    other.filter(is_scalar).is_some_and(|other| label(other) == label(value))
}

/// Whether anything in a table is swept: ids have what was chosen of it.
fn is_swept(table: &toml::Table) -> bool {
    table.values().any(|value| match value {
        toml::Value::Array(values) => !values.iter().any(toml::Value::is_table),
        toml::Value::Table(inner) => is_swept(inner),
        _ => false,
    })
}

/// The first scalar of a table, in the order of its settings, with its path.
fn first_scalar(table: &toml::Table) -> Option<(Vec<String>, String)> {
    table.iter().find_map(|(key, value)| match value {
        toml::Value::Table(inner) => first_scalar(inner).map(|(path, value)| (joined(key, path), value)),
        toml::Value::Array(_) => None,
        value => Some((vec![key.clone()], label(value))),
    })
}

/// The path of a setting within the table called `key`.
fn joined(key: &str, path: Vec<String>) -> Vec<String> {
    std::iter::once(key.to_owned()).chain(path).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;

    /// The ids of the groups of an experiment with these algorithms.
    fn ids(algorithms: &str) -> Vec<String> {
        let text = format!("horizon = 10\nagents = 3\n{algorithms}");
        let experiment = Experiment::parse(&text, false).unwrap_or_else(|found| panic!("{found:?}"));
        experiment.groups.into_iter().map(|group| group.id).collect()
    }

    #[test]
    fn what_all_owners_of_a_table_share_stays_out_of_their_ids() {
        let found = ids("[[algorithm]]\nname = \"async-lin-ucb\"\n\
             [[algorithm]]\nname = \"async-lin-ucb\"\n\
             [algorithm.privacy]\nepsilon = [1, 2]\nmax_releases = 10\n\
             [[algorithm]]\nname = \"async-lin-ucb\"\n\
             [algorithm.privacy]\nepsilon = 4\nmax_releases = 20\n");
        let expected = [
            "async-lin-ucb",
            "async-lin-ucb/max_releases=10/epsilon=1",
            "async-lin-ucb/max_releases=10/epsilon=2",
            "async-lin-ucb/epsilon=4/max_releases=20",
        ];
        assert_eq!(found, expected);
    }

    /// Two groups of one id could not be told apart.
    #[test]
    fn a_table_that_only_some_have_is_told_by_its_first_setting() {
        let found = ids("[[algorithm]]\nname = \"async-lin-ucb\"\n\
             [[algorithm]]\nname = \"async-lin-ucb\"\n[algorithm.privacy]\nmax_releases = 10\n");
        assert_eq!(found, ["async-lin-ucb", "async-lin-ucb/epsilon=1"]);
    }

    #[test]
    fn settings_outside_of_tables_are_told_wherever_one_namesake_differs() {
        let found = ids("[[algorithm]]\nname = \"async-lin-ucb\"\nthreshold = 2\n\
             [[algorithm]]\nname = \"async-lin-ucb\"\nthreshold = 3\njoin = \"eager\"\n\
             [[algorithm]]\nname = \"lin-ucb\"\n");
        let expected =
            ["async-lin-ucb/threshold=2/join=lazy", "async-lin-ucb/threshold=3/join=eager", "lin-ucb"];
        assert_eq!(found, expected);
    }
}
