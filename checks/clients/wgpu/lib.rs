//! gpu-allocator with binpool's part for Vulkan.

pub use binpool_gpu_allocator::*;
