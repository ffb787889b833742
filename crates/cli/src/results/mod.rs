//! A directory of results.
//!
//! | file | what it holds |
//! |---|---|
//! | `manifest.json` | what was run, by which build, how far it has come, what became of the checks, what privacy may be claimed |
//! | `experiment.toml` | the experiment with all defaults; it can be run again |
//! | `cells/` | a file for each finished cell, on the disk before the next one begins |
//! | `summary.parquet` | a row for each cell: every setting, every metric, the seed |
//! | `curves.parquet` | the metrics over time, at log-spaced moments, for groups of agents too if asked |
//! | `agents.parquet` | how regret, messages and more are spread over agents, a row for each cell and metric |
//! | `messages.parquet` | what was sent of each kind of message, in each direction |
//!
//! Every file is written under another name and renamed, so that none is ever there by half. What decides
//! on resuming is `cells/`; everything else is made anew from it.

mod csv;
pub(crate) mod durable;
mod former;
mod frame;
mod manifest;
mod parquet;
mod stored;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use posse_data::parquet_file::Values;

use crate::check::Verdict;
use crate::experiment::{Cell, Experiment};
use crate::row::{Record, Row};
use crate::runner::Outcome;
use crate::shard::Shard;
use crate::statement::{self, Statement};
use frame::Frame;
pub(crate) use manifest::{Build, Clock, Host, MANIFEST, Manifest};
use manifest::{CellProgress, CellStatus};
use stored::{CELLS, Found};

const EXPERIMENT: &str = "experiment.toml";
const LOCK: &str = ".lock";
/// Where `posse report` writes unless told otherwise.
pub(crate) const REPORT: &str = "report.html";
/// Made at the end, from everything else.
const TABLES: [&str; 4] = ["summary", "curves", "agents", "messages"];

/// A directory that results go to.
#[derive(Debug)]
pub(crate) struct Results {
    directory: PathBuf,
    manifest: Manifest,
    /// Held as long as results are written.
    _lock: File,
}

/// What a directory of results held before this run.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// What came of each cell, as far as it is known.
    pub(crate) records: Vec<Option<Record>>,
    /// Files that cannot be used, a line each.
    pub(crate) broken: Vec<String>,
}

impl Results {
    /// Prepares `directory` for `cells`, so that nothing runs in vain: it must be writable, and what it holds
    /// must be of the same experiment, part and build, unless `force` is given: then it is removed.
    pub(crate) fn open(
        directory: &Path,
        experiment: &Experiment,
        shard: Option<Shard>,
        cells: &[Cell],
        force: bool,
    ) -> anyhow::Result<(Self, Earlier)> {
        let shown = directory.display();
        fs::create_dir_all(directory).with_context(|| format!("cannot create the directory {shown}"))?;
        let lock = lock(directory)?;
        let manifest = Manifest::new(experiment, shard);
        let earlier = Manifest::read(directory);
        let clock = earlier.as_ref().ok().and_then(|earlier| earlier.as_ref()?.clock);
        let is_same = match earlier {
            _ if force => earlier.is_ok_and(|earlier| {
                earlier.is_some_and(|earlier| obstacles(&earlier, &manifest).is_empty())
            }),
            Err(error) => bail!("{error}\n{}", what_to_do("")),
            Ok(Some(earlier)) => {
                let found = obstacles(&earlier, &manifest);
                if !found.is_empty() {
                    let list: String = found.iter().map(|line| format!("\n  - {line}")).collect();
                    bail!("{shown} holds other results:{list}\n{}", what_to_do("replace them"));
                }
                true
            }
            Ok(None) => {
                refuse_strangers(directory)?;
                false
            }
        };
        let mut results = Self { directory: directory.to_owned(), manifest, _lock: lock };
        if is_same {
            results.manifest.clock = clock;
        } else {
            results.clear().with_context(|| format!("cannot clear {shown}"))?;
        }
        results.manifest.cells = statuses(cells, &vec![None; cells.len()]);
        // The manifest first: from then on the directory is known as ours, wherever the process is stopped.
        results.manifest.write(directory)?;
        durable::replace_text(&directory.join(EXPERIMENT), &toml::to_string(&experiment.resolved)?)?;
        fs::create_dir_all(directory.join(CELLS)).with_context(|| format!("cannot write to {shown}"))?;
        for place in [directory, &directory.join(CELLS)] {
            durable::sweep(place).with_context(|| format!("cannot clear {shown}"))?;
        }
        let earlier = earlier_cells(directory, cells)?;
        let known: Vec<Option<Outcome>> =
            earlier.records.iter().map(|record| record.clone().map(Ok)).collect();
        results.note(cells, &known)?;
        Ok((results, earlier))
    }

