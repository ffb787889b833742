//! From one combination of values to a run: fill in the types, check every range, and point at what is
//! out of it.

use posse_core::{ConfigError, Seed};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, WorldConfig};
use posse_sim::{AdversaryConfig, RunConfig, TopologyConfig};
use serde::de::DeserializeOwned;

use super::diagnostic::Diagnostic;
use super::library::{Absent, Library};
use super::source::{Entry, Node, Span, Table, Value, label};
use crate::settings::{BOTH_THRESHOLDS, Section, THRESHOLD, outside};

/// The interactions of each agent: a horizon that grows with the number of agents.
pub(super) const HORIZON_EACH: &str = "horizon_each";

/// The run that concrete values describe: everything but the algorithm in `shared`, without seed.
pub(crate) fn resolve(
    shared: &Table,
    algorithm: &Table,
    header: &Span,
    library: &Library,
) -> Result<RunConfig, Vec<Diagnostic>> {
    let mut combination =
        Combination { shared: shared.clone(), algorithm: algorithm.clone(), header: header.clone(), library };
    let config = combination.config().map_err(|diagnostic| vec![diagnostic])?;
    // Without its data a world cannot be built. The run whose results are being read has checked it.
    let unseen = !library.has_data() && config.world.data().is_some();
    if unseen || config.check().is_ok() {
        return Ok(config);
    }
    // Leaving out what is wrong, one key at a time, brings up what else is.
    let mut found = Vec::new();
    let mut removed: Vec<(Option<Section>, &str)> = Vec::new();
    while let Ok(config) = combination.config()
        && let Err(error) = config.check()
    {
        let section = section_of(&config, &error);
        // After a key was left out, a complaint about it or that depends on it may be about its default.
        let words = || error.allowed.split(|c: char| !c.is_alphanumeric() && c != '_');
        let is_unwritten = combination.entry(section, &error).is_none();
        let is_about = |key: &str| words().any(|word| word == key) || (is_unwritten && error.name == key);
        if removed.iter().any(|(home, key)| *home == section && is_about(key)) {
            break;
        }
        found.push(combination.diagnostic(section, &error));
        if !combination.remove(section, &error) {
            break;
        }
        removed.push((section, error.name));
    }
    Err(found)
}

/// The table that a complaint is about; `None` is the top.
fn section_of(config: &RunConfig, error: &ConfigError) -> Option<Section> {
    let RunConfig { agents, horizon, seed, .. } = *config;
    let of = |section: Section| section.variants().iter().any(|v| v.defaults.contains_key(error.name));
    if matches!(error.name, "agents" | "horizon") {
        None
    } else if config.world.build(agents, seed).err().as_ref() == Some(error) {
        // Inner tables of the environment have keys that no variant lists.
        Some(Section::Environment)
    } else if config.arrival.build(agents, horizon, seed).err().as_ref() == Some(error) {
        Some(Section::Arrival)
    } else {
        let rest = [Section::Network, Section::Faults, Section::Adversaries, Section::Topology]
            .into_iter()
            .find(|section| of(*section));
        Some(rest.unwrap_or(Section::Algorithm))
    }
}

/// One combination of the swept values, as tables without sweeps.
struct Combination<'l> {
    shared: Table,
    algorithm: Table,
    /// Where the header of the algorithm is.
    header: Span,
    library: &'l Library,
}

