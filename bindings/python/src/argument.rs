//! Arguments that are whole numbers.

use pyo3::{
    conversion::FromPyObjectOwned,
    exceptions::{PyOverflowError, PyTypeError, PyValueError},
    prelude::*,
};

/// Returns an argument, a whole number from 0 on. The error for another one names it.
pub(crate) fn number<'py, T: FromPyObjectOwned<'py, Error = PyErr>>(
    name: &str,
    given: &Bound<'py, PyAny>,
) -> PyResult<T> {
    given.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(given.py()) {
            PyValueError::new_err(format!("{name}: {given} is negative or too large"))
        } else if error.is_instance_of::<PyTypeError>(given.py()) {
            PyTypeError::new_err(format!("{name}: a whole number is needed, not {given:?}"))
        } else {
            error
        }
    })
}

/// Returns a limit in bytes; an error for 0, which would allow no block.
pub(crate) fn limit(given: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
    match given.map(|given| number("limit", given)).transpose()? {
        Some(0) => Err(PyValueError::new_err(
            "a limit of 0 bytes allows no block: pass None for no limit",
        )),
        limit => Ok(limit.unwrap_or(u64::MAX)),
    }
}
