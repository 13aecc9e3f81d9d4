//! What can be asked of every pool.

use std::path::PathBuf;

use binpool::WatchOptions;
use binpool_allocators::words;
use binpool_capi::{AnyPool, NewFile, of_backend};
use binpool_recordings::view::SnapshotNumbers;
use binpool_trace::Snapshot;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    argument::{self, number},
    error::{raised, unreadable},
    file::{FilePath, file_error},
    reclaim::{self, HookId},
    recording::Recording,
    statistics::{LiveGroup, Statistics, groups_of},
    view::Page,
};

/// What every pool has. `MemoryPool` and `SVMPool` are pools, and `binpool.torch.pool()` returns one.
///
/// All methods may be called from any thread, and let other threads of Python run meanwhile.
#[pyclass(frozen, subclass, module = "binpool")]
pub(crate) struct Pool {
    pub(crate) any: AnyPool,
}

#[pymethods]
impl Pool {
    /// The figures of the pool at this moment.
    #[getter]
    fn statistics(&self, py: Python<'_>) -> Statistics {
        Statistics(py.detach(|| of_backend!(&self.any, pool => pool.statistics())))
    }

    /// The most bytes that the pool takes from the device, at least 1, or `None` for no limit. A lower one holds from the next request on: what
    /// the pool has above it stays until it is free.
    #[getter]
    fn limit(&self, py: Python<'_>) -> Option<u64> {
        let limit = py.detach(|| of_backend!(&self.any, pool => pool.limit()));
        Some(limit).filter(|limit| *limit != u64::MAX)
    }

    #[setter]
    fn set_limit(&self, py: Python<'_>, bytes: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let limit = argument::limit(bytes.as_ref())?;
        py.detach(|| of_backend!(&self.any, pool => pool.set_limit(limit)));
        Ok(())
    }

    /// Releases free memory until the pool has at most `bytes` bytes of the device. Returns the bytes released. Blocks in use stay.
    #[pyo3(signature = (bytes = None), text_signature = "($self, bytes=0)")]
    fn trim(&self, py: Python<'_>, bytes: Option<Bound<'_, PyAny>>) -> PyResult<u64> {
        let bytes = bytes.map_or(Ok(0), |bytes| number("bytes", &bytes))?;
        Ok(py.detach(|| of_backend!(&self.any, pool => pool.trim_to(bytes))))
    }

    /// Adds a function that frees memory when the device is full, or the limit is reached, and the pool has nothing left to release: it is called with the bytes
    /// of the request, on the thread of the request, before that fails. Functions are called in the order in which they were added, until the request
    /// succeeds; one that returns a true value has freed something, and is called again. Each may use the pool. What one raises goes to `sys.unraisablehook`. One that refers to the pool keeps it until it is removed.
    fn add_reclaim_hook(&self, hook: Bound<'_, PyAny>) -> PyResult<HookId> {
        let hook = reclaim::hook(hook)?;
        let id = of_backend!(&self.any, pool => pool.add_reclaim_hook(hook));
        Ok(HookId(id))
    }

    /// Removes a function that `add_reclaim_hook` has added. Returns whether it was there.
    fn remove_reclaim_hook(&self, id: &HookId) -> bool {
        of_backend!(&self.any, pool => pool.remove_reclaim_hook(id.0))
    }

    /// Begins to note which line of the program requests each block, for `live_blocks`, snapshots and the report of a shortage.
    fn watch(&self, py: Python<'_>) {
        py.detach(
            || of_backend!(&self.any, pool => pool.watch(WatchOptions::new().tags_only(true))),
        );
    }

    /// Ends what `watch` began, and its cost. A recording that is not finished goes on.
    fn stop_watching(&self, py: Python<'_>) {
        py.detach(|| of_backend!(&self.any, pool => pool.stop_watching()));
    }

    /// The blocks in use by the lines that requested them, largest first. Blocks from before `watch` are together in a group without a line.
    /// An error where the pool is neither watched nor recorded.
    fn live_blocks(&self, py: Python<'_>) -> PyResult<Vec<LiveGroup>> {
        let (is_watching, blocks) =
            py.detach(|| of_backend!(&self.any, pool => (pool.is_watching(), pool.live_blocks())));
        if !is_watching {
            return Err(PyValueError::new_err(
                "the pool does not track which lines allocate: call watch() before live_blocks()",
            ));
        }
        Ok(groups_of(blocks))
    }

    /// The figures and the blocks in use, as a text to read or log.
    fn report(&self, py: Python<'_>) -> String {
        py.detach(|| {
            let (figures, blocks) =
                of_backend!(&self.any, pool => (pool.statistics(), pool.live_blocks()));
            format!("{figures}\n{blocks}")
        })
    }

    /// Writes down every request, with its line of the program, to the file `path`, until the recording is finished. Use it in a
    /// `with` statement. `binpool.view` draws it, and the command `binpool` replays it and tunes a pool to it.
    fn record(&self, py: Python<'_>, path: FilePath) -> PyResult<Recording> {
        py.detach(|| {
            let file = NewFile::create(&path.0).map_err(|error| file_error(error, &path.0))?;
            let recording = of_backend!(&self.any, pool => pool.record(file)).map_err(raised)?;
            Ok(Recording::new(recording, path.0))
        })
    }

    /// What the pool has at this moment, segment by segment and block by block, as JSON (`binpool view` reads it; so does
    /// `json.loads`).
    fn snapshot(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| {
            of_backend!(&self.any, pool => pool.snapshot())
                .to_json()
                .map_err(raised)
        })
    }

    /// Writes a page for the browser that shows what the pool has at this moment, and returns its path. For a page over time, see `record`.
    fn view(&self, py: Python<'_>, page: FilePath) -> PyResult<PathBuf> {
        let page = Page::at(page)?;
        py.detach(|| {
            let json = of_backend!(&self.any, pool => pool.snapshot().to_json()).map_err(raised)?;
            let snapshot = Snapshot::from_json(&json).map_err(unreadable)?;
            page.write(&SnapshotNumbers::new("pool", &snapshot).page(&snapshot))
        })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let figures = py.detach(|| of_backend!(&self.any, pool => pool.statistics()));
        let [used, all] = [figures.active_bytes, figures.managed_bytes].map(words::bytes);
        format!("<binpool pool: {used} in use of {all}>")
    }
}
