//! How much the limits leave to the pool.

use binpool_allocators::{Backend, Error, OutOfMemory, Scope};

use crate::central::State;

/// The limits of the pool's allocator, read before the pool's lock is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most bytes that the allocator gives in total.
    pub(crate) capacity: u64,
    /// The most bytes that it gives now.
    pub(crate) available: u64,
}

impl Limits {
    pub(crate) const NONE: Self = Self {
        capacity: u64::MAX,
        available: u64::MAX,
    };

    /// The error of a request that the limits rule out, so that the allocator need not be asked.
    pub(crate) fn refusal(self, bytes: usize) -> Error {
        OutOfMemory::new(bytes, Scope::Limit)
            .with_available(self.available)
            .into()
    }
}

/// The device is asked how much is free after this number of requests that found no free range, and before that each time their number has
/// doubled.
const GROWTHS_A_LOOK: u64 = 32;

impl<B: Backend, O> State<B, O> {
    /// Counts a request for a segment or pages. Returns whether it is time to ask the device how much is free.
    pub(crate) fn is_look_for_pressure_due(&mut self) -> bool {
        self.growths += 1;
        self.growths.is_power_of_two() || self.growths.is_multiple_of(GROWTHS_A_LOOK)
    }

    /// Returns whether these limits rule out a new block of `bytes` bytes even after all free memory is released.
    pub(crate) fn is_ruled_out(&self, bytes: usize, limits: Limits) -> bool {
        let bytes = bytes as u64;
        if bytes <= limits.available.min(limits.capacity) {
            return false;
        }
        // A block may lie on free parts of pages that do not leave the pool.
        let free = if self.segments.has_pages() {
            self.held_bytes()
        } else {
            self.releasable_bytes()
        };
        bytes > limits.capacity || bytes > limits.available.saturating_add(free)
    }
}

#[cfg(test)]
mod tests {
    use crate::mock_pool::MockPool;

    #[test]
    fn the_device_is_asked_at_each_doubling_and_at_every_32nd_request() {
        let mock = MockPool::of_segments();
        let mut state = mock.shared.state.lock();
        let asked: Vec<_> = (1..=128)
            .filter(|_| state.is_look_for_pressure_due())
            .collect();
        assert_eq!(asked, [1, 2, 4, 8, 16, 32, 64, 96, 128]);
    }
}
