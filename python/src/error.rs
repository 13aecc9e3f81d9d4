//! Errors of the pool as exceptions of Python.

use std::error::Error;

use binpool::PoolError;
use binpool_capi::{Failure, Status};
use pyo3::{prelude::*, sync::PyOnceLock, types::PyType};

/// Returns the text of an error and of what it came from.
fn text_of(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Returns an exception of the class that `find` finds in `binpool._errors`.
fn exception(
    text: String,
    find: impl for<'py> FnOnce(&Bound<'py, PyModule>) -> PyResult<Bound<'py, PyAny>>,
) -> PyErr {
    Python::attach(|py| {
        let class = py
            .import("binpool._errors")
            .and_then(|errors| find(&errors));
        match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
            Ok(class) => PyErr::from_type(class, text),
            Err(error) => error,
        }
    })
}

/// `binpool.OutOfMemoryError` as a kind of `pyopencl.MemoryError`.
static OUT_OF_MEMORY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Returns the class for a lack of memory: a kind of `pyopencl.MemoryError`, if the program has imported PyOpenCL.
fn out_of_memory_class<'py>(errors: &Bound<'py, PyModule>) -> PyResult<Bound<'py, PyAny>> {
    let py = errors.py();
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(pyopencl) = modules.get_item("pyopencl") else {
        return errors.getattr("OutOfMemoryError");
    };
    let class = OUT_OF_MEMORY.get_or_try_init(py, || {
        let class = errors.getattr("of_pyopencl")?;
        class
            .call1((pyopencl.getattr("MemoryError")?,))
            .map(Bound::unbind)
    })?;
    Ok(class.bind(py).clone())
}

/// Returns the exception for an error of a pool: `binpool.OutOfMemoryError` with the whole report, or `binpool.Error`.
pub(crate) fn pool_error(error: PoolError) -> PyErr {
    match error.out_of_memory() {
        Some(report) => exception(report.to_string(), out_of_memory_class),
        None => other_error(error),
    }
}

/// Returns `binpool.Error` with the text of `error`.
pub(crate) fn other_error(error: impl Error) -> PyErr {
    exception(text_of(&error), |errors| errors.getattr("Error"))
}

/// Returns the exception for a pool over CUDA that failed.
pub(crate) fn cuda_error(failure: Failure) -> PyErr {
    let class = if failure.status() == Status::OutOfMemory {
        "OutOfMemoryError"
    } else {
        "Error"
    };
    exception(failure.to_string(), |errors| errors.getattr(class))
}
