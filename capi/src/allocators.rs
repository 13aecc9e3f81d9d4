//! What the pools of this crate allocate from.

use binpool::{ImmediateAllocator, VirtualMemoryAllocator, adaptors::Limit};
use binpool_cuda::CudaBackend;
use binpool_opencl::OpenClBackend;

/// Buffers of OpenCL, up to a limit.
pub type OpenClAllocator = Limit<ImmediateAllocator<OpenClBackend>>;

/// Pages of CUDA, up to a limit.
pub type CudaAllocator = Limit<VirtualMemoryAllocator<CudaBackend>>;
