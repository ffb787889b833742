//! Is it written as an experiment is: known keys, values of the right type, nothing missing?
//!
//! This looks at the file as written, before sweeps are expanded, so that every slip is reported once.

use std::collections::BTreeSet;

use super::diagnostic::Diagnostic;
use super::source::{Entry, Node, Span, Table, Value, label};
use crate::settings::{BOTH_THRESHOLDS, Kind, Section, Setting, THRESHOLD, Variant};
use crate::suggest::closest;

/// What the top of an experiment may hold besides tables.
const TOP: [&str; 6] = ["title", "description", "seed", "repetitions", "horizon", "agents"];

/// Everything about the form of the file that is wrong.
pub(crate) fn check(root: &Table) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for entry in &root.0 {
        check_top(entry, &mut found);
    }
    // What is missing has no place of its own: the end of the file is where it could go.
    let end = usize::MAX..usize::MAX;
    for (key, example) in [("horizon", "horizon = 10_000"), ("agents", "agents = 50")] {
        // A misspelt key has been reported already.
        let misspelt = root.0.iter().any(|entry| near_top_key(&entry.key) == Some(key));
        if root.get(key).is_none() && !misspelt {
            let help = format!("add `{example}` at the top");
            found.push(Diagnostic::new(&(0..0), format!("`{key}` is missing")).help(help));
        }
    }
    let misspelt = root.0.iter().any(|entry| near_top_key(&entry.key) == Some("algorithm"));
    if root.get("algorithm").is_none() && !misspelt {
        let help = "add [[algorithm]] with a `name`; `posse algorithms` lists them";
        found.push(Diagnostic::new(&end, "there is no [[algorithm]]").help(help));
    }
    found
}

fn check_top(entry: &Entry, found: &mut Vec<Diagnostic>) {
    let key = entry.key.as_str();
    let section = Section::ALL.into_iter().find(|section| section.key() == key);
    match (key, section) {
        ("title" | "description", _) => {
            if !matches!(entry.node.scalar(), Some(toml::Value::String(_))) {
                found.push(wrong_type(key, &entry.node, "a text"));
            }
        }
        ("seed" | "repetitions", _) => check_single_whole(entry, found),
        ("horizon" | "agents", _) => check_sweep(key, &Kind::Whole, &entry.node, found),
        (_, Some(Section::Algorithm)) => check_algorithms(entry, found),
        (_, Some(section)) => match entry.node.table() {
            Some(table) => check_section(section, table, &entry.span, found),
            None => {
                let message = format!("`{key}` is {}: expected a table", entry.node.describe());
                found.push(
                    Diagnostic::new(&entry.node.span, message).help(format!("write {}", section.header())),
                );
            }
        },
        (_, None) => {
            let near = near_top_key(key).map(did_you_mean);
            let help = near.or_else(|| belongs_elsewhere(key, None));
            let message = format!("unknown key `{key}` at the top of an experiment");
            found.push(Diagnostic::new(&entry.span, message).maybe_help(help));
        }
    }
}

/// What the top of an experiment holds that is most like `key`.
fn near_top_key(key: &str) -> Option<&'static str> {
    closest(key, TOP.into_iter().chain(Section::ALL.into_iter().map(Section::key)))
}

fn check_single_whole(entry: &Entry, found: &mut Vec<Diagnostic>) {
    let Entry { key, node, .. } = entry;
    if matches!(node.value, Value::List(_)) {
        let message = format!("`{key}` is a list: it takes one value");
        let help = "`repetitions = n` runs every cell with the seeds seed, seed + 1, … seed + n - 1";
        found.push(Diagnostic::new(&node.span, message).help(help));
    } else if !fits(&Kind::Whole, node) {
        found.push(wrong_type(key, node, &Kind::Whole.expected()));
    } else if key == "repetitions" && node.scalar().and_then(toml::Value::as_integer) == Some(0) {
        found.push(Diagnostic::new(&node.span, "`repetitions` is 0: it must be at least 1"));
    }
}

