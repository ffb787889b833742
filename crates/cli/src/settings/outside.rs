//! Algorithms and worlds from outside of posse, which an embedding program has made known to this process.
//!
//! They are variants of their section like posse's own, so that files may name them, sweep over their settings and be told
//! what is wrong in the same words.

use std::sync::{Arc, PoisonError, RwLock};

use posse_core::{Algorithm, Outside};
use posse_sim::world::{OutsideWorld, WorldConfig};
use serde_json::{Map, Value};

use super::{Kind, Section, Setting, Variant};

/// Makes an algorithm from its settings, or says what is wrong with them.
pub type AlgorithmFactory = Arc<dyn Fn(&toml::Table) -> Result<Outside, String> + Send + Sync>;
/// Makes a world from its settings, or says what is wrong with them.
pub type WorldFactory = Arc<dyn Fn(&toml::Table) -> Result<OutsideWorld, String> + Send + Sync>;

/// What makes an algorithm or a world.
#[derive(Clone)]
pub enum Factory {
    /// It is an algorithm.
    Algorithm(AlgorithmFactory),
    /// It is a world.
    World(WorldFactory),
}

impl std::fmt::Debug for Factory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Algorithm(_)) { "Algorithm" } else { "World" })
    }
}

/// The kind of value that a setting of an outside algorithm or world takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutsideKind {
    /// A number, or `inf`.
    Number,
    /// An integer, zero or more.
    Whole,
    /// `true` or `false`.
    Switch,
    /// Any text, without a check.
    Text,
}

/// A setting of an outside algorithm or world.
#[derive(Clone, Debug)]
pub struct OutsideSetting {
    /// The key in files.
    pub key: String,
    /// The kind of value that it takes.
    pub kind: OutsideKind,
    /// What it means, in a line.
    pub meaning: String,
    /// The value if none is written; null if there is none.
    pub default: Value,
}

struct Known {
    section: Section,
    name: &'static str,
    summary: String,
    settings: &'static [Setting],
    defaults: Map<String, Value>,
    factory: Factory,
}

static KNOWN: RwLock<Vec<Known>> = RwLock::new(Vec::new());

/// Makes an algorithm or a world known under `name`, in place of one from outside that had the name before. Returns the
/// name as recipes keep it. A name of posse's own is refused.
///
/// Names and settings are never forgotten, so that messages and results can refer to them: about a hundred bytes each time.
pub fn register(
    name: &str,
    summary: &str,
    settings: Vec<OutsideSetting>,
    factory: Factory,
) -> Result<&'static str, String> {
    let section = match factory {
        Factory::Algorithm(_) => Section::Algorithm,
        Factory::World(_) => Section::Environment,
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("\"{name}\" cannot be a name: use lower-case letters, digits and hyphens"));
    }
    if section.own_variants().iter().any(|variant| variant.name == name) {
        return Err(format!("\"{name}\" is the name of one of posse's own: choose another"));
    }
    let reserved =
        |key: &str| section.tag() == Some(key) || matches!(key, "agents" | "horizon_each" | "data");
    if let Some(setting) = settings.iter().find(|setting| reserved(&setting.key)) {
        return Err(format!("`{}` cannot be a setting of {name}: files use it otherwise", setting.key));
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let before = known.iter().position(|own| own.section == section && own.name == name);
    let defaults = settings.iter().map(|setting| (setting.key.clone(), setting.default.clone())).collect();
    let leaked: Vec<Setting> = settings.into_iter().map(leak).collect();
    let name = before.map_or_else(|| &*Box::leak(name.to_owned().into_boxed_str()), |at| known[at].name);
    let own = Known { section, name, summary: summary.into(), settings: leaked.leak(), defaults, factory };
    match before {
        Some(at) => known[at] = own,
        None => known.push(own),
    }
    Ok(name)
}

fn leak(setting: OutsideSetting) -> Setting {
    let kind = match setting.kind {
        OutsideKind::Number => Kind::Threshold,
        OutsideKind::Whole => Kind::Whole,
        OutsideKind::Switch => Kind::Switch,
        OutsideKind::Text => Kind::Text,
    };
    Setting::documented(setting.key.leak(), kind, setting.meaning.leak())
}

/// The variants of a section that came from outside.
pub(super) fn variants(section: Section) -> Vec<Variant> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let variant = |own: &Known| Variant {
        section,
        name: own.name.into(),
        summary: own.summary.clone(),
        defaults: own.defaults.clone(),
        settings: own.settings.to_vec(),
    };
    known.iter().filter(|own| own.section == section).map(variant).collect()
}

