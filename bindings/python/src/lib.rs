//! The Python package `binpool`.
//!
//! ```text
//! memory_pool, svm_pool     pools for PyOpenCL: what a program makes
//! opencl_pool               what both have
//! queue_allocator           an allocator for the queues of an array: what an array calls
//! uses                      these queues
//! vectorcall                how Python calls pools and allocators
//! buffer_block, svm_block   what an array keeps, and drops
//! kept, buffer_class        how a buffer of PyOpenCL's keeps one
//! block                     what both have
//! with_python               values that Python's lock guards
//! torch                     pools over CUDA, for PyTorch
//! cupy                      blocks over CUDA, for CuPy
//! cuda_place                where these are from
//! pool                      what can be asked of every pool
//! reclaim                   what frees memory when one runs out
//! recording, view, file     files, and the pages that show them
//! ```

#![deny(unsafe_code)]
// The functions of Python take `self` and the like by value or reference as PyO3 wants them.
#![allow(clippy::needless_pass_by_value)]

mod argument;
mod block;
mod buffer_block;
mod buffer_class;
mod call_site;
mod cuda_place;
mod cupy;
mod error;
mod file;
mod kept;
mod memory_pool;
mod opencl;
mod opencl_pool;
mod pool;
mod queue_allocator;
mod reclaim;
mod recording;
mod statistics;
mod svm_block;
mod svm_pool;
mod torch;
mod uses;
mod vectorcall;
mod view;
mod with_python;

/// The library of the Python package `binpool`, which has all of it but what is written in Python.
#[pyo3::pymodule]
mod _binpool {
    use pyo3::{exceptions::PyImportError, prelude::*};

    #[pymodule_export]
    use crate::{
        buffer_block::{part_of_buffer, release_buffer},
        cupy::{
            CudaBlock, cupy_allocate, cupy_allocate_unhooked, cupy_choose_whole_allocations,
            cupy_graph_bytes, cupy_pool,
        },
        memory_pool::MemoryPool,
        opencl_pool::OpenClPool,
        pool::Pool,
        queue_allocator::QueueAllocator,
        reclaim::HookId,
        recording::Recording,
        statistics::{LiveGroup, Statistics},
        svm_pool::SvmPool,
        torch::cuda_pool,
        view::view,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        check_lock(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    /// Refuses a Python that runs without its lock, which [values](crate::with_python) rely on. One that can do without takes the lock
    /// for this module, unless it was started with `-X gil=0`.
    fn check_lock(py: Python<'_>) -> PyResult<()> {
        let has_lock = (py.import("sys")?.getattr_opt("_is_gil_enabled")?)
            .map_or(Ok(true), |is_enabled| is_enabled.call0()?.extract())?;
        if has_lock {
            return Ok(());
        }
        Err(PyImportError::new_err(
            "binpool needs Python's global lock: leave out -X gil=0 and PYTHON_GIL=0",
        ))
    }
}
