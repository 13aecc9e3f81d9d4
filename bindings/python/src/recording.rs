//! `Recording` of the Python package.

use std::path::PathBuf;

use binpool::PoolRecording;
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    file::{FilePath, file_error},
    view,
};

/// A recording of a pool. It goes on until it is finished, by `finish` or at the end of a `with` statement.
#[pyclass(frozen, module = "binpool")]
pub(crate) struct Recording {
    /// Locked only while other threads of Python may run.
    recording: Mutex<Option<PoolRecording>>,
    path: PathBuf,
}

impl Recording {
    pub(crate) fn new(recording: PoolRecording, path: PathBuf) -> Self {
        Self {
            recording: Mutex::new(Some(recording)),
            path,
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(recording) = self.recording.get_mut().take() {
            // Waits for the thread that writes, whose file may be a pipe to a thread of Python.
            Python::try_attach(|py| py.detach(|| drop(recording)));
        }
    }
}

#[pymethods]
impl Recording {
    /// The file that it is written to.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Ends the recording, writes the rest of it, and returns the path of its file. Another call does nothing else.
    fn finish(&self, py: Python<'_>) -> PyResult<PathBuf> {
        py.detach(|| {
            // Locked until it is written, which `view` waits for.
            if let Some(recording) = self.recording.lock().take() {
                let finished = recording.finish();
                finished.map_err(|error| file_error(error, &self.path))?;
            }
            Ok(self.path.clone())
        })
    }

    /// Writes a page for the browser that shows the recording, which has to be finished, and returns the path of the page.
    fn view(&self, py: Python<'_>, page: FilePath) -> PyResult<PathBuf> {
        if py.detach(|| self.recording.lock().is_some()) {
            return Err(PyValueError::new_err(
                "the recording has not ended: call finish() before view()",
            ));
        }
        view::view(py, FilePath(self.path.clone()), page)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Vec<Py<PyAny>>) -> PyResult<()> {
        self.finish(py).map(drop)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let goes_on = py.detach(|| self.recording.lock().is_some());
        let state = if goes_on { "goes on" } else { "finished" };
        format!("<binpool.Recording to {}: {state}>", self.path.display())
    }
}
