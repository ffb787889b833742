//! Tables of results as the buffers that Arrow is made of. Each is copied once into memory that Python owns, and wrapped there.

use numpy::{IntoPyArray, PyArray1};
use posse_cli::embed::Values;
use pyo3::prelude::*;

/// A table whose columns Python takes apart into buffers.
#[pyclass(frozen, module = "posse._posse")]
pub(crate) struct RawTable {
    columns: Vec<(String, Column)>,
    rows: usize,
}

/// A column as Arrow lays it out. `valid` has a bit for each row, lowest first, or is not there if no value is missing.
struct Column {
    valid: Option<Vec<u8>>,
    data: Data,
}

enum Data {
    Whole(Vec<i64>),
    Number(Vec<f64>),
    /// A bit for each row.
    Switch(Vec<u8>),
    /// Where each text begins in the bytes, and where the last one ends.
    Text(Vec<i32>, Vec<u8>),
}

/// The type's name, the validity bits, the offsets of texts, and the values.
type Buffers<'py> =
    (&'static str, Option<Bound<'py, PyArray1<u8>>>, Option<Bound<'py, PyArray1<i32>>>, Bound<'py, PyAny>);

impl RawTable {
    /// A table with these columns. Texts of a column may have 2 GB together.
    pub(crate) fn new(columns: Vec<(String, Values)>) -> Result<Self, String> {
        let rows = columns.first().map_or(0, |(_, values)| length(values));
        let columns = columns.into_iter().map(|(name, values)| Ok((name, column(values)?)));
        Ok(Self { columns: columns.collect::<Result<_, String>>()?, rows })
    }
}

#[pymethods]
impl RawTable {
    #[getter]
    const fn rows(&self) -> usize {
        self.rows
    }

    #[getter]
    fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The buffers of column `index`.
    fn buffers<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Buffers<'py>> {
        let (_, column) = self
            .columns
            .get(index)
            .ok_or_else(|| pyo3::exceptions::PyIndexError::new_err(format!("there is no column {index}")))?;
        let valid = column.valid.clone().map(|bits| bits.into_pyarray(py));
        Ok(match &column.data {
            Data::Whole(values) => ("int64", valid, None, values.clone().into_pyarray(py).into_any()),
            Data::Number(values) => ("double", valid, None, values.clone().into_pyarray(py).into_any()),
            Data::Switch(bits) => ("bool", valid, None, bits.clone().into_pyarray(py).into_any()),
            Data::Text(offsets, bytes) => {
                let offsets = offsets.clone().into_pyarray(py);
                ("string", valid, Some(offsets), bytes.clone().into_pyarray(py).into_any())
            }
        })
    }
}

fn length(values: &Values) -> usize {
    match values {
        Values::Text(values) => values.len(),
        Values::Whole(values) => values.len(),
        Values::Number(values) => values.len(),
        Values::Switch(values) => values.len(),
    }
}

fn column(values: Values) -> Result<Column, String> {
    Ok(match values {
        Values::Whole(values) => {
            let valid = valid(&values);
            Column { valid, data: Data::Whole(values.into_iter().map(Option::unwrap_or_default).collect()) }
        }
        Values::Number(values) => {
            let valid = valid(&values);
            Column { valid, data: Data::Number(values.into_iter().map(Option::unwrap_or_default).collect()) }
        }
        Values::Switch(values) => {
            let switches = bits(values.iter().map(|value| *value == Some(true)));
            Column { valid: valid(&values), data: Data::Switch(switches) }
        }
        Values::Text(values) => {
            let mut offsets = vec![0i32];
            let mut bytes = Vec::new();
            for value in &values {
                bytes.extend_from_slice(value.as_deref().unwrap_or_default().as_bytes());
                offsets
                    .push(i32::try_from(bytes.len()).map_err(|_| "a column of texts is longer than 2 GB")?);
            }
            Column { valid: valid(&values), data: Data::Text(offsets, bytes) }
        }
    })
}

/// A bit for each value that is there, or nothing if all are.
fn valid<T>(values: &[Option<T>]) -> Option<Vec<u8>> {
    values.iter().any(Option::is_none).then(|| bits(values.iter().map(Option::is_some)))
}

fn bits(values: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (place, value) in values.enumerate() {
        if place % 8 == 0 {
            bytes.push(0);
        }
        if value {
            bytes[place / 8] |= 1 << (place % 8);
        }
    }
    bytes
}