fn check_algorithms(entry: &Entry, found: &mut Vec<Diagnostic>) {
    let list = match &entry.node.value {
        Value::List(nodes) => nodes.as_slice(),
        _ => &[],
    };
    if list.is_empty() || list.iter().any(|node| node.table().is_none()) {
        let message = format!("`algorithm` is {}: expected an array of tables", entry.node.describe());
        found.push(Diagnostic::new(&entry.span, message).help("write [[algorithm]], with two brackets"));
        return;
    }
    for node in list {
        if let Some(table) = node.table() {
            check_section(Section::Algorithm, table, &node.span, found);
        }
    }
}

/// Checks a table whose header is at `header`.
fn check_section(section: Section, table: &Table, header: &Span, found: &mut Vec<Diagnostic>) {
    let Some(variants) = variants(section, table, header, found) else { return };
    for entry in &table.0 {
        if Some(entry.key.as_str()) == section.tag() {
            continue;
        }
        match variants.iter().find(|variant| variant.setting(&entry.key).is_none()) {
            Some(variant) => found.push(unknown_key(variant, entry)),
            None => {
                let setting = variants[0].setting(&entry.key).expect("all variants have it");
                check_setting(setting, entry, found);
            }
        }
    }
    let both = BOTH_THRESHOLDS.into_iter().find_map(|key| table.get(key));
    if let (Some(threshold), Some(other)) = (table.get(THRESHOLD.key), both)
        && section == Section::Algorithm
    {
        let message = format!("`threshold` and `{}` contradict each other", other.key);
        let help = "`threshold` sets upload_threshold and download_threshold: keep it or keep them";
        found.push(Diagnostic::new(&threshold.span, message).help(help));
    }
}

/// The variants that the tag of a table names: one, or several in a sweep.
fn variants(
    section: Section,
    table: &Table,
    header: &Span,
    found: &mut Vec<Diagnostic>,
) -> Option<Vec<Variant>> {
    let all = section.variants();
    let tag = section.tag().and_then(|tag| table.get(tag));
    let Some(tag) = tag else {
        let name = section.default_variant();
        if name.is_none() {
            let help = "add `name = \"async-lin-ucb\"`, for example; `posse algorithms` lists them";
            found.push(Diagnostic::new(header, "this algorithm has no `name`").help(help));
        }
        return name.map(|name| all.into_iter().filter(|variant| variant.name == name).collect());
    };
    check_list(&tag.key, &tag.node, found);
    let mut chosen = Vec::new();
    for node in tag.node.elements() {
        let Some(toml::Value::String(word)) = node.scalar() else {
            found.push(wrong_type(&tag.key, node, &format!("the name of an {}", section.noun())));
            continue;
        };
        match section.variants().into_iter().find(|variant| variant.name == *word) {
            Some(variant) => chosen.push(variant),
            None => {
                let names: Vec<&str> = all.iter().map(|variant| variant.name.as_str()).collect();
                let near = closest(word, names.iter().copied()).map(did_you_mean);
                let help = near.unwrap_or_else(|| format!("there are {}", names.join(", ")));
                let message = format!("unknown {} \"{word}\"", section.noun());
                found.push(Diagnostic::new(&node.span, message).help(help));
            }
        }
    }
    // Keys are judged only when it is certain whose they are.
    (!chosen.is_empty() && chosen.len() == tag.node.elements().len()).then_some(chosen)
}

fn unknown_key(variant: &Variant, entry: &Entry) -> Diagnostic {
    let key = entry.key.as_str();
    let section = variant.section;
    let all = section.variants();
    let takers: Vec<&str> =
        all.iter().filter(|other| other.setting(key).is_some()).map(|other| other.name.as_str()).collect();
    let owner = if section.tag().is_some() { variant.name.clone() } else { section.header() };
    if !takers.is_empty() {
        let verb = if takers.len() == 1 { "takes" } else { "take" };
        return Diagnostic::new(&entry.span, format!("`{key}` is not a setting of {owner}"))
            .help(format!("{} {verb} it", takers.join(", ")));
    }
    let near = closest(key, variant.keys().into_iter().chain(section.tag())).map(did_you_mean);
    let help = near.or_else(|| belongs_elsewhere(key, Some(section))).unwrap_or_else(|| {
        if variant.keys().is_empty() {
            format!("{owner} has no settings")
        } else {
            format!("its settings are {}", variant.keys().join(", "))
        }
    });
    Diagnostic::new(&entry.span, format!("unknown key `{key}` for {owner}")).help(help)
}

