//! Exceptions that Python code raises inside a machine, on their way through Rust.
//!
//! Machines report only what their caller or their peer did wrong. An exception in their own code ends the run: it unwinds
//! to the cell of the experiment, or to the call from Python that set it off.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use posse_cli::embed::OutsideFailure;
use pyo3::prelude::*;
use pyo3::types::PyTracebackMethods;

use crate::error::experiment;

/// Calls `work` with an object and the interpreter's lock. An exception unwinds.
pub(super) fn with<T>(
    object: &Py<PyAny>,
    work: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
) -> T {
    Python::attach(|py| work(py, object.bind(py)).unwrap_or_else(|error| fail(py, error)))
}

/// Ends the run with an exception.
pub(super) fn fail(py: Python<'_>, error: PyErr) -> ! {
    let trace = error.traceback(py).and_then(|trace| trace.format().ok()).unwrap_or_default();
    let text = format!("{error}\n{trace}").trim_end().to_owned();
    resume_unwind(Box::new(OutsideFailure { text, cause: Box::new(error) }))
}

/// Calls `work` without the interpreter's lock, and raises what Python code inside it raised.
pub(crate) fn free<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(raised)
}

fn raised(panic: Box<dyn Any + Send>) -> PyErr {
    let failure = panic.downcast::<OutsideFailure>().unwrap_or_else(|panic| resume_unwind(panic));
    let OutsideFailure { text, cause } = *failure;
    cause.downcast::<PyErr>().map_or_else(|_| experiment(text), |error| *error)
}
