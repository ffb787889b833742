//! A world whose class is written in Python.

use numpy::PyUntypedArrayMethods;
use posse_core::{AgentId, ConfigError, Seed, Shape, UserId};
use posse_sim::world::{Luck, Offer, OutsideWorldRecipe, World};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::failure::with;
use crate::array::{matrix, vector};
use crate::error::wrong_input;

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
            let dimension: usize = object.getattr("dimension")?.extract()?;
            let length: Option<u64> = object.getattr("length")?.extract()?;
            Ok(OwnWorld { object: object.unbind(), dimension, length })
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
            let (arms, means) = (matrix(&made.getattr("arms")?)?, vector(&made.getattr("means")?)?);
            let &[rows, columns] = arms.shape() else { unreachable!("a matrix has two sides") };
            let count = means.len();
            if columns != self.dimension || rows == 0 || count != rows {
                let expected =
                    format!("at least one arm of {} features, and a mean for each", self.dimension);
                return Err(wrong_input(format!(
                    "offer {step} has {rows} arms of {columns} features and {count} means: expected {expected}"
                )));
            }
            offer.clear(self.dimension);
            for (arm, mean) in arms.as_array().rows().into_iter().zip(&means) {
                let arm = arm.to_vec();
                if !(mean.is_finite() && arm.iter().all(|value| value.is_finite())) {
                    return Err(wrong_input(format!("offer {step} holds numbers that are not finite")));
                }
                offer.push(&arm, *mean);
            }
            let coin: Option<f64> = made.getattr("coin")?.extract()?;
            let noise: f64 = made.getattr("noise")?.extract()?;
            offer.luck = coin.map_or(Luck::Noise(noise), Luck::Coin);
            if let Some(user) = made.getattr("user")?.extract::<Option<u64>>()? {
                offer.user = UserId(user);
            }
            Ok(())
        });
    }

    fn turn(&self, step: u64) -> Option<AgentId> {
        with(&self.object, |_, object| object.call_method1("turn", (step,))?.extract::<Option<u64>>())
            .map(AgentId)
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn parameters(&self, agent: AgentId) -> Option<Vec<f64>> {
        with(&self.object, |_, object| {
            let told = object.call_method1("parameters", (agent.0,))?;
            if told.is_none() { Ok(None) } else { Ok(Some(vector(&told)?)) }
        })
    }
}
