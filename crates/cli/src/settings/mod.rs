//! What may be set: for every key of an experiment what it means, what it takes and in which range.
//!
//! Which keys a table has and their defaults come from the configuration types themselves, by serialising
//! their defaults; this is the part that types cannot say. Tests hold the two together.

mod algorithm;
#[cfg(test)]
mod tests;
mod world;

use posse_core::{Algorithm, Override, PrivacyConfig};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, Drift, WorldConfig};
use serde::Serialize;
use serde_json::Value;

pub(crate) use world::PRESETS;

/// One key of an experiment, with its meaning and what it takes.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The key as experiments write it.
    pub(crate) key: &'static str,
    /// The kind of value that the key takes.
    pub(crate) kind: Kind,
    /// What it means, in a line.
    pub(crate) meaning: &'static str,
    /// What is allowed, for listings; empty where the kind says it all.
    pub(crate) range: &'static str,
}

/// A setting in a line.
const fn setting(key: &'static str, kind: Kind, meaning: &'static str, range: &'static str) -> Setting {
    Setting { key, kind, meaning, range }
}

/// The kind of value that a key takes.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A number, whole or not.
    Number,
    /// An integer, zero or more.
    Whole,
    /// An integer, zero or more, for which memory must be found: at most this.
    Size(i64),
    /// A number, or `inf` for infinity.
    Threshold,
    /// A length of time with its unit, in quotes.
    Span,
    /// A switch, `true` or `false`.
    Switch,
    /// A text in quotes.
    Text,
    /// One of these words, in quotes.
    OneOf(&'static [&'static str]),
    /// A table with these keys.
    Table(&'static [Setting]),
    /// Any number of tables with these keys, the first of which must be there.
    Tables(&'static [Setting]),
}

impl Kind {
    /// What is expected, to go after "expected".
    pub(crate) fn expected(&self) -> String {
        match self {
            Self::Number => "a number".into(),
            Self::Whole | Self::Size(_) => "a whole number, zero or more".into(),
            Self::Threshold => "a number or inf".into(),
            Self::Span => SPAN.into(),
            Self::Switch => "true or false".into(),
            Self::Text => "a text in quotes".into(),
            Self::OneOf(words) => format!("one of {}", words.join(", ")),
            Self::Table(_) => "a table".into(),
            Self::Tables(_) => "an array of tables".into(),
        }
    }
}

/// What is expected of a length of time.
pub(crate) const SPAN: &str = "a length of time with its unit, such as \"30s\" or \"250ms\"";

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
    /// The tables `[[algorithm]]`: the algorithms that are compared.
    Algorithm,
}

impl Section {
    /// Every section, in the order of an experiment.
    pub(crate) const ALL: [Self; 5] =
        [Self::Environment, Self::Arrival, Self::Network, Self::Faults, Self::Algorithm];

    /// Its key in an experiment.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Arrival => "arrival",
            Self::Network => "network",
            Self::Faults => "faults",
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
            Self::Network | Self::Faults => None,
        }
    }

    /// The variants: name, summary, and default settings without the tag.
    pub(crate) fn variants(self) -> Vec<Variant> {
        let variant = |name: &str, summary: &str, defaults: Value| {
            let Value::Object(mut defaults) = defaults else { unreachable!("configurations are structs") };
            if let Some(tag) = self.tag() {
                defaults.shift_remove(tag);
            }
            Variant { section: self, name: name.into(), summary: summary.into(), defaults }
        };
        match self {
            Self::Environment => {
                let kinds = WorldConfig::kinds().into_iter();
                kinds.map(|(name, summary, config)| variant(name, summary, json(&config))).collect()
            }
            Self::Arrival => {
                let kinds = ArrivalConfig::kinds().into_iter();
                kinds.map(|(name, summary, config)| variant(name, summary, json(&config))).collect()
            }
            Self::Network => {
                vec![variant("network", "how messages travel", json(&NetworkConfig::default()))]
            }
            Self::Faults => {
                vec![variant("faults", "what goes wrong with machines", json(&FaultConfig::default()))]
            }
            Self::Algorithm => {
                let all = Algorithm::all().into_iter();
                all.map(|config| variant(config.name(), config.summary(), json(&config))).collect()
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
            Self::Algorithm => None,
        }
    }

    /// What a variant of this section is called in messages.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Arrival => "arrival",
            Self::Network | Self::Faults => "table",
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
}

impl Variant {
    /// The setting of this variant that is called `key`.
    pub(crate) fn setting(&self, key: &str) -> Option<&'static Setting> {
        if !self.defaults.contains_key(key) {
            return (key == THRESHOLD.key && self.takes_threshold()).then_some(&THRESHOLD);
        }
        let own: &[Setting] = match self.name.as_str() {
            "fed-lin-ucb" => algorithm::FED_LIN_UCB,
            "kernel-ucb" | "kernel-ts" => algorithm::KERNEL,
            _ => &[],
        };
        let all = match self.section {
            Section::Environment => world::ENVIRONMENT,
            Section::Arrival => world::ARRIVAL,
            Section::Network => world::NETWORK,
            Section::Faults => world::FAULTS,
            Section::Algorithm => algorithm::ALGORITHM,
        };
        let privacy = if self.section == Section::Algorithm { algorithm::PRIVACY } else { &[] };
        own.iter().chain(all).chain(privacy).find(|setting| setting.key == key)
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
pub(crate) const THRESHOLD: Setting = Setting {
    key: "threshold",
    kind: Kind::Threshold,
    meaning: "upload_threshold and download_threshold in one",
    range: "1 to inf",
};

/// The defaults of a table inside a section; null if it has none.
pub(crate) fn nested_defaults(key: &str) -> Value {
    match key {
        "drift" => json(&Drift::default()),
        "privacy" => json(&PrivacyConfig::default()),
        "override" => {
            let nobody =
                Override { agent: Default::default(), upload_threshold: None, download_threshold: None };
            json(&nobody)
        }
        _ => Value::Null,
    }
}

/// A configuration with all its keys.
fn json(config: &impl Serialize) -> Value {
    serde_json::to_value(config).expect("configurations have string keys and finite defaults")
}
