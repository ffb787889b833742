//! The data that an experiment names: loaded once, whichever cells use it, and remembered by its content.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use posse_data::records::RawFile;
use posse_data::store::Manifest;
use posse_data::{DataError, Problem};
use posse_sim::world::{Data, WorldConfig};
use serde::{Deserialize, Serialize};

/// Prepared data that an experiment reads, as its results remember it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DataSource {
    /// The directory, as the experiment writes it.
    pub(crate) path: String,
    /// The data set's own name, for example `lastfm`.
    pub(crate) name: String,
    /// What was made of it: `table`, `clusters`, `recommender` or `users`.
    pub(crate) kind: String,
    /// SHA-256 of the content that was read, all 64 digits.
    pub(crate) hash: String,
    /// The publisher's files that it was prepared from.
    pub(crate) files: Vec<RawFile>,
}

/// Where the worlds of an experiment get their data from.
#[derive(Debug)]
pub(crate) struct Library {
    /// The command that prepares the data, as the experiment says.
    prepare: Option<String>,
    shelf: DataShelf,
}

#[derive(Debug)]
enum DataShelf {
    /// Prepared directories, read when a world first names them.
    Disk(RefCell<BTreeMap<(String, String), Attempt>>),
    /// What the manifest of finished results says was read. Nothing is loaded, so a report needs no data.
    Recorded(Vec<DataSource>),
}

/// Data and where it came from, or why it could not be loaded.
type Attempt = Result<(Data, DataSource), DataError>;

/// Why a world cannot have its data.
pub(super) struct Absent {
    /// The key that is to blame.
    pub(super) key: &'static str,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

impl Library {
    /// A library for an experiment that says how to prepare its data.
    pub(super) fn new(prepare: Option<&str>) -> Self {
        Self { prepare: prepare.map(String::from), shelf: DataShelf::Disk(RefCell::default()) }
    }

    /// A library that only knows what results remember about their data.
    pub(super) const fn recorded(sources: Vec<DataSource>) -> Self {
        Self { prepare: None, shelf: DataShelf::Recorded(sources) }
    }

    /// Whether worlds get their data, so that their settings can be checked against it.
    pub(super) const fn has_data(&self) -> bool {
        matches!(self.shelf, DataShelf::Disk(_))
    }

    /// Everything that was read, in the order of paths.
    pub(super) fn sources(&self) -> Vec<DataSource> {
        match &self.shelf {
            DataShelf::Disk(loaded) => {
                let mut all: Vec<DataSource> =
                    loaded.borrow().values().flatten().map(|(_, source)| source.clone()).collect();
                // One directory may be named with several spellings of its hash.
                all.dedup();
                all
            }
            DataShelf::Recorded(sources) => sources.clone(),
        }
    }

    /// Gives a world the data that it names, if it does.
    pub(super) fn attach(&self, world: &mut WorldConfig) -> Result<(), Absent> {
        let Some(name) = world.data() else { return Ok(()) };
        let help = self.prepare.as_deref().map(how_to_get);
        if name.path.is_empty() {
            let message = "`data` is not set: it names a directory that `posse data prepare` made".into();
            return Err(Absent { key: "data", message, help });
        }
        let loaded = match &self.shelf {
            DataShelf::Disk(loaded) => loaded,
            DataShelf::Recorded(sources) => {
                if let Some(source) = sources.iter().find(|source| source.path == name.path) {
                    world.record_hash(&source.hash);
                }
                return Ok(());
            }
        };
        let key = (name.path.to_owned(), name.hash.to_owned());
        let mut loaded = loaded.borrow_mut();
        match loaded.entry(key).or_insert_with_key(|(path, hash)| load(path, hash)) {
            Ok((data, source)) => world.attach(data, &source.hash).map_err(|error| Absent {
                key: "data",
                message: error.to_string(),
                help: None,
            }),
            Err(error) => {
                let by_hash = matches!(error.problem, Problem::Hash { .. } | Problem::Setting(_));
                let key = if by_hash { "hash" } else { "data" };
                Err(Absent { key, message: error.to_string(), help })
            }
        }
    }
}

fn load(path: &str, hash: &str) -> Attempt {
    let directory = Path::new(path);
    let (data, hash) = posse_data::load(directory, hash)?;
    let Manifest { name, kind, sources: files, .. } = Manifest::read(directory)?;
    Ok((data, DataSource { path: path.into(), name, kind, hash, files }))
}

/// How to get data that is not here: the command that prepares it, and where its files come from.
fn how_to_get(command: &str) -> String {
    let set = command.split_whitespace().nth(3).and_then(posse_data::catalogue::find);
    let fetch = set.map(|set| format!("; `posse data fetch {}` gets the files for RAW", set.name));
    format!("prepare it: {command}{}", fetch.unwrap_or_default())
}
