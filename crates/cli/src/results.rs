//! A directory of results: `rows.json`, and the resolved `experiment.toml` beside it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

const ROWS: &str = "rows.json";
const EXPERIMENT: &str = "experiment.toml";

/// Where results go.
#[derive(Debug)]
pub(crate) struct Results {
    directory: PathBuf,
}

impl Results {
    /// Prepares `directory` for the results of `config`, so that nothing runs in vain: it must be writable,
    /// and must not hold results of another configuration unless `force` is given.
    pub(crate) fn open(directory: &Path, config: &Value, force: bool) -> anyhow::Result<Self> {
        let shown = directory.display();
        fs::create_dir_all(directory).with_context(|| format!("cannot create the directory {shown}"))?;
        let results = Self { directory: directory.to_owned() };
        let probe = results.partial(ROWS);
        File::create(&probe).with_context(|| format!("cannot write to the directory {shown}"))?;
        fs::remove_file(&probe).with_context(|| format!("cannot write to the directory {shown}"))?;
        if !force && results.holds_others(config)? {
            bail!(
                "{shown} holds the results of another configuration: choose another directory, or give \
                 --force to replace them"
            );
        }
        Ok(results)
    }

    /// Writes both files. Readers see the old ones or the new ones, never half of one.
    pub(crate) fn write(&self, rows: &str, experiment: &str) -> anyhow::Result<()> {
        self.replace(EXPERIMENT, experiment)?;
        self.replace(ROWS, rows)
    }

    /// Whether results of another configuration, or of somebody else, are there.
    fn holds_others(&self, config: &Value) -> anyhow::Result<bool> {
        let path = self.directory.join(ROWS);
        if !path.try_exists().with_context(|| format!("cannot read {}", path.display()))? {
            return Ok(false);
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let held = serde_json::from_str::<Value>(&text).unwrap_or_default();
        Ok(without_words(&held["config"]) != without_words(config))
    }

    /// Puts `text` in the place of a file at once.
    fn replace(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let (partial, path) = (self.partial(name), self.directory.join(name));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&partial)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&partial, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display())).inspect_err(|_| {
            let _ = fs::remove_file(&partial);
        })
    }

    /// A name of this process only, in the same directory, so that it can be renamed.
    fn partial(&self, name: &str) -> PathBuf {
        self.directory.join(format!(".{name}.{}.partial", std::process::id()))
    }
}

/// A configuration without what changes no number.
fn without_words(config: &Value) -> Value {
    let mut config = config.clone();
    if let Value::Object(map) = &mut config {
        map.retain(|key, _| key != "title" && key != "description");
    }
    config
}
