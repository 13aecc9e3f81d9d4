//! Memory of the device.

use std::ptr::NonNull;

use ash::vk;

use crate::sys::{Allocation, Pages, Reservation};

/// Memory that Vulkan has given, with a buffer over all of it.
///
/// ```no_run
/// use binpool_allocators::{Backend, MemoryFlags, Memory};
/// use binpool_vulkan::VulkanBackend;
///
/// let backend = VulkanBackend::open(0)?;
/// let memory = backend.create_buffer(4096, MemoryFlags::HOST_RESIDENT)?;
/// let block = memory.block().ok_or("no memory is left")?;
/// // For a descriptor, or a command of the program's own.
/// let (buffer, offset) = (block.buffer(), memory.offset());
/// // For an image that is bound to a part of it.
/// let memory = block.memory();
/// assert!(block.mapped().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VulkanBlock(pub(crate) Body);

pub(crate) enum Body {
    Allocation(Allocation),
    Reservation(Reservation),
    Pages(Pages),
}

impl VulkanBlock {
    /// The buffer, which lives as long as the block; null for pages.
    #[must_use]
    pub fn buffer(&self) -> vk::Buffer {
        match &self.0 {
            Body::Allocation(allocation) => allocation.buffer(),
            Body::Reservation(reservation) => reservation.buffer(),
            Body::Pages(_) => vk::Buffer::null(),
        }
    }

    /// The memory under the buffer, which lives as long as the block, for images that are bound to parts of it. Null for a reservation.
    #[must_use]
    pub fn memory(&self) -> vk::DeviceMemory {
        match &self.0 {
            Body::Allocation(allocation) => allocation.memory(),
            Body::Reservation(_) => vk::DeviceMemory::null(),
            Body::Pages(pages) => pages.memory(),
        }
    }

    /// The address of the first byte for the host, where the memory is the host's
    /// ([`HOST_RESIDENT`](binpool_allocators::MemoryFlags::HOST_RESIDENT)): it is mapped as long as the block lives, and coherent.
    #[must_use]
    pub fn mapped(&self) -> Option<NonNull<u8>> {
        match &self.0 {
            Body::Allocation(allocation) => allocation.mapped(),
            _ => None,
        }
    }

    pub(crate) fn address(&self) -> Option<u64> {
        match &self.0 {
            Body::Allocation(allocation) => Some(allocation.address()),
            Body::Reservation(reservation) => Some(reservation.address()),
            Body::Pages(_) => None,
        }
    }
}

debug_by!(VulkanBlock);
