//! The lines of a Python program that make requests, and its tags.
//!
//! They are looked up without a line of Python: where a daemon thread runs Python code while the interpreter ends, the interpreter ends the
//! thread there, and it has no way out through the functions of Rust below.

use pyo3::{
    exceptions::PyValueError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyString, PyTuple},
};

/// The packages whose lines are not the program's.
const LIBRARIES: [&str; 6] = ["pyopencl", "pytools", "torch", "cupy", "cupyx", "binpool"];

/// `sys._getframe`, which is written in C.
static GET_FRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `binpool._tag.TAGS`, a variable of Python's contexts, which is written in C.
static TAGS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// What stands between a tag of the program's and a line.
const AT: &str = ", at ";

/// Returns who makes the current request: the line of the program, as `file.py:12 in function`, after the innermost tag of the program's if
/// there is one. The line is the innermost that is in none of the array libraries. What cannot be found is an unknown line: a request does
/// not fail for it.
pub(crate) fn caller(py: Python<'_>) -> String {
    let line = line_of_caller(py);
    match find_tag(py) {
        Ok(Some(tag)) => format!("{tag}{AT}{line}"),
        _ => line,
    }
}

/// Takes what [`caller`] has returned apart again: the tag, and the line.
pub(crate) fn tag_and_line(caller: &str) -> (Option<&str>, &str) {
    match caller.rsplit_once(AT) {
        Some((tag, line)) => (Some(tag), line),
        None => (None, caller),
    }
}

fn find_tag(py: Python<'_>) -> PyResult<Option<String>> {
    let tags = TAGS.import(py, "binpool._tag", "TAGS")?;
    let tags = tags.call_method0(intern!(py, "get"))?;
    let innermost = tags.cast::<PyTuple>()?.iter().next_back();
    innermost.as_ref().map(text).transpose()
}

fn line_of_caller(py: Python<'_>) -> String {
    find_line(py).unwrap_or_else(|error| {
        // PyTorch's backward pass has such.
        let has_none = error.is_instance_of::<PyValueError>(py);
        let line = if has_none {
            "a thread without Python"
        } else {
            "an unknown line"
        };
        line.to_owned()
    })
}

fn find_line(py: Python<'_>) -> PyResult<String> {
    let innermost = GET_FRAME.import(py, "sys", "_getframe")?.call0()?;
    let mut frame = innermost.clone();
    while is_library(&frame)? {
        frame = frame.getattr(intern!(py, "f_back"))?;
        if frame.is_none() {
            frame = innermost;
            break;
        }
    }
    let code = frame.getattr(intern!(py, "f_code"))?;
    let file = text(&code.getattr(intern!(py, "co_filename"))?)?;
    let file = file.rsplit('/').next().unwrap_or_default();
    let line = frame.getattr(intern!(py, "f_lineno"))?;
    // `None` if a frame is between two lines.
    let line: usize = line.extract().unwrap_or(0);
    let function = text(&code.getattr(intern!(py, "co_qualname"))?)?;
    Ok(format!("{file}:{line} in {function}"))
}

/// Returns whether a frame runs code of one of the array libraries.
fn is_library(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = frame.py();
    let globals = frame.getattr(intern!(py, "f_globals"))?;
    let name = globals
        .cast::<PyDict>()?
        .get_item(intern!(py, "__name__"))?;
    let name = name.as_ref().and_then(|name| name.cast::<PyString>().ok());
    Ok(name.is_some_and(|name| {
        let name = name.to_string_lossy();
        LIBRARIES.contains(&name.split('.').next().unwrap_or_default())
    }))
}

/// Returns a string of Python, which may have what is not a character: in the name of a file, for example.
fn text(string: &Bound<'_, PyAny>) -> PyResult<String> {
    let string = string.cast::<PyString>()?;
    Ok(string.to_string_lossy().into_owned())
}