fn check_setting(setting: &Setting, entry: &Entry, found: &mut Vec<Diagnostic>) {
    let Entry { key, node, .. } = entry;
    match (&setting.kind, &node.value) {
        (Kind::Table(settings), Value::Table(table)) => {
            for inner in &table.0 {
                match settings.iter().find(|setting| setting.key == inner.key) {
                    Some(setting) => check_setting(setting, inner, found),
                    None => found.push(unknown_inner_key(settings, key, inner)),
                }
            }
        }
        (Kind::Tables(settings), Value::List(nodes)) => {
            for node in nodes {
                check_listed_table(settings, key, node, found);
            }
        }
        (Kind::Table(_) | Kind::Tables(_), _) => found.push(wrong_type(key, node, &setting.kind.expected())),
        (kind, _) => check_sweep(key, kind, node, found),
    }
}

/// One of several tables of the same kind, such as an override: no sweeps inside.
fn check_listed_table(settings: &'static [Setting], key: &str, node: &Node, found: &mut Vec<Diagnostic>) {
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

fn unknown_inner_key(settings: &'static [Setting], owner: &str, entry: &Entry) -> Diagnostic {
    let keys: Vec<&str> = settings.iter().map(|setting| setting.key).collect();
    let near = closest(&entry.key, keys.iter().copied()).map(did_you_mean);
    let help = near.unwrap_or_else(|| format!("its settings are {}", keys.join(", ")));
    Diagnostic::new(&entry.span, format!("unknown key `{}` for `{owner}`", entry.key)).help(help)
}

/// A scalar, or a list of scalars: a sweep.
fn check_sweep(key: &str, kind: &Kind, node: &Node, found: &mut Vec<Diagnostic>) {
    check_list(key, node, found);
    for element in node.elements() {
        if fits(kind, element) {
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

/// A sweep has values, and each of them once.
fn check_list(key: &str, node: &Node, found: &mut Vec<Diagnostic>) {
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

fn fits(kind: &Kind, node: &Node) -> bool {
    match (kind, node.scalar()) {
        (Kind::Number | Kind::Threshold, Some(toml::Value::Integer(_) | toml::Value::Float(_))) => true,
        (Kind::Threshold, Some(toml::Value::String(word))) => word == "inf",
        (Kind::Whole, Some(toml::Value::Integer(number))) => *number >= 0,
        (Kind::Switch, Some(toml::Value::Boolean(_))) => true,
        (Kind::OneOf(words), Some(toml::Value::String(word))) => words.contains(&word.as_str()),
        _ => false,
    }
}

fn wrong_type(key: &str, node: &Node, expected: &str) -> Diagnostic {
    Diagnostic::new(&node.span, format!("`{key}` is {}: expected {expected}", node.describe()))
}

fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}

/// Where else in an experiment `key` would be understood.
fn belongs_elsewhere(key: &str, here: Option<Section>) -> Option<String> {
    if here.is_some() && TOP.contains(&key) {
        return Some(format!("`{key}` belongs at the top of the file, before the first table"));
    }
    let takes = |section: &Section| section.variants().iter().any(|variant| variant.setting(key).is_some());
    let sections = Section::ALL.into_iter().filter(|section| Some(*section) != here);
    let homes: Vec<String> = sections.filter(takes).map(Section::header).collect();
    (!homes.is_empty()).then(|| format!("`{key}` belongs in {}", homes.join(" or ")))
}
