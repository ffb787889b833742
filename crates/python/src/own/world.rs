//! A world whose class is written in Python.

use numpy::PyUntypedArrayMethods;
use posse_core::{AgentId, ConfigError, Seed, Shape, UserId};
use posse_sim::world::{Luck, Offer, OutsideWorldRecipe, World};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::failure::with;
use super::wrong_return;
use crate::array::{matrix, vector};
use crate::error::config;

/// A class of worlds with its settings.
#[derive(Debug)]
pub(super) struct OwnWorldRecipe {
    pub(super) name: &'static str,
    pub(super) class: Py<PyAny>,
    /// The keyword arguments of the class.
    pub(super) keywords: Py<PyDict>,
    /// The same as JSON.
    pub(super) settings: String,
}

impl OutsideWorldRecipe for OwnWorldRecipe {
    fn name(&self) -> &'static str {
        self.name
    }

    fn build(&self, agents: u64, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        let world = with(&self.class, |py, class| {
            let object = class.call((agents, seed.0), Some(self.keywords.bind(py)))?;
            let told = object.getattr_opt("dimension")?.ok_or_else(|| {
                config(format!(
                    "the world {} has no `dimension`: set it in the class or in __init__",
                    self.name
                ))
            })?;
            let dimension: usize = told.extract().map_err(|_| {
                config(format!("`dimension` of the world {} is {told}: expected a whole number", self.name))
            })?;
            let told = object.getattr("length")?;
            let length: Option<u64> = told.extract().map_err(|_| {
                config(format!(
                    "`length` of the world {} is {told}: expected a whole number or None",
                    self.name
                ))
            })?;
            Ok(OwnWorld { object: object.unbind(), agents, dimension, length })
        });
        if world.dimension == 0 {
            return Err(ConfigError::new("dimension", 0, "an arm needs at least one feature"));
        }
        Ok(Box::new(world))
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

struct OwnWorld {
    object: Py<PyAny>,
    agents: u64,
    dimension: usize,
    length: Option<u64>,
}

impl World for OwnWorld {
    fn shape(&self, _agent: AgentId) -> Shape {
        Shape::shared(self.dimension)
    }

    fn offer(&mut self, step: u64, offer: &mut Offer) {
        with(&self.object, |_, object| {
            let made = object.call_method1("offer", (step, offer.agent.0))?;
            let part =
                |name: &str| made.getattr(name).map_err(|_| wrong_return("offer", &made, "a posse.Offer"));
            let (arms, means) =
                (matrix(&part("arms")?)?, vector(&part("means")?, "`means` has a number for each arm")?);
            let &[rows, columns] = arms.shape() else { unreachable!("a matrix has two sides") };
            let count = means.len();
            if columns != self.dimension || rows == 0 || count != rows {
                let expected =
                    format!("at least one arm of {} features, and a mean for each", self.dimension);
                return Err(PyValueError::new_err(format!(
                    "offer {step} has {rows} arms of {columns} features and {count} means: expected {expected}"
                )));
            }
            offer.clear(self.dimension);
            for (arm, mean) in arms.as_array().rows().into_iter().zip(&means) {
                let arm = arm.to_vec();
                if !(mean.is_finite() && arm.iter().all(|value| value.is_finite())) {
                    let text = format!("offer {step} holds numbers that are not finite");
                    return Err(PyValueError::new_err(text));
                }
                offer.push(&arm, *mean);
            }
            let (coin, noise): (Option<f64>, f64) = (part("coin")?.extract()?, part("noise")?.extract()?);
            if let Some(coin) = coin.filter(|coin| !(0.0..=1.0).contains(coin)) {
                let text = format!("the coin of offer {step} is {coin}: it is between 0 and 1");
                return Err(PyValueError::new_err(text));
            }
            if !noise.is_finite() {
                let text = format!("the noise of offer {step} is {noise}: it must be finite");
                return Err(PyValueError::new_err(text));
            }
            offer.luck = coin.map_or(Luck::Noise(noise), Luck::Coin);
            let told = part("user")?;
            let user: Option<u64> = told.extract().map_err(|_| {
                PyValueError::new_err(format!(
                    "the user of offer {step} is {told}: expected a number from 0 on"
                ))
            })?;
            offer.user = user.map_or(offer.user, UserId);
            Ok(())
        });
    }

    fn turn(&self, step: u64) -> Option<AgentId> {
        with(&self.object, |_, object| {
            let told = object.call_method1("turn", (step,))?;
            let agent: Option<u64> =
                told.extract().map_err(|_| wrong_return("turn", &told, "the number of an agent, or None"))?;
            match agent.filter(|agent| *agent >= self.agents) {
                Some(agent) => {
                    let text = format!("turn returned agent {agent}: there are {}, from 0 on", self.agents);
                    Err(PyValueError::new_err(text))
                }
                None => Ok(agent.map(AgentId)),
            }
        })
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn parameters(&self, agent: AgentId) -> Option<Vec<f64>> {
        with(&self.object, |_, object| {
            let told = object.call_method1("parameters", (agent.0,))?;
            if told.is_none() {
                return Ok(None);
            }
            let parameters = vector(&told, "parameters are a vector of numbers")?;
            if parameters.len() == self.dimension {
                return Ok(Some(parameters));
            }
            let (got, expected) = (parameters.len(), self.dimension);
            Err(PyValueError::new_err(format!("parameters returned {got} numbers: expected {expected}")))
        })
    }
}
