//! Memory with a buffer over all of it.

use std::{ptr::NonNull, sync::Arc};

use ash::vk;
use binpool_allocators::{Region, debug_by};

use super::{Device, Named as _, VulkanError};

/// What the buffers of this crate may be used for.
const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw()
        | vk::BufferUsageFlags::UNIFORM_BUFFER.as_raw()
        | vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::INDEX_BUFFER.as_raw()
        | vk::BufferUsageFlags::VERTEX_BUFFER.as_raw()
        | vk::BufferUsageFlags::INDIRECT_BUFFER.as_raw()
        | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS.as_raw(),
);

/// Where memory lies: what its type must have, and what is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    /// Of the host, which sees it at an address.
    Host,
}

/// Memory from Vulkan, with a buffer over all of it.
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
pub struct VulkanBlock {
    device: Arc<Device>,
    /// Null for pages.
    buffer: vk::Buffer,
    /// Null for a reservation.
    memory: vk::DeviceMemory,
    mapped: Option<NonNull<u8>>,
}

// SAFETY: the address is used by the calls that are given the memory, and by programs that promise to order what they do.
unsafe impl Send for VulkanBlock {}
// SAFETY: as above.
unsafe impl Sync for VulkanBlock {}

impl VulkanBlock {
    /// Memory with a buffer over all of it.
    pub(crate) fn new(
        device: &Arc<Device>,
        bytes: usize,
        place: Place,
    ) -> Result<Self, VulkanError> {
        let mut block = Self::with_buffer(device, bytes, vk::BufferCreateFlags::empty())?;
        block.allocate(block.requirements(), place)?;
        let raw = device.raw();
        // SAFETY: Both are new, and the memory is of the size and kind that the buffer needs.
        let bound = unsafe { raw.bind_buffer_memory(block.buffer, block.memory, 0) };
        bound.of("vkBindBufferMemory")?;
        if place == Place::Host {
            let flags = vk::MemoryMapFlags::empty();
            // SAFETY: The memory is new, and visible to the host.
            let start = unsafe { raw.map_memory(block.memory, 0, vk::WHOLE_SIZE, flags) };
            block.mapped = NonNull::new(start.of("vkMapMemory")?.cast());
        }
        Ok(block)
    }

    /// Memory without a buffer, of one of these kinds, for sparse buffers.
    pub(crate) fn pages(
        device: &Arc<Device>,
        bytes: usize,
        kinds: u32,
    ) -> Result<Self, VulkanError> {
        let needs = vk::MemoryRequirements {
            size: bytes as u64,
            alignment: 1,
            memory_type_bits: kinds,
        };
        let mut block = Self::empty(device);
        block.allocate(needs, Place::Device)?;
        Ok(block)
    }

    /// A sparse buffer: addresses, to which pages are bound.
    pub(crate) fn reservation(device: &Arc<Device>, bytes: usize) -> Result<Self, VulkanError> {
        let sparse =
            vk::BufferCreateFlags::SPARSE_BINDING | vk::BufferCreateFlags::SPARSE_RESIDENCY;
        Self::with_buffer(device, bytes, sparse)
    }

