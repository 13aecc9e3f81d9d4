//! Blocks of buffers as PyOpenCL has them, and parts of these.

use std::sync::Arc;

use binpool::{Backend, PooledBuffer, Region};
use binpool_opencl::{ClMemory, ClQueue, OpenClBackend};
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*, sync::PyOnceLock, types::PyTuple};

use crate::{
    argument::number,
    block::{Held, released},
    error::raised,
    kept::{Below, below, keep, keep_block},
    with_python::WithPython,
};

/// `pyopencl.MemoryObject.from_int_ptr`: PyOpenCL's kernels take no other class's buffers.
static FROM_HANDLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `pyopencl.Buffer.get_sub_region`.
static SUB_REGION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A block of a pool of buffers.
struct Block {
    held: Held,
    /// A queue that the block is used on.
    queue: ClQueue,
}

/// A part of a block, which it keeps.
struct Part {
    /// Has the pool keep the memory if the program releases the block. Locked only while other threads of Python may run. Before the
    /// block: a block without views goes back at once.
    view: Mutex<Option<ClMemory>>,
    block: Arc<Block>,
    backend: OpenClBackend,
}

impl Below for Block {
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.held.take(py, || Ok(()), PooledBuffer::release)
    }

    fn part(
        self: Arc<Self>,
        py: Python<'_>,
        origin: usize,
        size: usize,
        flags: u64,
    ) -> PyResult<Bound<'_, PyAny>> {
        let place = self.held.with(py, |held| {
            let memory = held.memory_on(&self.queue);
            memory
                .map(|memory| Place::of(held.backend(), memory, origin, size))
                .transpose()
        })?;
        place.ok_or_else(no_memory)?.buffer(py, self, flags)
    }

    fn record_use(&self, py: Python<'_>, queue: &ClQueue) -> PyResult<()> {
        self.held.with(py, |block| block.record_use(queue))
    }
}

impl Below for Part {
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let view = py.detach(|| self.view.lock().take());
        view.map(drop).ok_or_else(released)
    }

    fn part(
        self: Arc<Self>,
        py: Python<'_>,
        origin: usize,
        size: usize,
        flags: u64,
    ) -> PyResult<Bound<'_, PyAny>> {
        let place = py.detach(|| match &*self.view.lock() {
            Some(view) => Place::of(&self.backend, view, origin, size).map_err(raised),
            None => Err(released()),
        })?;
        place.buffer(py, Arc::clone(&self.block), flags)
    }

    fn record_use(&self, py: Python<'_>, queue: &ClQueue) -> PyResult<()> {
        self.block.record_use(py, queue)
    }
}

/// Where a part lies.
struct Place {
    backend: OpenClBackend,
    view: ClMemory,
    /// The handle of the whole buffer, as a number.
    whole: usize,
    /// The offset of the part in that.
    offset: usize,
    size: usize,
}

impl Place {
    /// Finds the place of a part of `memory`.
    fn of(
        backend: &OpenClBackend,
        memory: &ClMemory,
        origin: usize,
        size: usize,
    ) -> binpool::Result<Self, binpool::Error> {
        let view = backend.create_sub_region(memory, Region::new(origin, size))?;
        let (whole, offset) = view
            .whole_and_offset()
            .ok_or_else(|| binpool::Error::unsupported("a part of memory without a handle"))?;
        Ok(Self {
            backend: backend.clone(),
            whole: whole.expose_provenance(),
            offset,
            size,
            view,
        })
    }

