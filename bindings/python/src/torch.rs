//! Pools over CUDA, for PyTorch.

use binpool::Tag;
use binpool_capi::{OfBackend, torch};
use pyo3::prelude::*;

use crate::{call_site::caller, error::raised, pool::Pool};

/// Returns who makes a request, which most often comes from a function of PyTorch that has released Python's interpreter.
fn caller_as_tag() -> Option<Tag> {
    Python::try_attach(caller).map(Tag::new)
}

/// The pool of a CUDA device, which PyTorch allocates from.
#[pyfunction]
pub(crate) fn cuda_pool(py: Python<'_>, device: i32) -> PyResult<Pool> {
    torch::name_requests(caller_as_tag);
    let pool = py.detach(|| torch::pool_of(device)).map_err(raised)?;
    Ok(Pool {
        any: OfBackend::Cuda(pool),
    })
}
