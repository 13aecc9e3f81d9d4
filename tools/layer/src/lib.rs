//! What `binpool run` puts between a program and its driver. It is loaded into processes of programs that do not know of it.
//!
//! - A layer of OpenCL's loader: the loader finds it by the variable `OPENCL_LAYERS`.
//! - The library that NVIDIA's driver loads by itself, by the variable `CUDA_INJECTION64_PATH`.
//! - A library that the program's Python package calls, to tell of tensors.
//! - A `libcuda.so.1` in front of the driver's own, by the variable `LD_LIBRARY_PATH`.
//!
//! Nothing here changes what the program does: its results, its output, its exit status. A failure here is reported once on standard error,
//! and the program goes on without it.

mod cuda;
mod framework;
mod opencl;
mod pool_figures;
mod recording;
mod settings;
mod whole_blocks;

pub use cuda::cuda_driver;
pub use pool_figures::PoolFigures;
