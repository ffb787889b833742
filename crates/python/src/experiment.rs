//! Experiments: read here, run on threads of their own, watched and stopped from Python.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posse_cli::embed::{self, Outcome, Plan, PlanOptions, Progress};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;

use crate::error::{config, experiment};
use crate::own::free;
use crate::settings::{self, Whole};
use crate::table::RawTable;

/// An experiment that is about to run, runs, or has run.
#[pyclass(frozen, module = "posse._posse")]
pub(crate) struct Running {
    state: Mutex<State>,
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
}

enum State {
    Planned(Box<Plan>),
    Started(Receiver<Result<Outcome, String>>),
    Ended(Arc<Outcome>),
    /// It could not run, or another thread is just changing it.
    Gone,
}

/// Read an experiment: from the file `path`, from the dictionary `settings`, or that of the published figure `figure`.
#[pyfunction]
#[pyo3(signature = (*, path = None, settings = None, figure = None, name = "experiment", quick = false, seed = None, repetitions = None))]
#[allow(clippy::too_many_arguments, reason = "only the Python package calls it, with names")]
pub(crate) fn plan(
    py: Python<'_>,
    path: Option<PathBuf>,
    settings: Option<&Bound<'_, PyDict>>,
    figure: Option<&str>,
    name: &str,
    quick: bool,
    seed: Option<Whole>,
    repetitions: Option<Whole>,
) -> PyResult<Running> {
    let text = settings.map(settings::table).transpose()?.map(|table| toml::to_string(&table));
    let text = text.transpose().map_err(|error| config(error.to_string()))?;
    // Reading builds worlds, and own ones are built by Python.
    let read = free(py, || match (path, text, figure) {
        (Some(path), None, None) => Plan::read(&path, quick),
        (None, None, Some(figure)) => Plan::figure(figure, quick),
        (None, Some(text), None) => Plan::parse(name, &text, quick),
        _ => Err("an experiment comes from one of a file, a dictionary and a figure".into()),
    })?;
    let mut plan = read.map_err(config)?;
    if let Some(repetitions) = repetitions {
        let seed = seed.map(|seed| seed.number("seeds")).transpose()?;
        plan.set_seeds(seed, repetitions.number("seeds")?).map_err(config)?;
    }
    Ok(Running::new(State::Planned(Box::new(plan))))
}

/// Read the results that a run left in a directory.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments from Python are made for the call")]
pub(crate) fn load(py: Python<'_>, directory: PathBuf) -> PyResult<Running> {
    let outcome = free(py, || Outcome::read(&directory))?.map_err(experiment)?;
    Ok(Running::new(State::Ended(Arc::new(outcome))))
}

/// Settings of an algorithm: name, default and meaning of each.
type Settings = Vec<(String, String, String)>;

/// Every algorithm: name, summary, and settings with name, default and meaning.
#[pyfunction]
pub(crate) fn algorithms() -> Vec<(&'static str, &'static str, Settings)> {
    embed::algorithms().into_iter().map(|listed| (listed.name, listed.summary, listed.settings)).collect()
}

/// Run one of the commands data, evaluate and merge, and return what it prints.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments from Python are made for the call")]
pub(crate) fn command(py: Python<'_>, arguments: Vec<String>) -> PyResult<String> {
    free(py, || embed::command(&arguments))?.map_err(experiment)
}

/// Published figures: id, paper, what it shows, and whether it can be run here.
#[pyfunction]
pub(crate) fn figures() -> Vec<(String, &'static str, String, &'static str)> {
    embed::figures()
}

impl Running {
    fn new(state: State) -> Self {
        Self { state: Mutex::new(state), stop: Arc::default(), progress: Arc::default() }
    }

    fn outcome(&self, py: Python<'_>) -> PyResult<Arc<Outcome>> {
        match &*self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner) {
            State::Ended(outcome) => Ok(Arc::clone(outcome)),
            _ => Err(experiment("the experiment has no results yet")),
        }
    }
}

