//! The programs that the papers' authors published, run beside ours where there are clones of their repositories.

mod program;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Suite;

pub(super) use program::Program;
pub use program::Repository;

/// The functions of each repository, and what calls them.
const DRIVER: &str = concat!(
    include_str!("linear.py"),
    include_str!("clicks.py"),
    include_str!("clustered.py"),
    include_str!("program.py")
);

/// Clones of authors' repositories in one directory, and a Python that can import what they hold.
#[derive(Debug)]
pub struct Published {
    python: OsString,
    clones: Vec<(Repository, PathBuf)>,
    versions: Versions,
}

/// What runs the programs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Versions {
    /// The version of Python, for example `3.13.1`.
    pub python: String,
    /// The version of numpy, for example `2.4.6`.
    pub numpy: String,
}

/// One run of a published program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedRun {
    /// How many interactions it had.
    pub interactions: u64,
    /// Microseconds of processor time for each, everything included that the program does.
    pub micros: f64,
    /// What of that is choosing and learning; the rest is the world and what the program writes down. With clustered users,
    /// whose records are in what agents copy, the world alone is left out.
    pub algorithm_micros: f64,
    /// That time divided by the whole of ours, world included.
    pub algorithm_ratio: f64,
    /// Its regret, in a world drawn as ours is but with other numbers.
    pub regret: f64,
    /// How many messages it counted, in both directions. `None` if it counts scalars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// How many scalars it counted, in both directions. `None` if it counts messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scalars: Option<u64>,
}

/// The sizes of a simulation, which are the same on both sides.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Size {
    pub(super) agents: u64,
    /// Whom the agents serve; as many as agents where users are no entities of their own.
    pub(super) users: u64,
    /// How many kinds of users there are.
    pub(super) clusters: u64,
    pub(super) arms: usize,
    pub(super) features: usize,
    /// How many features have the same parameters for all agents.
    pub(super) shared: usize,
    pub(super) interactions: u64,
}

/// What the driver says of a run.
#[derive(Debug, Deserialize)]
struct Answer {
    seconds: f64,
    algorithm_seconds: f64,
    interactions: u64,
    regret: f64,
    communication: u64,
}

impl Published {
    /// Looks in `directory` for the repositories that the suites compare with, and imports their scripts once with the Python
    /// that the variable `PYTHON` names, otherwise `python3`.
    ///
    /// # Errors
    /// If none of them is there, or if one cannot be imported.
    pub fn open(directory: &Path, suites: &[Suite]) -> anyhow::Result<Self> {
        Self::with(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()), directory, suites)
    }

    fn with(python: OsString, directory: &Path, suites: &[Suite]) -> anyhow::Result<Self> {
        let known = || Repository::ALL.into_iter().filter(|repository| suites.contains(&repository.suite()));
        let names = || known().map(|repository| repository.url()).collect::<Vec<_>>().join(" or ");
        // The programs run in a directory of their own, so a relative path would mean another place there.
        let directory = directory.canonicalize().with_context(|| {
            let path = directory.display();
            format!("--published: cannot find {path}; it is a directory into which {} was cloned", names())
        })?;
        let clones: Vec<_> = known()
            .map(|repository| (repository, directory.join(repository.name())))
            .filter(|(_, clone)| clone.is_dir())
            .collect();
        let path = directory.display();
        ensure!(!clones.is_empty(), "--published: nothing to run in {path}; clone {} into it", names());
        let versions = Versions { python: String::new(), numpy: String::new() };
        let mut published = Self { python, clones, versions };
        for (repository, clone) in &published.clones {
            for script in repository.scripts() {
                let file = format!("{script}.py");
                let (path, url) = (clone.display(), repository.url());
                ensure!(clone.join(&file).is_file(), "--published: {path} has no {file}; clone {url} anew");
            }
            published.versions = published.ask(clone, json!({ "scripts": repository.scripts() }))?;
        }
        Ok(published)
    }

    /// The versions of what runs the programs.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Whether the clone that has this program is there.
    pub(super) fn has(&self, program: &Program) -> bool {
        self.clone_of(program).is_some()
    }

    /// Runs a program once; its clone must be there. `posse_micros` is what an interaction takes with us.
    pub(super) fn run(
        &self,
        program: &Program,
        size: &Size,
        posse_micros: f64,
    ) -> anyhow::Result<PublishedRun> {
        let clone = self.clone_of(program).context("there is no clone with this program")?;
        let mut row = serde_json::to_value(size)?;
        row["repository"] = program.repository.name().into();
        row["scripts"] = program.repository.scripts().into();
        row["script"] = program.script().into();
        row["algorithm"] = program.algorithm.into();
        // As text, because JSON has no infinity.
        row["setting"] = program.setting.to_string().into();
        let answer: Answer = self.ask(clone, row)?;
        let Answer { seconds, algorithm_seconds, interactions, regret, communication } = answer;
        let (algorithm, path) = (program.algorithm, clone.display());
        ensure!(
            interactions == size.interactions,
            "{algorithm} of {path} had {interactions} interactions instead of {}",
            size.interactions
        );
        ensure!(
            seconds > 0.0 && (0.0..=seconds).contains(&algorithm_seconds) && regret.is_finite(),
            "{algorithm} of {path} took {seconds} s, {algorithm_seconds} s of it for the algorithm, with a regret of {regret}: \
             that cannot be"
        );
        let micros = |seconds: f64| seconds * 1e6 / interactions as f64;
        let algorithm_micros = micros(algorithm_seconds);
        let counts_scalars = program.repository == Repository::FedGlbUcb;
        Ok(PublishedRun {
            interactions,
            micros: micros(seconds),
            algorithm_micros,
            algorithm_ratio: algorithm_micros / posse_micros,
            regret,
            messages: (!counts_scalars).then_some(communication),
            scalars: counts_scalars.then_some(communication),
        })
    }

    fn clone_of(&self, program: &Program) -> Option<&Path> {
        let own = self.clones.iter().find(|(repository, _)| *repository == program.repository);
        own.map(|(_, clone)| clone.as_path())
    }

    /// Starts the driver with a row and reads its answer.
    fn ask<A: DeserializeOwned>(&self, clone: &Path, mut row: Value) -> anyhow::Result<A> {
        let what = match row["algorithm"].as_str() {
            Some(algorithm) => format!("{algorithm} of {}", clone.display()),
            None => clone.display().to_string(),
        };
        let python = self.python.display();
        let path = clone.to_str().with_context(|| format!("the path {what} is not Unicode; move it"))?;
        row["clone"] = path.into();
        // -B: no compiled files in the clone.
        let output = Command::new(&self.python)
            .args(["-B", "-c", DRIVER, &row.to_string()])
            .stdin(Stdio::null())
            .output()
            .with_context(|| {
                format!(
                    "--published: cannot start {python}; name a Python 3 with numpy in the variable PYTHON"
                )
            })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let reason =
                said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no reason given");
            let remedy = if reason.starts_with("ModuleNotFoundError") {
                "; install it for this Python, or name another in the variable PYTHON"
            } else {
                ""
            };
            bail!("--published: {python} cannot run {what} ({}): {reason}{remedy}", output.status);
        }
        serde_json::from_slice(&output.stdout).with_context(|| {
            let said = String::from_utf8_lossy(&output.stdout);
            format!("--published: the answer of {what} is not what was asked for: `{}`", said.trim_end())
        })
    }
}
