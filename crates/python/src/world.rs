//! The class `SimulatedWorld`: one of posse's worlds, asked step by step.

use std::sync::{Mutex, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use posse_cli::embed;
use posse_core::{AgentId, Seed, UserId};
use posse_sim::world::{Offer, World};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;

use crate::array::number;
use crate::error::{config, wrong_input};
use crate::own::{free, free_to_use};
use crate::settings::{self, Whole};

/// A world of the simulator, asked step by step.
///
/// Parameters
/// ----------
/// kind : str or type of World
///     The kind of world, as ``environment`` of an experiment names it, or a class of your own.
/// agents : int, optional
///     How many agents there are.
/// seed : int, optional
///     Everything is drawn from it: the same seed gives the same offers, in whatever order they are asked for.
/// **settings
///     Settings of the world under their documented names.
///
/// Examples
/// --------
/// >>> import posse
/// >>> world = posse.SimulatedWorld("linear", dimension=3, arms=4, seed=7)
/// >>> arms, means, rewards, user = world.offer(0)
/// >>> arms.shape, means.shape, rewards.shape
/// ((4, 3), (4,), (4,))
#[pyclass(frozen, module = "posse")]
pub(crate) struct SimulatedWorld {
    kind: String,
    agents: u64,
    dimension: usize,
    length: Option<u64>,
    world: Mutex<(Box<dyn World>, Offer)>,
}

/// The arms, their means, their rewards, and the user of an offer.
type Offered<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, u64);

#[pymethods]
impl SimulatedWorld {
    #[new]
    #[pyo3(signature = (kind = None, *, agents = Whole::of(1), seed = Whole::of(0), **settings),
        text_signature = "(kind=None, *, agents=1, seed=0, **settings)")]
    fn new(
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        agents: Whole,
        seed: Whole,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (agents, seed) = (agents.number("agents")?, seed.number("seed")?);
        let mut table = settings.map_or_else(|| Ok(toml::Table::new()), settings::table)?;
        let name = match kind {
            Some(kind) => py.import("posse._own")?.getattr("name_of")?.call1((kind,))?.extract()?,
            None => "linear".to_owned(),
        };
        table.insert("kind".into(), name.clone().into());
        let built = free(py, || embed::world(&table, agents).map(|world| world.build(agents, Seed(seed))))?;
        let world = built.map_err(config)?.map_err(|error| config(error.to_string()))?;
        let (dimension, length) = (world.shape(AgentId(0)).dimension(), world.length());
        Ok(Self { kind: name, agents, dimension, length, world: Mutex::new((world, Offer::new())) })
    }

    /// The kind of world.
    #[getter]
    fn kind(&self) -> &str {
        &self.kind
    }

    /// How many agents there are.
    #[getter]
    const fn agents(&self) -> u64 {
        self.agents
    }

    /// How many features an arm of agent 0 has.
    #[getter]
    const fn dimension(&self) -> usize {
        self.dimension
    }

    /// How many interactions there are, or None if there is no end to them.
    #[getter]
    const fn length(&self) -> Option<u64> {
        self.length
    }

    /// What an agent is offered at an interaction.
    ///
    /// Parameters
    /// ----------
    /// step : int
    ///     The number of the interaction over all agents, from 0.
    /// agent : int, optional
    ///     The agent that chooses. Recorded worlds decide themselves whose turn it is.
    ///
    /// Returns
    /// -------
    /// tuple
    ///     The features of the arms, shape (n_arms, dimension); the expected reward of each; the reward that each would pay
    ///     this time; and the number of the user that the choice is for.
    #[pyo3(signature = (step, agent = 0))]
    fn offer<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] step: u64,
        #[pyo3(from_py_with = number)] agent: u64,
    ) -> PyResult<Offered<'py>> {
        if agent >= self.agents {
            return Err(wrong_input(format!(
                "there is no agent {agent}: this world has {} agents, from 0 on",
                self.agents
            )));
        }
        if let Some(length) = self.length.filter(|length| step >= *length) {
            return Err(wrong_input(format!("there is no interaction {step}: {length} are recorded")));
        }
        free_to_use(&self.world)?;
        let mut world = self.world.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let (world, offer) = &mut *world;
        free(py, || {
            offer.agent = world.turn(step).unwrap_or(AgentId(agent));
            offer.user = UserId(offer.agent.0);
            world.offer(step, offer);
        })?;
        let (count, dimension) = (offer.arms.len(), offer.arms.dimension());
        let mut features = Vec::with_capacity(count * dimension);
        (0..count).for_each(|arm| features.extend_from_slice(offer.arms.row(arm)));
        let arms = PyArray1::from_vec(py, features).reshape([count, dimension])?;
        let rewards: Vec<f64> = (0..count).map(|arm| offer.reward(arm)).collect();
        Ok((arms, offer.means.clone().into_pyarray(py), rewards.into_pyarray(py), offer.user.0))
    }

    fn __repr__(&self) -> String {
        format!("<posse.SimulatedWorld {} of {} features>", self.kind, self.dimension)
    }
}
