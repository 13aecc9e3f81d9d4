//! Memory and pools over CUDA, for PyTorch and CuPy.

#![expect(
    unsafe_code,
    reason = "streams and addresses of CUDA are numbers in Python"
)]

use std::{ffi::c_void, ptr::without_provenance_mut};

use binpool::Tag;
use binpool_capi::{
    OfBackend,
    torch::{self, binpool_torch_free},
};
use pyo3::prelude::*;

use crate::{call_site::line_of_caller, error::raised, pool::Pool};

/// Returns the line that makes a request, which most often comes from a function of PyTorch that has let go of Python's interpreter.
fn line() -> Option<Tag> {
    Python::try_attach(line_of_caller).map(Tag::new)
}

/// The pool of a CUDA device, which PyTorch and CuPy allocate from.
#[pyfunction]
pub(crate) fn cuda_pool(py: Python<'_>, device: i32) -> PyResult<Pool> {
    torch::name_requests(line);
    let pool = py.detach(|| torch::pool_of(device)).map_err(raised)?;
    Ok(Pool {
        any: OfBackend::Cuda(pool),
    })
}

/// A block of the pool of a CUDA device, which goes back when Python drops this.
#[pyclass(frozen, module = "binpool")]
pub(crate) struct CudaBlock {
    /// The address on the device.
    #[pyo3(get)]
    pointer: usize,
    bytes: isize,
    device: i32,
    stream: usize,
}

impl Drop for CudaBlock {
    fn drop(&mut self) {
        let pointer = without_provenance_mut::<c_void>(self.pointer);
        let stream = without_provenance_mut::<c_void>(self.stream);
        // SAFETY: The block was allocated for this stream, which `cuda_allocate` promises to live.
        unsafe { binpool_torch_free(pointer, self.bytes, self.device, stream) };
    }
}

/// Returns a block of `bytes` bytes of a CUDA device for a stream, which lives as long as the program.
#[pyfunction]
pub(crate) fn cuda_allocate(
    py: Python<'_>,
    bytes: isize,
    device: i32,
    stream: usize,
) -> PyResult<CudaBlock> {
    let pointer = py.detach(|| {
        let stream = without_provenance_mut::<c_void>(stream);
        // SAFETY: The stream lives: `binpool.cupy` keeps those that it names.
        let pointer = unsafe { torch::allocate(bytes, device, stream) };
        pointer.map(<*mut c_void>::addr).map_err(raised)
    })?;
    Ok(CudaBlock {
        pointer,
        bytes,
        device,
        stream,
    })
}
