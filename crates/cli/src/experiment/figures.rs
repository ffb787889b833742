//! `[[figure]]`: what the figure of an experiment shows, so that the report draws what the paper drew.

use super::Group;
use super::diagnostic::Diagnostic;
use super::source::{Entry, Node, Table, Value, label};
use super::values::{did_you_mean, wrong_type};
use crate::check::is_called;
use crate::metric::Column;
use crate::suggest::closest;

const KEYS: [&str; 8] = ["title", "caption", "x", "y", "x_scale", "y_scale", "where", "published"];
/// The horizontal axis of curves over time.
const TIME: &str = "interactions";

/// One `[[figure]]` of an experiment, checked.
#[derive(Clone, Debug)]
pub(crate) struct FigurePlan {
    pub(crate) title: Option<String>,
    pub(crate) caption: Option<String>,
    /// What the horizontal axis shows.
    pub(crate) x: Horizontal,
    /// What the vertical axis shows.
    pub(crate) y: Column,
    /// Logarithmic or linear axes, where the experiment says it; otherwise the data decides.
    pub(crate) x_log: Option<bool>,
    pub(crate) y_log: Option<bool>,
    /// Only the settings of these algorithms; empty means all.
    pub(crate) algorithms: Vec<String>,
    /// Only groups with these values of swept settings, each with its path.
    pub(crate) values: Vec<(String, Vec<String>)>,
    /// Curves or values that the paper prints, drawn over ours.
    pub(crate) published: Vec<Published>,
}

/// What the horizontal axis of a figure shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Horizontal {
    /// Interactions: one line for each setting.
    Time,
    /// Something measured: one dot for each setting.
    Column(Column),
    /// A swept setting, by its whole path: one dot for each of its values.
    Setting(String),
}

/// Numbers that a paper published, drawn beside ours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Published {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// The figures of an experiment with these groups.
pub(super) fn read(entry: Option<&Entry>, groups: &[Group]) -> Result<Vec<FigurePlan>, Vec<Diagnostic>> {
    let Some(entry) = entry else { return Ok(Vec::new()) };
    let (mut plans, mut found) = (Vec::new(), Vec::new());
    let Value::List(nodes) = &entry.node.value else {
        let message = format!("`figure` is {}: expected an array of tables", entry.node.describe());
        return Err(vec![Diagnostic::new(&entry.span, message).help("write [[figure]], with two brackets")]);
    };
    for node in nodes {
        match node.table() {
            Some(table) => plans.extend(plan(table, node, groups, &mut found)),
            None => found.push(wrong_type("figure", node, "a table").help("write [[figure]]")),
        }
    }
    if found.is_empty() { Ok(plans) } else { Err(found) }
}

fn plan(table: &Table, node: &Node, groups: &[Group], found: &mut Vec<Diagnostic>) -> Option<FigurePlan> {
    for entry in table.0.iter().filter(|entry| !KEYS.contains(&entry.key.as_str())) {
        let near = closest(&entry.key, KEYS).map(did_you_mean);
        let help = near.unwrap_or_else(|| format!("its keys are {}", KEYS.join(", ")));
        found.push(
            Diagnostic::new(&entry.span, format!("unknown key `{}` for a figure", entry.key)).help(help),
        );
    }
    let before = found.len();
    let [title, caption] = ["title", "caption"].map(|key| text(table, key, found));
    let [x_log, y_log] = ["x_scale", "y_scale"].map(|key| scale(table, key, found));
    let (x, y) = (horizontal(table, node, groups, found), column(table, node, found));
    let (algorithms, values) = selection(table, groups, found);
    let published = published(table, found);
    if found.len() > before {
        return None;
    }
    Some(FigurePlan { title, caption, x: x?, y: y?, x_log, y_log, algorithms, values, published })
}

fn text(table: &Table, key: &str, found: &mut Vec<Diagnostic>) -> Option<String> {
    let entry = table.get(key)?;
    let text = entry.node.scalar().and_then(toml::Value::as_str);
    if text.is_none() {
        found.push(wrong_type(key, &entry.node, "a text"));
    }
    text.map(String::from)
}

fn scale(table: &Table, key: &str, found: &mut Vec<Diagnostic>) -> Option<bool> {
    let entry = table.get(key)?;
    match entry.node.scalar().and_then(toml::Value::as_str) {
        Some("log") => Some(true),
        Some("linear") => Some(false),
        _ => {
            found.push(wrong_type(key, &entry.node, "one of log, linear"));
            None
        }
    }
}

fn horizontal(
    table: &Table,
    node: &Node,
    groups: &[Group],
    found: &mut Vec<Diagnostic>,
) -> Option<Horizontal> {
    let Some(entry) = table.get("x") else {
        let help = "add `x`: interactions, a metric, or a swept setting";
        found.push(Diagnostic::new(&node.span, "this figure has no `x`").help(help));
        return None;
    };
    let word = entry.node.scalar().and_then(toml::Value::as_str).unwrap_or_default();
    if word == TIME {
        return Some(Horizontal::Time);
    }
    let paths = || groups.iter().flat_map(|group| &group.choices).map(|(path, _)| path.as_str());
    // A setting and a metric may share a name, such as clusters. An experiment that sweeps the setting means the setting.
    if let Some(path) = paths().find(|path| *path != "algorithm" && is_called(path, word)) {
        return Some(Horizontal::Setting(path.into()));
    }
    if let Some(column) = Column::find(word) {
        return Some(Horizontal::Column(column));
    }
    let mut known: Vec<String> = [TIME].into_iter().chain(Column::names()).map(String::from).collect();
    known.extend(paths().filter(|path| *path != "algorithm").map(|path| last(path).to_owned()));
    known.dedup();
    let near = closest(word, known.iter().map(String::as_str)).map(did_you_mean);
    let help = near.unwrap_or_else(|| format!("there are {}", known.join(", ")));
    found.push(wrong_type("x", &entry.node, "interactions, a metric or a swept setting").help(help));
    None
}

