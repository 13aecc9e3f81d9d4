//! Memory of the host that bytes pass through.

use std::{mem, ptr::NonNull, sync::Arc};

use parking_lot::Mutex;

use crate::sys::{At, Device, Place, VulkanBlock, VulkanError};

/// Sizes are rounded up to powers of two from this on, so that few sizes serve all.
const LEAST_BYTES: usize = 1 << 16;

/// Larger ones go back to Vulkan at once.
const MOST_KEPT_BYTES: usize = 1 << 22;

/// How many are kept for later commands.
const MOST_KEPT: usize = 8;

/// Those that are kept. One that only this has is free: commands have clones of theirs.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<Arc<Staging>>>);

/// Memory of the host for one command at a time.
pub(crate) struct Staging {
    bytes: usize,
    block: VulkanBlock,
}

impl Kept {
    /// Returns memory of at least `bytes` bytes for a command, which is free again once all clones are dropped.
    pub(crate) fn take(
        &self,
        device: &Arc<Device>,
        bytes: usize,
    ) -> Result<Arc<Staging>, VulkanError> {
        let bytes = bytes
            .max(LEAST_BYTES)
            .checked_next_power_of_two()
            .unwrap_or(bytes);
        let free = self.0.lock().iter_mut().find_map(|one| {
            let is_free = one.bytes == bytes && Arc::get_mut(one).is_some();
            is_free.then(|| Arc::clone(one))
        });
        if let Some(free) = free {
            return Ok(free);
        }
        let block = VulkanBlock::new(device, bytes, Place::Host)?;
        let made = Arc::new(Staging { bytes, block });
        let mut all = self.0.lock();
        if bytes <= MOST_KEPT_BYTES && all.len() < MOST_KEPT {
            all.push(Arc::clone(&made));
        }
        Ok(made)
    }

    /// Keeps none of them any more. What no command uses goes back to Vulkan, and the rest once its commands have ended.
    pub(crate) fn clear(&self) {
        let all = mem::take(&mut *self.0.lock());
        drop(all);
    }
}

impl Staging {
    /// Where commands find it.
    pub(crate) fn at(&self) -> At {
        At {
            buffer: self.block.buffer(),
            offset: 0,
        }
    }

    /// Fills its first `bytes` bytes with repetitions of `data`, without a partial one.
    #[expect(unsafe_code, reason = "mapped memory is written by its address")]
    pub(crate) fn put(&self, data: &[u8], bytes: usize) {
        let bytes = bytes.min(self.bytes);
        let Some(start) = self.block.mapped() else {
            return;
        };
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
        let Some(start) = self.block.mapped() else {
            return Vec::new();
        };
        // SAFETY: The memory has the bytes, which a command has written; it has ended. The host sees it as long as this lives.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes.min(self.bytes)) }.to_vec()
    }
}
