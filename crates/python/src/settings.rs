//! Keyword arguments and dictionaries as TOML, which is what posse's settings are written in.

use pyo3::Borrowed;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use toml::Value;

use crate::error::config;

/// How deep settings may be nested: deeper than any of posse's, and shallow enough for every stack. An object that contains itself
/// has no bottom.
const DEEPEST: usize = 32;

/// A whole number of Python's, which may be negative or larger than any of Rust's.
pub(crate) enum Whole {
    Fits(u64),
    /// The number in words.
    DoesNot(String),
}

impl Whole {
    pub(crate) const fn of(number: u64) -> Self {
        Self::Fits(number)
    }

    /// The number as the setting `name`.
    pub(crate) fn number(self, name: &str) -> PyResult<u64> {
        match self {
            Self::Fits(number) => Ok(number),
            Self::DoesNot(text) if text.starts_with('-') => {
                Err(config(format!("`{name}` is {text}: it must not be negative")))
            }
            Self::DoesNot(text) => Err(config(format!("`{name}` is {text}: it must be below 2⁶⁴"))),
        }
    }

    /// The number as the setting `name`, a count of features.
    pub(crate) fn size(self, name: &str) -> PyResult<usize> {
        // What does not fit in memory is refused by the algorithm, with its limit.
        Ok(usize::try_from(self.number(name)?).unwrap_or(usize::MAX))
    }
}

impl FromPyObject<'_, '_> for Whole {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match value.extract() {
            Ok(number) => Ok(Self::Fits(number)),
            Err(error) if PyErr::is_instance_of::<PyOverflowError>(&error, value.py()) => {
                Ok(Self::DoesNot(value.str()?.to_string()))
            }
            Err(error) => Err(error),
        }
    }
}

/// A table as a dictionary.
pub(crate) fn dict<'py>(py: Python<'py>, table: &toml::Table) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in table {
        dict.set_item(key, object(py, value)?)?;
    }
    Ok(dict)
}

fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Boolean(switch) => PyBool::new(py, *switch).to_owned().into_any(),
        Value::Integer(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => number.into_pyobject(py)?.into_any(),
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Datetime(time) => PyString::new(py, &time.to_string()).into_any(),
        Value::Array(values) => {
            let all = values.iter().map(|value| object(py, value)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, all)?.into_any()
        }
        Value::Table(table) => dict(py, table)?.into_any(),
    })
}

/// A dictionary as a table. Keys whose value is `None` are left out, as if they were not written.
pub(crate) fn table(dict: &Bound<'_, PyDict>) -> PyResult<toml::Table> {
    table_within(DEEPEST, dict)
}

/// The same, at most `depth` levels deep.
fn table_within(depth: usize, dict: &Bound<'_, PyDict>) -> PyResult<toml::Table> {
    let mut table = toml::Table::new();
    for (key, value) in dict {
        let key: String = key.extract().map_err(|_| config("the names of settings are texts"))?;
        if !value.is_none() {
            let value = value_within(depth, &key, &value)?;
            table.insert(key, value);
        }
    }
    Ok(table)
}

/// One value of a setting called `key`.
pub(crate) fn value(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    value_within(DEEPEST, key, value)
}

/// The same, at most `depth` levels deep.
fn value_within(depth: usize, key: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(config(format!("`{key}` is nested more than {DEEPEST} levels deep")));
    };
    if let Ok(switch) = value.cast::<PyBool>() {
        return Ok(switch.is_true().into());
    }
    if value.is_instance_of::<PyInt>() {
        let number: Result<i64, _> = value.extract();
        return number.map(Value::from).map_err(|_| config(format!("`{key}` is {value}: it is too large")));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(value.extract::<f64>()?.into());
    }
    if value.is_instance_of::<PyString>() {
        return Ok(value.extract::<String>()?.into());
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(table_within(depth, dict)?.into());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let values: PyResult<Vec<Value>> =
            value.try_iter()?.map(|item| value_within(depth, key, &item?)).collect();
        return Ok(values?.into());
    }
    // Numbers of numpy, ranges, arrays and paths.
    for convert in ["tolist", "__fspath__"] {
        if value.hasattr(convert)? {
            return value_within(depth, key, &value.call_method0(convert)?);
        }
    }
    if value.hasattr("__len__")? && value.hasattr("__getitem__")? {
        let list = PyList::new(value.py(), value.try_iter()?.collect::<PyResult<Vec<_>>>()?)?;
        return value_within(depth, key, &list);
    }
    let kind = value.get_type();
    Err(config(format!(
        "`{key}` is of type {}: settings are numbers, texts, switches, lists or dictionaries",
        kind.name()?
    )))
}
