//! Arrays from Python. A float64 array is read as it is; of anything else numpy makes one.

use numpy::ndarray::Dimension;
use numpy::{
    Ix1, Ix2, Ix3, PyArray, PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray2, PyReadonlyArray3,
    PyUntypedArrayMethods,
};
use posse_core::{Arms, InputError};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::error::{input, wrong_input};

/// What a matrix must be.
const ARMS: &str = "arms are a matrix with a row of features for each arm";

/// The value itself if it is an array that can be read as it is. Numbers at odd addresses, as in packed records, cannot: reading
/// them in place is undefined in Rust.
fn plain<'a, 'py, D: Dimension>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyArray<f64, D>>> {
    value.cast::<PyArray<f64, D>>().ok().filter(|array| array.is_aligned())
}

/// A matrix with a row of features for each arm.
pub(crate) fn matrix<'py>(value: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArray2<'py, f64>> {
    if let Some(array) = plain::<Ix2>(value) {
        return borrowed(array.try_readonly());
    }
    let array = converted(value, 2, ARMS)?;
    borrowed(array.cast::<PyArray2<f64>>()?.try_readonly())
}

/// How Python names an arm that was played.
pub(crate) enum PlayedArm {
    /// By a place in the last offer, counted from 0, which may not be there.
    Index(i64),
    Features(Vec<f64>),
}

impl PlayedArm {
    pub(crate) fn read(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if plain::<Ix1>(value).is_none() {
            match value.extract() {
                Ok(index) => return Ok(Self::Index(index)),
                // No offer has so many arms.
                Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                    return Ok(Self::Index(-1));
                }
                // Not a whole number, of Python or of numpy.
                Err(_) => {}
            }
        }
        vector(value, "an arm is an index in the last offer, or a vector of features").map(Self::Features)
    }
}

/// The features of one arm, copied: they are few, and numpy's record of who borrows what costs more than the copy. `expected`
/// says what else the value should be, if it is none.
pub(crate) fn vector(value: &Bound<'_, PyAny>, expected: &str) -> PyResult<Vec<f64>> {
    let copy = |array: &Bound<'_, PyArray1<f64>>| {
        array.to_vec().unwrap_or_else(|_| array.to_owned_array().into_iter().collect())
    };
    if let Some(array) = plain::<Ix1>(value) {
        return Ok(copy(array));
    }
    let array = converted(value, 1, expected)?;
    Ok(copy(array.cast::<PyArray1<f64>>()?))
}

/// Offers over time: interactions, arms, features.
pub(crate) fn cube<'py>(value: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArray3<'py, f64>> {
    if let Some(array) = plain::<Ix3>(value) {
        return borrowed(array.try_readonly());
    }
    let array = converted(value, 3, "offers have three dimensions: interactions, arms, features")?;
    borrowed(array.cast::<PyArray3<f64>>()?.try_readonly())
}

/// The number of an agent or a user.
pub(crate) fn number(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            wrong_input(format!(
                "there is no number {value}: agents and users are counted from 0, in 64 bits"
            ))
        } else {
            error
        }
    })
}

/// The numbers of agents, one for each interaction.
pub(crate) fn numbers(value: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let py = value.py();
    let numpy = py.import("numpy")?;
    let array = as_array(value)?;
    let dimensions: usize = array.getattr("ndim")?.extract()?;
    if dimensions != 1 {
        return Err(wrong_input(format!("`agents` has {dimensions} dimensions: it is a list of numbers")));
    }
    // An empty list is an array of floats.
    if array.len()? == 0 {
        return Ok(Vec::new());
    }
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    if !["i", "u"].contains(&kind.as_str()) {
        let dtype = array.getattr("dtype")?.str()?;
        return Err(wrong_input(format!("`agents` is of type {dtype}: expected whole numbers")));
    }
    let least = array.call_method0("min")?;
    if least.lt(0)? {
        return Err(wrong_input(format!("there is no agent {least}: agents are counted from 0")));
    }
    let plain = numpy.call_method1("require", (array, numpy.getattr("uint64")?, ["ALIGNED"]))?;
    Ok(plain.cast::<PyArray1<u64>>()?.to_owned_array().into_iter().collect())
}

/// The number of a user, or none for the only one.
pub(crate) fn maybe_number(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if value.is_none() { Ok(None) } else { number(value).map(Some) }
}

/// An array that a Rust function elsewhere is writing to cannot be read.
fn borrowed<T>(array: Result<T, numpy::BorrowError>) -> PyResult<T> {
    array.map_err(|_| wrong_input("the array is being written to: pass a copy"))
}

/// What numpy makes of a value. Rows of different lengths are a `ValueError` of numpy.
fn as_array<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    py.import("numpy")?.call_method1("asarray", (value,)).map_err(|error| {
        if error.is_instance_of::<PyValueError>(py) {
            wrong_input(error.value(py).to_string())
        } else {
            error
        }
    })
}

/// An aligned float64 array of `dimensions` dimensions with the numbers of `value`.
fn converted<'py>(
    value: &Bound<'py, PyAny>,
    dimensions: usize,
    expected: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let numpy = value.py().import("numpy")?;
    let array = as_array(value)?;
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    // Booleans, integers and floats. Numbers hidden in objects, texts and complex numbers would change or fail silently.
    if !["b", "i", "u", "f"].contains(&kind.as_str()) {
        let dtype = array.getattr("dtype")?.str()?;
        return Err(wrong_input(format!("features are of type {dtype}: expected real numbers")));
    }
    let got: usize = array.getattr("ndim")?.extract()?;
    if got != dimensions {
        return Err(wrong_input(format!("got an array of {got} dimensions: {expected}")));
    }
    numpy.call_method1("require", (array, numpy.getattr("float64")?, ["ALIGNED"]))
}

/// The arms of an offer, copied: numpy's record of who borrows what costs more than the memory of a copy, which the machine
/// then keeps (docs/decisions/0170).
pub(crate) struct Offer {
    features: Vec<f64>,
    arms: usize,
    dimension: usize,
}

impl Offer {
    /// Reads a matrix with a row of features for each arm.
    pub(crate) fn read(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Some(array) = plain::<Ix2>(value) {
            return Ok(Self::copy(array));
        }
        Ok(Self::copy(converted(value, 2, ARMS)?.cast::<PyArray2<f64>>()?))
    }

    fn copy(array: &Bound<'_, PyArray2<f64>>) -> Self {
        let (arms, dimension) = (array.shape()[0], array.shape()[1]);
        // A matrix in the order of Fortran is a slice, too, with its columns one after the other.
        let slice = if array.is_c_contiguous() { array.to_vec().ok() } else { None };
        let features = slice.unwrap_or_else(|| array.to_owned_array().into_iter().collect());
        Self { features, arms, dimension }
    }

    /// Makes these the arms that are chosen from. After an error there are none.
    pub(crate) fn fill(self, arms: &mut Arms) -> PyResult<()> {
        if self.arms > 0 && self.dimension != arms.dimension() {
            arms.clear();
            let error = InputError::Dimension { expected: arms.dimension(), got: self.dimension };
            return Err(input(&error));
        }
        arms.take_rows(self.features).map_err(|error| input(&error))
    }
}
