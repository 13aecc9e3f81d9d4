//! An allocator that keeps count of what goes through it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use binpool::{Align, Allocator, EventOf, Memory, MemoryOf, OutOfMemory, Result, Scope};
use parking_lot::Mutex;

/// What went through a [`Metered`] allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Blocks that the device gave.
    pub(crate) allocations: u64,
    /// Blocks that went back to it.
    pub(crate) releases: u64,
    /// Bytes that are taken from the device now.
    pub(crate) reserved_bytes: u64,
    /// The most bytes that were taken from it at once.
    pub(crate) peak_reserved_bytes: u64,
    /// The time that its calls took, as the host saw it.
    pub(crate) time: Duration,
}

/// Counts, times and bounds what goes through an allocator. Clones share one meter.
#[derive(Clone, Debug)]
pub(crate) struct Metered<A> {
    allocator: A,
    /// The most bytes that may be taken at once.
    limit: u64,
    reading: Arc<Mutex<Reading>>,
}

impl<A: Allocator> Metered<A> {
    /// Meters `allocator`, and lets it take at most `limit` bytes at once.
    pub(crate) fn new(allocator: A, limit: u64) -> Self {
        Self {
            allocator,
            limit,
            reading: Arc::default(),
        }
    }

    /// What the meter shows.
    pub(crate) fn reading(&self) -> Reading {
        *self.reading.lock()
    }

    fn take(&self, bytes: usize) -> Result<()> {
        let mut reading = self.reading.lock();
        let available = self.limit.saturating_sub(reading.reserved_bytes);
        if bytes as u64 > available {
            return Err(OutOfMemory::new(bytes, Scope::Limit)
                .with_available(available)
                .into());
        }
        reading.reserved_bytes = reading.reserved_bytes.saturating_add(bytes as u64);
        Ok(())
    }
}

impl<A: Allocator> Allocator for Metered<A> {
    type Backend = A::Backend;

    fn backend(&self) -> &Self::Backend {
        self.allocator.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        self.take(bytes)?;
        let start = Instant::now();
        let memory = self.allocator.allocate(bytes);
        let time = start.elapsed();
        let mut reading = self.reading.lock();
        reading.time += time;
        // What was asked for was taken before the call. The block may be larger.
        let given = memory.as_ref().map_or(0, Memory::bytes) as u64;
        let others = reading.reserved_bytes.saturating_sub(bytes as u64);
        reading.reserved_bytes = others.saturating_add(given);
        if memory.is_ok() {
            reading.allocations += 1;
            reading.peak_reserved_bytes = reading.peak_reserved_bytes.max(reading.reserved_bytes);
        }
        memory
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let bytes = memory.bytes() as u64;
        let start = Instant::now();
        let released = self.allocator.release(memory, after);
        let time = start.elapsed();
        let mut reading = self.reading.lock();
        reading.time += time;
        reading.releases += 1;
        reading.reserved_bytes = reading.reserved_bytes.saturating_sub(bytes);
        released
    }

    fn is_deferred(&self) -> bool {
        self.allocator.is_deferred()
    }

    fn release_needs_events(&self) -> bool {
        self.allocator.release_needs_events()
    }

    fn alignment(&self) -> Align {
        self.allocator.alignment()
    }

    fn largest_block(&self) -> usize {
        self.allocator.largest_block()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use binpool::DeferredAllocator;
    use binpool_mock::{MockBackend, MockDevice};

    use super::*;

    /// Gives whole kibibytes, as an allocator may.
    #[derive(Debug)]
    struct Generous(DeferredAllocator<MockBackend>);

    impl Allocator for Generous {
        type Backend = MockBackend;

        fn backend(&self) -> &MockBackend {
            self.0.backend()
        }

        fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
            self.0.allocate(bytes.next_multiple_of(1024))
        }

        fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
            self.0.release(memory, after)
        }

        fn is_deferred(&self) -> bool {
            true
        }
    }

    fn generous(limit: u64) -> Metered<Generous> {
        let backend = MockDevice::new().backend();
        Metered::new(Generous(DeferredAllocator::new(&backend)), limit)
    }

    fn counts(metered: &Metered<Generous>) -> [u64; 4] {
        let reading = metered.reading();
        [
            reading.allocations,
            reading.releases,
            reading.reserved_bytes,
            reading.peak_reserved_bytes,
        ]
    }

    #[test]
    fn a_block_counts_with_the_bytes_that_it_really_has() {
        let metered = generous(u64::MAX);
        let small = metered.allocate(1).unwrap();
        assert_eq!(counts(&metered), [1, 0, 1024, 1024]);
        let large = metered.allocate(1025).unwrap();
        assert_eq!(counts(&metered), [2, 0, 3072, 3072]);
        metered.release(small, &[]).unwrap();
        metered.release(large, &[]).unwrap();
        assert_eq!(counts(&metered), [2, 2, 0, 3072]);
    }

    #[test]
    fn what_does_not_fit_within_the_limit_is_refused_and_not_counted() {
        let metered = generous(2048);
        let block = metered.allocate(1024).unwrap();
        let error = metered.allocate(1025).unwrap_err();
        assert!(error.is_out_of_memory(), "{error:?}");
        assert_eq!(counts(&metered), [1, 0, 1024, 1024]);
        metered.release(block, &[]).unwrap();
        assert!(metered.allocate(1025).is_ok());
    }

    #[test]
    fn a_failed_allocation_takes_nothing() {
        let metered = generous(u64::MAX);
        let largest = metered.largest_block();
        assert!(metered.allocate(largest + 1).is_err());
        assert_eq!(counts(&metered), [0; 4]);
    }
}
