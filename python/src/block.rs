//! Blocks of pools as PyOpenCL has them.

use std::ffi::{c_int, c_void};

use binpool::{
    Allocator, Error, MemoryPool, PooledBuffer, SvmAllocator, SvmBackend, Tag, adaptors::Limit,
};
use binpool_capi::OpenClAllocator;
use binpool_opencl::{ClQueue, OpenClBackend};
use parking_lot::Mutex;
use pyo3::{
    exceptions::{PyBufferError, PyValueError},
    ffi, intern,
    prelude::*,
    sync::PyOnceLock,
};

use crate::{
    error::other_error,
    opencl::{event_of, python_event, queue_of},
    uses::Uses,
};

/// The allocator below pools of shared virtual memory.
pub(crate) type Svm = Limit<SvmAllocator<OpenClBackend>>;

/// `pyopencl.MemoryObject.from_int_ptr`: PyOpenCL's kernels take no other class's buffers.
static FROM_HANDLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The class of blocks of shared virtual memory, a `pyopencl.SVM`.
static SVM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A pool whose blocks PyOpenCL can use.
pub(crate) trait GivesBlocks: Send + Sync {
    fn backend(&self) -> &OpenClBackend;

    /// Allocates a block of `bytes` bytes, which are not 0, with the tag of the request. It is an object of PyOpenCL, which goes back
    /// when Python drops it.
    fn give<'py>(
        &self,
        py: Python<'py>,
        uses: &Uses,
        tag: Option<Tag>,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// Allocates with the tag that the request has.
fn within<R>(tag: Option<Tag>, allocate: impl FnOnce() -> R) -> R {
    match tag {
        Some(tag) => tag.within(allocate),
        None => allocate(),
    }
}

impl GivesBlocks for MemoryPool<OpenClAllocator> {
    fn backend(&self) -> &OpenClBackend {
        Self::backend(self)
    }

    fn give<'py>(
        &self,
        py: Python<'py>,
        uses: &Uses,
        tag: Option<Tag>,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (block, handle) = py.detach(|| {
            let block = within(tag, || uses.allocate(self, bytes))?;
            let memory = block.memory_on(uses.queue());
            let memory = memory.ok_or_else(|| PyValueError::new_err("the block has no memory"))?;
            let handle = memory.raw_view().map_err(other_error)?.expose_provenance();
            Ok::<_, PyErr>((block, handle))
        })?;
        let from_handle = FROM_HANDLE.get_or_try_init(py, || {
            let class = py.import("pyopencl")?.getattr("MemoryObject")?;
            class.getattr("from_int_ptr").map(Bound::unbind)
        })?;
        let buffer = from_handle.bind(py).call1((handle, true))?;
        buffer.setattr(intern!(py, "release"), Block(Held::new(block)))?;
        Ok(buffer)
    }
}

impl GivesBlocks for MemoryPool<Svm> {
    fn backend(&self) -> &OpenClBackend {
        Self::backend(self)
    }

    fn give<'py>(
        &self,
        py: Python<'py>,
        uses: &Uses,
        tag: Option<Tag>,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let block = py.detach(|| {
            let block = within(tag, || uses.allocate(self, bytes))?;
            let memory = block.memory_on(uses.queue());
            let address = memory.and_then(|memory| block.backend().svm_address(memory));
            let address =
                address.ok_or_else(|| PyValueError::new_err("the block has no address"))?;
            let address = address.as_ptr().expose_provenance();
            Ok::<_, PyErr>(SvmBlock {
                bytes: block.size(),
                held: Held::new(block),
                address,
            })
        })?;
        let class = SVM.get_or_try_init(py, || {
            let class = py.import("binpool._svm")?.getattr("SVM");
            class.map(Bound::unbind)
        })?;
        class.bind(py).call1((block,))
    }
}

/// A block that goes back to its pool once: when the program releases it, or when Python drops it.
struct Held<A: Allocator>(Mutex<Option<PooledBuffer<A>>>);

impl<A: Allocator<Backend = OpenClBackend>> Held<A> {
    fn new(block: PooledBuffer<A>) -> Self {
        Self(Mutex::new(Some(block)))
    }

    /// Calls `work` with the block, which the program has not released.
    fn with<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut PooledBuffer<A>) -> Result<R, Error> + Send,
    ) -> PyResult<R>
    where
        R: Send,
    {
        py.detach(|| match &mut *self.0.lock() {
            Some(block) => work(block).map_err(other_error),
            None => Err(released()),
        })
    }

    /// Takes the block out, which the program has not released.
    fn take(&self) -> PyResult<PooledBuffer<A>> {
        self.0.lock().take().ok_or_else(released)
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.take()?.release().map_err(other_error))
    }
}

