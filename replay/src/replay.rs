//! The replay of a trace.

use std::{
    error::Error as StdError,
    fmt,
    time::{Duration, Instant},
};

use binpool::{
    Allocator, Backend, Error, PoolOptions, Queue, QueueOrder, Region,
    adaptors::{AllocatorStatistics, Limit, Statistics},
};

use crate::{
    Event, Trace,
    block_source::{Source, Unpooled},
};

/// The mode of a replay, apart from the device.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The pool's settings; `None` for no pool.
    pub pool: Option<PoolOptions>,
    /// The most bytes that may be taken from the device.
    pub limit_bytes: u64,
    /// Set if a command is enqueued on each block that is handed out, as a program would, so that deferred
    /// memory is committed.
    pub touch: bool,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Blocks that were allocated.
    pub allocations: u64,
    /// Blocks that were allocated and freed. Blocks that are live at the end do not count.
    pub pairs: u64,
    /// Allocations that were served without the device.
    pub hits: u64,
    /// Blocks that were allocated from the device.
    pub device_allocations: u64,
    /// Blocks that were released to the device before the trace's end.
    pub device_releases: u64,
    /// The most bytes that were taken from the device at once.
    pub peak_reserved_bytes: u64,
    /// The time of the whole replay on the host.
    pub host_time: Duration,
    /// The part of it that the allocator's calls took.
    pub allocator_time: Duration,
    /// The views of segments that were made.
    pub views: u64,
    /// The part of [`allocator_time`](Self::allocator_time) that views took.
    pub view_time: Duration,
}

/// Why a replay stopped.
#[derive(Debug)]
pub struct Failure {
    /// The event, with its file, line and block.
    pub event: String,
    /// The cause.
    pub source: Box<dyn StdError + Send + Sync>,
    /// Whether memory ran out.
    pub out_of_memory: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.event)
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

/// The source counts more blocks as active than the replay holds.
#[derive(Debug, thiserror::Error)]
#[error("every block was freed, and the pool counts {blocks} as active: this is a bug of the pool")]
struct StillActive {
    blocks: u64,
}

impl Failure {
    pub(crate) fn setup(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            event: "setting up the device".into(),
            source: source.into(),
            out_of_memory: false,
        }
    }

    pub(crate) fn at(
        trace: &Trace,
        index: usize,
        out_of_memory: bool,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self {
            event: trace.describe(index),
            source: Box::new(source),
            out_of_memory,
        }
    }
}

/// Replays `trace` with blocks from `allocator`. `progress` is called now and then with the number of events that are done.
///
/// # Errors
///
/// [`Failure`], which names the event.
pub fn replay<A: Allocator + Clone>(
    trace: &Trace,
    allocator: A,
    manner: &Manner,
    progress: impl Fn(usize),
) -> Result<Outcome, Failure> {
    let streams = trace.streams();
    let queues = queues_of(&streams, allocator.backend()).map_err(Failure::setup)?;
    // Below the limit: a request that the limit refuses is not a call to the device.
    let counted = Statistics::new(allocator);
    let reading = || counted.reading();
    let limited = Limit::new(counted.clone(), manner.limit_bytes);
    let run = Run {
        trace,
        queues: &queues,
        queue_of_block: queues_of_blocks(trace, &streams),
        touch: manner.touch,
        progress: &progress,
    };
    match &manner.pool {
        Some(options) => {
            let home = queues
                .first()
                .ok_or_else(|| Failure::setup("the trace has no streams"))?;
            let pool = options
                .clone()
                .build(limited, home)
                .map_err(Failure::setup)?;
            run.with(&pool, reading)
        }
        None => run.with(&Unpooled(limited), reading),
    }
}

/// A queue for each of `streams`, in their order.
pub(crate) fn queues_of<B: Backend>(streams: &[u32], backend: &B) -> Result<Vec<B::Queue>, Error> {
    const MOST: usize = 1024;
    if streams.len() > MOST {
        return Err(Error::unsupported(format!(
            "{} streams: traces of up to {MOST} can be replayed, since each takes a queue",
            streams.len()
        )));
    }
    let queue = |_| backend.create_queue(QueueOrder::InOrder);
    streams.iter().map(queue).collect()
}

/// The index of each block's stream among `streams`, which are ascending. They are looked up before
/// the clock starts.
pub(crate) fn queues_of_blocks(trace: &Trace, streams: &[u32]) -> Vec<usize> {
    let indices = trace.events().iter().filter_map(|event| match event {
        // Every stream of the trace is in the list, so the search always finds it.
        Event::Allocate { stream, .. } => Some(streams.partition_point(|other| other < stream)),
        Event::Free { .. } => None,
    });
    indices.collect()
}

/// A replay in progress.
struct Run<'a, B: Backend> {
    trace: &'a Trace,
    queues: &'a [B::Queue],
    /// The index of each block's queue among `queues`.
    queue_of_block: Vec<usize>,
    touch: bool,
    progress: &'a dyn Fn(usize),
}

/// The number of events between two calls of `progress`.
pub(crate) const STRIDE: usize = 4096;

