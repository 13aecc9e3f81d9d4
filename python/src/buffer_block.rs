//! Blocks of buffers as PyOpenCL has them, and parts of these.

use binpool::{Backend, PooledBuffer, Region};
use binpool_opencl::{ClMemory, ClQueue, OpenClBackend};
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, intern, prelude::*, sync::PyOnceLock};

use crate::{
    block::{Held, released},
    error::raised,
};

/// `pyopencl.MemoryObject.from_int_ptr`: PyOpenCL's kernels take no other class's buffers.
static FROM_HANDLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `pyopencl.Buffer.get_sub_region`.
static SUB_REGION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The class of blocks and of their parts, a `pyopencl.Buffer`.
static BUFFER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A block of a pool of buffers: an attribute of the `pyopencl.Buffer` over it, which drops it with itself.
#[pyclass(frozen, module = "binpool")]
struct Block {
    held: Held,
    /// A queue that the block is used on.
    queue: ClQueue,
}

#[pymethods]
impl Block {
    /// Gives the block back to its pool. Commands that were enqueued before may still use it. Its parts stay valid: until they are gone,
    /// the pool does not reuse the memory.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.held.take(py, || Ok(()), PooledBuffer::release)
    }

    /// Returns a `pyopencl.Buffer` over a part of the block.
    fn part<'py>(
        slf: &Bound<'py, Self>,
        origin: usize,
        size: usize,
        flags: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let block = slf.get();
        let place = block.held.with(py, |held| {
            let memory = held.memory_on(&block.queue);
            memory
                .map(|memory| Place::of(held.backend(), memory, origin, size))
                .transpose()
        })?;
        place.ok_or_else(no_memory)?.buffer(slf, flags)
    }
}

/// A part of a block: the same attribute of the `pyopencl.Buffer` over it. It keeps the block.
#[pyclass(frozen, module = "binpool")]
struct Part {
    /// Has the pool keep the memory if the program releases the block. Locked only while other threads of Python may run. Before the
    /// block: a block without views goes back at once.
    view: Mutex<Option<ClMemory>>,
    block: Py<Block>,
    backend: OpenClBackend,
}

#[pymethods]
impl Part {
    /// Has the pool no longer keep the memory for this part.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let view = py.detach(|| self.view.lock().take());
        view.map(drop).ok_or_else(released)
    }

    /// Returns a `pyopencl.Buffer` over a part of this one.
    fn part<'py>(
        &self,
        py: Python<'py>,
        origin: usize,
        size: usize,
        flags: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let place = py.detach(|| match &*self.view.lock() {
            Some(view) => Place::of(&self.backend, view, origin, size).map_err(raised),
            None => Err(released()),
        })?;
        place.buffer(self.block.bind(py), flags)
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
    fn buffer<'py>(self, block: &Bound<'py, Block>, flags: u64) -> PyResult<Bound<'py, PyAny>> {
        let py = block.py();
        let sub_region = SUB_REGION.get_or_try_init(py, || {
            let class = py.import("pyopencl")?.getattr("Buffer")?;
            class.getattr("get_sub_region").map(Bound::unbind)
        })?;
        let whole = from_handle(py, self.whole)?;
        let buffer = sub_region
            .bind(py)
            .call1((whole, self.offset, self.size, flags))?;
        let part = Part {
            block: block.clone().unbind(),
            backend: self.backend,
            view: Mutex::new(Some(self.view)),
        };
        carrying(buffer, Bound::new(py, part)?.into_any())
    }
}

/// Returns a `pyopencl.Buffer` of this handle, which it retains.
fn from_handle(py: Python<'_>, handle: usize) -> PyResult<Bound<'_, PyAny>> {
    let from_handle = FROM_HANDLE.get_or_try_init(py, || {
        let class = py.import("pyopencl")?.getattr("MemoryObject")?;
        class.getattr("from_int_ptr").map(Bound::unbind)
    })?;
    from_handle.bind(py).call1((handle, true))
}

/// Makes a `pyopencl.Buffer` one of binpool's, which drops `block` with itself. PyOpenCL has no constructor that takes a handle and a
/// class.
fn carrying<'py>(
    buffer: Bound<'py, PyAny>,
    block: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = buffer.py();
    let class = BUFFER.import(py, "binpool._buffer", "Buffer")?;
    buffer.setattr(intern!(py, "__class__"), class)?;
    buffer.setattr(intern!(py, "_block"), block)?;
    Ok(buffer)
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
    let buffer = from_handle(py, handle)?;
    let block = Block {
        held: Held::new(block),
        queue: queue.clone(),
    };
    carrying(buffer, Bound::new(py, block)?.into_any())
}

/// Notes that `queue` uses the block below a `pyopencl.Buffer`; `None` where there is none.
pub(crate) fn record_use(buffer: &Bound<'_, PyAny>, queue: &ClQueue) -> PyResult<Option<()>> {
    let py = buffer.py();
    let Some(below) = buffer.getattr_opt(intern!(py, "_block"))? else {
        return Ok(None);
    };
    let block = match below.cast::<Part>() {
        Ok(part) => part.get().block.bind(py),
        Err(_) => match below.cast::<Block>() {
            Ok(block) => block,
            Err(_) => return Ok(None),
        },
    };
    let noted = block.get().held.with(py, |block| block.record_use(queue));
    noted.map(Some)
}
