//! A coordinator's file: read with the same care, and refused with the same clarity, as an experiment.

use std::path::Path;

use anyhow::Context;
use posse_core::ConfigError;
use posse_core::settings::Described;
use posse_net::coordinator::{Limits, ServeConfig};
use posse_net::federation::FederationConfig;
use posse_net::log::StorageConfig;
use serde::Deserialize;

use crate::experiment::Report;
use crate::experiment::diagnostic::Diagnostic;
use crate::experiment::resolve::{find, plain};
use crate::experiment::source::{Entry, Node, Span, Table, Value};
use crate::experiment::structure::check_section;
use crate::experiment::values::{did_you_mean, fits, wrong_type};
use crate::settings::{Kind, Section, Setting};
use crate::suggest::closest;

/// The kind of value that a key of the file takes.
#[derive(Clone, Copy)]
enum Takes {
    /// What a setting of this kind takes.
    Kind(Kind),
    Table(&'static [(&'static str, Self)]),
    /// The table `[limits]`, with the settings of [`Limits`].
    Limits,
    /// The table `[storage]`, with the settings of [`StorageConfig`].
    Storage,
    /// The array of tables `[[federation]]`.
    Federations,
}

const TOP: &[(&str, Takes)] = &[
    ("listen", TEXT),
    ("admin", TEXT),
    ("data", TEXT),
    ("storage", Takes::Storage),
    ("authentication", Takes::Kind(Kind::OneOf(&["token", "none"]))),
    ("tls", Takes::Table(TLS)),
    ("limits", Takes::Limits),
    ("federation", Takes::Federations),
];
const TLS: &[(&str, Takes)] = &[("certificate", TEXT), ("key", TEXT), ("client_ca", TEXT)];
const TEXT: Takes = Takes::Kind(Kind::Text);

/// The keys of a table with these settings.
fn keys(settings: Vec<Setting>) -> Vec<(&'static str, Takes)> {
    settings.into_iter().map(|setting| (setting.key, Takes::Kind(setting.kind))).collect()
}

/// Reads and checks the file at `path`. Relative paths in it are relative to where it is.
pub(crate) fn read(path: &Path, insecure: bool) -> anyhow::Result<ServeConfig> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut config = match parse(&text, insecure) {
        Ok(config) => config,
        Err(found) => return Err(Report::new(path.display().to_string(), text, found).into()),
    };
    let home = path.parent().unwrap_or(Path::new(""));
    config.data = home.join(&config.data);
    for file in [&mut config.storage.password_file, &mut config.storage.authority].into_iter().flatten() {
        *file = home.join(&*file);
    }
    for parent in config.federations.iter_mut().filter_map(|federation| federation.parent.as_mut()) {
        for file in [&mut parent.token_file, &mut parent.authority].into_iter().flatten() {
            *file = home.join(&*file).to_string_lossy().into_owned();
        }
    }
    if let Some(tls) = &mut config.tls {
        tls.certificate = home.join(&tls.certificate);
        tls.key = home.join(&tls.key);
        tls.client_ca = tls.client_ca.as_ref().map(|file| home.join(file));
    }
    Ok(config)
}

fn parse(text: &str, insecure: bool) -> Result<ServeConfig, Vec<Diagnostic>> {
    let root = Table::parse(text)?;
    let mut found = Vec::new();
    check_table("a coordinator's file", TOP, &root, &mut found);
    if root.get("federation").is_none() && found.is_empty() {
        let help = "add [[federation]] with `name` and `dimension`, and [federation.algorithm] with `name`";
        found.push(Diagnostic::new(&(usize::MAX..usize::MAX), "there is no [[federation]]").help(help));
    }
    if !found.is_empty() {
        return Err(found);
    }
    let read = |root: &Table| ServeConfig::deserialize(toml::Value::Table(written(root)));
    let config = read(&root).map_err(|error| vec![misread(&root, error.message())])?;
    config.check(insecure).map_err(|error| vec![misplaced(&root, &error)])?;
    Ok(config)
}

/// Adds to `found` what is wrong in the table of an algorithm that has one value for each setting.
pub(crate) fn check_algorithm(table: &Table, place: &Span, found: &mut Vec<Diagnostic>) {
    check_section(Section::Algorithm, table, place, found);
    let lists = table.0.iter().filter(|entry| match &entry.node.value {
        Value::List(nodes) => nodes.iter().any(|node| node.table().is_none()),
        _ => false,
    });
    found.extend(lists.map(|entry| {
        let message = format!("`{}` is a list: a federation takes one value", entry.key);
        Diagnostic::new(&entry.node.span, message).help("sweeps are for experiments")
    }));
}

