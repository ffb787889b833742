//! The class `Coordinator`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posse_core::wire::{decode_uplink, encode_downlink};
use posse_core::{AgentId, Downlink, Entrance};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use crate::array::number;
use crate::error::{decode, protocol, wrong_input};
use crate::federation::{seconds, ticks};
use crate::machine::Desk;
use crate::own::{free, free_to_use, held};

/// Where the evidence of all agents comes together.
///
/// ``Federation.coordinator`` is the one of that federation. A program with a transport of its own tells it who joins and
/// leaves, brings it every message once and in order, and delivers what it returns: pairs of an agent's number and a message.
/// Times are seconds since any fixed moment and never go back; a call without one happens at the time of the call before.
#[pyclass(frozen, module = "posse", name = "FederationCoordinator")]
pub(crate) struct Coordinator {
    desk: Arc<Mutex<Desk>>,
}

/// Messages with the numbers of the agents that they go to.
type Letters<'py> = Vec<(u64, Bound<'py, PyBytes>)>;

impl Coordinator {
    pub(crate) const fn new(desk: Arc<Mutex<Desk>>) -> Self {
        Self { desk }
    }

    /// Moves the coordinator's time on to `now`, if it is given.
    pub(crate) fn pass(&self, py: Python<'_>, now: Option<f64>) -> PyResult<()> {
        pass(&mut *self.desk(py)?, now)
    }

    fn desk(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Desk>> {
        free_to_use(&self.desk)?;
        Ok(self.desk.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sets the time of the coordinator, if one is given.
fn pass(desk: &mut Desk, now: Option<f64>) -> PyResult<()> {
    if let Some(now) = now.map(ticks).transpose()? {
        if now < desk.now {
            let (now, before) = (seconds(now), seconds(desk.now));
            return Err(wrong_input(format!(
                "`now` is {now}, and was {before} before: time never goes back"
            )));
        }
        desk.now = now;
    }
    Ok(())
}

fn encoded<'py>(py: Python<'py>, letters: Vec<(u64, Downlink)>) -> Letters<'py> {
    letters.into_iter().map(|(to, message)| (to, PyBytes::new(py, &encode_downlink(&message)))).collect()
}

fn check(desk: &Desk, agent: u64) -> PyResult<AgentId> {
    if agent < desk.agents {
        return Ok(AgentId(agent));
    }
    Err(wrong_input(format!(
        "there is no agent {agent}: this federation has {} agents, from 0 on",
        desk.agents
    )))
}

#[pymethods]
impl Coordinator {
    /// How many times what the coordinator shares has changed.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<u64> {
        let desk = self.desk(py)?;
        held(|| desk.coordinator.inspect().version.0)
    }

    /// How many observations the shared state is over.
    #[getter]
    fn observations(&self, py: Python<'_>) -> PyResult<u64> {
        let desk = self.desk(py)?;
        held(|| desk.coordinator.inspect().observations)
    }

    /// How many agents have joined.
    #[getter]
    fn agents(&self, py: Python<'_>) -> PyResult<usize> {
        let desk = self.desk(py)?;
        held(|| desk.coordinator.inspect().agents)
    }

    /// The time in seconds at which ``tick`` has something to do, or None.
    #[getter]
    fn deadline(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let desk = self.desk(py)?;
        held(|| desk.coordinator.deadline().map(seconds))
    }

    /// Take note that an agent joins.
    ///
    /// Parameters
    /// ----------
    /// agent : int
    ///     The number of the agent.
    /// returning : bool, optional
    ///     Whether it comes back with its state to a coordinator that lost part of its history.
    /// now : float, optional
    ///     The time in seconds.
    ///
    /// Returns
    /// -------
    /// list of tuple of int and bytes
    ///     What to deliver, and to whom.
    #[pyo3(signature = (agent, returning = false, now = None))]
    fn join<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] agent: u64,
        returning: bool,
        now: Option<f64>,
    ) -> PyResult<Letters<'py>> {
        let mut desk = self.desk(py)?;
        let agent = check(&desk, agent)?;
        pass(&mut desk, now)?;
        let entrance = if returning { Entrance::Returning } else { Entrance::NewLife };
        let now = desk.now;
        let letters = held(|| {
            let outgoing = desk.coordinator.join(now, agent, entrance);
            desk.addressed(outgoing)
        })?;
        Ok(encoded(py, letters))
    }

    /// Take note that an agent leaves for good.
    #[pyo3(signature = (agent, now = None))]
    fn leave<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] agent: u64,
        now: Option<f64>,
    ) -> PyResult<Letters<'py>> {
        let mut desk = self.desk(py)?;
        let agent = check(&desk, agent)?;
        pass(&mut desk, now)?;
        let now = desk.now;
        let letters = held(|| {
            let outgoing = desk.coordinator.leave(now, agent);
            desk.addressed(outgoing)
        })?;
        Ok(encoded(py, letters))
    }

    /// Take in a message of an agent.
    ///
    /// Parameters
    /// ----------
    /// agent : int
    ///     The number of the agent that said it.
    /// message : bytes
    ///     What its ``Agent.take_uplink`` returned.
    /// now : float, optional
    ///     The time in seconds.
    ///
    /// Returns
    /// -------
    /// list of tuple of int and bytes
    ///     What to deliver, and to whom.
    #[pyo3(signature = (agent, message, now = None))]
    fn receive<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] agent: u64,
        message: &[u8],
        now: Option<f64>,
    ) -> PyResult<Letters<'py>> {
        let message = decode_uplink(message).map_err(|error| decode(&error))?;
        let mut desk = self.desk(py)?;
        let agent = check(&desk, agent)?;
        pass(&mut desk, now)?;
        let desk = &mut *desk;
        let letters = free(py, || {
            let now = desk.now;
            let outgoing = desk.coordinator.receive(now, agent, message)?;
            Ok(desk.addressed(outgoing))
        })?;
        letters.map(|letters| encoded(py, letters)).map_err(|error| protocol(&error))
    }

    /// Do what is due, for example close a round whose deadline has passed.
    #[pyo3(signature = (now = None))]
    fn tick<'py>(&self, py: Python<'py>, now: Option<f64>) -> PyResult<Letters<'py>> {
        let mut desk = self.desk(py)?;
        pass(&mut desk, now)?;
        let now = desk.now;
        let letters = held(|| {
            let outgoing = desk.coordinator.tick(now);
            desk.addressed(outgoing)
        })?;
        Ok(encoded(py, letters))
    }

    /// Encode everything that a restored coordinator needs to go on with the same bits.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let desk = self.desk(py)?;
        let state = held(|| desk.coordinator.save())?;
        Ok(PyBytes::new(py, &state))
    }

    /// Go on from a state that a coordinator of the same settings saved.
    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        let mut desk = self.desk(py)?;
        held(|| desk.coordinator.restore(state))?.map_err(|error| decode(&error))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let desk = self.desk(py)?;
        held(|| {
            let view = desk.coordinator.inspect();
            let (agents, observations) = (view.agents, view.observations);
            format!("<posse.FederationCoordinator of {agents} agents, {observations} observations>")
        })
    }
}
