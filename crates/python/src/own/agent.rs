//! An agent whose class is written in Python.

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use posse_core::{
    Agent, AgentView, Arms, Choice, DecodeError, Downlink, InputError, ProtocolError, Tick, Uplink, UserId,
    Version,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::failure::with;
use super::{bytes_for, message, no_state, refusal, state, wrong_return};
use crate::federation::seconds;

pub(super) struct OwnAgent {
    name: &'static str,
    object: Py<PyAny>,
    dimension: usize,
    /// Whether the class has a `prepare` of its own.
    prepares: bool,
    /// Observations learned so far: what an agent that never speaks holds.
    learned: u64,
    /// Messages that were answered since the agent last chose or learned.
    answered: u64,
}

/// Answers after which an agent that neither chooses nor learns in between counts as one that talks without end.
const ENDLESS: u64 = 20_000;

impl OwnAgent {
    pub(super) fn new(name: &'static str, object: Py<PyAny>, dimension: usize) -> Self {
        let prepares = with(&object, |_, object| object.getattr("_prepares")?.extract());
        Self { name, object, dimension, prepares, learned: 0, answered: 0 }
    }

    fn check(&self, arms: &Arms) -> Result<(), InputError> {
        if arms.dimension() != self.dimension {
            return Err(InputError::Dimension { expected: self.dimension, got: arms.dimension() });
        }
        if arms.is_empty() { Err(InputError::NoArms) } else { Ok(()) }
    }
}

/// The arms as a matrix of Python's own.
fn matrix<'py>(py: Python<'py>, arms: &Arms) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let mut numbers = Vec::with_capacity(arms.len() * arms.dimension());
    (0..arms.len()).for_each(|arm| numbers.extend_from_slice(arms.row(arm)));
    PyArray1::from_vec(py, numbers).reshape([arms.len(), arms.dimension()])
}

impl Agent for OwnAgent {
    fn prepare(&mut self, now: Tick, user: UserId, arms: &Arms) -> Result<Option<Uplink>, InputError> {
        if !self.prepares {
            return Ok(None);
        }
        self.check(arms)?;
        Ok(with(&self.object, |py, object| {
            let said = object.call_method1("prepare", (matrix(py, arms)?, user.0, seconds(now)))?;
            Ok(message(self.name, "prepare", &said)?.map(Uplink::Extension))
        }))
    }

    fn choose(&mut self, user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        self.check(arms)?;
        self.answered = 0;
        Ok(with(&self.object, |py, object| {
            let chosen = object.call_method1("choose", (matrix(py, arms)?, user.0))?;
            let expected = "the index of an arm, or a tuple of it and its probability";
            let (arm, propensity): (i64, Option<f64>) = match chosen.extract::<i64>() {
                Ok(arm) => (arm, None),
                Err(_) => chosen.extract().map_err(|_| wrong_return("choose", &chosen, expected))?,
            };
            let count = arms.len();
            let arm = usize::try_from(arm).ok().filter(|arm| *arm < count).ok_or_else(|| {
                PyValueError::new_err(format!("choose returned arm {arm}: there are {count}, from 0 on"))
            })?;
            if let Some(wrong) = propensity.filter(|propensity| !(0.0..=1.0).contains(propensity)) {
                let text = format!("choose returned the probability {wrong}: it is between 0 and 1");
                return Err(PyValueError::new_err(text));
            }
            Ok(Choice { arm, propensity })
        }))
    }

    fn learn(&mut self, user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        if arm.len() != self.dimension {
            return Err(InputError::Dimension { expected: self.dimension, got: arm.len() });
        }
        if let Some(index) = arm.iter().position(|value| !value.is_finite()) {
            return Err(InputError::Feature { index, value: arm[index] });
        }
        if !reward.is_finite() {
            return Err(InputError::Reward { value: reward });
        }
        let said = with(&self.object, |py, object| {
            let said = object.call_method1("learn", (PyArray1::from_slice(py, arm), reward, user.0))?;
            message(self.name, "learn", &said)
        });
        self.learned += 1;
        self.answered = 0;
        Ok(said.map(Uplink::Extension))
    }

    fn receive(&mut self, received: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        let extension = if let Downlink::Extension(extension) = &received { Some(extension) } else { None };
        let bytes = bytes_for(self.name, extension)?;
        let answer = with(&self.object, |py, object| {
            match object.call_method1("receive", (PyBytes::new(py, bytes),)) {
                Ok(answer) => {
                    let answer = message(self.name, "receive", &answer)?;
                    if answer.is_some() && self.answered >= ENDLESS {
                        return Err(PyRuntimeError::new_err("messages answer messages without end"));
                    }
                    Ok(Ok(answer.map(Uplink::Extension)))
                }
                Err(error) => refusal(py, error).map(Err),
            }
        })?;
        self.answered += u64::from(answer.is_some());
        Ok(answer)
    }

    fn inspect(&self) -> AgentView<'_> {
        with(&self.object, |_, object| {
            let told = object.call_method0("inspect")?;
            if told.is_none() {
                return Ok(AgentView::alone(self.learned, self.learned as f64));
            }
            let said = told.cast::<PyDict>().map_err(|_| wrong_return("inspect", &told, "a dict or None"))?;
            let count = |key: &str| -> PyResult<u64> { Ok(super::told(said, key)?.unwrap_or(0)) };
            let information: Option<f64> = super::told(said, "information")?;
            let unsent = count("unsent")?;
            let mut view = AgentView::alone(unsent, information.unwrap_or(unsent as f64));
            (view.version, view.shared, view.withheld) =
                (Version(count("version")?), count("shared")?, count("withheld")?);
            view.in_flight = super::told(said, "in_flight")?;
            Ok(view)
        })
    }

    fn save(&self) -> Vec<u8> {
        let mut whole = self.learned.to_le_bytes().to_vec();
        whole.extend(with(&self.object, |_, object| state("save", &object.call_method0("save")?)));
        whole
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let Some((learned, own)) = state.split_first_chunk::<8>() else {
            return Err(DecodeError::invalid("state", "it is cut short"));
        };
        with(&self.object, |py, object| match object.call_method1("restore", (PyBytes::new(py, own),)) {
            Ok(_) => Ok(Ok(())),
            Err(error) => no_state(py, error).map(Err),
        })?;
        self.learned = u64::from_le_bytes(*learned);
        Ok(())
    }
}
