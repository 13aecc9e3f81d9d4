//! Arguments that are whole numbers.

use pyo3::{
    exceptions::{PyOverflowError, PyTypeError, PyValueError},
    prelude::*,
};

/// Returns an argument, a whole number from 0 on. The error for another one names it.
pub(crate) fn number<T: TryFrom<u64>>(name: &str, given: &Bound<'_, PyAny>) -> PyResult<T> {
    let py = given.py();
    match given.extract::<u64>().map(T::try_from) {
        Ok(Ok(number)) => Ok(number),
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Err(PyTypeError::new_err(
            format!("{name}: a whole number is needed, not {}", given.repr()?),
        )),
        Err(error) if !error.is_instance_of::<PyOverflowError>(py) => Err(error),
        _ => Err(PyValueError::new_err(format!(
            "{name}: {given} is negative or too large"
        ))),
    }
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
