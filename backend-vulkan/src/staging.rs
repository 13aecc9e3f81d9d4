//! Memory of the host that bytes pass through.

use std::{ptr::NonNull, sync::Arc};

use parking_lot::Mutex;

use crate::sys::{Allocation, Device, Place, VulkanError};

/// Sizes are rounded up to powers of two from this on, so that few sizes serve all.
const LEAST_BYTES: usize = 1 << 16;

/// Larger ones go back to Vulkan at once.
const MOST_KEPT_BYTES: usize = 1 << 22;

/// How many are kept for the next command.
const MOST_KEPT: usize = 8;

/// Those that no command uses, with their sizes.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<(usize, Allocation)>>);

impl Kept {
    /// Gives all of it back to Vulkan.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}

/// Memory of the host for one command. Dropped once that has ended, it serves another one.
pub(crate) struct Staging {
    kept: Arc<Kept>,
    bytes: usize,
    allocation: Option<Allocation>,
}

impl Staging {
    pub(crate) fn new(
        kept: &Arc<Kept>,
        device: &Arc<Device>,
        bytes: usize,
    ) -> Result<Self, VulkanError> {
        let bytes = bytes
            .max(LEAST_BYTES)
            .checked_next_power_of_two()
            .unwrap_or(bytes);
        let mut all = kept.0.lock();
        let found = all.iter().position(|(size, _)| *size == bytes);
        let found = found.map(|index| all.swap_remove(index).1);
        drop(all);
        let allocation = match found {
            Some(allocation) => allocation,
            None => Allocation::new(device, bytes, Place::Host)?,
        };
        Ok(Self {
            kept: Arc::clone(kept),
            bytes,
            allocation: Some(allocation),
        })
    }

    pub(crate) fn buffer(&self) -> ash::vk::Buffer {
        self.allocation
            .as_ref()
            .map_or_else(ash::vk::Buffer::null, Allocation::buffer)
    }

    /// Where the host sees it.
    fn start(&self) -> Option<NonNull<u8>> {
        self.allocation.as_ref()?.mapped()
    }

    /// Fills it with repetitions of `data`, as many as fit into the first `bytes` bytes.
    #[expect(unsafe_code, reason = "mapped memory is written by its address")]
    pub(crate) fn put(&self, data: &[u8], bytes: usize) {
        let bytes = bytes.min(self.bytes);
        let Some(start) = self.start() else { return };
        for offset in (0..=bytes - data.len().min(bytes)).step_by(data.len().max(1)) {
            // SAFETY: It lies within the memory.
            let to = unsafe { start.add(offset) };
            // SAFETY: The bytes lie within the memory, which no command uses yet, and which the host sees as long as this lives.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
        }
    }

    /// The first `bytes` bytes.
    #[expect(unsafe_code, reason = "mapped memory is read by its address")]
    pub(crate) fn to_vec(&self, bytes: usize) -> Vec<u8> {
        let Some(start) = self.start() else {
            return Vec::new();
        };
        // SAFETY: The memory has the bytes, which a command has written; it has ended. The host sees it as long as this lives.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes.min(self.bytes)) }.to_vec()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let mut kept = self.kept.0.lock();
        if self.bytes <= MOST_KEPT_BYTES && kept.len() < MOST_KEPT {
            kept.extend(
                self.allocation
                    .take()
                    .map(|allocation| (self.bytes, allocation)),
            );
        }
    }
}
