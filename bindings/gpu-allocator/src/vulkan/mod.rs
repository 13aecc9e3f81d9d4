//! The allocator for Vulkan.
//!
//! ```text
//! memory        memory of Vulkan
//! runtime       a device without commands, for the pools
//! pools         the pools of a memory type
//! live          what is allocated
//! allocation    a piece of memory
//! allocator     all memory types
//! ```

mod allocation;
mod allocator;
mod live;
mod memory;
mod pools;
mod runtime;

pub use allocation::{Allocation, AllocationCreateDesc, AllocationScheme, MappedAllocationSlab};
pub use allocator::{Allocator, AllocatorCreateDesc};