#[pymethods]
impl Running {
    /// Start all cells on other threads. Returns at once.
    #[pyo3(signature = (out = None, force = false, jobs = None, shard = None))]
    fn start(
        &self,
        py: Python<'_>,
        out: Option<PathBuf>,
        force: bool,
        jobs: Option<u16>,
        shard: Option<String>,
    ) -> PyResult<()> {
        let mut state = self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let State::Planned(plan) = std::mem::replace(&mut *state, State::Gone) else {
            return Err(experiment("the experiment was started before"));
        };
        let (sender, receiver) = channel();
        let (stop, progress) = (Arc::clone(&self.stop), Arc::clone(&self.progress));
        let options = PlanOptions { out, force, jobs, shard };
        std::thread::Builder::new()
            .name("posse-experiment".into())
            .spawn(move || {
                // If nobody waits for the result any more, it is not needed.
                let _ = sender.send(plan.run(options, &stop, &progress));
            })
            .map_err(|error| experiment(format!("cannot start a thread: {error}")))?;
        *state = State::Started(receiver);
        Ok(())
    }

    /// Wait at most `seconds` for the end. Returns whether it has come; raises if the experiment could not run.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let mut state = self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let received = match &mut *state {
            State::Ended(_) => return Ok(true),
            State::Started(receiver) => {
                let receiver = &mut *receiver;
                let timeout = Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
                py.detach(move || receiver.recv_timeout(timeout))
            }
            _ => return Err(experiment("the experiment was not started")),
        };
        match received {
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => {
                *state = State::Gone;
                Err(experiment("a bug in posse: the experiment ended without a result"))
            }
            Ok(Err(error)) => {
                *state = State::Gone;
                Err(experiment(error))
            }
            Ok(Ok(outcome)) => {
                *state = State::Ended(Arc::new(outcome));
                Ok(true)
            }
        }
    }

    /// Ask the cells that are running to end soon. Finished cells are kept.
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Cells that have finished, all cells, and the share of this run's work that is done.
    fn progress(&self) -> (u64, u64, f64) {
        let Progress { cells, finished, .. } = &*self.progress;
        (finished.load(Ordering::Relaxed), cells.load(Ordering::Relaxed), self.progress.share())
    }

    /// How many cells there are, of an experiment that was not started.
    fn cells(&self, py: Python<'_>) -> PyResult<usize> {
        match &*self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner) {
            State::Planned(plan) => Ok(plan.cells()),
            _ => Err(experiment("the experiment was started before")),
        }
    }

    #[getter]
    fn experiment(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.outcome(py)?.experiment().to_owned())
    }

    /// Cells that have run, and all cells.
    fn finished(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        Ok(self.outcome(py)?.finished())
    }

    /// The tables of results by name.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, RawTable)>> {
        let outcome = self.outcome(py)?;
        let tables = py.detach(move || {
            let tables = outcome.tables().into_iter();
            tables
                .map(|(name, columns)| Ok((name, RawTable::new(columns)?)))
                .collect::<Result<Vec<_>, String>>()
        });
        tables.map_err(experiment)
    }

    /// The cells that failed, with the reason.
    fn failures(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let failures = self.outcome(py)?.failures().into_iter();
        Ok(failures.map(|failure| (failure.cell, failure.error)).collect())
    }

    /// Every check in words, with its verdict.
    fn checks(&self, py: Python<'_>) -> PyResult<Vec<(String, &'static str)>> {
        Ok(self.outcome(py)?.checks())
    }

    /// The table and the checks as the command prints them.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        let outcome = self.outcome(py)?;
        Ok(py.detach(move || outcome.text()))
    }

    /// The report as one HTML page.
    fn html(&self, py: Python<'_>) -> PyResult<String> {
        let outcome = self.outcome(py)?;
        Ok(py.detach(move || outcome.html()))
    }
}