    /// Keeps what came of a cell. When this returns it is on the disk.
    pub(crate) fn keep(&self, cell: &Cell, outcome: &Outcome) -> anyhow::Result<()> {
        stored::write(&self.directory, cell, outcome)
    }

    /// Notes how far each cell has come.
    pub(crate) fn note(&mut self, cells: &[Cell], outcomes: &[Option<Outcome>]) -> anyhow::Result<()> {
        self.manifest.cells = statuses(cells, outcomes);
        self.manifest.write(&self.directory)
    }

    /// Adds the time that a run of so many cells took.
    pub(crate) fn count_time(&mut self, seconds: f64, cells: usize) {
        let earlier = self.manifest.clock.unwrap_or(Clock { seconds: 0.0, cells: 0 });
        self.manifest.clock =
            Some(Clock { seconds: earlier.seconds + seconds, cells: earlier.cells + cells });
    }

    /// Writes everything that is made when all cells have run.
    pub(crate) fn finish(
        &mut self,
        experiment: &Experiment,
        rows: &[Row<'_>],
        checks: &[Verdict],
        as_csv: bool,
    ) -> anyhow::Result<()> {
        for (name, frame) in frames(experiment, rows) {
            parquet::write(&self.directory.join(format!("{name}.parquet")), &frame)?;
            if as_csv {
                csv::write(&self.directory.join(format!("{name}.csv")), &frame)?;
            }
        }
        self.manifest.checks = checks.to_vec();
        let statements = statement::statements(&experiment.groups, rows);
        self.manifest.privacy = statements.iter().map(Statement::document).collect();
        self.manifest.write(&self.directory)
    }

    /// Removes all results, and nothing else. The manifest goes last: until then they are known as ours.
    fn clear(&self) -> std::io::Result<()> {
        let cells = self.directory.join(CELLS);
        if cells.is_dir() {
            for file in fs::read_dir(&cells)? {
                let path = file?.path();
                if path.extension().is_some_and(|extension| extension == "json") {
                    fs::remove_file(path)?;
                }
            }
        }
        let tables = TABLES.iter().flat_map(|name| [format!("{name}.parquet"), format!("{name}.csv")]);
        let rest = [REPORT, EXPERIMENT, MANIFEST].map(String::from);
        for name in tables.chain(rest) {
            match fs::remove_file(self.directory.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Every table of results, by the name of its file.
fn frames(experiment: &Experiment, rows: &[Row<'_>]) -> [(&'static str, Frame); 4] {
    let [summary, curves, agents, messages] = TABLES;
    [
        (summary, Frame::summary(experiment, rows)),
        (curves, Frame::curves(experiment, rows)),
        (agents, Frame::agents(experiment, rows)),
        (messages, Frame::messages(experiment, rows)),
    ]
}

/// Every table of results, by the name of its file, as columns.
pub(crate) fn tables(
    experiment: &Experiment,
    rows: &[Row<'_>],
) -> Vec<(&'static str, Vec<(String, Values)>)> {
    frames(experiment, rows).into_iter().map(|(name, frame)| (name, frame.columns)).collect()
}

/// The content of a directory of results that an earlier command wrote.
#[derive(Debug)]
pub(crate) struct Made {
    /// The manifest of the directory.
    pub(crate) manifest: Manifest,
    /// The experiment as the manifest describes it.
    pub(crate) experiment: Experiment,
    /// Its part of the plan.
    pub(crate) cells: Vec<Cell>,
    /// What came of each cell.
    pub(crate) outcomes: Vec<Option<Outcome>>,
}

impl Made {
    /// Reads the results in `directory`; an error if a file of a cell cannot be used.
    pub(crate) fn read(directory: &Path) -> anyhow::Result<Self> {
        match Self::read_what_is_there(directory)? {
            (made, broken) if broken.is_empty() => Ok(made),
            (_, broken) => bail!("{}: finish the run first, with the command that began it", broken[0]),
        }
    }

    /// Reads the results in `directory`, and says which files of cells cannot be used: they count as not run.
    pub(crate) fn read_what_is_there(directory: &Path) -> anyhow::Result<(Self, Vec<String>)> {
        let shown = directory.display();
        let manifest = Manifest::read(directory)?
            .ok_or_else(|| anyhow!("{shown} holds no results: there is no {MANIFEST} in it"))?;
        let path = directory.join(EXPERIMENT);
        let mut text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if manifest.is_former() {
            text = former::experiment(text);
        }
        let mut experiment = if manifest.remembers_data() {
            Experiment::recorded_text(&path, text, manifest.data.clone())?
        } else {
            Experiment::from_text(&path, text, false)?
        };
        experiment.id.clone_from(&manifest.experiment);
        experiment.quick = manifest.quick;
        if experiment.to_json() != manifest.config {
            bail!("{shown} is corrupt: {EXPERIMENT} and {MANIFEST} are of different experiments");
        }
        let mut cells = experiment.cells();
        cells.retain(|cell| manifest.shard.is_none_or(|shard| shard.holds(cell.index)));
        let (mut outcomes, mut broken) = (Vec::with_capacity(cells.len()), Vec::new());
        for (place, cell) in cells.iter().enumerate() {
            let kept = manifest.cells.get(place).map(|cell| cell.id.as_str());
            outcomes.push(match stored::read(directory, cell, kept)? {
                Found::Nothing => None,
                Found::Outcome(outcome) => Some(*outcome),
                Found::Broken(why) => {
                    broken.push(why);
                    None
                }
            });
        }
        Ok((Self { manifest, experiment, cells, outcomes }, broken))
    }

    /// The same results under the words that the experiment has today: title, claims and figures may have changed since the
    /// run. An error if its settings have changed too, because then its numbers would be others.
    pub(crate) fn with_words_of(self, id: &str, text: &str) -> anyhow::Result<Self> {
        let path = Path::new("experiments").join(format!("{id}.toml"));
        let mut experiment = Experiment::recorded_text(&path, text.to_owned(), self.manifest.data.clone())?;
        id.clone_into(&mut experiment.id);
        experiment.quick = self.manifest.quick;
        let found = self.manifest.differences(&Manifest::new(&experiment, None));
        if let Some(first) = found.first() {
            bail!("the results of {id} are of other settings than {}: {first}", path.display());
        }
        let cells = experiment.cells();
        Ok(Self { experiment, cells, ..self })
    }

    /// Writes the summary of `rows` to a file, under the names that cells have today.
    pub(crate) fn write_summary(&self, path: &Path, rows: &[Row<'_>]) -> anyhow::Result<()> {
        parquet::write(path, &Frame::summary(&self.experiment, rows))
    }

    /// Makes sure that the tables in `directory` say what `rows` say, if they were written.
    pub(crate) fn refuse_other_tables(&self, directory: &Path, rows: &[Row<'_>]) -> anyhow::Result<()> {
        if self.outcomes.iter().any(Option::is_none) {
            // They are written when all cells have run; what is there is of before.
            return Ok(());
        }
        // Tables of an earlier build may name cells otherwise.
        if self.manifest.cells.iter().zip(&self.cells).any(|(kept, cell)| kept.id != cell.id) {
            return Ok(());
        }
        // A summary that was written before settings were renamed names them otherwise.
        let is_comparable = |(name, _): &(&str, Frame)| *name != TABLES[0] || !self.manifest.is_former();
        for (name, frame) in frames(&self.experiment, rows).into_iter().filter(is_comparable) {
            let path = directory.join(format!("{name}.parquet"));
            let fix = "the command that made these results writes it anew";
            match parquet::read(&path) {
                Ok(Some(found)) if found != frame => {
                    bail!("{} does not say what the cells say: {fix}", path.display())
                }
                Ok(_) => {}
                Err(error) => bail!("{} is corrupt: {error:#}: {fix}", path.display()),
            }
        }
        Ok(())
    }
}

/// Locks `directory` for this process. Fails if it cannot be written to, or if another process holds the
/// lock.
fn lock(directory: &Path) -> anyhow::Result<File> {
    let shown = directory.display();
    let file = File::create(directory.join(LOCK))
        .with_context(|| format!("cannot write to the directory {shown}"))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            bail!("another posse is writing to {shown}: wait for it, or choose another directory")
        }
        // Some file systems have no locks; then people have to take care themselves.
        _ => Ok(file),
    }
}

/// Refuses a directory with files that no run of posse made.
fn refuse_strangers(directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    for file in fs::read_dir(directory).with_context(|| format!("cannot read {shown}"))? {
        let name = file.with_context(|| format!("cannot read {shown}"))?.file_name();
        let name = name.to_string_lossy();
        if name != LOCK && !durable::is_partial(&name) {
            bail!(
                "{shown} holds {name} but no {MANIFEST}: choose a new or empty directory, or give --force to \
                 write there all the same"
            );
        }
    }
    Ok(())
}

/// Why results cannot be added to those of `earlier`, a line each.
fn obstacles(earlier: &Manifest, now: &Manifest) -> Vec<String> {
    let mut found = earlier.differences(now);
    if earlier.shard != now.shard {
        let part = |shard: Option<Shard>| shard.map_or("all cells".into(), |shard| format!("shard {shard}"));
        found.push(format!("it is of {}, not {}", part(earlier.shard), part(now.shard)));
    }
    if !earlier.posse.is_like(&now.posse) {
        found.push(format!("it was made by {}, not {}, whose numbers may differ", earlier.posse, now.posse));
    }
    found
}

/// The end of a refusal.
fn what_to_do(purpose: &str) -> String {
    let purpose = if purpose.is_empty() { "begin anew" } else { purpose };
    format!("choose another directory, or give --force to {purpose}")
}

/// What is known of cells from before.
fn earlier_cells(directory: &Path, cells: &[Cell]) -> anyhow::Result<Earlier> {
    let mut earlier = Earlier::default();
    for cell in cells {
        earlier.records.push(match stored::read(directory, cell, None)? {
            // What failed may have failed for want of memory.
            Found::Outcome(outcome) => outcome.ok(),
            Found::Nothing => None,
            Found::Broken(why) => {
                earlier.broken.push(format!("{why}: {} is run again", cell.id));
                None
            }
        });
    }
    Ok(earlier)
}

/// How far each cell has come.
fn statuses(cells: &[Cell], outcomes: &[Option<Outcome>]) -> Vec<CellStatus> {
    let status = |(cell, outcome): (&Cell, &Option<Outcome>)| {
        let (status, error) = match outcome {
            Some(Ok(_)) => (CellProgress::Done, None),
            Some(Err(error)) => (CellProgress::Failed, Some(error.clone())),
            None => (CellProgress::Pending, None),
        };
        CellStatus { id: cell.id.clone(), status, error }
    };
    cells.iter().zip(outcomes).map(status).collect()
}
