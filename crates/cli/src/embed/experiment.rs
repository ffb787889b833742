//! Experiments that a program runs inside itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Progress, Values, in_words};
use crate::check::Verdict;
use crate::command::execute::{Options, Played, play, show};
use crate::experiment::{Cell, Experiment};
use crate::progress;
use crate::report::{self, Material};
use crate::results::{Made, Manifest, tables};
use crate::row::Row;

/// An experiment that was read and checked, and has not run.
#[derive(Debug)]
pub struct Plan(Experiment);

/// Where and how a [`Plan`] is run.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// The directory that results are kept in. A plan that was interrupted goes on from what is there.
    pub out: Option<PathBuf>,
    /// Whether other results in that directory are replaced. Without it they are an error.
    pub force: bool,
    /// How many cells run at a time; `None` for as many as there are processors.
    pub jobs: Option<u16>,
    /// Only this part of the cells, written as `2/3`. It needs `out`, and `posse merge` joins the parts.
    pub shard: Option<String>,
}

impl Plan {
    /// Reads and checks the experiment in the file at `path`, scaled down for a first look if `quick`.
    pub fn read(path: &Path, quick: bool) -> Result<Self, String> {
        let read = if quick { Experiment::read_quick } else { Experiment::read };
        read(path).map(Self).map_err(|error| in_words(&error))
    }

    /// Checks the `text` of an experiment. `name` is its id, as the name of its file would be.
    pub fn parse(name: &str, text: &str, quick: bool) -> Result<Self, String> {
        let path = PathBuf::from(format!("{name}.toml"));
        Experiment::from_text(&path, text.to_owned(), quick).map(Self).map_err(|error| in_words(&error))
    }

    /// Reads the experiment of a published figure.
    pub fn figure(id: &str, quick: bool) -> Result<Self, String> {
        match crate::figures::text(id) {
            Some(text) => {
                let path = Path::new("experiments").join(format!("{id}.toml"));
                Experiment::from_text(&path, text.to_owned(), quick)
                    .map(Self)
                    .map_err(|error| in_words(&error))
            }
            None => Err(format!("there is no figure {id} that can be run: posse.figures() lists them")),
        }
    }

    /// Replaces the seeds: every setting runs with `first`, `first + 1`, and so on, `count` of them, at least one.
    pub fn set_seeds(&mut self, first: Option<u64>, count: u64) -> Result<(), String> {
        self.0.set_seeds(first, count)
    }

    /// How many cells there are: runs of one setting with one seed.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.0.cells().len()
    }

    /// Runs all cells on threads of its own and returns when they have finished, or soon after `stop` is raised.
    /// `progress` is kept up to date.
    pub fn run(
        self,
        options: PlanOptions,
        stop: &AtomicBool,
        progress: &Arc<Progress>,
    ) -> Result<Outcome, String> {
        let Self(experiment) = self;
        let shard = options.shard.as_deref().map(str::parse).transpose()?;
        let options = Options::embedded(options.out, options.force, options.jobs, shard);
        let count = |left: &[&Cell], all: usize| progress::Progress::counted(left, all, Arc::clone(progress));
        let Played { cells, outcomes, results } =
            play(&experiment, &options, stop, &count).map_err(|error| in_words(&error))?;
        let made = Made { manifest: Manifest::new(&experiment, None), experiment, cells, outcomes };
        if let Some(mut results) = results
            && made.outcomes.iter().all(Option::is_some)
        {
            let material = Material::new(&made);
            let verdicts = material.verdicts.as_deref().unwrap_or_default();
            results
                .finish(&made.experiment, &material.rows, verdicts, false)
                .map_err(|error| in_words(&error))?;
        }
        Ok(Outcome(made))
    }
}

/// The results of an experiment, all or as far as it came.
#[derive(Debug)]
pub struct Outcome(Made);

/// A table of results: named columns of equal length.
pub type Table = Vec<(String, Values)>;

/// A cell that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The cell: its setting and seed.
    pub cell: String,
    /// The reason why it failed.
    pub error: String,
}

impl Outcome {
    /// Reads the results that a run left in `directory`.
    pub fn read(directory: &Path) -> Result<Self, String> {
        Made::read(directory).map(Self).map_err(|error| in_words(&error))
    }

    /// The id of the experiment: the name of its file.
    #[must_use]
    pub fn experiment(&self) -> &str {
        &self.0.experiment.id
    }

    /// How many cells have run, and how many there are.
    #[must_use]
    pub fn finished(&self) -> (usize, usize) {
        (self.0.outcomes.iter().flatten().count(), self.0.cells.len())
    }

    /// The four tables that the command writes as Parquet, under the names of their files.
    #[must_use]
    pub fn tables(&self) -> Vec<(&'static str, Table)> {
        let rows: Vec<Row<'_>> = Material::new(&self.0).rows;
        tables(&self.0.experiment, &rows)
    }

    /// The cells that failed.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        let own = |(cell, error): &(&str, &str)| Failure { cell: (*cell).into(), error: (*error).into() };
        Material::new(&self.0).failures.iter().map(own).collect()
    }

    /// What became of the experiment's checks: the claim in words, and `PASS`, `FAIL`, `DEVIATES` or `INCONCLUSIVE`.
    /// Empty if cells are missing.
    #[must_use]
    pub fn checks(&self) -> Vec<(String, &'static str)> {
        let word = |verdict: Verdict| (verdict.says, verdict.result.word());
        Material::new(&self.0).verdicts.unwrap_or_default().into_iter().map(word).collect()
    }

    /// The table and the checks as `posse run` prints them.
    #[must_use]
    pub fn text(&self) -> String {
        let material = Material::new(&self.0);
        show(&self.0.experiment, &material.rows, material.verdicts.as_deref().unwrap_or_default())
    }

    /// The page that `posse report` writes.
    #[must_use]
    pub fn html(&self) -> String {
        report::html(&Material::new(&self.0))
    }
}

/// Published figures: id, paper, what it shows, and whether it can be run here.
#[must_use]
pub fn figures() -> Vec<(String, &'static str, String, &'static str)> {
    let all = crate::figures::all().into_iter();
    all.map(|figure| (figure.id, figure.paper, figure.shows, figure.status.words())).collect()
}
