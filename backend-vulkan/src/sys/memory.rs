//! Memory with a buffer over all of it.

use std::{ptr::NonNull, sync::Arc};

use ash::vk;
use binpool_allocators::Region;

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
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Device,
    /// Of the host, which sees it at an address.
    Host,
}

/// A buffer.
struct Buffer {
    device: Arc<Device>,
    raw: vk::Buffer,
}

impl Buffer {
    fn new(
        device: &Arc<Device>,
        bytes: usize,
        flags: vk::BufferCreateFlags,
    ) -> Result<Self, VulkanError> {
        let families = device.families();
        let mut info = vk::BufferCreateInfo::default()
            .flags(flags)
            .size(bytes as u64)
            .usage(USAGE);
        if families.len() > 1 {
            info = info
                .sharing_mode(vk::SharingMode::CONCURRENT)
                .queue_family_indices(families);
        }
        // SAFETY: The device lives.
        let raw = unsafe { device.raw().create_buffer(&info, None) }.of("vkCreateBuffer")?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
        })
    }

    fn requirements(&self) -> vk::MemoryRequirements {
        // SAFETY: The buffer lives.
        unsafe { self.device.raw().get_buffer_memory_requirements(self.raw) }
    }

    fn address(&self) -> u64 {
        let info = vk::BufferDeviceAddressInfo::default().buffer(self.raw);
        // SAFETY: The buffer lives, and was made for this.
        unsafe { self.device.raw().get_buffer_device_address(&info) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: The core drops a block once no command uses it.
        unsafe { self.device.raw().destroy_buffer(self.raw, None) };
    }
}

/// Memory of the device.
struct Memory {
    device: Arc<Device>,
    raw: vk::DeviceMemory,
}

impl Memory {
    fn new(
        device: &Arc<Device>,
        needs: vk::MemoryRequirements,
        place: Place,
    ) -> Result<Self, VulkanError> {
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
                    let device = Arc::clone(device);
                    return Ok(Self { device, raw });
                }
                Err(error) => last = device.failed(error),
            }
        }
        Err(last)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: The core drops a block once no command uses it. What is mapped is unmapped by this.
        unsafe { self.device.raw().free_memory(self.raw, None) };
    }
}

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

/// Memory with a buffer over all of it.
pub(crate) struct Allocation {
    buffer: Buffer,
    memory: Memory,
    address: u64,
    /// Where the host sees memory of its own.
    mapped: Option<NonNull<u8>>,
}

// SAFETY: the address is used by the calls that are given the memory, and by programs that promise to order what they do.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    pub(crate) fn new(
        device: &Arc<Device>,
        bytes: usize,
        place: Place,
    ) -> Result<Self, VulkanError> {
        let buffer = Buffer::new(device, bytes, vk::BufferCreateFlags::empty())?;
        let memory = Memory::new(device, buffer.requirements(), place)?;
        // SAFETY: Both are new, and the memory is of the size and kind that the buffer needs.
        let bound = unsafe { device.raw().bind_buffer_memory(buffer.raw, memory.raw, 0) };
        bound.of("vkBindBufferMemory")?;
        let mapped = match place {
            Place::Device => None,
            Place::Host => {
                // SAFETY: The memory is visible to the host, and not mapped yet.
                let mapped = unsafe {
                    device.raw().map_memory(
                        memory.raw,
                        0,
                        vk::WHOLE_SIZE,
                        vk::MemoryMapFlags::empty(),
                    )
                };
                NonNull::new(mapped.of("vkMapMemory")?.cast())
            }
        };
        Ok(Self {
            address: buffer.address(),
            buffer,
            memory,
            mapped,
        })
    }

    pub(crate) fn buffer(&self) -> vk::Buffer {
        self.buffer.raw
    }

    pub(crate) fn memory(&self) -> vk::DeviceMemory {
        self.memory.raw
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn mapped(&self) -> Option<NonNull<u8>> {
        self.mapped
    }
}

/// Memory without a buffer, for sparse buffers.
pub(crate) struct Pages(Memory);

impl Pages {
    pub(crate) fn new(device: &Arc<Device>, bytes: usize, kinds: u32) -> Result<Self, VulkanError> {
        let needs = vk::MemoryRequirements {
            size: bytes as u64,
            alignment: 1,
            memory_type_bits: kinds,
        };
        Ok(Self(Memory::new(device, needs, Place::Device)?))
    }

    pub(crate) fn memory(&self) -> vk::DeviceMemory {
        self.0.raw
    }
}

/// A sparse buffer: addresses, to which memory is bound.
pub(crate) struct Reservation {
    buffer: Buffer,
    address: u64,
}

impl Reservation {
    pub(crate) fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, VulkanError> {
        let flags = vk::BufferCreateFlags::SPARSE_BINDING | vk::BufferCreateFlags::SPARSE_RESIDENCY;
        let buffer = Buffer::new(device, bytes, flags)?;
        let address = buffer.address();
        Ok(Self { buffer, address })
    }

    pub(crate) fn buffer(&self) -> vk::Buffer {
        self.buffer.raw
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The size of its pages, and the kinds of memory that they may have.
    pub(crate) fn pages(&self) -> (usize, u32) {
        let needs = self.buffer.requirements();
        (
            usize::try_from(needs.alignment).unwrap_or(usize::MAX),
            needs.memory_type_bits,
        )
    }

    /// Binds memory to a region, or takes it away, and waits until that is done.
    pub(crate) fn bind(&self, region: Region, pages: Option<&Pages>) -> Result<(), VulkanError> {
        let device = &self.buffer.device;
        let binds = [vk::SparseMemoryBind::default()
            .resource_offset(region.offset as u64)
            .size(region.bytes as u64)
            .memory(pages.map_or(vk::DeviceMemory::null(), |pages| pages.0.raw))];
        let buffers = [vk::SparseBufferMemoryBindInfo::default()
            .buffer(self.buffer.raw)
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
