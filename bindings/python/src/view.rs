//! Pages for the browser.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use binpool_recordings::{
    Content, Trace,
    view::{By, History, page_of},
};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    error::unreadable,
    file::{FilePath, file_error},
};

/// A file that a page is written to.
pub(crate) struct Page(PathBuf);

impl Page {
    /// Returns the page of this name: one with another ending would get something that its name does not say.
    pub(crate) fn at(path: FilePath) -> PyResult<Self> {
        match path.0.extension().and_then(OsStr::to_str) {
            Some("html" | "htm") => Ok(Self(path.0)),
            None if path.0.extension().is_none() => Ok(Self(path.0)),
            _ => Err(PyValueError::new_err(format!(
                "{}: the page is HTML, so its name ends in .html or .htm, or has no ending",
                path.0.display()
            ))),
        }
    }

    /// Writes it, and returns its path.
    pub(crate) fn write(self, html: &str) -> PyResult<PathBuf> {
        fs::write(&self.0, html).map_err(|error| file_error(error, &self.0))?;
        Ok(self.0)
    }

    /// Returns whether it would be written over `file`.
    fn is_at(&self, file: &Path) -> bool {
        let places = [&self.0, file].map(|path| fs::metadata(path).map(|it| (it.dev(), it.ino())));
        matches!(places, [Ok(page), Ok(file)] if page == file)
    }
}

/// Writes a page for the browser that shows a recording of a pool, `Pool.record`: which line of the program used the memory, when, and
/// where its blocks lay. It is one file, which needs no network. Returns the path of the page.
#[pyfunction]
pub(crate) fn view(py: Python<'_>, recording: FilePath, page: FilePath) -> PyResult<PathBuf> {
    let (recording, page) = (recording.0, Page::at(page)?);
    py.detach(|| {
        let name = recording.display().to_string();
        if page.is_at(&recording) {
            return Err(PyValueError::new_err(format!(
                "{name}: the page would be written over the recording; name another file"
            )));
        }
        let content = File::open(&recording).and_then(Content::new);
        let content = content.map_err(|error| file_error(error, &recording))?;
        let trace = Trace::read_content(&name, content, None).map_err(unreadable)?;
        let by = if trace.groups().is_empty() {
            By::Size
        } else {
            By::Group
        };
        let history = History::happened(&trace).ok_or_else(|| {
            PyValueError::new_err(format!(
                "{name} does not say where its blocks were: it is not a finished recording of a pool; `binpool view` simulates such files"
            ))
        })?;
        page.write(&page_of(&[(&history.name, &history)], by))
    })
}
