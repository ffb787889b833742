//! The class `Federation`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use numpy::{IntoPyArray, PyArray1};
use posse_cli::embed;
use posse_core::wire::{MAX_DIMENSION, decode_uplink, encode_uplink};
use posse_core::{Federation as Members, Seed, Shape, Tick};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict};

use crate::agent::{Agent, replayed};
use crate::array::{number, numbers};
use crate::coordinator::Coordinator;
use crate::error::{config, decode, input, protocol, wrong_input, wrong_interaction};
use crate::machine::{Desk, Host, OpenError, SharedMachine, Spec, Trouble, lock};
use crate::own::{free, free_to_use, held};
use crate::settings::{self, Whole};

/// Agents and a coordinator of one algorithm.
///
/// Parameters
/// ----------
/// algorithm : str or type of Agent
///     The name of the algorithm, or a class of your own; ``posse.algorithms()`` lists the names with their settings.
/// dimension : int
///     How many features an arm has that mean the same to all agents.
/// agents : int, optional
///     How many agents there are.
/// seed : int, optional
///     All random choices are drawn from it: the same seed and the same calls give the same bits.
/// horizon : int, optional
///     How many interactions are expected in all; some confidence widths grow with its logarithm.
/// local : int, optional
///     How many features an arm has, after the others, whose parameters are each agent's own.
/// **settings
///     Settings of the algorithm under their documented names.
///
/// Examples
/// --------
/// >>> import numpy as np, posse
/// >>> federation = posse.Federation("async-lin-ucb", dimension=2, agents=2, seed=7)
/// >>> arms = np.array([[1.0, 0.0], [0.6, 0.8]])
/// >>> for step in range(100):
/// ...     agent = federation.agent(step % 2)
/// ...     arm = agent.choose(arms)
/// ...     agent.learn(arm, [0.2, 0.7][arm])
/// ...     _ = federation.exchange()
/// >>> agent.choose(arms)
/// 1
#[pyclass(frozen, module = "posse")]
pub(crate) struct Federation {
    spec: Arc<Spec>,
    host: Mutex<Host>,
    desk: Arc<Mutex<Desk>>,
}

/// The most agents, as in experiments.
const MOST_AGENTS: u64 = 10_000_000;

/// Seconds as ticks, which are microseconds.
pub(crate) fn ticks(seconds: f64) -> PyResult<Tick> {
    if seconds.is_finite() && (0.0..1e13).contains(&seconds) {
        return Ok(Tick((seconds * 1e6).round() as u64));
    }
    Err(wrong_input(format!("`now` is {seconds}: it must be a time in seconds, zero or more")))
}

/// The time of the machines, which is in microseconds, as seconds.
pub(crate) fn seconds(ticks: Tick) -> f64 {
    ticks.0 as f64 / 1e6
}

pub(crate) fn trouble(trouble: &Trouble) -> PyErr {
    match trouble {
        Trouble::Input(error) => input(error),
        Trouble::Protocol(error) => protocol(error),
        Trouble::Endless => PyRuntimeError::new_err("messages answer messages without end"),
    }
}

/// The numbers that a federation is pickled with: dimension, local, agents, seed, horizon.
type Sizes = (usize, usize, u64, u64, u64);
/// An agent in a pickle: its number, state and waiting messages.
type Pickled<'py> = (u64, Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>);

impl Federation {
    fn build(table: &toml::Table, sizes: Sizes) -> PyResult<Self> {
        let (shared, local, agents, seed, horizon) = sizes;
        if agents == 0 {
            return Err(config("`agents` is 0: a federation needs at least one"));
        }
        if agents > MOST_AGENTS {
            return Err(config(format!("`agents` is {agents}: it must be at most {MOST_AGENTS}")));
        }
        let features = shared.saturating_add(local);
        if features > MAX_DIMENSION {
            return Err(config(format!(
                "`dimension` is {features}: posse's messages and states hold at most {MAX_DIMENSION} features"
            )));
        }
        let shape = Shape { shared, local };
        let algorithm = embed::algorithm(table, shape).map_err(config)?;
        if local > 0 && !algorithm.takes_local_features() {
            return Err(config(format!(
                "`local` is {local}: {} has no features of its agents' own",
                algorithm.name()
            )));
        }
        let settings = toml::to_string(table).map_err(|error| config(error.to_string()))?;
        let federation = Members { agents, horizon, seed: Seed(seed) };
        Self::from_spec(Arc::new(Spec { algorithm, settings, shape, federation }))
    }

    fn from_spec(spec: Arc<Spec>) -> PyResult<Self> {
        let desk = Desk::new(&spec).map_err(|error| config(error.to_string()))?;
        let host = Host { agents: BTreeMap::new(), joined: BTreeSet::new() };
        Ok(Self { spec, host: Mutex::new(host), desk: Arc::new(Mutex::new(desk)) })
    }