fn released() -> PyErr {
    PyValueError::new_err("the block was released before")
}

/// A block of a pool of buffers: the attribute `release` of the `pyopencl.Buffer` over it, which drops it with itself.
#[pyclass(frozen, module = "binpool")]
struct Block(Held<OpenClAllocator>);

#[pymethods]
impl Block {
    /// Gives the block back to its pool, instead of `pyopencl.Buffer.release`, which would only let go of the buffer's handle. Commands that
    /// were enqueued before may still use it.
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.release(py)
    }
}

/// A block of a pool of shared virtual memory: the attribute `mem` of the `pyopencl.SVM` over it, which takes its address by the buffer
/// protocol, and drops it with itself.
#[pyclass(frozen, module = "binpool")]
struct SvmBlock {
    held: Held<Svm>,
    /// The address as a number.
    address: usize,
    bytes: usize,
}

#[expect(unsafe_code, reason = "the buffer protocol fills a structure of C")]
#[pymethods]
impl SvmBlock {
    /// Gives the address and the size. The bytes may be read and written on the host only where the memory is mapped or fine-grained.
    ///
    /// # Safety
    ///
    /// `view` is a structure to fill, as Python passes it.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no structure to fill"));
        }
        let block = slf.get();
        let bytes = isize::try_from(block.bytes)?;
        let address = std::ptr::with_exposed_provenance_mut::<c_void>(block.address);
        // SAFETY: Python passes a structure to fill, and the block, which it keeps, has these bytes at this address.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, bytes, 0, flags) };
        if filled == -1 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }

    /// Gives the block back to its pool. Commands that were enqueued before may still use it.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.held.release(py)
    }

    /// Makes `queue` the block's only queue. What is enqueued there from now on comes behind the commands of its former queues.
    fn bind_to_queue(&self, py: Python<'_>, queue: &Bound<'_, PyAny>) -> PyResult<()> {
        let queue = self.queue(py, queue)?;
        self.held.with(py, move |block| block.bind_to_queue(&queue))
    }

    /// Waits for the commands of the block's queues, and leaves it without a queue.
    fn unbind_from_queue(&self, py: Python<'_>) -> PyResult<()> {
        self.held.with(py, PooledBuffer::unbind_from_queue)
    }

    /// Gives the block back by a command on `queue`, or on the block's own, behind `wait_for` and what was enqueued on the block's queues.
    /// Returns the event of that command.
    #[pyo3(signature = (queue = None, wait_for = None))]
    fn enqueue_release<'py>(
        &self,
        py: Python<'py>,
        queue: Option<&Bound<'py, PyAny>>,
        wait_for: Option<Vec<Bound<'py, PyAny>>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let queue = queue.map(|queue| self.queue(py, queue)).transpose()?;
        let backend = self.held.with(py, |block| Ok(block.backend().clone()))?;
        let events = wait_for.unwrap_or_default();
        let events: PyResult<Vec<_>> = events
            .iter()
            .map(|event| event_of(&backend, event))
            .collect();
        let events = events?;
        let ended = py.detach(|| {
            let released = self.held.take()?.enqueue_release(queue.as_ref(), &events);
            released.map_err(other_error)
        })?;
        python_event(py, &ended)
    }
}

impl SvmBlock {
    /// Returns a queue of Python's as one of the block's backend.
    fn queue(&self, py: Python<'_>, queue: &Bound<'_, PyAny>) -> PyResult<ClQueue> {
        let backend = self.held.with(py, |block| Ok(block.backend().clone()))?;
        queue_of(&backend, queue)
    }
}

/// Finds the block below a `pyopencl.Buffer` or `pyopencl.SVM`, or below the data of an array, and notes that `queue` uses it.
pub(crate) fn used_on(data: &Bound<'_, PyAny>, queue: &ClQueue) -> PyResult<()> {
    let py = data.py();
    let base = data.getattr_opt(intern!(py, "base_data"))?;
    let data = base.as_ref().unwrap_or(data);
    if let Some(release) = data.getattr_opt(intern!(py, "release"))?
        && let Ok(block) = release.cast::<Block>()
    {
        return block.get().0.with(py, |block| block.record_use(queue));
    }
    if let Some(memory) = data.getattr_opt(intern!(py, "mem"))?
        && let Ok(block) = memory.cast::<SvmBlock>()
    {
        return block.get().held.with(py, |block| block.record_use(queue));
    }
    Err(PyValueError::new_err(
        "no block of a binpool pool: pass an array, or what an allocator of the pool has returned",
    ))
}
