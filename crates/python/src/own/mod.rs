//! Algorithms and worlds that are written in Python, as machines and worlds of the simulator.
//!
//! The classes are in `posse._own`; here are the traits of core and of the simulator around their objects. Every call
//! takes the interpreter's lock, so that own machines may run on any thread beside posse's own.

mod agent;
mod coordinator;
mod failure;
mod registry;
mod world;

pub(crate) use failure::free;
pub(crate) use registry::{check, register};

use posse_core::{DecodeError, Extension, ProtocolError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::exception;

/// The version of messages as bytes from Python: what they hold is up to the algorithm.
const VERSION: u64 = 1;

/// A message that a method returned: nothing, bytes, or bytes with the number of numbers in them.
fn message(name: &'static str, returned: &Bound<'_, PyAny>) -> PyResult<Option<Extension>> {
    if returned.is_none() {
        return Ok(None);
    }
    let (bytes, scalars) = match returned.cast::<PyBytes>() {
        // As many numbers of eight bytes as fit, and at least one: bytes carry statistics unless they say otherwise.
        Ok(bytes) => (bytes.as_bytes().to_vec(), (bytes.as_bytes().len() as u64 / 8).max(1)),
        Err(_) => {
            let data = returned.getattr("data")?;
            (data.cast::<PyBytes>()?.as_bytes().to_vec(), returned.getattr("scalars")?.extract()?)
        }
    };
    Ok(Some(Extension { algorithm: name.to_owned(), version: VERSION, scalars, bytes }))
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
