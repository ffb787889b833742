//! Making own algorithms and worlds known, and checking algorithms by the conformance suite.

use std::sync::Arc;

use posse_cli::embed::{self, Factory, OutsideKind, OutsideSetting};
use posse_core::{
    Agent, AgentId, ConfigError, Coordinator, Federation, JoinPolicy, Outside, Recipe, Shape, Sharing,
};
use posse_sim::world::OutsideWorld;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value};

use super::agent::OwnAgent;
use super::coordinator::OwnCoordinator;
use super::failure::{free, with};
use super::world::OwnWorldRecipe;
use crate::error::{config, exception};
use crate::settings::{self, Whole};

/// A class of agents with its settings.
#[derive(Debug)]
struct OwnRecipe {
    name: &'static str,
    class: Py<PyAny>,
    /// The settings as keyword arguments.
    keywords: Py<PyDict>,
    /// The same as JSON.
    settings: String,
    /// Whether the class has a coordinator.
    speaks: bool,
    /// Whether all agents join before the first interaction.
    joins_at_start: bool,
}

impl Recipe for OwnRecipe {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        Ok(())
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        let dimension = shape.dimension();
        let object = with(&self.class, |py, class| {
            let make = py.import("posse._own")?.getattr("make_agent")?;
            let setup = (id.0, dimension, federation.agents, federation.horizon, federation.seed.0);
            Ok(make.call1((class, setup, self.keywords.bind(py)))?.unbind())
        });
        Box::new(OwnAgent::new(self.name, object, dimension))
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        let object = self.speaks.then(|| {
            with(&self.class, |py, class| {
                let make = py.import("posse._own")?.getattr("make_coordinator")?;
                Ok(make.call1((class, shape.dimension(), self.keywords.bind(py)))?.unbind())
            })
        });
        Box::new(OwnCoordinator::new(self.name, object))
    }

    fn sharing(&self) -> Sharing {
        if self.speaks { Sharing::Other } else { Sharing::Nothing }
    }

    fn join_policy(&self) -> JoinPolicy {
        if self.joins_at_start { JoinPolicy::Eager } else { JoinPolicy::Lazy }
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

/// A setting as `posse._own` describes it: key, kind, meaning and default.
type Described<'py> = (String, String, String, Bound<'py, PyAny>);

/// Make a class of agents (`kind` is "algorithm") or of worlds ("world") known under a name.
#[pyfunction]
#[pyo3(signature = (kind, class, name, summary, settings, joins_at_start = false))]
#[allow(clippy::needless_pass_by_value, reason = "arguments from Python are made for the call")]
pub(crate) fn register(
    py: Python<'_>,
    kind: &str,
    class: Py<PyAny>,
    name: &str,
    summary: &str,
    settings: Vec<Described<'_>>,
    joins_at_start: bool,
) -> PyResult<()> {
    let described = settings.into_iter().map(|(key, kind, meaning, default)| {
        let kind = match kind.as_str() {
            "whole" => OutsideKind::Whole,
            "switch" => OutsideKind::Switch,
            "text" => OutsideKind::Text,
            _ => OutsideKind::Number,
        };
        let default = if default.is_none() { Value::Null } else { json(&settings::value(&key, &default)?) };
        Ok(OutsideSetting { key, kind, meaning, default })
    });
    let described = described.collect::<PyResult<Vec<_>>>()?;
    let speaks = kind == "algorithm" && !class.getattr(py, "coordinator")?.is_none(py);
    // The name that recipes keep is known only once it is registered; a recipe is made later.
    let known: Arc<std::sync::OnceLock<&'static str>> = Arc::default();
    let name_of = Arc::clone(&known);
    let factory = if kind == "algorithm" {
        Factory::Algorithm(Arc::new(move |table| {
            let name = name_of.get().copied().unwrap_or_default();
            Python::attach(|py| {
                let keywords = settings::dict(py, table).map_err(|error| error.to_string())?.unbind();
                let (class, settings) = (class.clone_ref(py), text(table));
                Ok(Outside::new(OwnRecipe { name, class, keywords, settings, speaks, joins_at_start }))
            })
        }))
    } else {
        Factory::World(Arc::new(move |table| {
            let name = name_of.get().copied().unwrap_or_default();
            Python::attach(|py| {
                let keywords = settings::dict(py, table).map_err(|error| error.to_string())?.unbind();
                let (class, settings) = (class.clone_ref(py), text(table));
                Ok(OutsideWorld::new(OwnWorldRecipe { name, class, keywords, settings }))
            })
        }))
    };
    let name = embed::register(name, summary, described, factory).map_err(config)?;
    known.get_or_init(|| name);
    Ok(())
}

/// Check that an algorithm keeps the promises of the conformance suite. Raises `posse.testing.Violation` if not.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, settings: &Bound<'_, PyDict>, dimension: Whole) -> PyResult<()> {
    let shape = Shape::shared(dimension.size("dimension")?);
    let table = settings::table(settings)?;
    let algorithm = free(py, || embed::algorithm(&table, shape))?.map_err(config)?;
    let kept = free(py, || posse_conformance::check(&algorithm, shape))?;
    kept.map_err(|violation| exception::Violation::new_err(violation.to_string()))
}

/// Settings as JSON text, which results keep.
fn text(table: &toml::Table) -> String {
    let map: Map<String, Value> = table.iter().map(|(key, value)| (key.clone(), json(value))).collect();
    Value::Object(map).to_string()
}

/// A value as JSON, with infinity as a word.
fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::Float(number) if number.is_finite() => (*number).into(),
        toml::Value::Float(number) => number.to_string().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Boolean(switch) => (*switch).into(),
        toml::Value::String(text) => text.clone().into(),
        other => other.to_string().into(),
    }
}
