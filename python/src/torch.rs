//! The pools behind PyTorch's allocator.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::pool::{Pool, Shared};

/// The pool of a CUDA device, which PyTorch or CuPy allocates from; `None` before their first request for that device.
#[pyfunction]
pub(crate) fn torch_pool(device: u32) -> Option<Pool> {
    let pool = binpool_capi::torch::pool_of(device)?;
    let shared = Shared::new(Arc::clone(&pool));
    Some(Pool { shared })
}
