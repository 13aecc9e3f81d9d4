//! An allocator that keeps count of what goes through it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use binpool::{Align, Allocator, EventOf, Memory, MemoryOf, OutOfMemory, Result, Scope};
use parking_lot::Mutex;

/// What went through a [`Metered`] allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Blocks that the device gave.
    pub allocations: u64,
    /// Bytes that are taken from the device now.
    pub reserved_bytes: u64,
    /// The most bytes that were taken from it at once.
    pub peak_reserved_bytes: u64,
    /// The time that its calls took, as the host saw it.
    pub time: Duration,
}

/// Counts, times and bounds what goes through an allocator. Clones share one meter.
#[derive(Clone, Debug)]
pub struct Metered<A> {
    allocator: A,
    /// The most bytes that may be taken at once.
    limit: u64,
    reading: Arc<Mutex<Reading>>,
}

impl<A: Allocator> Metered<A> {
    /// Meters `allocator`, and lets it take at most `limit` bytes at once.
    pub fn new(allocator: A, limit: u64) -> Self {
        Self {
            allocator,
            limit,
            reading: Arc::default(),
        }
    }

    /// What the meter shows.
    #[must_use]
    pub fn reading(&self) -> Reading {
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
        reading.reserved_bytes += bytes as u64;
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
        match &memory {
            Ok(_) => {
                reading.allocations += 1;
                reading.peak_reserved_bytes =
                    reading.peak_reserved_bytes.max(reading.reserved_bytes);
            }
            Err(_) => reading.reserved_bytes -= bytes as u64,
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
        reading.reserved_bytes -= bytes;
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
