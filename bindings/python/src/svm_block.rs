//! Blocks of shared virtual memory as PyOpenCL has them.

use std::{
    ffi::{c_int, c_void},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use binpool::{PooledBuffer, SvmBackend};
use binpool_opencl::{ClQueue, OpenClBackend};
use pyo3::{
    exceptions::{PyBufferError, PyValueError},
    ffi, intern,
    prelude::*,
    sync::PyOnceLock,
};

use crate::{
    block::Held,
    opencl::{event_of, python_event, queue_of},
};

/// The class of blocks, a `pyopencl.SVM`.
static SVM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A block of a pool of shared virtual memory: the attribute `mem` of the `pyopencl.SVM` over it, which takes its address by the buffer
/// protocol, and drops it with itself.
#[pyclass(frozen, module = "binpool")]
struct SvmBlock {
    held: Held,
    /// The address as a number.
    address: usize,
    bytes: usize,
    /// The number of views of its bytes. Each keeps this object.
    views: AtomicUsize,
    /// How many of them the `pyopencl.SVM` has, from its beginning to its end.
    own_views: OnceLock<usize>,
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
        // Counted before the look: `release` looks in the other order.
        block.views.fetch_add(1, Ordering::SeqCst);
        if block.held.is_released() {
            block.views.fetch_sub(1, Ordering::SeqCst);
            return Err(PyBufferError::new_err("the block was already released"));
        }
        // SAFETY: Python passes a structure to fill, and the block, which it keeps, has these bytes at this address.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, bytes, 0, flags) };
        if filled == -1 {
            block.views.fetch_sub(1, Ordering::SeqCst);
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }

    /// Counts the end of a view.
    ///
    /// # Safety
    ///
    /// `view` is one that `__getbuffer__` has filled, as Python passes it.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.views.fetch_sub(1, Ordering::SeqCst);
    }

    /// Gives the block back to its pool. Commands that were enqueued before may still use it.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.held
            .take(py, || self.check_unviewed(), PooledBuffer::release)
    }

    /// Makes `queue` the block's only queue. What is enqueued there from now on runs after the commands of its former queues.
    fn bind_to_queue(&self, py: Python<'_>, queue: &Bound<'_, PyAny>) -> PyResult<()> {
        let queue = queue_of(&self.backend(py)?, queue)?;
        self.held.with(py, move |block| block.bind_to_queue(&queue))
    }

    /// Waits for the commands of the block's queues, and leaves it without a queue.
    fn unbind_from_queue(&self, py: Python<'_>) -> PyResult<()> {
        self.held.with(py, PooledBuffer::unbind_from_queue)
    }

    /// Gives the block back by a command on `queue`, or on the block's own, after `wait_for` and what was enqueued on the block's queues.
    /// Returns the event of that command.
    #[pyo3(signature = (queue = None, wait_for = None))]
    fn enqueue_release<'py>(
        &self,
        py: Python<'py>,
        queue: Option<&Bound<'py, PyAny>>,
        wait_for: Option<Vec<Bound<'py, PyAny>>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let backend = self.backend(py)?;
        let queue = queue.map(|queue| queue_of(&backend, queue)).transpose()?;
        let events = wait_for.unwrap_or_default();
        let events: PyResult<Vec<_>> = events
            .iter()
            .map(|event| event_of(&backend, event))
            .collect();
        let events = events?;
        let ended = self.held.take(
            py,
            || self.check_unviewed(),
            |block| block.enqueue_release(queue.as_ref(), &events),
        )?;
        python_event(py, &ended)
    }
}

impl SvmBlock {
    fn backend(&self, py: Python<'_>) -> PyResult<OpenClBackend> {
        self.held.with(py, |block| Ok(block.backend().clone()))
    }

    /// An error where the program has views of the bytes, as for a `bytearray` that is to be resized.
    fn check_unviewed(&self) -> PyResult<()> {
        let own = self.own_views.get().copied().unwrap_or(0);
        match self.views.load(Ordering::SeqCst).saturating_sub(own) {
            0 => Ok(()),
            views => Err(PyBufferError::new_err(format!(
                "{views} of the block's views are left (arrays, memoryviews): drop them before you release it"
            ))),
        }
    }
}

/// Returns the address of a block, which is used on this queue, as a number.
pub(crate) fn address(block: &PooledBuffer<OpenClBackend>, queue: &ClQueue) -> PyResult<usize> {
    let memory = block.memory_on(queue);
    let address = memory.and_then(|memory| block.backend().svm_address(memory));
    let address = address.ok_or_else(|| PyValueError::new_err("the block has no address"))?;
    Ok(address.as_ptr().expose_provenance())
}

/// Returns a `pyopencl.SVM` over a block with this address. The block goes back when Python drops it.
pub(crate) fn svm(
    py: Python<'_>,
    block: PooledBuffer<OpenClBackend>,
    address: usize,
) -> PyResult<Bound<'_, PyAny>> {
    let class = SVM.import(py, "binpool._svm", "SVM")?;
    let block = SvmBlock {
        bytes: block.size(),
        held: Held::new(block),
        address,
        views: AtomicUsize::new(0),
        own_views: OnceLock::new(),
    };
    let block = Bound::new(py, block)?;
    let memory = class.call1((&block,))?;
    // PyOpenCL has taken the address, and keeps that view.
    let views = block.get().views.load(Ordering::SeqCst);
    block.get().own_views.get_or_init(|| views);
    Ok(memory)
}

/// Notes that `queue` uses the block below a `pyopencl.SVM`; `None` if there is none.
pub(crate) fn record_use(memory: &Bound<'_, PyAny>, queue: &ClQueue) -> PyResult<Option<()>> {
    let py = memory.py();
    let below = memory.getattr_opt(intern!(py, "mem"))?;
    let block = below.as_ref().and_then(|it| it.cast::<SvmBlock>().ok());
    let noted = block.map(|block| block.get().held.with(py, |block| block.record_use(queue)));
    noted.transpose()
}