    /// A federation with the settings of `spec` and none of its history.
    pub(crate) fn plain(spec: &Arc<Spec>) -> PyResult<Self> {
        held(|| Self::from_spec(Arc::clone(spec)))?
    }

    fn host(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Host>> {
        free_to_use(&self.host)?;
        Ok(self.host.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
    }

    fn sizes(&self) -> Sizes {
        let (shape, members) = (self.spec.shape, self.spec.federation);
        (shape.shared, shape.local, members.agents, members.seed.0, members.horizon)
    }
}

#[pymethods]
impl Federation {
    #[new]
    #[pyo3(signature = (algorithm, *, dimension, agents = Whole::of(1), seed = Whole::of(0), horizon = Whole::of(10_000),
        local = Whole::of(0), **settings),
        text_signature = "(algorithm, *, dimension, agents=1, seed=0, horizon=10000, local=0, **settings)")]
    #[allow(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn new(
        py: Python<'_>,
        algorithm: &Bound<'_, PyAny>,
        dimension: Whole,
        agents: Whole,
        seed: Whole,
        horizon: Whole,
        local: Whole,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (dimension, local) = (dimension.size("dimension")?, local.size("local")?);
        let (agents, seed) = (agents.number("agents")?, seed.number("seed")?);
        let horizon = horizon.number("horizon")?;
        let mut table = settings.map_or_else(|| Ok(toml::Table::new()), settings::table)?;
        // A class of agents stands for its name, and becomes known by it.
        let name = py.import("posse._own")?.getattr("name_of")?.call1((algorithm,))?;
        table.insert("name".into(), name.extract::<String>()?.into());
        let sizes = (dimension, local, agents, seed, horizon);
        free(py, || Self::build(&table, sizes))?
    }

    /// The name of the algorithm.
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.spec.algorithm.name()
    }

    /// How many features an arm has, shared and own together.
    #[getter]
    fn dimension(&self) -> usize {
        self.spec.shape.dimension()
    }

    /// How many agents there are.
    #[getter]
    fn agents(&self) -> u64 {
        self.spec.federation.agents
    }

    /// The seed that all random choices are drawn from.
    #[getter]
    fn seed(&self) -> u64 {
        self.spec.federation.seed.0
    }

    /// The coordinator of the federation.
    #[getter]
    fn coordinator(&self) -> Coordinator {
        Coordinator::new(Arc::clone(&self.desk))
    }

    /// The agent with this number, from 0 on.
    ///
    /// The same number gives the same agent. Algorithms with one learner for all, such as ``central-lin-ucb``, have one
    /// machine behind all their agents.
    pub(crate) fn agent(&self, py: Python<'_>, #[pyo3(from_py_with = number)] id: u64) -> PyResult<Agent> {
        let agents = self.spec.federation.agents;
        if id >= agents {
            return Err(wrong_input(format!(
                "there is no agent {id}: this federation has {agents} agents, from 0 on"
            )));
        }
        let mut host = self.host(py)?;
        let made = held(|| host.agent(&self.spec, self.spec.learner(id)))?;
        let machine = made.map_err(|error| config(error.to_string()))?;
        Ok(Agent::new(Arc::clone(&self.spec), machine, id))
    }

    /// Deliver everything that agents have said, and everything that is said because of it.
    ///
    /// Agents that are new join first. Programs that carry messages themselves do not call this.
    ///
    /// Parameters
    /// ----------
    /// now : float, optional
    ///     The time in seconds since any fixed moment. It never goes back; by default no time has passed.
    ///
    /// Returns
    /// -------
    /// tuple of int
    ///     How many messages went to the coordinator, and how many came from it.
    #[pyo3(signature = (now = None))]
    fn exchange(&self, py: Python<'_>, now: Option<f64>) -> PyResult<(u64, u64)> {
        self.coordinator().pass(py, now)?;
        let delivered = free(py, || lock(&self.host).exchange(&self.spec, &mut lock(&self.desk)))?;
        delivered.map(|delivered| (delivered.up, delivered.down)).map_err(|error| trouble(&error))
    }

    /// Play many interactions in one call, with every message delivered before the next, as in the papers' model.
    ///
    /// Parameters
    /// ----------
    /// offers : array_like, shape (n, n_arms, dimension)
    ///     The arms of each interaction.
    /// rewards : array_like, shape (n, n_arms)
    ///     What each arm would earn. Only the reward of the chosen arm is learned.
    /// agents : array_like of int, shape (n,), optional
    ///     The agent of each interaction. By default they take turns.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray of int64, shape (n,)
    ///     The index of the chosen arm of each interaction.
    ///
    /// Raises
    /// ------
    /// InputError
    ///     An argument is wrong. If it is the offer or the reward of one interaction, the text says which, and all interactions
    ///     before it have been played.
    #[pyo3(signature = (offers, rewards, agents = None))]
    fn replay<'py>(
        &self,
        py: Python<'py>,
        offers: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
        agents: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let (count, agents) = (self.spec.federation.agents, agents.map(numbers).transpose()?);
        if let Some(wrong) = agents.iter().flatten().find(|agent| **agent >= count) {
            return Err(wrong_input(format!(
                "there is no agent {wrong}: this federation has {count} agents, from 0 on"
            )));
        }
        let steps = offers.len()?;
        if let Some(agents) = agents.as_ref().filter(|agents| agents.len() != steps) {
            let given = agents.len();
            return Err(wrong_input(format!(
                "`agents` names {given} agents: expected one for each of {steps} offers"
            )));
        }
        let mut host = self.host(py)?;
        free_to_use(&self.desk)?;
        let mut desk = self.desk.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let (host, desk) = (&mut *host, &mut *desk);
        free(py, || host.open(&self.spec, desk))?.map_err(|error| match error {
            OpenError::Config(error) => config(error.to_string()),
            OpenError::Trouble(error) => trouble(&error),
        })?;
        let whose = |step: usize| agents.as_ref().map_or(step as u64 % count, |agents| agents[step]);
        let choices = replayed(py, self.dimension(), offers, rewards, |step, offer, rewards| {
            let id = whose(step);
            host.agent(&self.spec, self.spec.learner(id)).map_err(|error| config(error.to_string()))?;
            host.interact(&self.spec, desk, id, offer, rewards).map_err(|error| match error {
                Trouble::Input(error) => wrong_interaction(step, &error),
                other => trouble(&other),
            })
        })?;
        Ok(choices.into_pyarray(py))
    }

    fn __repr__(&self) -> String {
        let (algorithm, agents) = (self.spec.algorithm.name(), self.spec.federation.agents);
        format!("<posse.Federation of {agents} agents, {algorithm}, {} features>", self.dimension())
    }

    /// Pickles the federation with the states of all its members and the messages that wait in them.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, FederationParts<'py>)> {
        // States are gathered without the interpreter's lock, which the holder of an agent may be waiting for.
        let (members, joined, coordinator, now) = free(py, || {
            let (host, desk) = (lock(&self.host), lock(&self.desk));
            let member = |(id, machine): (&u64, &SharedMachine)| {
                let machine = lock(machine);
                (*id, machine.agent.save(), machine.outbox.iter().map(encode_uplink).collect::<Vec<_>>())
            };
            let members: Vec<(u64, Vec<u8>, Vec<Vec<u8>>)> = host.agents.iter().map(member).collect();
            let joined: Vec<u64> = host.joined.iter().copied().collect();
            (members, joined, desk.coordinator.save(), desk.now.0)
        })?;
        let bytes = |bytes: &Vec<u8>| PyBytes::new(py, bytes);
        let pickled =
            members.iter().map(|(id, state, outbox)| (*id, bytes(state), outbox.iter().map(bytes).collect()));
        let rebuild = py.get_type::<Self>().getattr("_rebuild")?;
        let parts =
            (self.spec.settings.clone(), self.sizes(), bytes(&coordinator), now, pickled.collect(), joined);
        Ok((rebuild, parts))
    }

    #[staticmethod]
    fn _rebuild(
        settings: &str,
        sizes: Sizes,
        coordinator: &[u8],
        now: u64,
        members: Vec<(u64, Vec<u8>, Vec<Vec<u8>>)>,
        joined: Vec<u64>,
    ) -> PyResult<Self> {
        let table = settings.parse::<toml::Table>().map_err(|error| config(error.to_string()))?;
        let federation = held(|| Self::build(&table, sizes))??;
        {
            let (mut host, mut desk) = (lock(&federation.host), lock(&federation.desk));
            held(|| desk.coordinator.restore(coordinator))?.map_err(|error| decode(&error))?;
            desk.now = Tick(now);
            host.joined = joined.into_iter().collect();
            for (id, state, outbox) in members {
                let made = held(|| host.agent(&federation.spec, id))?;
                let machine = made.map_err(|error| config(error.to_string()))?;
                let mut machine = lock(&machine);
                held(|| machine.agent.restore(&state))?.map_err(|error| decode(&error))?;
                for message in outbox {
                    machine.outbox.push_back(decode_uplink(&message).map_err(|error| decode(&error))?);
                }
            }
        }
        Ok(federation)
    }
}

/// What a federation is pickled as.
type FederationParts<'py> = (String, Sizes, Bound<'py, PyBytes>, u64, Vec<Pickled<'py>>, Vec<u64>);
