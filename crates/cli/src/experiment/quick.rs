//! A first look: the same experiment with fewer agents, interactions and repetitions.

use std::collections::BTreeSet;

use super::source::{Entry, Node, Table, Value, label};

/// What is scaled down, and the most that is left of it.
const MOST: [(&str, i64); 3] = [("agents", 40), ("horizon", 2_000), ("repetitions", 2)];

/// Scales an experiment of the right form down. Sweeps keep their proportions; values that become equal
/// are run once.
pub(super) fn scale_down(root: &mut Table) {
    for (key, most) in MOST {
        if let Some(Entry { node, .. }) = root.0.iter_mut().find(|entry| entry.key == key) {
            scale(node, most);
        }
    }
}

/// Makes the largest value of a sweep `most`, and the others smaller by the same factor.
fn scale(node: &mut Node, most: i64) {
    let whole = |node: &Node| node.scalar().and_then(toml::Value::as_integer);
    let largest = node.elements().iter().filter_map(whole).max().unwrap_or(0);
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
        assert_eq!(scaled("repetitions = 10\nx = 1000\n"), "repetitions = 2\nx = 1000\n");
    }
}