    fn empty(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::clone(device),
            buffer: vk::Buffer::null(),
            memory: vk::DeviceMemory::null(),
            mapped: None,
        }
    }

    fn with_buffer(
        device: &Arc<Device>,
        bytes: usize,
        flags: vk::BufferCreateFlags,
    ) -> Result<Self, VulkanError> {
        let mut block = Self::empty(device);
        let mut info = vk::BufferCreateInfo::default()
            .flags(flags)
            .size(bytes as u64)
            .usage(USAGE);
        if let families @ [_, _, ..] = device.families() {
            info = info
                .sharing_mode(vk::SharingMode::CONCURRENT)
                .queue_family_indices(families);
        }
        // SAFETY: The device lives.
        let raw = unsafe { device.raw().create_buffer(&info, None) };
        block.buffer = raw.of("vkCreateBuffer")?;
        Ok(block)
    }

    /// Gives it memory of the best kind that has room.
    fn allocate(&mut self, needs: vk::MemoryRequirements, place: Place) -> Result<(), VulkanError> {
        let device = &self.device;
        let mut last = VulkanError::new("vkAllocateMemory", vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        for kind in kinds(device, needs.memory_type_bits, place) {
            let mut flags = vk::MemoryAllocateFlagsInfo::default()
                .flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
            let info = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(kind)
                .push_next(&mut flags);
            // SAFETY: The device lives.
            match unsafe { device.raw().allocate_memory(&info, None) }.of("vkAllocateMemory") {
                Ok(raw) => {
                    self.memory = raw;
                    return Ok(());
                }
                Err(error) => last = device.failed(error),
            }
        }
        Err(last)
    }

    /// What its buffer needs. For a reservation, the alignment is the size of pages.
    pub(crate) fn requirements(&self) -> vk::MemoryRequirements {
        let raw = self.device.raw();
        // SAFETY: The buffer lives.
        unsafe { raw.get_buffer_memory_requirements(self.buffer) }
    }

    /// The buffer, which lives as long as the block; null for pages.
    #[must_use]
    pub fn buffer(&self) -> vk::Buffer {
        self.buffer
    }

    /// The memory under the buffer, which lives as long as the block, for images that are bound to parts of it. Null for a reservation.
    #[must_use]
    pub fn memory(&self) -> vk::DeviceMemory {
        self.memory
    }

    /// The address of the first byte for the host, where the memory is the host's
    /// ([`HOST_RESIDENT`](binpool_allocators::MemoryFlags::HOST_RESIDENT)): it is mapped as long as the block lives, and coherent.
    #[must_use]
    pub fn mapped(&self) -> Option<NonNull<u8>> {
        self.mapped
    }

    /// The address of the first byte for the device. Not for pages.
    pub(crate) fn address(&self) -> u64 {
        let info = vk::BufferDeviceAddressInfo::default().buffer(self.buffer);
        // SAFETY: The buffer lives, and was made for this.
        unsafe { self.device.raw().get_buffer_device_address(&info) }
    }

    /// Binds memory of `pages` to a region of a sparse buffer, or takes away what is bound, and waits until that is done.
    pub(crate) fn bind(&self, region: Region, pages: Option<&Self>) -> Result<(), VulkanError> {
        let device = &self.device;
        let binds = [vk::SparseMemoryBind::default()
            .resource_offset(region.offset as u64)
            .size(region.bytes as u64)
            .memory(pages.map_or_else(vk::DeviceMemory::null, Self::memory))];
        let buffers = [vk::SparseBufferMemoryBindInfo::default()
            .buffer(self.buffer)
            .binds(&binds)];
        let info = vk::BindSparseInfo::default().buffer_binds(&buffers);
        // SAFETY: The device lives.
        let fence = unsafe {
            device
                .raw()
                .create_fence(&vk::FenceCreateInfo::default(), None)
        };
        let fence = fence.of("vkCreateFence")?;
        let bound = {
            let queue = device.queues[0].raw.lock();
            // SAFETY: The queue is locked, and binds sparse memory; the caller promises the rest.
            unsafe { device.raw().queue_bind_sparse(*queue, &[info], fence) }
                .of("vkQueueBindSparse")
        };
        let waited = bound.and_then(|()| {
            // SAFETY: The fence lives.
            unsafe { device.raw().wait_for_fences(&[fence], true, u64::MAX) }.of("vkWaitForFences")
        });
        // SAFETY: Nothing uses it any more: the call has failed, or has ended.
        unsafe { device.raw().destroy_fence(fence, None) };
        waited.map_err(|error| device.failed(error))
    }
}

impl Drop for VulkanBlock {
    fn drop(&mut self) {
        let raw = self.device.raw();
        // SAFETY: The core drops a block once no command uses it; null is allowed.
        unsafe { raw.destroy_buffer(self.buffer, None) };
        // SAFETY: As above; what is mapped is unmapped by this.
        unsafe { raw.free_memory(self.memory, None) };
    }
}

debug_by!(VulkanBlock);

/// The types of memory for a place, the best first.
fn kinds(device: &Device, allowed: u32, place: Place) -> Vec<u32> {
    use vk::MemoryPropertyFlags as Flags;
    let memory = &device.facts.memory;
    let (needed, better, worse) = match place {
        Place::Device => (Flags::DEVICE_LOCAL, Flags::empty(), Flags::HOST_VISIBLE),
        Place::Host => (
            Flags::HOST_VISIBLE | Flags::HOST_COHERENT,
            Flags::HOST_CACHED,
            Flags::DEVICE_LOCAL,
        ),
    };
    let unusual = Flags::PROTECTED | Flags::LAZILY_ALLOCATED;
    let types = memory.memory_types_as_slice().iter().zip(0_u32..);
    let mut fitting: Vec<_> = types
        .filter(|(kind, index)| {
            let flags = kind.property_flags;
            allowed & (1 << index) != 0 && flags.contains(needed) && !flags.intersects(unusual)
        })
        .map(|(kind, index)| (kind.property_flags, index))
        .collect();
    fitting.sort_by_key(|(flags, _)| (!flags.contains(better), flags.intersects(worse)));
    fitting.into_iter().map(|(_, index)| index).collect()
}