impl Combination<'_> {
    /// The run, with defaults for what is not written.
    fn config(&self) -> Result<RunConfig, Diagnostic> {
        // Left out because it was wrong: any number will do to find out what else is.
        let (agents, horizon) = (self.whole("agents").unwrap_or(1), self.horizon()?.unwrap_or(1));
        let mut world = match self.outside(Section::Environment, outside::world)? {
            Some(world) => world,
            None => self.part::<WorldConfig>(Section::Environment)?,
        };
        self.library.attach(&mut world).map_err(|Absent { key, message, help }| {
            let entry = self.table(Section::Environment).and_then(|table| table.get(key));
            let place =
                entry.map_or_else(|| self.place(Some(Section::Environment)), |entry| entry.node.span.clone());
            Diagnostic::new(&place, message).maybe_help(help)
        })?;
        let algorithm = match self.outside(Section::Algorithm, outside::algorithm)? {
            Some(algorithm) => algorithm,
            None => self.part(Section::Algorithm)?,
        };
        Ok(RunConfig {
            seed: Seed(0),
            agents: agents.cast_unsigned(),
            horizon: horizon.cast_unsigned(),
            world,
            arrival: self.part::<ArrivalConfig>(Section::Arrival)?,
            network: self.part::<NetworkConfig>(Section::Network)?,
            faults: self.part::<FaultConfig>(Section::Faults)?,
            adversaries: self.part::<AdversaryConfig>(Section::Adversaries)?,
            topology: self.part::<TopologyConfig>(Section::Topology)?,
            algorithm,
        })
    }

    /// A whole number at the top, if it is written.
    fn whole(&self, key: &str) -> Option<i64> {
        self.shared.get(key)?.node.scalar()?.as_integer()
    }

    /// How many interactions there are over all agents, if it is written.
    fn horizon(&self) -> Result<Option<i64>, Diagnostic> {
        let Some(Entry { node, .. }) = self.shared.get(HORIZON_EACH) else {
            return Ok(self.whole("horizon"));
        };
        // Nobody at all is another mistake.
        let agents = self.whole("agents").unwrap_or(1).max(1);
        let Some(each) = self.whole(HORIZON_EACH) else { return Ok(None) };
        each.checked_mul(agents).map(Some).ok_or_else(|| {
            let message =
                format!("`{HORIZON_EACH}` is {each}: for {agents} agents that is more than can be counted");
            Diagnostic::new(&node.span, message)
                .help(format!("at most {} for so many agents", i64::MAX / agents))
        })
    }

    /// What a table describes, if it names something from outside of posse.
    fn outside<T>(
        &self,
        section: Section,
        make: impl FnOnce(&toml::Table) -> Option<Result<T, String>>,
    ) -> Result<Option<T>, Diagnostic> {
        let Some(table) = self.table(section) else { return Ok(None) };
        let wrong = |message| Diagnostic::new(&self.place(Some(section)), message);
        make(&plain(section, table)).transpose().map_err(wrong)
    }

    /// One table as its configuration type.
    fn part<T: DeserializeOwned>(&self, section: Section) -> Result<T, Diagnostic> {
        let empty = Table::default();
        let table = self.table(section).unwrap_or(&empty);
        let read = |table: &Table| T::deserialize(toml::Value::Table(plain(section, table)));
        read(table).map_err(|error| {
            // Types were checked before, so this is a number that its type cannot hold. Serde does not say
            // which: find the key that fails on its own.
            let tag = section.tag().and_then(|tag| table.get(tag));
            let alone =
                |entry: &&Entry| read(&Table(tag.into_iter().chain([*entry]).cloned().collect())).is_err();
            let is_tag = |entry: &&Entry| Some(entry.key.as_str()) == section.tag();
            match table.0.iter().filter(|entry| !is_tag(entry)).find(alone) {
                Some(Entry { key, node, .. }) if matches!(node.scalar(), Some(toml::Value::Integer(_))) => {
                    Diagnostic::new(&node.span, format!("`{key}` is {}: it is too large", node.describe()))
                }
                Some(entry) => Diagnostic::new(&entry.node.span, error.message()),
                None => Diagnostic::new(&self.place(Some(section)), error.message()),
            }
        })
    }

    /// The table of a section, if it is written.
    fn table(&self, section: Section) -> Option<&Table> {
        match section {
            Section::Algorithm => Some(&self.algorithm),
            _ => self.shared.get(section.key())?.node.table(),
        }
    }

    /// Where to point if the key itself is not in the file.
    fn place(&self, section: Option<Section>) -> Span {
        let entry = section.and_then(|section| self.shared.get(section.key()));
        entry.map_or_else(|| self.header.clone(), |entry| entry.span.clone())
    }

    /// The entry that a complaint is about, if it is written in the file.
    fn entry(&self, section: Option<Section>, error: &ConfigError) -> Option<&Entry> {
        let table = section.map_or(Some(&self.shared), |section| self.table(section))?;
        find(table, error.name, &error.value)
    }

    /// A complaint, at the value that it is about.
    fn diagnostic(&self, section: Option<Section>, error: &ConfigError) -> Diagnostic {
        let ConfigError { name, value, allowed } = error;
        match self.entry(section, error) {
            Some(Entry { key, node, .. }) if key == HORIZON_EACH && value != "0" => {
                let each = node.describe();
                let message = format!("`{key}` is {each}, over all agents {value}: {allowed}");
                Diagnostic::new(&node.span, message)
            }
            Some(Entry { key, node, .. }) => {
                Diagnostic::new(&node.span, format!("`{key}` is {value}: {allowed}"))
            }
            None => {
                let home = section.map_or_else(|| "the top".into(), Section::header);
                let message = format!("`{name}` is {value}, its default: {allowed}");
                Diagnostic::new(&self.place(section), message).help(format!("set `{name}` in {home}"))
            }
        }
    }

    /// Leaves a key out; says whether it was there and can be missed.
    fn remove(&mut self, section: Option<Section>, error: &ConfigError) -> bool {
        let table = match section {
            None => Some(&mut self.shared),
            Some(Section::Algorithm) => Some(&mut self.algorithm),
            Some(section) => {
                self.shared.0.iter_mut().find(|entry| entry.key == section.key()).and_then(|entry| {
                    match &mut entry.node.value {
                        Value::Table(table) => Some(table),
                        _ => None,
                    }
                })
            }
        };
        let tag = section.and_then(Section::tag);
        table.is_some_and(|table| tag != Some(error.name) && remove(table, error.name, &error.value))
    }
}

