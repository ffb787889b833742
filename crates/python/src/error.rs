//! Rust's errors as Python's exceptions, by whose fault it is.

use posse_core::{DecodeError, InputError, ProtocolError};
use pyo3::PyErr;

/// The exceptions are defined in Python, where a class can be both ours and a `ValueError`.
pub(crate) mod exception {
    pyo3::import_exception!(posse._errors, InputError);
    pyo3::import_exception!(posse._errors, ConfigError);
    pyo3::import_exception!(posse._errors, ProtocolError);
    pyo3::import_exception!(posse._errors, DecodeError);
    pyo3::import_exception!(posse._errors, ExperimentError);
    pyo3::import_exception!(posse._errors, ConnectError);
    pyo3::import_exception!(posse._errors, Violation);
}

/// The caller passed something that no algorithm can use.
pub(crate) fn input(error: &InputError) -> PyErr {
    exception::InputError::new_err(error.to_string())
}

/// The caller passed something that is wrong in the way the text says.
pub(crate) fn wrong_input(text: impl Into<String>) -> PyErr {
    exception::InputError::new_err(text.into())
}

/// The caller passed an interaction to replay that no algorithm can use. Those before it have been played.
pub(crate) fn wrong_interaction(step: usize, error: &InputError) -> PyErr {
    wrong_input(format!("interaction {step}: {error}"))
}

/// A setting has a name or a value that it cannot have.
pub(crate) fn config(text: impl Into<String>) -> PyErr {
    exception::ConfigError::new_err(text.into())
}

/// A peer said something that its protocol does not allow.
pub(crate) fn protocol(error: &ProtocolError) -> PyErr {
    exception::ProtocolError::new_err(error.to_string())
}

/// Bytes that are no message or state of posse.
pub(crate) fn decode(error: &DecodeError) -> PyErr {
    exception::DecodeError::new_err(error.to_string())
}

/// An experiment that cannot be run, or results that cannot be read.
pub(crate) fn experiment(text: impl Into<String>) -> PyErr {
    exception::ExperimentError::new_err(text.into())
}

/// A live agent that cannot reach its coordinator, was refused, or cannot go on.
pub(crate) fn connect(text: impl Into<String>) -> PyErr {
    exception::ConnectError::new_err(text.into())
}
