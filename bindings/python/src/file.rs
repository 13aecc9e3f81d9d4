//! Files that a program names.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use pyo3::{
    Borrowed,
    exceptions::{PyOSError, PyValueError},
    prelude::*,
    types::PyBytes,
};

/// The path of a file, as Python's `open` takes it: `str`, `bytes` or an `os.PathLike` of these.
pub(crate) struct FilePath(pub(crate) PathBuf);

impl FromPyObject<'_, '_> for FilePath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let path = py.import("os")?.call_method1("fspath", (object,))?;
        let path: PathBuf = match path.cast::<PyBytes>() {
            Ok(bytes) => OsString::from_vec(bytes.as_bytes().to_vec()).into(),
            Err(_) => path.extract()?,
        };
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(PyValueError::new_err("a null byte in the name of a file"));
        }
        Ok(Self(path))
    }
}

/// The system's number for a failure of input or output, on all systems.
const EIO: i32 = 5;

/// Returns the exception for a file that could not be read or written, with its number and the name of the file, as `open` raises it.
pub(crate) fn file_error(error: io::Error, path: &Path) -> PyErr {
    // What is wrong within a compressed file is not a failure of the system, and has no number of its own.
    let number = error.raw_os_error().unwrap_or(EIO);
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text).to_owned();
    PyOSError::new_err((number, text, path.as_os_str().to_owned()))
}
