//! Failures as exceptions of Python.

use std::error::Error;

use binpool_capi::{Failure, Status};
use pyo3::{prelude::*, sync::PyOnceLock, types::PyType};

/// Returns the exception of a failure: `binpool.OutOfMemoryError` with the whole report, or `binpool.Error`.
pub(crate) fn raised(failure: impl Into<Failure>) -> PyErr {
    let failure = failure.into();
    Python::attach(|py| {
        let class = py
            .import("binpool._errors")
            .and_then(|errors| match failure.status() {
                Status::OutOfMemory => out_of_memory_class(&errors),
                _ => errors.getattr("Error"),
            });
        match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
            Ok(class) => PyErr::from_type(class, text(&failure)),
            Err(error) => error,
        }
    })
}

/// Returns the text of a failure. A report of a shortage without the lines that hold the memory says how to see them.
fn text(failure: &Failure) -> String {
    let text = failure.to_string();
    if failure.status() != Status::OutOfMemory || text.contains("\nin use by\n") {
        return text;
    }
    format!(
        "{text}\nto see which lines hold the memory, call watch() on the pool before they allocate it"
    )
}

/// Returns the exception of a recording that cannot be read.
pub(crate) fn unreadable(error: impl Error) -> PyErr {
    raised(Failure::of(Status::Io, &error))
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