    /// Makes the buffer. OpenCL has no part of a part, so it is one of the whole buffer.
    fn buffer(self, py: Python<'_>, block: Arc<Block>, flags: u64) -> PyResult<Bound<'_, PyAny>> {
        let sub_region = SUB_REGION.get_or_try_init(py, || {
            let class = py.import("pyopencl")?.getattr("Buffer")?;
            class.getattr("get_sub_region").map(Bound::unbind)
        })?;
        let whole = from_handle(py, self.whole)?;
        let buffer = sub_region
            .bind(py)
            .call1((whole, self.offset, self.size, flags))?;
        let part = Part {
            block,
            backend: self.backend,
            view: Mutex::new(Some(self.view)),
        };
        keep(buffer, Arc::new(part))
    }
}

/// Returns a `pyopencl.Buffer` of this handle, which it retains.
fn from_handle(py: Python<'_>, handle: usize) -> PyResult<Bound<'_, PyAny>> {
    let from_handle = FROM_HANDLE.get_or_try_init(py, || {
        let class = py.import("pyopencl")?.getattr("MemoryObject")?;
        class.getattr("from_int_ptr").map(Bound::unbind)
    })?;
    from_handle.bind(py).call1(arguments(py, handle)?)
}

/// The arguments `(handle, True)` of the last handles, by some bits of these: a pool gives out the same blocks over and over.
static ARGUMENTS: WithPython<[Option<Arguments>; 64]> = WithPython::new([const { None }; 64]);

struct Arguments {
    handle: usize,
    tuple: Py<PyTuple>,
}

fn arguments(py: Python<'_>, handle: usize) -> PyResult<Bound<'_, PyTuple>> {
    // Handles are addresses of objects of some hundred bytes.
    let index = (handle >> 5 ^ handle >> 11) % 64;
    let found = ARGUMENTS.with(py, |all| {
        let known = all[index].as_ref().filter(|it| it.handle == handle)?;
        Some(known.tuple.clone_ref(py))
    });
    if let Some(Some(found)) = found {
        return Ok(found.into_bound(py));
    }
    let tuple = (handle, true).into_pyobject(py)?;
    let new = Arguments {
        handle,
        tuple: tuple.clone().unbind(),
    };
    let former = ARGUMENTS.with(py, |all| all[index].replace(new));
    drop(former);
    Ok(tuple)
}

fn no_memory() -> PyErr {
    PyValueError::new_err("the block has no memory")
}

/// Returns the handle of a block, which is used on this queue, as a number.
pub(crate) fn handle(block: &PooledBuffer<OpenClBackend>, queue: &ClQueue) -> PyResult<usize> {
    let memory = block.memory_on(queue).ok_or_else(no_memory)?;
    let handle = memory.raw_view().map_err(raised)?;
    Ok(handle.expose_provenance())
}

/// Returns a `pyopencl.Buffer` over a block with this handle, which is used on this queue. The block goes back when Python drops the
/// buffer.
pub(crate) fn buffer<'py>(
    py: Python<'py>,
    block: PooledBuffer<OpenClBackend>,
    handle: usize,
    queue: &ClQueue,
) -> PyResult<Bound<'py, PyAny>> {
    keep_block(from_handle(py, handle)?, block, queue)
}

fn share(block: PooledBuffer<OpenClBackend>, queue: ClQueue) -> Arc<dyn Below> {
    Arc::new(Block {
        held: Held::new(block),
        queue,
    })
}

/// Notes that `queue` uses the block below a `pyopencl.Buffer`; `None` if there is none.
pub(crate) fn record_use(buffer: &Bound<'_, PyAny>, queue: &ClQueue) -> PyResult<Option<()>> {
    let below = below(buffer, share)?;
    let noted = below.map(|below| below.record_use(buffer.py(), queue));
    noted.transpose()
}

/// Gives the block or the part below a buffer back, before Python drops the buffer.
#[pyfunction]
pub(crate) fn release_buffer(buffer: &Bound<'_, PyAny>) -> PyResult<()> {
    below_needed(buffer)?.release(buffer.py())
}

/// Returns a `pyopencl.Buffer` over a part of a buffer of binpool's.
#[pyfunction]
pub(crate) fn part_of_buffer<'py>(
    buffer: &Bound<'py, PyAny>,
    origin: &Bound<'py, PyAny>,
    size: &Bound<'py, PyAny>,
    flags: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (origin, size) = (number("origin", origin)?, number("size", size)?);
    below_needed(buffer)?.part(buffer.py(), origin, size, number("flags", flags)?)
}

/// Returns what lies below a buffer of binpool's; an error where Python has ended it already.
fn below_needed(buffer: &Bound<'_, PyAny>) -> PyResult<Arc<dyn Below>> {
    below(buffer, share)?.ok_or_else(released)
}
