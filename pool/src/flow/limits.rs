//! What can still be allocated within the limits of the pool's allocator.

use binpool_allocators::{Backend, contained::contained};

use crate::{central::limits::Limits, shared::Shared};

impl<B: Backend> Shared<B> {
    /// Returns how much the limits leave at this moment.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            capacity: self.allocator.capacity_bytes(),
            available: self.allocator.available_bytes(),
        }
    }

    /// Asks the device now and then, after a request that found no free range, how much memory is free. That bounds how much the pool keeps
    /// for later requests.
    pub(crate) fn look_for_pressure(&self, has_grown: bool) {
        if !self.state.lock().note_growth(has_grown) {
            return;
        }
        let free = contained("Backend::free_bytes", || self.backend.free_bytes());
        if let Some(free) = free.flatten() {
            self.state.lock().segments.note_free(free);
        }
    }

    /// Returns whether limits rule out a new block of `bytes` bytes even after all free memory is released.
    pub(crate) fn is_ruled_out(&self, bytes: usize) -> bool {
        let limits = self.limits();
        self.state.lock().is_ruled_out(bytes, limits)
    }

    /// Returns whether a block of `bytes` bytes is free, or the allocator would have room for one after a release of
    /// all free memory.
    pub(crate) fn would_fit(&self, bytes: usize) -> bool {
        self.flush();
        let limits = self.limits();
        let state = self.state.lock();
        if state.largest_held_bytes() >= bytes {
            return true;
        }
        let used = state
            .managed_bytes()
            .saturating_sub(state.releasable_bytes());
        let room = limits.capacity.saturating_sub(used);
        bytes as u64 <= room && !state.is_ruled_out(bytes, limits)
    }
}
