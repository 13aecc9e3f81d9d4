//! What an array keeps of its block.

use std::ffi::{c_int, c_void};

use binpool::{ImmediateAllocator, PooledBuffer, SvmAllocator, adaptors::Limit};
use binpool_opencl::{ClQueue, OpenClBackend};
use pyo3::{exceptions::PyBufferError, ffi, prelude::*};

use crate::error::other_error;

/// The allocator below pools of buffers.
pub(crate) type Buffers = Limit<ImmediateAllocator<OpenClBackend>>;

/// The allocator below pools of shared virtual memory.
pub(crate) type Svm = Limit<SvmAllocator<OpenClBackend>>;

/// A block of a pool, which goes back when Python drops this: an attribute of the `pyopencl.Buffer` over it.
#[pyclass(frozen, module = "binpool")]
pub(crate) struct Block(pub(crate) PooledBuffer<Buffers>);

impl Block {
    /// Notes that commands on `queue` use the block.
    pub(crate) fn used_on(&self, queue: &ClQueue) -> PyResult<()> {
        self.0.record_use(queue).map_err(other_error)
    }
}

/// A block of shared virtual memory, which goes back when Python drops this. `pyopencl.SVM` takes its address by the buffer protocol.
#[pyclass(frozen, module = "binpool")]
pub(crate) struct SvmBlock {
    pub(crate) block: PooledBuffer<Svm>,
    /// The address as a number.
    pub(crate) address: usize,
}

impl SvmBlock {
    /// Notes that commands on `queue` use the block.
    pub(crate) fn used_on(&self, queue: &ClQueue) -> PyResult<()> {
        self.block.record_use(queue).map_err(other_error)
    }
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
