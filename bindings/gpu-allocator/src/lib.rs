//! The interface of [gpu-allocator](https://docs.rs/gpu-allocator/0.28) 0.28 for Vulkan, over pools of binpool.
//!
//! A program that uses gpu-allocator changes one line of its `Cargo.toml`, and no other:
//!
//! ```toml
//! [dependencies]
//! gpu-allocator = { package = "binpool-gpu-allocator", version = "0.1" }
//! ```
//!
//! Allocations are parts of a few `VkDeviceMemory`, which pools carve: those of one memory type and similar alignments share a pool. Freed
//! memory serves the next allocation at once, on any thread.
//!
//! ```no_run
//! use ash::vk;
//! use binpool_gpu_allocator::{MemoryLocation, vulkan::{AllocationCreateDesc, AllocationScheme, Allocator}};
//!
//! fn bound(allocator: &Allocator, device: &ash::Device, buffer: vk::Buffer) -> Result<(), Box<dyn std::error::Error>> {
//!     // SAFETY: the buffer is of the device.
//!     let requirements = unsafe { device.get_buffer_memory_requirements(buffer) };
//!     let allocation = allocator.allocate(&AllocationCreateDesc {
//!         name: "vertices",
//!         requirements,
//!         location: MemoryLocation::GpuOnly,
//!         linear: true,
//!         allocation_scheme: AllocationScheme::GpuAllocatorManaged,
//!     })?;
//!     // SAFETY: the memory is of the buffer's type, and stays allocated until the allocation is freed.
//!     unsafe { device.bind_buffer_memory(buffer, allocation.memory(), allocation.offset()) }?;
//!     Ok(())
//! }
//! ```

#![deny(unsafe_code)]

mod error;
mod report;
mod settings;
pub mod vulkan;

pub use error::{AllocationError, Result};
pub use report::{AllocationReport, AllocatorReport, MemoryBlockReport};
pub use settings::{AllocationSizes, AllocatorDebugSettings, MemoryLocation};
