//! Words in pinned memory.

use std::sync::atomic::{AtomicU32, Ordering};

use super::driver::Address;

/// A word whose value only grows. So streams that wait for a former value go on, whichever user event has the slot now.
///
/// # Invariants
///
/// I1: `address` is that of an aligned word in pinned memory that lives as long as its context, which every user of a slot keeps.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    address: usize,
    value: u32,
}

impl Slot {
    /// A slot in new memory, with the value 0. The word is one as I1 says.
    pub(super) fn first_of(address: usize) -> Self {
        let slot = Self { address, value: 0 };
        slot.store(0);
        slot
    }

    pub(super) fn address(self) -> Address {
        self.address as Address
    }

    /// The value that was stored last.
    pub(super) fn value(self) -> u32 {
        self.value
    }

    /// The same slot, after `value` was stored.
    pub(super) fn with(self, value: u32) -> Self {
        Self { value, ..self }
    }

    pub(super) fn store(self, value: u32) {
        let word = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: The word is there, and aligned (I1). Only the device reads it besides, and it does so whole.
        let word = unsafe { AtomicU32::from_ptr(word) };
        word.store(value, Ordering::Release);
    }
}
