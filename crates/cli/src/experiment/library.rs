//! The data that an experiment names: loaded once, whichever cells use it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use posse_data::{DataError, Problem};
use posse_sim::world::{Data, WorldConfig};

/// Data that is loaded, by path and hash.
#[derive(Debug, Default)]
pub(crate) struct Library {
    /// The command that prepares it, as the experiment says.
    prepare: Option<String>,
    loaded: RefCell<BTreeMap<(String, String), Attempt>>,
}

/// Data with its whole hash, or why it could not be loaded.
type Attempt = Result<(Data, String), DataError>;

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
        Self { prepare: prepare.map(String::from), loaded: RefCell::default() }
    }

    /// Gives a world the data that it names, if it does.
    pub(super) fn attach(&self, world: &mut WorldConfig) -> Result<(), Absent> {
        let Some(name) = world.data() else { return Ok(()) };
        let help = self.prepare.as_deref().map(how_to_get);
        if name.path.is_empty() {
            let message = "`data` is not set: it names a directory that `posse data prepare` made".into();
            return Err(Absent { key: "data", message, help });
        }
        let key = (name.path.to_owned(), name.hash.to_owned());
        let mut loaded = self.loaded.borrow_mut();
        let data =
            loaded.entry(key).or_insert_with_key(|(path, hash)| posse_data::load(Path::new(path), hash));
        match data {
            Ok((data, hash)) => world.attach(data, hash).map_err(|error| Absent {
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

/// How to get data that is not here: the command that prepares it, and where its files come from.
fn how_to_get(command: &str) -> String {
    let set = command.split_whitespace().nth(3).and_then(posse_data::catalogue::find);
    let fetch = set.map(|set| format!("; `posse data fetch {}` gets the files for RAW", set.name));
    format!("prepare it: {command}{}", fetch.unwrap_or_default())
}