impl<B: Backend> Run<'_, B> {
    fn with<S>(
        &self,
        source: &S,
        reading: impl Fn() -> AllocatorStatistics,
    ) -> Result<Outcome, Failure>
    where
        S: Source<Allocator: Allocator<Backend = B>>,
    {
        let mut blocks: Vec<Option<S::Block>> = Vec::new();
        blocks.resize_with(self.trace.allocations(), || None);
        let start = Instant::now();
        for (index, event) in self.trace.events().iter().enumerate() {
            if index % STRIDE == 0 {
                (self.progress)(index);
            }
            match *event {
                Event::Allocate { block, bytes, .. } => {
                    let queue = &self.queues[self.queue_of_block[block]];
                    blocks[block] = Some(self.allocate(source, index, bytes, queue)?);
                }
                Event::Free { block } => {
                    if let Some(block) = blocks[block].take() {
                        source
                            .free(block)
                            .map_err(|error| Failure::at(self.trace, index, false, error))?;
                    }
                }
            }
        }
        let host_time = start.elapsed();
        let hits = source.hits();
        let device = reading();
        let end = self.trace.events().len();
        let at_end = |error| Failure::at(self.trace, end, false, error);
        for block in blocks.into_iter().flatten() {
            source.free(block).map_err(at_end)?;
        }
        for queue in self.queues {
            queue.finish().map_err(at_end)?;
        }
        if let Some(blocks @ 1..) = source.active_blocks() {
            return Err(Failure::at(self.trace, end, false, StillActive { blocks }));
        }
        Ok(Outcome {
            allocations: self.trace.allocations() as u64,
            pairs: self.trace.frees() as u64,
            hits,
            device_allocations: device.allocations,
            device_releases: device.releases,
            peak_reserved_bytes: device.peak_bytes,
            host_time,
            allocator_time: device.time,
            views: device.views,
            view_time: device.view_time,
        })
    }

    fn allocate<S>(
        &self,
        source: &S,
        index: usize,
        bytes: usize,
        queue: &B::Queue,
    ) -> Result<S::Block, Failure>
    where
        S: Source<Allocator: Allocator<Backend = B>>,
    {
        let block = source.allocate(queue, bytes).map_err(|error| {
            let out_of_memory = match &error {
                binpool::PoolError::Allocator(error) => error.is_out_of_memory(),
                error => error.is_out_of_memory(),
            };
            Failure::at(self.trace, index, out_of_memory, error)
        })?;
        if self.touch
            && let Some(memory) = S::memory(&block, queue)
        {
            source
                .allocator()
                .backend()
                .enqueue_fill(queue, memory, Region::first(1), &[0], &[])
                .map_err(|error| Failure::at(self.trace, index, error.is_out_of_memory(), error))?;
        }
        Ok(block)
    }
}

impl Outcome {
    /// Returns the part of all allocations that were served without the device, from 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / self.allocations.max(1) as f64
    }

    /// Returns the host's time for an allocation and its free, in nanoseconds, or the time of the whole trace where it
    /// frees nothing.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn ns_per_pair(&self) -> f64 {
        self.host_time.as_nanos() as f64 / self.pairs.max(1) as f64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use binpool::{DeferredAllocator, MemoryOf, PoolError};
    use binpool_mock::{MockBackend, MockDevice};

    use super::*;

    type Plain = Unpooled<DeferredAllocator<MockBackend>>;

    /// A source that counts one block too many.
    struct Miscounting(Plain);

    impl Source for Miscounting {
        type Allocator = <Plain as Source>::Allocator;
        type Block = <Plain as Source>::Block;

        fn allocator(&self) -> &Self::Allocator {
            self.0.allocator()
        }

        fn allocate(
            &self,
            queue: &<MockBackend as Backend>::Queue,
            bytes: usize,
        ) -> Result<Self::Block, PoolError> {
            self.0.allocate(queue, bytes)
        }

        fn free(&self, block: Self::Block) -> Result<(), Error> {
            self.0.free(block)
        }

        fn memory<'b>(
            block: &'b Self::Block,
            queue: &<MockBackend as Backend>::Queue,
        ) -> Option<&'b MemoryOf<Self::Allocator>> {
            Plain::memory(block, queue)
        }

        fn hits(&self) -> u64 {
            0
        }

        fn active_blocks(&self) -> Option<u64> {
            Some(1)
        }
    }

    #[test]
    fn a_source_that_counts_freed_blocks_as_active_is_found_out() {
        let trace = Trace::parse("t", &b"a 0 100 0\n"[..]).unwrap();
        let backend = MockDevice::new().backend();
        let run = Run::<MockBackend> {
            trace: &trace,
            queues: &queues_of(&[0], &backend).unwrap(),
            queue_of_block: vec![0],
            touch: false,
            progress: &|_| {},
        };
        let source = Miscounting(Unpooled(DeferredAllocator::new(&backend)));
        let failure = run.with(&source, AllocatorStatistics::default).unwrap_err();
        assert_eq!(failure.to_string(), "t: at the end");
        assert!(failure.source.to_string().contains("counts 1 as active"));
    }
}