fn column(table: &Table, node: &Node, found: &mut Vec<Diagnostic>) -> Option<Column> {
    let Some(entry) = table.get("y") else {
        found.push(
            Diagnostic::new(&node.span, "this figure has no `y`").help("add `y`: the name of a metric"),
        );
        return None;
    };
    let word = entry.node.scalar().and_then(toml::Value::as_str).unwrap_or_default();
    let column = Column::find(word);
    if column.is_none() {
        let near = closest(word, Column::names()).map(did_you_mean);
        let names = || Column::names().collect::<Vec<_>>().join(", ");
        let help = near.unwrap_or_else(|| format!("there are {}", names()));
        found.push(wrong_type("y", &entry.node, "a metric").help(help));
    }
    column
}

/// `where`: names of algorithms, and values of swept settings with the paths of these.
fn selection(
    table: &Table,
    groups: &[Group],
    found: &mut Vec<Diagnostic>,
) -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    let Some(entry) = table.get("where") else { return (names, values) };
    let Some(own) = entry.node.table() else {
        let expected = "which algorithms and settings, as in { algorithm = [\"lin-ucb\"] }";
        found.push(wrong_type("where", &entry.node, expected));
        return (names, values);
    };
    for Entry { key, span, node } in &own.0 {
        if key == "algorithm" {
            names = algorithms(node, groups, found);
            continue;
        }
        let choices =
            || groups.iter().flat_map(|group| &group.choices).filter(|(path, _)| path != "algorithm");
        let Some(path) = choices().map(|(path, _)| path).find(|path| is_called(path, key)) else {
            let known: Vec<&str> = choices().map(|(path, _)| last(path)).chain(["algorithm"]).collect();
            let near = closest(key, known.iter().copied()).map(did_you_mean);
            found.push(Diagnostic::new(span, format!("no group is told apart by `{key}`")).maybe_help(near));
            continue;
        };
        let mut wanted = Vec::new();
        for node in node.elements() {
            let value = node.scalar().map(label);
            match value.filter(|value| choices().any(|(own, theirs)| own == path && theirs == value)) {
                Some(value) => wanted.push(value),
                None => found.push(wrong_type(key, node, "a value that the setting takes here")),
            }
        }
        values.push((path.clone(), wanted));
    }
    (names, values)
}

/// One algorithm of the experiment, or a list of them.
fn algorithms(listed: &Node, groups: &[Group], found: &mut Vec<Diagnostic>) -> Vec<String> {
    let known = || groups.iter().map(|group| group.config.algorithm.name());
    let mut names = Vec::new();
    for node in listed.elements() {
        match node.scalar().and_then(toml::Value::as_str) {
            Some(name) if known().any(|own| own == name) => names.push(name.to_owned()),
            word => {
                let near = word.and_then(|word| closest(word, known())).map(did_you_mean);
                found.push(wrong_type("algorithm", node, "an algorithm of this experiment").maybe_help(near));
            }
        }
    }
    names
}

fn published(table: &Table, found: &mut Vec<Diagnostic>) -> Vec<Published> {
    let Some(entry) = table.get("published") else { return Vec::new() };
    let expected = "a list of { name = \"…\", points = [[x, y], …] }";
    let number = |node: &Node| match node.scalar() {
        Some(toml::Value::Integer(number)) => Some(*number as f64),
        Some(toml::Value::Float(number)) if number.is_finite() => Some(*number),
        _ => None,
    };
    let point = |node: &Node| match &node.value {
        Value::List(pair) => match &pair[..] {
            [x, y] => Some((number(x)?, number(y)?)),
            _ => None,
        },
        _ => None,
    };
    let mut all = Vec::new();
    for node in entry.node.elements() {
        let own = node.table().and_then(|table| {
            let name = table.get("name")?.node.scalar()?.as_str()?.to_owned();
            let Value::List(points) = &table.get("points")?.node.value else { return None };
            let points: Option<Vec<(f64, f64)>> = points.iter().map(point).collect();
            (table.0.len() == 2).then_some(Published { name, points: points? })
        });
        match own {
            Some(own) => all.push(own),
            None => found.push(wrong_type("published", node, expected)),
        }
    }
    all
}

impl FigurePlan {
    /// What the terminal shows beside its usual columns, because the figure is about it.
    pub(crate) fn measured(&self) -> impl Iterator<Item = Column> + '_ {
        let x = match &self.x {
            Horizontal::Column(column) => Some(*column),
            _ => None,
        };
        x.into_iter().chain([self.y])
    }

    /// Whether a group belongs in the figure.
    pub(crate) fn shows(&self, group: &Group) -> bool {
        let name = group.config.algorithm.name();
        let is_wanted = |(path, wanted): &(String, Vec<String>)| {
            group.choices.iter().any(|(own, value)| own == path && wanted.contains(value))
        };
        (self.algorithms.is_empty() || self.algorithms.iter().any(|own| own == name))
            && self.values.iter().all(is_wanted)
    }

    /// A name without the settings that are the same all over the figure.
    pub(crate) fn shorten(&self, name: &str) -> String {
        let fixed: Vec<String> = self
            .values
            .iter()
            .filter_map(|(path, values)| match &values[..] {
                [value] => Some(format!("{}={value}", last(path))),
                _ => None,
            })
            .collect();
        let told = name.split('/').filter(|part| !fixed.iter().any(|own| own == part));
        told.collect::<Vec<_>>().join("/")
    }
}

/// The last part of a setting's path.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
