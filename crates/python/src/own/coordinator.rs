//! A coordinator whose class is written in Python.

use std::collections::BTreeMap;

use posse_core::{
    AgentId, AgentStanding, Coordinator, CoordinatorView, DecodeError, Downlink, Entrance, Outgoing,
    ProtocolError, Tick, Uplink, Version,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::failure::with;
use super::{bytes_for, message, no_state, refusal, state, wrong_return};
use crate::federation::{seconds, ticks};

pub(super) struct OwnCoordinator {
    name: &'static str,
    /// None for algorithms whose agents never speak.
    object: Option<Py<PyAny>>,
    /// How many messages each agent that has joined has sent in its life.
    joined: BTreeMap<AgentId, u64>,
}

impl OwnCoordinator {
    pub(super) const fn new(name: &'static str, object: Option<Py<PyAny>>) -> Self {
        Self { name, object, joined: BTreeMap::new() }
    }

    /// Calls a method that returns letters, if there is an object.
    fn call(
        &self,
        work: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<Vec<Outgoing>>,
    ) -> Vec<Outgoing> {
        self.object.as_ref().map_or_else(Vec::new, |object| with(object, work))
    }

    /// The letters that `method` returned.
    fn outgoing(&self, method: &str, letters: &Bound<'_, PyAny>) -> PyResult<Vec<Outgoing>> {
        const EXPECTED: &str = "pairs of an agent's number, or None for all, and a message";
        let mut all = Vec::new();
        if letters.is_none() {
            return Ok(all);
        }
        for letter in letters.try_iter().map_err(|_| wrong_return(method, letters, EXPECTED))? {
            let letter = letter?;
            let (to, said): (Option<u64>, Bound<'_, PyAny>) =
                letter.extract().map_err(|_| wrong_return(method, &letter, EXPECTED))?;
            if let Some(stranger) = to.filter(|to| !self.joined.contains_key(&AgentId(*to))) {
                let text = format!("{method} writes to agent {stranger}, which has not joined");
                return Err(PyValueError::new_err(text));
            }
            if let Some(message) = message(self.name, method, &said)?.map(Downlink::Extension) {
                all.push(to.map_or_else(
                    || Outgoing::to_everyone(message.clone()),
                    |to| Outgoing::to(AgentId(to), message.clone()),
                ));
            }
        }
        Ok(all)
    }

    /// What the object tells about itself: version, observations, information.
    fn told(&self) -> (Version, u64, f64) {
        let Some(object) = &self.object else { return (Version(0), 0, 0.0) };
        with(object, |_, object| {
            let told = object.call_method0("inspect")?;
            let said = told.cast::<PyDict>().map_err(|_| wrong_return("inspect", &told, "a dict"))?;
            let observations: u64 = super::told(said, "observations")?.unwrap_or(0);
            let version = super::told(said, "version")?.unwrap_or(0);
            let information: Option<f64> = super::told(said, "information")?;
            Ok((Version(version), observations, information.unwrap_or(observations as f64)))
        })
    }
}

impl Coordinator for OwnCoordinator {
    fn join(&mut self, now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        let returning = entrance == Entrance::Returning;
        let sent = self.joined.entry(agent).or_insert(0);
        if !returning {
            *sent = 0;
        }
        self.call(|_, object| {
            let letters = object.call_method1("join", (agent.0, returning, seconds(now)))?;
            self.outgoing("join", &letters)
        })
    }

    fn leave(&mut self, now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.joined.remove(&agent);
        self.call(|_, object| {
            let letters = object.call_method1("leave", (agent.0, seconds(now)))?;
            self.outgoing("leave", &letters)
        })
    }

    fn receive(
        &mut self,
        now: Tick,
        from: AgentId,
        received: Uplink,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        let extension = if let Uplink::Extension(extension) = &received { Some(extension) } else { None };
        let bytes = bytes_for(self.name, extension)?;
        if !self.joined.contains_key(&from) {
            return Err(ProtocolError::UnknownAgent(from));
        }
        let Some(object) = &self.object else {
            return Err(ProtocolError::Unexpected { algorithm: self.name, message: "any" });
        };
        let letters = with(object, |py, object| {
            match object.call_method1("receive", (from.0, PyBytes::new(py, bytes), seconds(now))) {
                Ok(letters) => Ok(Ok(self.outgoing("receive", &letters)?)),
                Err(error) => refusal(py, error).map(Err),
            }
        })?;
        *self.joined.entry(from).or_insert(0) += 1;
        Ok(letters)
    }

    fn tick(&mut self, now: Tick) -> Vec<Outgoing> {
        self.call(|_, object| {
            let letters = object.call_method1("tick", (seconds(now),))?;
            self.outgoing("tick", &letters)
        })
    }

    fn deadline(&self) -> Option<Tick> {
        let object = self.object.as_ref()?;
        with(object, |_, object| {
            let told = object.call_method0("deadline")?;
            let at: Option<f64> =
                told.extract().map_err(|_| wrong_return("deadline", &told, "a time in seconds, or None"))?;
            at.map(ticks)
                .transpose()
                .map_err(|_| wrong_return("deadline", &told, "a time in seconds, or None"))
        })
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        let (version, observations, information) = self.told();
        CoordinatorView { version, observations, information, agents: self.joined.len(), evidence: None }
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        let uploads = *self.joined.get(&agent)?;
        let (version, _, information) = self.told();
        Some(AgentStanding { uploads, version, information })
    }

    fn save(&self) -> Vec<u8> {
        let Some(object) = &self.object else { return Vec::new() };
        let mut whole = (self.joined.len() as u64).to_le_bytes().to_vec();
        for (agent, sent) in &self.joined {
            whole.extend(agent.0.to_le_bytes());
            whole.extend(sent.to_le_bytes());
        }
        whole.extend(with(object, |_, object| state("save", &object.call_method0("save")?)));
        whole
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let Some(object) = &self.object else {
            let empty = DecodeError::invalid("state", "it should be empty");
            return if state.is_empty() { Ok(()) } else { Err(empty) };
        };
        let cut = || DecodeError::invalid("state", "it is cut short");
        let mut rest = state;
        let mut number = || {
            let (first, after) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
            rest = after;
            Ok::<u64, DecodeError>(u64::from_le_bytes(*first))
        };
        let mut joined = BTreeMap::new();
        for _ in 0..number()? {
            joined.insert(AgentId(number()?), number()?);
        }
        with(object, |py, object| match object.call_method1("restore", (PyBytes::new(py, rest),)) {
            Ok(_) => Ok(Ok(())),
            Err(error) => no_state(py, error).map(Err),
        })?;
        self.joined = joined;
        Ok(())
    }
}
