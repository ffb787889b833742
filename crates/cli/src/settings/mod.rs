//! The tables of an experiment: which keys each has, what they mean and what they are by default.
//!
//! Everything is taken from the configuration types: keys and defaults by serialising their defaults, meanings and
//! ranges from the documentation of their fields ([`posse_core::settings`]).

pub(crate) mod outside;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use posse_core::Algorithm;
use posse_core::settings::{Described, DescribedKinds, Takes};
pub(crate) use posse_core::settings::{Kind, Setting};
use posse_sim::network::{FaultConfig, NetworkConfig, Preset};
use posse_sim::world::{ArrivalConfig, WorldConfig};
use posse_sim::{AdversaryConfig, TopologyConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The networks that people know.
pub(crate) const fn presets() -> &'static [&'static str] {
    match Preset::KIND {
        Kind::OneOf(words) => words,
        _ => &[],
    }
}

/// A table of an experiment with settings in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    /// The table `[environment]`: the world.
    Environment,
    /// The table `[arrival]`: the order in which agents act.
    Arrival,
    /// The table `[network]`: how messages travel.
    Network,
    /// The table `[faults]`: how machines fail.
    Faults,
    /// The table `[adversaries]`: which agents lie.
    Adversaries,
    /// The table `[topology]`: the relays between agents and coordinator.
    Topology,
    /// The tables `[[algorithm]]`: the algorithms that are compared.
    Algorithm,
}

impl Section {
    /// Every section, in the order of an experiment.
    pub(crate) const ALL: [Self; 7] = [
        Self::Environment,
        Self::Arrival,
        Self::Network,
        Self::Faults,
        Self::Adversaries,
        Self::Topology,
        Self::Algorithm,
    ];

    /// Its key in an experiment.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Arrival => "arrival",
            Self::Network => "network",
            Self::Faults => "faults",
            Self::Adversaries => "adversaries",
            Self::Topology => "topology",
            Self::Algorithm => "algorithm",
        }
    }

    /// Its header, as written in an experiment.
    pub(crate) fn header(self) -> String {
        let key = self.key();
        if self == Self::Algorithm { format!("[[{key}]]") } else { format!("[{key}]") }
    }

    /// The key that says which variant of the section is meant, if there are several.
    pub(crate) const fn tag(self) -> Option<&'static str> {
        match self {
            Self::Environment | Self::Arrival => Some("kind"),
            Self::Algorithm => Some("name"),
            Self::Network | Self::Faults | Self::Adversaries | Self::Topology => None,
        }
    }

    /// The variants: name, summary, and default settings without the tag. Those from outside of posse are the last.
    pub(crate) fn variants(self) -> Vec<Variant> {
        let mut all = self.own_variants();
        all.extend(outside::variants(self));
        all
    }

    /// The variants that are posse's own.
    fn own_variants(self) -> Vec<Variant> {
        let variant = |name: &str, summary: &str, defaults: Value, settings: Vec<Setting>| {
            let Value::Object(mut defaults) = defaults else { unreachable!("configurations are structs") };
            if let Some(tag) = self.tag() {
                defaults.shift_remove(tag);
            }
            Variant { section: self, name: name.into(), summary: summary.into(), defaults, settings }
        };
        match self {
            Self::Environment => {
                let kinds = WorldConfig::kinds().into_iter();
                kinds
                    .map(|(name, summary, config)| variant(name, summary, json(&config), config.settings()))
                    .collect()
            }
            Self::Arrival => {
                let kinds = ArrivalConfig::kinds().into_iter();
                kinds
                    .map(|(name, summary, config)| variant(name, summary, json(&config), config.settings()))
                    .collect()
            }
            Self::Network => {
                let config = json(&NetworkConfig::default());
                vec![variant("network", "how messages travel", config, NetworkConfig::settings())]
            }
            Self::Faults => {
                let config = json(&FaultConfig::default());
                vec![variant("faults", "what goes wrong with machines", config, FaultConfig::settings())]
            }
            Self::Adversaries => {
                let config = json(&AdversaryConfig::default());
                let settings = AdversaryConfig::settings();
                vec![variant("adversaries", "which agents lie, and how", config, settings)]
            }
            Self::Topology => {
                let config = json(&TopologyConfig::default());
                let settings = TopologyConfig::settings();
                vec![variant("topology", "relays between agents and coordinator", config, settings)]
            }
            Self::Algorithm => {
                let all = Algorithm::all().into_iter();
                all.map(|config| variant(config.name(), config.summary(), json(&config), config.settings()))
                    .collect()
            }
        }
    }

    /// The variant an experiment means when it does not say, if it need not.
    pub(crate) const fn default_variant(self) -> Option<&'static str> {
        match self {
            Self::Environment => Some("linear"),
            Self::Arrival => Some("uniform"),
            Self::Network => Some("network"),
            Self::Faults => Some("faults"),
            Self::Adversaries => Some("adversaries"),
            Self::Topology => Some("topology"),
            Self::Algorithm => None,
        }
    }

    /// What a variant of this section is called in messages.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Arrival => "arrival",
            Self::Network | Self::Faults | Self::Adversaries | Self::Topology => "table",
            Self::Algorithm => "algorithm",
        }
    }
}

