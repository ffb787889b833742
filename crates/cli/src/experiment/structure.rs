//! Is it written as an experiment is: known keys, values of the right type, nothing missing?
//!
//! This looks at the file as written, before sweeps are expanded, so that every slip is reported once.

use super::contender::{AGENTS, OWN};
use super::curves;
use super::diagnostic::Diagnostic;
use super::source::{Entry, Node, Span, Table, Value};
use super::values::{check_list, check_setting, check_sweep, did_you_mean, fits, wrong_type};
use crate::settings::{BOTH_THRESHOLDS, Kind, Section, THRESHOLD, Variant};
use crate::suggest::closest;

/// What the top of an experiment may hold besides tables.
const TOP: [&str; 9] = [
    "title",
    "description",
    "prepare",
    "processor_minutes",
    "seed",
    "repetitions",
    "horizon",
    "horizon_each",
    "agents",
];

/// How many interactions there are: of all agents together, or of each.
const HORIZONS: [&str; 2] = ["horizon", "horizon_each"];

/// More agents than can be simulated in memory.
const MAX_AGENTS: u64 = 10_000_000;

/// Everything about the form of the file that is wrong.
pub(crate) fn check(root: &Table) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    refuse_own_horizons(root, &mut found);
    for entry in &root.0 {
        check_top(entry, &mut found);
    }
    let horizon = "add `horizon = 10_000` at the top, or `horizon_each` with the interactions of each agent";
    for (keys, help) in [(&HORIZONS[..], horizon), (&["agents"], "add `agents = 50` at the top")] {
        // A misspelt key has been reported already.
        let misspelt = |entry: &Entry| near_top_key(&entry.key).is_some_and(|near| keys.contains(&near));
        if keys.iter().all(|key| root.get(key).is_none()) && !root.0.iter().any(misspelt) {
            found.push(Diagnostic::new(&(0..0), format!("`{}` is missing", keys[0])).help(help));
        }
    }
    if let [Some(_), Some(each)] = HORIZONS.map(|key| root.get(key)) {
        let message = "`horizon` and `horizon_each` contradict each other";
        let help =
            "`horizon` counts the interactions of all agents, `horizon_each` those of one: keep one of them";
        found.push(Diagnostic::new(&each.span, message).help(help));
    }
    let misspelt = root.0.iter().any(|entry| near_top_key(&entry.key) == Some("algorithm"));
    if root.get("algorithm").is_none() && !misspelt {
        let help = "add [[algorithm]] with a `name`; `posse algorithms` lists them";
        // What is missing has no place of its own: it could go to the end of the file.
        let end = usize::MAX..usize::MAX;
        found.push(Diagnostic::new(&end, "there is no [[algorithm]]").help(help));
    }
    found
}

/// Gives a file without sizes some, so that what else is wrong with it can be found.
pub(super) fn supply_sizes(root: &mut Table) {
    for keys in [&HORIZONS[..], &["agents"]] {
        if keys.iter().all(|key| root.get(key).is_none()) {
            let node = Node { span: 0..0, value: Value::Scalar(1.into()) };
            root.0.push(Entry { key: keys[0].into(), span: 0..0, node });
        }
    }
}

/// An algorithm's own `horizon_each` takes the place of that at the top, so there must be one.
fn refuse_own_horizons(root: &Table, found: &mut Vec<Diagnostic>) {
    let each = HORIZONS[1];
    if root.get(each).is_some() {
        return;
    }
    let tables = root.get("algorithm").map_or(&[][..], |entry| entry.node.elements());
    for entry in tables.iter().filter_map(|node| node.table()?.get(each)) {
        let message = format!("`{each}` of one algorithm needs `{each}` at the top for the others");
        found.push(
            Diagnostic::new(&entry.span, message)
                .help(format!("write `{each}` at the top instead of `horizon`")),
        );
    }
}

/// Checks a key at the top of the file and all that is in it.
fn check_top(entry: &Entry, found: &mut Vec<Diagnostic>) {
    let key = entry.key.as_str();
    let section = Section::ALL.into_iter().find(|section| section.key() == key);
    match (key, section) {
        ("title" | "description" | "prepare", _) => {
            if !matches!(entry.node.scalar(), Some(toml::Value::String(_))) {
                found.push(wrong_type(key, &entry.node, "a text"));
            }
        }
        ("processor_minutes", _) => {
            if !fits(&Kind::Number, &entry.node) {
                found.push(wrong_type(key, &entry.node, "a number"));
            }
        }
        ("seed" | "repetitions", _) => check_single_whole(entry, found),
        ("horizon" | "horizon_each", _) => check_sweep(key, &Kind::Whole, &entry.node, found),
        ("agents", _) => check_sweep(key, &Kind::Size(MAX_AGENTS), &entry.node, found),
        // Checks and figures are about groups, which are not known yet.
        ("check" | "figure", _) => {}
        ("curves", _) => curves::check(entry, found),
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
    closest(
        key,
        TOP.into_iter()
            .chain(["curves", "figure", "check"])
            .chain(Section::ALL.into_iter().map(Section::key)),
    )
}

/// Checks a whole number that cannot be swept.
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

/// Checks all `[[algorithm]]` tables and appends what is wrong to `found`.
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
        let Some(table) = node.table() else { continue };
        let (own, settings): (Vec<Entry>, _) =
            table.0.iter().cloned().partition(|entry| OWN.contains(&entry.key.as_str()));
        for entry in own {
            let kind = if entry.key == AGENTS { Kind::Size(MAX_AGENTS) } else { Kind::Whole };
            check_sweep(&entry.key, &kind, &entry.node, found);
        }
        check_section(Section::Algorithm, &Table(settings), &node.span, found);
    }
}

/// Checks a table whose header is at `header`.
pub(crate) fn check_section(section: Section, table: &Table, header: &Span, found: &mut Vec<Diagnostic>) {
    let Some(variants) = variants(section, table, header, found) else { return };
    for entry in &table.0 {
        if Some(entry.key.as_str()) == section.tag() {
            continue;
        }
        match variants.iter().find(|variant| variant.setting(&entry.key).is_none()) {
            Some(variant) => found.push(unknown_key(variant, entry)),
            None => {
                let setting = variants[0].setting(&entry.key).expect("all variants have it");
                check_setting(&setting, entry, found);
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

/// A key that a variant does not have, and where it may belong.
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
