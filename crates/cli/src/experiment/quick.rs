//! A first look: the same experiment with fewer agents, interactions and repetitions.

use std::collections::BTreeSet;

use super::contender::AGENTS;
use super::source::{Entry, Node, Table, Value, label};

/// What is scaled down, and the most that is left of it.
const MOST: [(&str, i64); 3] = [(AGENTS, MOST_AGENTS), ("horizon", MOST_INTERACTIONS), ("repetitions", 2)];
const MOST_AGENTS: i64 = 40;
const MOST_INTERACTIONS: i64 = 2_000;

/// Scales an experiment of the right form down. Sweeps keep their proportions; values that become equal
/// are run once.
pub(super) fn scale_down(root: &mut Table) {
    for (key, most) in MOST {
        if let Some(Entry { node, .. }) = root.0.iter_mut().find(|entry| entry.key == key) {
            scale(node, most);
        }
    }
    let mut agents = root.get(AGENTS).map_or(1, |entry| largest(&entry.node)).max(1);
    for node in algorithms(root) {
        if let Value::Table(table) = &mut node.value
            && let Some(Entry { node, .. }) = table.0.iter_mut().find(|entry| entry.key == AGENTS)
        {
            scale(node, MOST_AGENTS);
            agents = agents.max(largest(node));
        }
    }
    // As many interactions as other experiments have, where there are most agents.
    let most = (MOST_INTERACTIONS / agents).max(1);
    if let Some(Entry { node, .. }) = root.0.iter_mut().find(|entry| entry.key == "horizon_each") {
        scale(node, most);
    }
    for node in algorithms(root) {
        if let Value::Table(table) = &mut node.value
            && let Some(Entry { node, .. }) = table.0.iter_mut().find(|entry| entry.key == "horizon_each")
        {
            scale(node, most);
        }
    }
}

/// The `[[algorithm]]` tables of an experiment; empty if there are none.
fn algorithms(root: &mut Table) -> &mut [Node] {
    match root.0.iter_mut().find(|entry| entry.key == "algorithm").map(|entry| &mut entry.node.value) {
        Some(Value::List(nodes)) => nodes,
        _ => &mut [],
    }
}

/// The largest value of a sweep.
fn largest(node: &Node) -> i64 {
    let whole = |node: &Node| node.scalar().and_then(toml::Value::as_integer);
    node.elements().iter().filter_map(whole).max().unwrap_or(0)
}

/// Makes the largest value of a sweep `most`, and the others smaller by the same factor.
fn scale(node: &mut Node, most: i64) {
    let largest = largest(node);
    if largest <= most {
        return;
    }
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
        assert_eq!(scaled("repetitions = 10\nx = 1000\n"), "repetitions = 2\nx = 1000\n");
    }
}
