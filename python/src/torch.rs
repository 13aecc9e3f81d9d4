//! Memory and pools over CUDA, for PyTorch and CuPy.

#![expect(
    unsafe_code,
    reason = "streams and addresses of CUDA are numbers in Python"
)]

use std::{ffi::c_void, ptr::without_provenance_mut};

use binpool_capi::torch::{self, binpool_torch_free};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    error::cuda_error,
    pool::{Pool, Shared},
};

/// The pool of a CUDA device, which PyTorch and CuPy allocate from.
#[pyfunction]
pub(crate) fn cuda_pool(py: Python<'_>, device: i32) -> PyResult<Pool> {
    let pool = py.detach(|| torch::pool_of(device)).ok_or_else(|| {
        PyValueError::new_err(format!(
            "device {device} cannot be opened: is it a CUDA device of this machine, and is NVIDIA's driver installed?"
        ))
    })?;
    let shared = Shared::new(pool);
    Ok(Pool { shared })
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
        pointer
            .map(<*mut c_void>::addr)
            .map_err(|failure| cuda_error(&failure))
    })?;
    Ok(CudaBlock {
        pointer,
        bytes,
        device,
        stream,
    })
}
