//! Pages for the browser.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use binpool_replay::{
    Content, Trace,
    view::{By, History, page_of},
};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::error::other_error;

/// Writes a page to a file.
pub(crate) fn write_page(path: &Path, html: &str) -> PyResult<()> {
    Ok(fs::write(path, html)?)
}

/// Writes a page for the browser that shows a recording of a pool, `Pool.record`: which line of the program used the memory, when, and
/// where its blocks lay. It is one file, which needs no network.
#[pyfunction]
pub(crate) fn view(py: Python<'_>, recording: PathBuf, page: PathBuf) -> PyResult<()> {
    py.detach(|| {
        let name = recording.display().to_string();
        let content = File::open(&recording).and_then(Content::new)?;
        let trace = Trace::read_content(&name, content, None).map_err(other_error)?;
        let by = if trace.groups().is_empty() {
            By::Size
        } else {
            By::Group
        };
        let history = History::happened(&trace).ok_or_else(|| {
            PyValueError::new_err(format!(
                "{name} does not say where its blocks lay: it is no finished recording of a pool; `binpool view` simulates such files"
            ))
        })?;
        write_page(&page, &page_of(&[(&history.name, &history)], by)?)
    })
}
