//! Lines of a Python program as tags of its blocks.

use binpool::Tag;
use pyo3::{intern, prelude::*};

/// Returns a tag for the line of the program that makes the current request: the first that is not in binpool's or PyOpenCL's code.
pub(crate) fn tag_of_caller(py: Python<'_>) -> PyResult<Tag> {
    let module = py.import(intern!(py, "binpool._call_site"))?;
    let line = module.call_method0(intern!(py, "call_site"))?;
    Ok(Tag::new(line.extract::<String>()?))
}