/// A variant of a section, such as one algorithm.
#[derive(Debug)]
pub(crate) struct Variant {
    /// The section that it is a variant of.
    pub(crate) section: Section,
    /// The name of the variant in experiments.
    pub(crate) name: String,
    /// What it is, in a line.
    pub(crate) summary: String,
    /// Its keys with their defaults; null is not set.
    pub(crate) defaults: serde_json::Map<String, Value>,
    /// What its keys mean. A later one of the same name belongs to a part that another part overrules.
    settings: Vec<Setting>,
}

impl Variant {
    /// The setting of this variant that is called `key`.
    pub(crate) fn setting(&self, key: &str) -> Option<Setting> {
        if !self.defaults.contains_key(key) {
            return (key == THRESHOLD.key && self.takes_threshold()).then_some(THRESHOLD);
        }
        self.settings.iter().find(|setting| setting.key == key).copied()
    }

    /// The defaults inside the table `key`, which is not there by default: as the variant's own type fills them in.
    fn nested(&self, key: &str, kind: Kind) -> Option<Value> {
        let mut inside = serde_json::Map::new();
        if matches!(kind, Kind::Tables(_)) {
            // The first key of a listed table says what it is about, and has no default.
            inside.insert(kind.settings().first()?.key.into(), 0.into());
        }
        let table = Value::Object(inside);
        let value = if matches!(kind, Kind::Tables(_)) { Value::Array(vec![table]) } else { table };
        let mut whole = self.defaults.clone();
        if let Some(tag) = self.section.tag() {
            whole.insert(tag.into(), self.name.clone().into());
        }
        whole.insert(key.into(), value);
        let whole = Value::Object(whole);
        let filled = match self.section {
            Section::Environment => filled::<WorldConfig>(whole),
            Section::Arrival => filled::<ArrivalConfig>(whole),
            Section::Network => filled::<NetworkConfig>(whole),
            Section::Faults => filled::<FaultConfig>(whole),
            Section::Adversaries => filled::<AdversaryConfig>(whole),
            Section::Topology => filled::<TopologyConfig>(whole),
            Section::Algorithm => filled::<Algorithm>(whole),
        }?;
        match &filled[key] {
            Value::Array(tables) => tables.first().cloned(),
            table => Some(table.clone()),
        }
    }

    /// Every key, in the order of the defaults.
    pub(crate) fn keys(&self) -> Vec<&str> {
        let shorthand = self.takes_threshold().then_some(THRESHOLD.key);
        self.defaults.keys().map(String::as_str).chain(shorthand).collect()
    }

    /// Whether `threshold` stands for its two thresholds.
    pub(crate) fn takes_threshold(&self) -> bool {
        BOTH_THRESHOLDS.iter().all(|key| self.defaults.contains_key(*key))
    }
}

/// The two settings that the shorthand `threshold` sets.
pub(crate) const BOTH_THRESHOLDS: [&str; 2] = ["upload_threshold", "download_threshold"];

/// A shorthand of experiments, not a setting of any configuration.
pub(crate) const THRESHOLD: Setting = Setting::documented(
    "threshold",
    Kind::Threshold,
    "γ in [1, ∞]: upload_threshold and download_threshold in one.",
);

/// The defaults of a table inside a section that is not there by default; null if there is no such table.
pub(crate) fn nested_defaults(key: &str) -> &'static Value {
    static ALL: OnceLock<BTreeMap<&'static str, Value>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all = BTreeMap::new();
        for variant in Section::ALL.into_iter().flat_map(Section::own_variants) {
            for setting in &variant.settings {
                let absent = variant.defaults.get(setting.key).is_some_and(|v| v.is_null() || v.is_array());
                let tabular = matches!(setting.kind, Kind::Table(_) | Kind::Tables(_));
                if absent
                    && tabular
                    && let Some(defaults) = variant.nested(setting.key, setting.kind)
                {
                    all.insert(setting.key, defaults);
                }
            }
        }
        all
    });
    all.get(key).unwrap_or(&Value::Null)
}

/// A configuration as its type reads and writes it.
fn filled<T: DeserializeOwned + Serialize>(written: Value) -> Option<Value> {
    serde_json::from_value::<T>(written).ok().map(|config| json(&config))
}

/// A configuration with all its keys.
fn json(config: &impl Serialize) -> Value {
    serde_json::to_value(config).expect("configurations have string keys and finite defaults")
}