/// The entry that a complaint about `name` being `value` is about.
pub(crate) fn find<'t>(table: &'t Table, name: &str, value: &str) -> Option<&'t Entry> {
    let all = entries(table);
    let named = || all.iter().copied().filter(|entry| is_called(&entry.key, name));
    named().find(|entry| entry.node.scalar().is_some_and(|v| same_value(v, value))).or_else(|| named().next())
}

/// Whether an entry with this key sets what is called `name`.
fn is_called(key: &str, name: &str) -> bool {
    key == name
        || (key == THRESHOLD.key && BOTH_THRESHOLDS.contains(&name))
        || (key == HORIZON_EACH && name == "horizon")
}

/// Whether a complaint about `value` can be about `written`.
fn same_value(written: &toml::Value, value: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    let written = label(written);
    written == value || number(&written).is_some_and(|number_| Some(number_) == number(value))
}

/// All entries of a table and of the tables in it.
fn entries(table: &Table) -> Vec<&Entry> {
    table
        .0
        .iter()
        .flat_map(|entry| {
            let inner = entry.node.elements().iter().filter_map(Node::table).flat_map(entries);
            std::iter::once(entry).chain(inner)
        })
        .collect()
}

/// Takes the entry that a complaint is about out of a table; says whether there was one.
fn remove(table: &mut Table, name: &str, value: &str) -> bool {
    let Some(span) = find(table, name, value).map(|entry| entry.span.clone()) else { return false };
    without(table, &span);
    true
}

/// Takes the entry whose key or value is at `span` out of a table, wherever it is.
pub(super) fn without(table: &mut Table, span: &Span) {
    table.0.retain(|entry| entry.span != *span && entry.node.span != *span);
    for entry in &mut table.0 {
        match &mut entry.node.value {
            Value::Table(inner) => without(inner, span),
            Value::List(nodes) => {
                nodes.retain(|node| node.span != *span);
                nodes.iter_mut().for_each(|node| {
                    if let Value::Table(inner) = &mut node.value {
                        without(inner, span);
                    }
                });
            }
            Value::Scalar(_) => {}
        }
    }
}

/// Takes the algorithms without a name out of a file, and with them the checks and figures, which may be about them.
pub(super) fn without_nameless(root: &mut Table) {
    let nameless = |node: &Node| node.table().is_some_and(|table| table.get("name").is_none());
    let mut is_smaller = false;
    for entry in root.0.iter_mut().filter(|entry| entry.key == Section::Algorithm.key()) {
        if let Value::List(nodes) = &mut entry.node.value {
            let before = nodes.len();
            nodes.retain(|node| !nameless(node));
            is_smaller |= nodes.len() < before;
        }
    }
    if is_smaller {
        root.0.retain(|entry| !matches!(entry.key.as_str(), "check" | "figure"));
    }
}

/// A table as the configuration types read it: with its tag, and without shorthands.
pub(crate) fn plain(section: Section, table: &Table) -> toml::Table {
    let mut plain = table.to_toml();
    if let (Some(tag), Some(default)) = (section.tag(), section.default_variant()) {
        plain.entry(tag).or_insert_with(|| default.into());
    }
    let own = plain.get("name").and_then(toml::Value::as_str).is_some_and(outside::takes_threshold);
    if section == Section::Algorithm
        && !own
        && let Some(value) = plain.remove(THRESHOLD.key)
    {
        for key in BOTH_THRESHOLDS {
            plain.insert(key.into(), value.clone());
        }
    }
    plain
}