/// Known keys with values of the right type?
fn check_table(owner: &str, keys: &[(&str, Takes)], table: &Table, found: &mut Vec<Diagnostic>) {
    for entry in &table.0 {
        let Some((_, takes)) = keys.iter().find(|(key, _)| *key == entry.key) else {
            let near = closest(&entry.key, keys.iter().map(|(key, _)| *key)).map(did_you_mean);
            let all = || keys.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(", ");
            let help = near.unwrap_or_else(|| format!("its keys are {}", all()));
            let message = format!("unknown key `{}` for {owner}", entry.key);
            found.push(Diagnostic::new(&entry.span, message).help(help));
            continue;
        };
        check_value(*takes, entry, found);
    }
}

fn check_value(takes: Takes, entry: &Entry, found: &mut Vec<Diagnostic>) {
    let Entry { key, node, .. } = entry;
    let expected = match (takes, &node.value) {
        (Takes::Kind(Kind::Algorithm), Value::Table(table)) => {
            check_algorithm(table, &entry.span, found);
            return;
        }
        (Takes::Kind(Kind::Algorithm), _) => "a table: write [federation.algorithm]".into(),
        (Takes::Kind(kind @ Kind::Table(_)), Value::Table(table)) => {
            check_table(&format!("[federation.{key}]"), &keys(kind.settings()), table, found);
            return;
        }
        // A federation takes one value, not a list of them.
        (Takes::Kind(kind), Value::Scalar(_)) if fits(&kind, node) => return,
        (Takes::Kind(kind), _) => kind.expected(),
        (Takes::Limits, Value::Table(table)) => {
            check_table("[limits]", &keys(Limits::settings()), table, found);
            return;
        }
        (Takes::Storage, Value::Table(table)) => {
            check_table("[storage]", &keys(StorageConfig::settings()), table, found);
            return;
        }
        (Takes::Limits | Takes::Storage, _) => format!("a table: write [{key}]"),
        (Takes::Table(keys), Value::Table(table)) => {
            check_table(&format!("[{key}]"), keys, table, found);
            return;
        }
        (Takes::Table(_), _) => format!("a table: write [{key}]"),
        (Takes::Federations, Value::List(nodes)) if nodes.iter().all(|node| node.table().is_some()) => {
            nodes.iter().for_each(|node| check_federation(node, found));
            return;
        }
        (Takes::Federations, _) => "an array of tables: write [[federation]], with two brackets".into(),
    };
    found.push(wrong_type(key, node, &expected));
}

fn check_federation(node: &Node, found: &mut Vec<Diagnostic>) {
    let Some(table) = node.table() else { return };
    check_table("a federation", &keys(FederationConfig::settings()), table, found);
    let needed = [
        ("name", "name = \"shop\""),
        ("dimension", "dimension = 25"),
        ("algorithm", "[federation.algorithm] with name = \"async-lin-ucb\""),
    ];
    for (key, example) in needed.into_iter().filter(|(key, _)| table.get(key).is_none()) {
        let message = format!("this federation has no `{key}`");
        found.push(Diagnostic::new(&node.span, message).help(format!("add `{example}`")));
    }
}

/// The file as the configuration types read it, without shorthands.
fn written(root: &Table) -> toml::Table {
    let mut written = root.to_toml();
    let tables = root.get("federation").map_or(&[][..], |entry| entry.node.elements());
    if let Some(toml::Value::Array(values)) = written.get_mut("federation") {
        for (value, node) in values.iter_mut().zip(tables) {
            let algorithm = node.table().and_then(|table| table.get("algorithm"));
            if let (Some(value), Some(table)) =
                (value.as_table_mut(), algorithm.and_then(|entry| entry.node.table()))
            {
                value.insert("algorithm".into(), plain(Section::Algorithm, table).into());
            }
        }
    }
    written
}

/// Types were checked before: what is left are texts that are no addresses, and numbers too large.
fn misread(root: &Table, message: &str) -> Diagnostic {
    for key in ["listen", "admin"] {
        if let Some(entry) = root.get(key)
            && let Some(toml::Value::String(text)) = entry.node.scalar()
            && text.parse::<std::net::SocketAddr>().is_err()
        {
            let message = format!("`{key}` is \"{text}\": expected an address");
            return Diagnostic::new(&entry.node.span, message).help("write it like \"127.0.0.1:7447\"");
        }
    }
    Diagnostic::new(&(0..0), message.to_owned())
}

