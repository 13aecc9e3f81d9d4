//! The Python package `binpool`.
//!
//! ```text
//! memory_pool, svm_pool     pools for PyOpenCL: what a program makes
//! opencl_pool               what both have
//! queue_allocator           an allocator for the queues of an array: what an array calls
//! uses                      these queues
//! buffer_block, svm_block   what an array keeps, and drops
//! block                     what both have
//! torch                     blocks and pools over CUDA, for PyTorch and CuPy
//! pool                      what can be asked of every pool
//! recording, view, file     files, and the pages that show them
//! ```

#![deny(unsafe_code)]
// The functions of Python take `self` and the like by value or reference as PyO3 wants them.
#![allow(clippy::needless_pass_by_value)]

mod block;
mod buffer_block;
mod call_site;
mod error;
mod file;
mod memory_pool;
mod opencl;
mod opencl_pool;
mod pool;
mod queue_allocator;
mod recording;
mod statistics;
mod svm_block;
mod svm_pool;
mod torch;
mod uses;
mod view;

/// The library of the Python package `binpool`, which has all of it but what is written in Python.
#[pyo3::pymodule]
mod _binpool {
    #[pymodule_export]
    use crate::{
        memory_pool::MemoryPool,
        opencl_pool::OpenClPool,
        pool::Pool,
        queue_allocator::QueueAllocator,
        recording::Recording,
        statistics::{LiveGroup, Statistics},
        svm_pool::SvmPool,
        torch::{CudaBlock, cuda_allocate, cuda_pool},
        view::view,
    };
}
