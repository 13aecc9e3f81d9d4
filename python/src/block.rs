//! Blocks of pools as PyOpenCL has them.

use std::ffi::{c_int, c_void};

use binpool::{MemoryPool, PooledBuffer, SvmAllocator, SvmBackend, Tag, adaptors::Limit};
use binpool_capi::OpenClAllocator;
use binpool_opencl::{ClQueue, OpenClBackend};
use pyo3::{
    exceptions::{PyBufferError, PyValueError},
    ffi, intern,
    prelude::*,
    sync::PyOnceLock,
};

use crate::{error::other_error, uses::Uses};

/// The allocator below pools of shared virtual memory.
pub(crate) type Svm = Limit<SvmAllocator<OpenClBackend>>;

/// `pyopencl.MemoryObject.from_int_ptr`: PyOpenCL's kernels take no other class's buffers.
static FROM_HANDLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `pyopencl.SVM`.
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
        buffer.setattr(intern!(py, "_binpool_block"), Block(block))?;
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
            Ok::<_, PyErr>(SvmBlock { block, address })
        })?;
        let class = SVM.get_or_try_init(py, || {
            let class = py.import("pyopencl")?.getattr("SVM");
            class.map(Bound::unbind)
        })?;
        class.bind(py).call1((block,))
    }
}

/// A block of a pool, which goes back when Python drops this: an attribute of the `pyopencl.Buffer` over it.
#[pyclass(frozen, module = "binpool")]
struct Block(PooledBuffer<OpenClAllocator>);

/// A block of shared virtual memory, which goes back when Python drops this. `pyopencl.SVM` takes its address by the buffer protocol.
#[pyclass(frozen, module = "binpool")]
struct SvmBlock {
    block: PooledBuffer<Svm>,
    /// The address as a number.
    address: usize,
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
        let bytes = isize::try_from(block.block.size())?;
        let address = std::ptr::with_exposed_provenance_mut::<c_void>(block.address);
        // SAFETY: Python passes a structure to fill, and the block, which it keeps, has these bytes at this address.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, bytes, 0, flags) };
        if filled == -1 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}

/// Finds the block below a `pyopencl.Buffer` or `pyopencl.SVM`, or below the data of an array, and notes that `queue` uses it.
pub(crate) fn used_on(data: &Bound<'_, PyAny>, queue: &ClQueue) -> PyResult<()> {
    let py = data.py();
    let base = data.getattr_opt(intern!(py, "base_data"))?;
    let data = base.as_ref().unwrap_or(data);
    if let Some(block) = data.getattr_opt(intern!(py, "_binpool_block"))? {
        let block = block.cast::<Block>()?.get();
        return block.0.record_use(queue).map_err(other_error);
    }
    if let Some(memory) = data.getattr_opt(intern!(py, "mem"))?
        && let Ok(block) = memory.cast::<SvmBlock>()
    {
        return block.get().block.record_use(queue).map_err(other_error);
    }
    Err(PyValueError::new_err(
        "no block of a binpool pool: pass an array, or what an allocator of the pool has returned",
    ))
}
