//! `manifest.json`: what a directory of results holds, made by whom, and how far it has come.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::durable;
use super::former;
use crate::check::Verdict;
use crate::experiment::{DataSource, Experiment};
use crate::shard::Shard;

/// The name of the manifest's file in a directory of results.
pub(crate) const MANIFEST: &str = "manifest.json";

/// The version of the layout of a directory.
/// 3 added `data`, and the hash of its data to every cell. 4 writes times with their unit and renamed settings.
const FORMAT: u32 = 4;
/// The oldest version that is still read.
const OLDEST: u32 = 2;

/// Everything about a directory of results but the numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// The version of the layout.
    pub(crate) format: u32,
    /// The id of the experiment: the name of its file.
    pub(crate) experiment: String,
    /// The title of the experiment, if it has one.
    pub(crate) title: Option<String>,
    /// Whether it was scaled down for a first look.
    pub(crate) quick: bool,
    /// Which part of the plan, if not all of it.
    pub(crate) shard: Option<Shard>,
    /// The build of posse that made the results.
    pub(crate) posse: Build,
    /// The class of machine that the results were made on.
    pub(crate) host: Host,
    /// The experiment with all defaults.
    pub(crate) config: Value,
    /// The prepared data that the cells read, each with the hash of its content.
    #[serde(default)]
    pub(crate) data: Vec<DataSource>,
    /// The cells in the order of the plan. While a run goes on, the files in `cells/` know more.
    pub(crate) cells: Vec<CellStatus>,
    /// What became of the experiment's checks; empty until all cells are done.
    pub(crate) checks: Vec<Verdict>,
    /// The accountant's statement for each private setting; empty until all cells are done.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) privacy: Vec<Value>,
    /// How long the runs took that made these results, if they said so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) clock: Option<Clock>,
}

/// Time by the clock, of all runs together that were needed to finish some results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clock {
    /// From the first cell of each run to its last. A run that was killed is not in it.
    pub(crate) seconds: f64,
    /// How many cells ran in that time. The others had run before, for another figure or another version of this one.
    pub(crate) cells: usize,
}

/// A build of posse: its version, and its commit if known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Build {
    /// The version from Cargo.toml.
    pub(crate) version: String,
    /// The commit, if it was known.
    pub(crate) commit: Option<String>,
}

impl Build {
    /// The build that runs now.
    pub(crate) fn this() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            commit: option_env!("POSSE_COMMIT").filter(|commit| !commit.is_empty()).map(String::from),
        }
    }

    /// Whether the other one gives the same numbers, as far as can be known.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let known = self.commit.is_some() && other.commit.is_some();
        self.version == other.version && (!known || self.commit == other.commit)
    }
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.commit {
            Some(commit) => write!(f, "posse {} ({})", self.version, &commit[..commit.len().min(12)]),
            None => write!(f, "posse {}", self.version),
        }
    }
}

/// The class of a machine: what may matter to numbers and times, and nothing that names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    os: String,
    arch: String,
    processors: usize,
    /// Which of the instructions that kernels choose between are there.
    features: Vec<String>,
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { os, arch, processors, features } = self;
        write!(f, "{os}, {arch}, {processors} processors")?;
        if features.is_empty() { Ok(()) } else { write!(f, ", {}", features.join(" ")) }
    }
}

