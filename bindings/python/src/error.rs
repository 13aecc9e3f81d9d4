//! Failures as exceptions of Python.

use std::error::Error;

use binpool_capi::{Failure, Status};
use pyo3::{prelude::*, types::PyType};

/// What the interface for Rust says of an object of another context, and what a program in Python is told.
const OF_ANOTHER: [&str; 2] = [
    "another backend: use objects made by the backend they are passed to",
    "another context or device than the pool: use those that the pool was made for",
];

/// Returns the exception of a failure: `binpool.OutOfMemoryError` with the whole report, or `binpool.Error`.
pub(crate) fn raised(failure: impl Into<Failure>) -> PyErr {
    let failure = failure.into();
    Python::attach(|py| match class_of(py, failure.status()) {
        Ok(class) => PyErr::from_type(class, text(&failure)),
        Err(error) => error,
    })
}

/// Returns the text of a failure. A report of a shortage without the lines that hold the memory says how to see them.
fn text(failure: &Failure) -> String {
    let text = failure.to_string().replace(OF_ANOTHER[0], OF_ANOTHER[1]);
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

/// Returns the class for failures of a kind: also one of PyOpenCL's, if the program has imported PyOpenCL.
fn class_of(py: Python<'_>, status: Status) -> PyResult<Bound<'_, PyType>> {
    let (class, of_pyopencl) = match status {
        Status::OutOfMemory => ("OutOfMemoryError", "MemoryError"),
        Status::InvalidArgument => ("Error", "LogicError"),
        _ => ("Error", "RuntimeError"),
    };
    let errors = py.import("binpool._errors")?;
    let mut class = errors.getattr(class)?;
    let modules = py.import("sys")?.getattr("modules")?;
    if let Ok(pyopencl) = modules.get_item("pyopencl") {
        let both = (class, pyopencl.getattr(of_pyopencl)?);
        class = errors.getattr("of_pyopencl")?.call1(both)?;
    }
    Ok(class.cast_into()?)
}
