//! Exceptions that Python code raises inside a machine, on their way through Rust.
//!
//! Machines report only what their caller or their peer did wrong. An exception in their own code ends the run: it unwinds
//! to the cell of the experiment, or to the call from Python that set it off.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, TryLockError};

use posse_cli::embed::OutsideFailure;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTracebackMethods;

use crate::error::experiment;

thread_local! {
    /// How many calls of own code are under way in this thread, one inside the other.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Counts a call of own code for as long as it lasts, also if it unwinds.
struct Inside;

impl Inside {
    fn begin() -> Self {
        INSIDE.set(INSIDE.get() + 1);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

/// An error if own code asks for something that is in use: in all likelihood by the call that runs this code, which would wait for
/// itself without end.
pub(crate) fn free_to_use<T: ?Sized>(mutex: &Mutex<T>) -> PyResult<()> {
    if INSIDE.get() > 0 && matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(PyRuntimeError::new_err(
            "this agent or coordinator is in use: code of your own algorithm cannot call the federation that runs it",
        ));
    }
    Ok(())
}

/// Calls `work` with an object and the interpreter's lock. An exception unwinds.
pub(super) fn with<T>(
    object: &Py<PyAny>,
    work: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
) -> T {
    let _inside = Inside::begin();
    Python::attach(|py| work(py, object.bind(py)).unwrap_or_else(|error| fail(py, error)))
}

/// Ends the run with an exception.
pub(crate) fn fail(py: Python<'_>, error: PyErr) -> ! {
    let trace = error.traceback(py).and_then(|trace| trace.format().ok()).unwrap_or_default();
    let text = format!("{error}\n{trace}").trim_end().to_owned();
    resume_unwind(Box::new(OutsideFailure { text, cause: Box::new(error) }))
}

/// Calls `work` with the interpreter's lock kept, and raises what Python code inside it raised.
pub(crate) fn held<T>(work: impl FnOnce() -> T) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(raised)
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
