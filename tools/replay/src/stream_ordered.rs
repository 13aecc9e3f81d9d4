//! The replay by memory that CUDA's driver allocates and frees in the order of streams, to compare with.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use binpool::{Allocator, Error, PoolError, adaptors::AllocatorStatistics};
use binpool_cuda::{CudaBackend, CudaMemory, CudaQueue, DriverPoolAllocator};

use crate::{
    Failure, Outcome,
    block_source::Source,
    replay::Run,
    rounds::{DeviceGauges, Gauges},
};
use binpool_recordings::Trace;

/// Replays a trace with a pool of the driver that keeps what is free: each block is allocated and freed on its own stream, without a wait.
pub(crate) fn replay_in_stream_order(
    trace: &Trace,
    backend: &CudaBackend,
    run: &Run<'_, CudaBackend>,
    device: DeviceGauges<'_>,
    progress: &dyn Fn(usize),
) -> Result<Outcome, Failure> {
    let source = StreamOrdered {
        allocator: DriverPoolAllocator::new(backend).map_err(Failure::setup)?,
        calls: Calls::default(),
    };
    let gauges = Gauges {
        reading: &|| source.calls.reading(),
        // The driver has the peak of the whole replay.
        reserved: None,
        device,
    };
    let mut outcome = run.with(&source, &gauges, progress)?;
    let end = trace.events().len();
    let peaks = source.allocator.peaks();
    let peaks = peaks.map_err(|error| Failure::at(trace, end, false, error))?;
    outcome.peak_reserved_bytes = peaks.reserved_bytes;
    outcome.peak_live_bytes = peaks.used_bytes;
    // The driver is asked for its peaks alone.
    outcome.at_end = None;
    Ok(outcome)
}

struct StreamOrdered {
    allocator: DriverPoolAllocator,
    calls: Calls,
}

/// Counts without a lock, which would cost the driver's threads more than the driver.
#[derive(Default)]
struct Calls {
    allocations: AtomicU64,
    releases: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Calls {
    /// Makes a call, counts it, and adds its time.
    fn count<T>(&self, calls: &AtomicU64, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = call();
        let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(took, Ordering::Relaxed);
        calls.fetch_add(1, Ordering::Relaxed);
        result
    }

    fn reading(&self) -> AllocatorStatistics {
        let mut reading = AllocatorStatistics::default();
        reading.allocations = self.allocations.load(Ordering::Relaxed);
        reading.releases = self.releases.load(Ordering::Relaxed);
        reading.time = std::time::Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed));
        reading
    }
}

impl Source for StreamOrdered {
    type Backend = CudaBackend;
    type Block = Option<CudaMemory>;

    fn backend(&self) -> &CudaBackend {
        self.allocator.backend()
    }

    fn allocate(&self, queue: &CudaQueue, bytes: usize) -> Result<Self::Block, PoolError> {
        if bytes == 0 {
            return Ok(None);
        }
        let allocate = || self.allocator.allocate_on(queue, bytes);
        let block = self.calls.count(&self.calls.allocations, allocate)?;
        Ok(Some(block))
    }

    fn free(&self, block: Self::Block) -> Result<(), Error> {
        if let Some(memory) = block {
            self.calls.count(&self.calls.releases, || drop(memory));
        }
        Ok(())
    }

    fn memory<'b>(block: &'b Self::Block, _queue: &CudaQueue) -> Option<&'b CudaMemory> {
        block.as_ref()
    }

    fn hits(&self) -> u64 {
        0
    }

    fn active_blocks(&self) -> Option<u64> {
        None
    }

    fn peak_live_bytes(&self) -> Option<u64> {
        None
    }
}
