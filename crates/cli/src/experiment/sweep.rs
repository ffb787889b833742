//! Sweeps: a list where one value is expected stands for as many cells.

use super::source::{Entry, Node, Table, Value, label};

/// A choice of one value for every list, with the values it chose.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    /// The table with one value in place of every list.
    pub(crate) table: Table,
    /// Path and value of each choice, in the order written.
    pub(crate) choices: Vec<(Vec<String>, String)>,
}

/// Every combination of the values of all lists in `table`, the last list varying fastest. Tables in it come
/// after everything else, as in a file that is written anew.
///
/// Arrays of tables are not sweeps and stay.
pub(crate) fn expand(table: &Table) -> Vec<Picked> {
    let mut done = vec![Picked { table: Table::default(), choices: Vec::new() }];
    let (tables, others): (Vec<&Entry>, _) = table.0.iter().partition(|entry| entry.node.table().is_some());
    for entry in others.into_iter().chain(tables) {
        let options = options(entry);
        let longer =
            done.iter().flat_map(|picked| options.iter().map(|option| extend(picked, entry, option)));
        done = longer.collect();
    }
    done
}

/// How many combinations [`expand`] makes, or `None` if that is too large a number.
pub(crate) fn count(table: &Table) -> Option<u64> {
    table.0.iter().try_fold(1u64, |product, entry| {
        let own = match &entry.node.value {
            Value::List(nodes) if is_sweep(nodes) => nodes.len() as u64,
            Value::Table(inner) => count(inner)?,
            _ => 1,
        };
        product.checked_mul(own)
    })
}

/// One value for one entry, with the choices made inside it.
struct Choice {
    node: Node,
    choices: Vec<(Vec<String>, String)>,
}

/// The values an entry stands for.
fn options(entry: &Entry) -> Vec<Choice> {
    let Entry { key, node, .. } = entry;
    match &node.value {
        Value::List(nodes) if is_sweep(nodes) => nodes
            .iter()
            .map(|node| {
                let value = node.scalar().map_or_else(String::new, label);
                Choice { node: node.clone(), choices: vec![(vec![key.clone()], value)] }
            })
            .collect(),
        Value::Table(table) => expand(table)
            .into_iter()
            .map(|Picked { table, mut choices }| {
                choices.iter_mut().for_each(|(path, _)| path.insert(0, key.clone()));
                Choice { node: Node { span: node.span.clone(), value: Value::Table(table) }, choices }
            })
            .collect(),
        _ => vec![Choice { node: node.clone(), choices: Vec::new() }],
    }
}

/// A choice for one more entry.
fn extend(picked: &Picked, entry: &Entry, choice: &Choice) -> Picked {
    let mut longer = picked.clone();
    longer.table.0.push(Entry { node: choice.node.clone(), ..entry.clone() });
    longer.choices.extend(choice.choices.iter().cloned());
    longer
}

/// Whether a list is one of scalars.
fn is_sweep(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| node.scalar().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combinations(text: &str) -> Vec<String> {
        let table = Table::parse(text).unwrap();
        let all = expand(&table);
        assert_eq!(count(&table), Some(all.len() as u64));
        let show = |(path, value): &(Vec<String>, String)| format!("{}={value}", path.join("."));
        all.iter().map(|picked| picked.choices.iter().map(show).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn the_last_list_varies_fastest_in_the_order_written() {
        let text = "b = [1, 2.5]\na = 3\n[t]\nx = [\"u\", \"v\"]\nempty = []\n";
        assert_eq!(
            combinations(&text.replace("empty = []\n", "")),
            ["b=1 t.x=u", "b=1 t.x=v", "b=2.5 t.x=u", "b=2.5 t.x=v"]
        );
    }

    #[test]
    fn arrays_of_tables_are_not_sweeps() {
        assert_eq!(combinations("a = [1, inf]\n[[o]]\nx = 1\n[[o]]\nx = 2\n"), ["a=1", "a=inf"]);
    }

    #[test]
    fn too_many_combinations_are_noticed_without_making_them() {
        let list = format!("[{}]", vec!["1"; 1000].join(","));
        let text: String = (0..7).map(|i| format!("k{i} = {list}\n")).collect();
        assert_eq!(count(&Table::parse(&text).unwrap()), None);
    }
}