impl Host {
    /// The machine that this process runs on.
    pub(crate) fn this() -> Self {
        Self {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            features: features().into_iter().map(String::from).collect(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let all = [
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("fma", std::arch::is_x86_feature_detected!("fma")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
    ];
    all.into_iter().filter_map(|(name, there)| there.then_some(name)).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// How far a cell has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CellStatus {
    /// The id of the cell.
    pub(crate) id: String,
    /// How far the cell has come: `done`, `failed` or `pending`.
    pub(crate) status: CellProgress,
    /// The error of a cell that failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) error: Option<String>,
}

/// How far a cell can have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CellProgress {
    /// It ran and has a row of results.
    Done,
    /// It has an error instead.
    Failed,
    /// It has not run yet.
    Pending,
}

impl Manifest {
    /// The manifest of results of `experiment`, or a part of it, that this build is about to make.
    pub(crate) fn new(experiment: &Experiment, shard: Option<Shard>) -> Self {
        let config = experiment.to_json();
        Self {
            format: FORMAT,
            experiment: experiment.id.clone(),
            title: config["title"].as_str().map(String::from),
            quick: experiment.quick,
            shard,
            posse: Build::this(),
            host: Host::this(),
            config,
            data: experiment.sources.clone(),
            cells: Vec::new(),
            checks: Vec::new(),
            privacy: Vec::new(),
            clock: None,
        }
    }

    /// The manifest in `directory`; `None` if there is none.
    pub(crate) fn read(directory: &Path) -> anyhow::Result<Option<Self>> {
        let path = directory.join(MANIFEST);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(anyhow!("{} is corrupt: it is not text", path.display()));
            }
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let format = serde_json::from_str::<Value>(&text).ok().and_then(|value| value["format"].as_u64());
        if let Some(format) =
            format.filter(|format| !(OLDEST..=FORMAT).any(|known| u64::from(known) == *format))
        {
            return Err(anyhow!(
                "{} has format {format}, and this is {} with format {FORMAT}",
                path.display(),
                Build::this()
            ));
        }
        let mut manifest: Self =
            serde_json::from_str(&text).map_err(|error| anyhow!("{} is corrupt: {error}", path.display()))?;
        if manifest.is_former() {
            former::config(&mut manifest.config);
        }
        Ok(Some(manifest))
    }

    /// Whether it says which data was read. Older results do not, and need their data to be read.
    pub(crate) const fn remembers_data(&self) -> bool {
        self.format >= 3
    }

    /// Whether the results have former names of settings.
    pub(super) const fn is_former(&self) -> bool {
        self.format < 4
    }

    /// Writes the manifest to `directory`.
    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        durable::replace_text(&directory.join(MANIFEST), &text)
    }

    /// In what way the results differ from those of `other` that they must agree in, a line each. The build
    /// and the part of the plan are left to the caller.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.experiment != other.experiment {
            found.push(format!("the experiment is {}, not {}", self.experiment, other.experiment));
        }
        if self.quick != other.quick {
            let kind = |quick| if quick { "QUICK" } else { "full" };
            found.push(format!("the run is {}, not {}", kind(self.quick), kind(other.quick)));
        }
        for mine in &self.data {
            if let Some(theirs) =
                other.data.iter().find(|theirs| theirs.path == mine.path && theirs.hash != mine.hash)
            {
                found.push(format!(
                    "the data in {} had the hash {}, now {}",
                    mine.path,
                    short(&mine.hash),
                    short(&theirs.hash)
                ));
            }
        }
        // Which content the data has is compared by what was read, where both say it, not by what is written.
        let known = !self.data.is_empty() && !other.data.is_empty();
        let [mine, theirs] = [self, other].map(|manifest| without_words(&manifest.config, known));
        differing("", &mine, &theirs, &mut found);
        found
    }
}

/// The first digits of a hash, enough to tell two apart.
pub(crate) fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// The keys at the top of an experiment that change no number.
const WORDS: [&str; 6] = ["title", "description", "prepare", "processor_minutes", "figure", "check"];

/// A configuration without what changes no number.
fn without_words(config: &Value, without_hash: bool) -> Value {
    let mut config = config.clone();
    if let Value::Object(map) = &mut config {
        map.retain(|key, _| !WORDS.contains(&key.as_str()));
        if without_hash && let Some(Value::Object(environment)) = map.get_mut("environment") {
            environment.shift_remove("hash");
        }
    }
    config
}

/// The places in which two documents differ.
fn differing(path: &str, mine: &Value, other: &Value, found: &mut Vec<String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (mine, other) {
        (Value::Object(one), Value::Object(two)) => {
            let new = two.keys().filter(|key| !one.contains_key(*key));
            for key in one.keys().chain(new) {
                differing(&below(key), &mine[key], &other[key], found);
            }
        }
        (Value::Array(one), Value::Array(two))
            if one.len() == two.len() && one.iter().any(Value::is_object) =>
        {
            for (index, (one, two)) in one.iter().zip(two).enumerate() {
                differing(&below(&(index + 1).to_string()), one, two, found);
            }
        }
        _ if mine == other => {}
        _ => {
            let shown = |value: &Value| {
                let text = if value.is_null() { "not set".into() } else { value.to_string() };
                if text.chars().count() > 60 {
                    text.chars().take(57).collect::<String>() + "…"
                } else {
                    text
                }
            };
            found.push(format!("`{path}` is {}, not {}", shown(mine), shown(other)));
        }
    }
}