/// The settings of the outside variant of this name, if there is one.
fn settings(section: Section, name: &str) -> Option<&'static [Setting]> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    known.iter().find(|own| own.section == section && own.name == name).map(|own| own.settings)
}

/// Whether an outside algorithm has a setting of its own that is called like the shorthand of posse's.
pub(crate) fn takes_threshold(name: &str) -> bool {
    let own = settings(Section::Algorithm, name);
    own.is_some_and(|own| own.iter().any(|setting| setting.key == super::THRESHOLD.key))
}

/// The algorithm that a table with all its tags describes, if its name is one from outside.
pub(crate) fn algorithm(table: &toml::Table) -> Option<Result<Algorithm, String>> {
    match factory(Section::Algorithm, table)? {
        (Factory::Algorithm(make), settings) => Some(make(&settings).map(Algorithm::Outside)),
        (Factory::World(_), _) => None,
    }
}

/// The world that a table with all its tags describes, if its kind is one from outside.
pub(crate) fn world(table: &toml::Table) -> Option<Result<WorldConfig, String>> {
    match factory(Section::Environment, table)? {
        (Factory::World(make), settings) => Some(make(&settings).map(WorldConfig::Outside)),
        (Factory::Algorithm(_), _) => None,
    }
}

/// The factory that a table names, and its settings with defaults. The lock is not held while the factory works.
fn factory(section: Section, table: &toml::Table) -> Option<(Factory, toml::Table)> {
    let tag = section.tag()?;
    let name = table.get(tag)?.as_str()?;
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let own = known.iter().find(|own| own.section == section && own.name == name)?;
    let mut settings = toml::Table::new();
    for Setting { key, kind, .. } in own.settings {
        let default = own.defaults.get(*key).and_then(|value| toml::Value::try_from(value).ok());
        let value = table.get(*key).cloned().or(default);
        // 5 is 5.0 and "inf" is ∞ where numbers are meant.
        let value = match (kind, value) {
            (Kind::Threshold, Some(toml::Value::Integer(whole))) => Some((whole as f64).into()),
            (Kind::Threshold, Some(toml::Value::String(_))) => Some(f64::INFINITY.into()),
            (_, value) => value,
        };
        settings.extend(value.map(|value| ((*key).to_owned(), value)));
    }
    Some((own.factory.clone(), settings))
}

/// Settings that an outside recipe wrote as one JSON text, as the settings they are.
pub(crate) fn unfolded(mut map: Map<String, Value>) -> Map<String, Value> {
    let inner = map.get("settings").and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
    if let Some(Value::Object(inner)) = inner {
        map.shift_remove("settings");
        // A world says its name beside its kind, which is the same for all of them.
        if let Some(name) = map.shift_remove("name") {
            map.insert("kind".into(), name);
        }
        map.extend(inner);
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Factory {
        Factory::Algorithm(Arc::new(|_| Err("it is never made".into())))
    }

    #[test]
    fn names_and_settings_that_files_could_not_use_are_refused() {
        for name in ["", "Mine", "my algorithm", "lin-ucb"] {
            assert!(register(name, "", Vec::new(), nothing()).is_err(), "{name}");
        }
        let setting = |key: &str| OutsideSetting {
            key: key.into(),
            kind: OutsideKind::Number,
            meaning: String::new(),
            default: Value::Null,
        };
        let refused = register("outside-test", "", vec![setting("name")], nothing()).unwrap_err();
        assert!(refused.contains("`name` cannot be a setting"), "{refused}");
    }

    #[test]
    fn an_outside_algorithm_is_a_variant_with_its_defaults() {
        let threshold = OutsideSetting {
            key: "patience".into(),
            kind: OutsideKind::Number,
            meaning: "how long".into(),
            default: 2.into(),
        };
        let made = Factory::Algorithm(Arc::new(|settings| Err(settings.to_string())));
        register("outside-variant", "", vec![threshold], made).unwrap();
        let all = Section::Algorithm.variants();
        let own = all.iter().find(|variant| variant.name == "outside-variant").unwrap();
        assert_eq!(own.setting("patience").map(|setting| setting.documentation), Some("how long"));
        assert!(own.setting("regularization").is_none());
        let table = |text: &str| text.parse::<toml::Table>().unwrap();
        let asked = algorithm(&table("name = \"outside-variant\"")).unwrap().unwrap_err();
        assert_eq!(asked.trim(), "patience = 2.0");
        assert!(algorithm(&table("name = \"lin-ucb\"")).is_none());
    }
}
