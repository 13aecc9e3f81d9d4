//! The Python package `binpool`.
//!
//! ```text
//! opencl_pool, svm_pool     pools for PyOpenCL: what a program makes
//! queue_allocator           an allocator for one queue: what an array calls
//! pool                      what can be asked of every pool
//! block                     what an array keeps, and drops
//! recording, view           files, and the pages that show them
//! ```

#![deny(unsafe_code)]
// The functions of Python take `self` and the like by value or reference as PyO3 wants them.
#![allow(clippy::needless_pass_by_value)]

mod block;
mod call_site;
mod error;
mod opencl;
mod opencl_pool;
mod pool;
mod queue_allocator;
mod recording;
mod statistics;
mod torch;
mod view;

/// The library of the Python package `binpool`, which has all of it but what is written in Python.
#[pyo3::pymodule]
mod _binpool {
    #[pymodule_export]
    use crate::{
        opencl_pool::{MemoryPool, SvmPool},
        pool::Pool,
        queue_allocator::{QueueAllocator, SvmQueueAllocator},
        recording::Recording,
        statistics::{LiveGroup, Statistics},
        torch::{CudaBlock, cuda_allocate, cuda_pool},
        view::view,
    };
}
