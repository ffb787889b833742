//! One line of results: the settings of a cell and what came of it.

use posse_sim::{RunConfig, Tally};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::experiment::Cell;
use crate::metric::METRICS;
use crate::settings::{Section, outside};
use crate::share::{Flow, Spread};

/// What a cell that ran to its end leaves behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What it adds up to.
    pub(crate) tally: Tally,
    /// What it added up to on the way.
    pub(crate) curve: Vec<Tally>,
    /// What each group of agents added up to at these moments; empty if agents are not divided.
    pub(crate) groups: Vec<Vec<Tally>>,
    /// How it is spread over agents.
    pub(crate) agents: Vec<Spread>,
    /// What was sent of each kind of message.
    pub(crate) messages: Vec<Flow>,
    /// How long one processor worked for the run, in seconds; other programs on the machine do not change it much.
    pub(crate) seconds: f64,
}

/// The result of a cell. `seconds` comes last, so that two runs differ at the end only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// The cell that ran.
    pub(crate) cell: &'a Cell,
    /// What the run of the cell gave.
    pub(crate) record: &'a Record,
}

impl Row<'_> {
    /// What the cell adds up to.
    pub(crate) const fn tally(&self) -> &Tally {
        &self.record.tally
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let RunConfig { seed, agents, horizon, algorithm, .. } = &self.cell.config;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.cell.id)?;
        map.serialize_entry("algorithm", algorithm.name())?;
        map.serialize_entry("parameters", &settings(&self.cell.config, Section::Algorithm))?;
        let is_flat = self.cell.config.topology.is_flat();
        for section in WORLD.into_iter().filter(|section| *section != Section::Topology || !is_flat) {
            map.serialize_entry(section.key(), &settings(&self.cell.config, section))?;
        }
        for (key, value) in [("seed", seed.0), ("agents", *agents), ("horizon", *horizon)] {
            map.serialize_entry(key, &value)?;
        }
        for metric in METRICS.iter().filter(|metric| !(is_flat && metric.is_of_relays())) {
            map.serialize_entry(metric.name, &(metric.of)(self.tally()))?;
        }
        if let Some(report) = &self.tally().privacy {
            map.serialize_entry("privacy", &report.statement())?;
        }
        map.serialize_entry("seconds", &self.record.seconds)?;
        map.end()
    }
}

/// The sections that describe the world, that is all but the algorithm's.
const WORLD: [Section; 6] = [
    Section::Environment,
    Section::Arrival,
    Section::Network,
    Section::Faults,
    Section::Adversaries,
    Section::Topology,
];

/// All settings of one section of a run; those of an algorithm without its name.
pub(crate) fn settings(config: &RunConfig, section: Section) -> Map<String, Value> {
    let value = match section {
        Section::Environment => serde_json::to_value(&config.world),
        Section::Arrival => serde_json::to_value(&config.arrival),
        Section::Network => serde_json::to_value(&config.network),
        Section::Faults => serde_json::to_value(&config.faults),
        Section::Adversaries => serde_json::to_value(&config.adversaries),
        Section::Topology => serde_json::to_value(&config.topology),
        Section::Algorithm => serde_json::to_value(&config.algorithm),
    };
    match value {
        Ok(Value::Object(mut map)) => {
            if section == Section::Algorithm {
                map.shift_remove("name");
            }
            outside::unfolded(map)
        }
        _ => unreachable!("configurations are structs with string keys"),
    }
}
