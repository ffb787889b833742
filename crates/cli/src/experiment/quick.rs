//! A first look: the same experiment with fewer agents, interactions and repetitions.

use std::collections::BTreeSet;

use super::contender::AGENTS;
use super::source::{Entry, Node, Table, Value, label};

const MAX_AGENTS: i64 = 40;
const MAX_INTERACTIONS: i64 = 2_000;
const MAX_REPETITIONS: i64 = 2;

/// Scales an experiment of the right form down. Values of one key are scaled by one factor wherever they stand, so that
/// sweeps keep their proportions, and checks and figures select the groups they selected before. Values of a sweep that become equal
/// are run once.
pub(super) fn scale_down(root: &mut Table) {
    scale(root, AGENTS, MAX_AGENTS);
    scale(root, "horizon", MAX_INTERACTIONS);
    scale(root, "repetitions", MAX_REPETITIONS);
    // As many interactions as other experiments have, where there are most agents.
    let agents = places(root, AGENTS).map(|node| largest(node)).max().unwrap_or(1).max(1);
    scale(root, "horizon_each", (MAX_INTERACTIONS / agents).max(1));
}

/// Makes the largest value of a key `most`, and its other values smaller by the same factor.
fn scale(root: &mut Table, key: &str, most: i64) {
    let largest = places(root, key).map(|node| largest(node)).max().unwrap_or(0);
    if largest <= most {
        return;
    }
    places(root, key).for_each(|node| shrink(node, most, largest));
    for name in ["check", "figure"] {
        for table in tables(root, name) {
            selected(table, key, &|node| shrink(node, most, largest));
        }
    }
}

/// The values of a key at the top of an experiment and in its `[[algorithm]]` tables.
fn places<'a>(root: &'a mut Table, key: &'a str) -> impl Iterator<Item = &'a mut Node> {
    let (algorithms, top): (Vec<_>, Vec<_>) = root.0.iter_mut().partition(|entry| entry.key == "algorithm");
    let own =
        algorithms.into_iter().flat_map(|entry| in_list(&mut entry.node)).flat_map(|table| &mut table.0);
    top.into_iter().chain(own).filter(move |entry| entry.key == key).map(|entry| &mut entry.node)
}

/// The tables of a list of tables; none if there is no such list.
fn tables<'a>(root: &'a mut Table, name: &'a str) -> impl Iterator<Item = &'a mut Table> {
    root.0.iter_mut().filter(move |entry| entry.key == name).flat_map(|entry| in_list(&mut entry.node))
}

fn in_list(node: &mut Node) -> impl Iterator<Item = &mut Table> {
    let nodes: &mut [Node] = if let Value::List(nodes) = &mut node.value { nodes } else { &mut [] };
    nodes.iter_mut().filter_map(|node| match &mut node.value {
        Value::Table(table) => Some(table),
        _ => None,
    })
}

/// Calls `change` with every value of `key` in the tables within a check or a figure, which select groups.
fn selected(table: &mut Table, key: &str, change: &impl Fn(&mut Node)) {
    for Entry { node, .. } in &mut table.0 {
        if let Value::Table(selector) = &mut node.value {
            selector.0.iter_mut().filter(|entry| entry.key == key).for_each(|entry| change(&mut entry.node));
            selected(selector, key, change);
        }
    }
}

/// The largest value of a sweep.
fn largest(node: &Node) -> i64 {
    let whole = |node: &Node| node.scalar().and_then(toml::Value::as_integer);
    node.elements().iter().filter_map(whole).max().unwrap_or(0)
}

/// Makes values smaller by the factor that makes `most` of `largest`.
fn shrink(node: &mut Node, most: i64, largest: i64) {
    // In 128 bits nothing overflows. Never down to nothing.
    let smaller = |value: i64| {
        let scaled = i128::from(value) * i128::from(most) / i128::from(largest);
        i64::try_from(scaled).unwrap_or(most).max(value.min(1))
    };
    let replace = |node: &mut Node| {
        if let Value::Scalar(toml::Value::Integer(value)) = &mut node.value {
            *value = smaller(*value);
        }
    };
    match &mut node.value {
        Value::List(nodes) => {
            nodes.iter_mut().for_each(replace);
            let mut seen = BTreeSet::new();
            nodes.retain(|node| seen.insert(node.scalar().map(label)));
        }
        _ => replace(node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(text: &str) -> String {
        let mut root = Table::parse(text).unwrap();
        scale_down(&mut root);
        toml::to_string(&root.to_toml()).unwrap()
    }

    #[test]
    fn large_values_become_small_in_proportion_and_small_ones_stay() {
        assert_eq!(scaled("agents = 1000\nhorizon = 100\n"), "agents = 40\nhorizon = 100\n");
        assert_eq!(scaled("agents = [1, 2, 100, 200]\n"), "agents = [1, 20, 40]\n");
        assert_eq!(
            scaled("agents = [1, 10]\nhorizon_each = 5000\n"),
            "agents = [1, 10]\nhorizon_each = 200\n"
        );
        assert_eq!(
            scaled("agents = 1000\nhorizon_each = [5, 50]\n"),
            "agents = 40\nhorizon_each = [5, 50]\n"
        );
        let own = "agents = 1\nhorizon_each = 500\n[[algorithm]]\nagents = 80\n";
        let expected = "agents = 1\nhorizon_each = 50\n\n[[algorithm]]\nagents = 40\n";
        assert_eq!(scaled(own), expected);
        let selects = "horizon_each = 50\nagents = 10\n[[algorithm]]\nhorizon_each = 400\n\
                       [[check]]\nwhere = { horizon_each = 50, agents = [5, 10], width = 400 }\n";
        let expected = "horizon_each = 25\nagents = 10\n\n[[algorithm]]\nhorizon_each = 200\n\n\
                        [[check]]\n\n[check.where]\nhorizon_each = 25\nagents = [5, 10]\nwidth = 400\n";
        assert_eq!(scaled(selects), expected, "a check selects what it selected before");
        let draws = "agents = [100, 1000]\n[[figure]]\nwhere = { agents = 1000 }\n";
        let expected = "agents = [4, 40]\n\n[[figure]]\n\n[figure.where]\nagents = 40\n";
        assert_eq!(scaled(draws), expected, "a figure shows what it showed before");
        assert_eq!(scaled("repetitions = 10\nx = 1000\n"), "repetitions = 2\nx = 1000\n");
    }
}
