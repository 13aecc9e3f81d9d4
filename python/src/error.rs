//! Failures as exceptions of Python.

use std::error::Error;

use binpool_capi::{Failure, Status};
use pyo3::{prelude::*, sync::PyOnceLock, types::PyType};

/// What the interface for Rust says of an object of another context, and what a program in Python is told.
const OF_ANOTHER: [&str; 2] = [
    "another backend: use objects made by the backend they are passed to",
    "another context or device than the pool: use those that the pool was made for",
];

/// Returns the exception of a failure: `binpool.OutOfMemoryError` with the whole report, or `binpool.Error`.
pub(crate) fn raised(failure: impl Into<Failure>) -> PyErr {
    let failure = failure.into();
    exception(failure.status(), text(&failure))
}

/// Returns the exception of a request that makes no sense.
pub(crate) fn refused(text: &str) -> PyErr {
    exception(Status::InvalidArgument, text.to_owned())
}

fn exception(status: Status, text: String) -> PyErr {
    Python::attach(|py| match class_of(py, status) {
        Ok(class) => PyErr::from_type(class, text),
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

/// Returns the class for failures of a kind: also a kind of PyOpenCL's error, if the program has imported PyOpenCL.
fn class_of(py: Python<'_>, status: Status) -> PyResult<Bound<'_, PyType>> {
    static OF_PYOPENCL: [PyOnceLock<Py<PyType>>; 3] = [const { PyOnceLock::new() }; 3];
    let (name, of_pyopencl, known) = match status {
        Status::OutOfMemory => ("OutOfMemoryError", "MemoryError", &OF_PYOPENCL[0]),
        Status::InvalidArgument => ("Error", "LogicError", &OF_PYOPENCL[1]),
        _ => ("Error", "RuntimeError", &OF_PYOPENCL[2]),
    };
    let errors = py.import("binpool._errors")?;
    let class = errors.getattr(name)?.cast_into::<PyType>()?;
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(pyopencl) = modules.get_item("pyopencl") else {
        return Ok(class);
    };
    let class = known.get_or_try_init(py, || {
        let make = errors.getattr("of_pyopencl")?;
        let made = make.call1((class, pyopencl.getattr(of_pyopencl)?))?;
        Ok::<_, PyErr>(made.cast_into::<PyType>()?.unbind())
    })?;
    Ok(class.bind(py).clone())
}