/// A complaint, at the value that it is about.
fn misplaced(root: &Table, error: &ConfigError) -> Diagnostic {
    let ConfigError { name, value, allowed } = error;
    let place = find(root, name, value).map_or(0..0, |entry| entry.node.span.clone());
    Diagnostic::new(&place, format!("`{name}` is {value}: {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str =
        "[[federation]]\nname = \"shop\"\ndimension = 3\n[federation.algorithm]\nname = \"async-lin-ucb\"\n";

    fn complaint(text: &str) -> String {
        let found = parse(text, false).unwrap_err();
        Report::new("f.toml".into(), text.into(), found).to_string()
    }

    #[test]
    fn the_smallest_file_is_enough_and_shorthands_are_understood() {
        let config = parse(&format!("{SMALLEST}threshold = 2\n"), false).unwrap();
        assert_eq!(config.federations[0].name, "shop");
        let json = serde_json::to_value(&config.federations[0].algorithm).unwrap();
        assert_eq!(json["upload_threshold"], 2.0);
        assert_eq!(json["download_threshold"], 2.0);
    }

    #[test]
    fn every_setting_can_be_written_and_no_other() {
        let written = |value: serde_json::Value| -> Vec<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        let listed =
            |keys: &[(&str, Takes)]| keys.iter().map(|(key, _)| (*key).to_owned()).collect::<Vec<_>>();
        let config = parse(SMALLEST, false).unwrap();
        assert_eq!(listed(TOP), written(serde_json::to_value(&config).unwrap()));
        assert_eq!(
            listed(&keys(StorageConfig::settings())),
            written(serde_json::to_value(StorageConfig::default()).unwrap())
        );
        assert_eq!(
            listed(&keys(Limits::settings())),
            written(serde_json::to_value(Limits::default()).unwrap())
        );
        let parent = toml::from_str("coordinator = \"http://127.0.0.1:1\"").unwrap();
        let relay = FederationConfig { parent: Some(parent), ..config.federations[0].clone() };
        let federation = written(serde_json::to_value(relay).unwrap());
        assert_eq!(listed(&keys(FederationConfig::settings())), federation);
    }

    #[test]
    fn a_federation_with_a_parent_is_read_and_its_mistakes_are_shown() {
        let relay = |parent: &str| format!("{SMALLEST}[federation.parent]\n{parent}\n");
        let config = parse(&relay("coordinator = \"http://127.0.0.1:1\"\nagent = 3"), false).unwrap();
        let parent = config.federations[0].parent.as_ref().unwrap();
        assert_eq!((&*parent.coordinator, parent.agent), ("http://127.0.0.1:1", Some(3)));
        let text = complaint(&relay("coordinator = 7\nagnet = 3"));
        assert!(text.contains("`coordinator` is 7: expected a text"), "{text}");
        assert!(text.contains("unknown key `agnet` for [federation.parent]"), "{text}");
        assert!(text.contains("did you mean `agent`?"), "{text}");
    }

    #[test]
    fn mistakes_are_shown_where_they_are_with_what_to_do() {
        let wrong = format!("lisen = \"x\"\n{SMALLEST}uplaod_threshold = 2\nthreshold = [1, 2]\n");
        let text = complaint(&wrong);
        assert!(text.contains("f.toml:1:1") && text.contains("did you mean `listen`?"), "{text}");
        assert!(text.contains("f.toml:7:1") && text.contains("did you mean `upload_threshold`?"), "{text}");
        assert!(text.contains("a federation takes one value"), "{text}");
        let text = complaint(&SMALLEST.replace("= 3", "= 0"));
        assert!(text.contains("f.toml:3:13") && text.contains("between 1 and 16384"), "{text}");
        let text = complaint(&format!("listen = \"nowhere\"\n{SMALLEST}"));
        assert!(text.contains("f.toml:1:10") && text.contains("127.0.0.1:7447"), "{text}");
        assert!(complaint("").contains("there is no [[federation]]"));
    }

    #[test]
    fn storage_in_a_database_needs_a_connection() {
        let text = format!("[storage]\nkind = \"postgres\"\n{SMALLEST}");
        assert!(complaint(&text).contains("host=db1,db2"), "{}", complaint(&text));
        let text =
            format!("[storage]\nkind = \"postgres\"\nconnection = \"host=db1\"\nleese = \"1s\"\n{SMALLEST}");
        assert!(complaint(&text).contains("did you mean `lease`?"), "{}", complaint(&text));
        assert!(parse(&text.replace("leese", "lease"), false).is_ok());
        assert!(
            complaint(&text.replace("leese = \"1s\"", "lease = \"1ms\"")).contains("between 100ms and 1h")
        );
    }

    #[test]
    fn listening_beyond_loopback_needs_tls_or_insecure() {
        let open = format!("listen = \"0.0.0.0:7447\"\n{SMALLEST}");
        assert!(complaint(&open).contains("[tls] is needed, or --insecure"));
        assert!(parse(&open, true).is_ok());
        let believing = format!(
            "listen = \"0.0.0.0:7447\"\nauthentication = \"none\"\n\
             [tls]\ncertificate = \"c\"\nkey = \"k\"\n{SMALLEST}"
        );
        assert!(complaint(&believing).contains("tokens are needed"));
    }
}
