//! Memory of Vulkan, and all of it that an allocator has.

#![expect(unsafe_code, reason = "calls of Vulkan")]

use std::{collections::BTreeMap, ffi::c_void, ptr::NonNull, sync::Arc};

use ash::vk::{self, Handle as _};
use parking_lot::Mutex;

/// The address of mapped memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped(pub(super) NonNull<c_void>);

// SAFETY: an address. Who uses it promises to order what it does.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub(super) fn at(self, offset: usize) -> Self {
        // SAFETY: The callers' offsets lie in the memory, all of which is mapped.
        Self(unsafe { self.0.byte_add(offset) })
    }

    /// The bytes from here on.
    ///
    /// # Safety
    ///
    /// They are mapped while the slice lives, and nothing writes them meanwhile.
    pub(super) unsafe fn bytes<'a>(self, bytes: usize) -> &'a [u8] {
        // SAFETY: The caller's promise.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), bytes) }
    }

    /// The bytes from here on.
    ///
    /// # Safety
    ///
    /// They are mapped while the slice lives, and nothing else uses them meanwhile.
    pub(super) unsafe fn bytes_mut<'a>(self, bytes: usize) -> &'a mut [u8] {
        // SAFETY: The caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().cast(), bytes) }
    }
}

/// A device, and all memory that an allocator has of it, with its sizes.
pub(super) struct DeviceMemory {
    device: ash::Device,
    has_addresses: bool,
    blocks: Mutex<BTreeMap<u64, u64>>,
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
        self.blocks.lock().clone()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.blocks.lock().values().sum()
    }

    /// Frees all of it, also what is still in use: the program destroys the device next.
    pub(super) fn free_all(&self) {
        for (memory, _) in std::mem::take(&mut *self.blocks.lock()) {
            self.free_raw(vk::DeviceMemory::from_raw(memory));
        }
    }

    fn free_raw(&self, memory: vk::DeviceMemory) {
        // SAFETY: It was allocated here, and is freed once: it is in `blocks` no more. What is mapped is unmapped by this.
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
        of.blocks.lock().insert(raw.as_raw(), bytes);
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
            block.mapped = NonNull::new(start.map_err(failed(MAP))?).map(Mapped);
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
