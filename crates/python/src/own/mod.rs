//! Algorithms and worlds that are written in Python, as machines and worlds of the simulator.
//!
//! The classes are in `posse._own`; here are the traits of core and of the simulator around their objects. Every call
//! takes the interpreter's lock, so that own machines may run on any thread beside posse's own.

mod agent;
mod coordinator;
mod failure;
mod registry;
mod world;

pub(crate) use failure::{fail, free, free_to_use, held};
pub(crate) use registry::{check, register};

use posse_core::{DecodeError, Extension, ProtocolError};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::exception;

/// The version of messages as bytes from Python: what they hold is up to the algorithm.
const VERSION: u64 = 1;

/// A message that `method` returned: nothing, bytes, or bytes with the number of numbers in them.
fn message(name: &'static str, method: &str, returned: &Bound<'_, PyAny>) -> PyResult<Option<Extension>> {
    if returned.is_none() {
        return Ok(None);
    }
    let (bytes, scalars) = match returned.cast::<PyBytes>() {
        // As many numbers of eight bytes as fit, and at least one: bytes carry statistics unless they say otherwise.
        Ok(bytes) => (bytes.as_bytes().to_vec(), (bytes.as_bytes().len() as u64 / 8).max(1)),
        Err(_) => parts(returned)
            .ok_or_else(|| wrong_return(method, returned, "bytes, a posse.Message of bytes, or None"))?,
    };
    Ok(Some(Extension { algorithm: name.to_owned(), version: VERSION, scalars, bytes }))
}

/// The bytes of a `posse.Message` and how many numbers they hold.
fn parts(returned: &Bound<'_, PyAny>) -> Option<(Vec<u8>, u64)> {
    let data = returned.getattr("data").ok()?;
    let scalars = returned.getattr("scalars").ok()?.extract().ok()?;
    Some((data.cast::<PyBytes>().ok()?.as_bytes().to_vec(), scalars))
}

/// Own code returned something else than it should: its author is at fault, and not who called it.
fn wrong_return(method: &str, returned: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let got = returned.repr().map_or_else(|_| "something".to_owned(), |text| text.to_string());
    PyTypeError::new_err(format!("{method} returned {}: expected {expected}", short(&got)))
}

/// The beginning of a text: arrays and models can be long.
fn short(text: &str) -> String {
    const LONGEST: usize = 100;
    let mut cut: String = text.chars().take(LONGEST).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

/// The bytes that `method` returned.
fn state(method: &str, returned: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match returned.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => Err(wrong_return(method, returned, "bytes")),
    }
}

/// The value under `key` of what `inspect` returned.
fn told<'py, T: FromPyObjectOwned<'py>>(told: &Bound<'py, PyDict>, key: &str) -> PyResult<Option<T>> {
    let Some(value) = told.get_item(key)?.filter(|value| !value.is_none()) else { return Ok(None) };
    value.extract().map(Some).map_err(|_| {
        let got = value.repr().map_or_else(|_| "something".to_owned(), |text| text.to_string());
        let expected = if key == "in_flight" { "a pair of counts, or None" } else { "a number from 0 on" };
        PyTypeError::new_err(format!("inspect says that {key} is {}: expected {expected}", short(&got)))
    })
}

/// The bytes of a message for the algorithm `name`, or what is wrong with it.
fn bytes_for<'m>(name: &'static str, message: Option<&'m Extension>) -> Result<&'m [u8], ProtocolError> {
    match message {
        Some(extension) if extension.algorithm == name && extension.version == VERSION => {
            Ok(&extension.bytes)
        }
        _ => Err(ProtocolError::Unexpected { algorithm: name, message: "such" }),
    }
}

/// A refusal that Python raised as `posse.ProtocolError`; any other exception stays one.
fn refusal(py: Python<'_>, error: PyErr) -> PyResult<ProtocolError> {
    if error.is_instance_of::<exception::ProtocolError>(py) {
        return Ok(ProtocolError::Outside(error.value(py).to_string()));
    }
    Err(error)
}

/// A state that Python refused with `posse.DecodeError` or another `ValueError`; any other exception stays one.
fn no_state(py: Python<'_>, error: PyErr) -> PyResult<DecodeError> {
    if error.is_instance_of::<pyo3::exceptions::PyValueError>(py) {
        return Ok(DecodeError::Malformed(error.value(py).to_string()));
    }
    Err(error)
}
