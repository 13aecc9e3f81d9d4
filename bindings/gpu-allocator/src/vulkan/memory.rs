//! Memory of Vulkan, and all of it that an allocator has.

#![expect(unsafe_code, reason = "calls of Vulkan")]

use std::{
    collections::BTreeMap,
    ffi::c_void,
    ptr::NonNull,
    sync::{Arc, Weak},
};

use ash::vk::{self, Handle as _};
use parking_lot::Mutex;

/// The address of mapped memory, which stays mapped while this lives.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    pub(super) address: NonNull<c_void>,
    /// All clones share it: [`DeviceMemory::free_all`] frees no memory that an allocation can reach.
    users: Arc<()>,
}

// SAFETY: an address. Who uses it promises to order what it does.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub(super) fn at(&self, offset: usize) -> Self {
        Self {
            // SAFETY: The callers' offsets lie in the memory, all of which is mapped.
            address: unsafe { self.address.byte_add(offset) },
            users: Arc::clone(&self.users),
        }
    }
}

/// A device, and all memory that an allocator has of it, with its sizes.
pub(super) struct DeviceMemory {
    device: ash::Device,
    has_addresses: bool,
    /// With the users of what is mapped: the block itself, and allocations.
    blocks: Mutex<BTreeMap<u64, (u64, Weak<()>)>>,
}

/// What memory is for: parts of any kind, or all of one resource.
#[derive(Clone, Copy, Debug)]
pub(super) enum For {
    Parts,
    Buffer(vk::Buffer),
    Image(vk::Image),
}

/// A call of Vulkan that failed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{call} returned {result:?}")]
pub(super) struct Failed {
    pub(super) call: &'static str,
    pub(super) result: vk::Result,
}

pub(super) const MAP: &str = "vkMapMemory";

impl DeviceMemory {
    pub(super) fn new(device: ash::Device, has_addresses: bool) -> Self {
        Self {
            device,
            has_addresses,
            blocks: Mutex::default(),
        }
    }

    /// The sizes of all memory, by handle.
    pub(super) fn blocks(&self) -> BTreeMap<u64, u64> {
        let blocks = self.blocks.lock();
        blocks
            .iter()
            .map(|(raw, (bytes, _))| (*raw, *bytes))
            .collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.blocks.lock().values().map(|(bytes, _)| bytes).sum()
    }

    /// Frees all of it, also what the device may still use: the program destroys the device next. Where an allocation is left that the host
    /// can write through, the memory stays until then: the allocation may outlive the device, so it cannot free it.
    pub(super) fn free_all(&self) {
        for (memory, (_, users)) in std::mem::take(&mut *self.blocks.lock()) {
            if users.strong_count() <= 1 {
                self.free_raw(vk::DeviceMemory::from_raw(memory));
            }
        }
    }

    fn free_raw(&self, memory: vk::DeviceMemory) {
        // SAFETY: It was allocated here, and is freed once: it is no longer in `blocks`. What is mapped is unmapped by this.
        unsafe { self.device.free_memory(memory, None) };
    }
}

/// A `VkDeviceMemory`, mapped as long as it lives where it was to be.
pub(super) struct MemoryBlock {
    of: Arc<DeviceMemory>,
    pub(super) raw: vk::DeviceMemory,
    pub(super) mapped: Option<Mapped>,
}

impl MemoryBlock {
    pub(super) fn new(
        of: &Arc<DeviceMemory>,
        kind: u32,
        bytes: u64,
        is_mapped: bool,
        what: For,
    ) -> Result<Self, Failed> {
        let mut flags =
            vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default();
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(bytes)
            .memory_type_index(kind);
        if of.has_addresses {
            info = info.push_next(&mut flags);
        }
        match what {
            For::Parts => {}
            For::Buffer(buffer) => dedicated.buffer = buffer,
            For::Image(image) => dedicated.image = image,
        }
        if !matches!(what, For::Parts) {
            info = info.push_next(&mut dedicated);
        }
        let failed = |call| move |result| Failed { call, result };
        // SAFETY: The program has promised that the device lives, and that resources are its own.
        let raw = unsafe { of.device.allocate_memory(&info, None) };
        let raw = raw.map_err(failed("vkAllocateMemory"))?;
        let users = Arc::new(());
        let known = (bytes, Arc::downgrade(&users));
        of.blocks.lock().insert(raw.as_raw(), known);
        // It is freed where the rest fails.
        let mut block = Self {
            of: Arc::clone(of),
            raw,
            mapped: None,
        };
        if is_mapped {
            let flags = vk::MemoryMapFlags::empty();
            // SAFETY: The memory is visible to the host, and not mapped yet.
            let start = unsafe { of.device.map_memory(raw, 0, vk::WHOLE_SIZE, flags) };
            let address = NonNull::new(start.map_err(failed(MAP))?);
            block.mapped = address.map(|address| Mapped { address, users });
        }
        Ok(block)
    }
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        let is_known = self.of.blocks.lock().remove(&self.raw.as_raw()).is_some();
        if is_known {
            self.of.free_raw(self.raw);
        }
    }
}
