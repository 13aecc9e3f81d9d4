//! The replay of a trace.

use std::{
    error::Error as StdError,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use binpool::{
    Allocator, Backend, Error, PoolError, PoolStatistics, Queue, QueueOrder,
    adaptors::{Limit, Statistics},
};

use crate::{
    block_source::{Source, Unpooled},
    parts::{Operation, Part, Parts},
    reserved::Reserved,
    rounds::{DeviceGauges, Gauges, Ledger, Pending, Round},
    settings::ReplaySettings,
    touch::{Commands, Fill, InUse, Touch},
    watermark::Watermark,
};
use binpool_recordings::{Event, Trace};

/// The result of a replay, by all threads together.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The most bytes that were live at once: with a pool, as requested; without a pool, as allocated.
    pub peak_live_bytes: u64,
    /// The time of the whole replay on the host.
    pub host_time: Duration,
    /// The mean time on the host of a round from the third on; `None` if there are fewer than three.
    pub warm_host_time: Option<Duration>,
    /// The part of it that the allocator's calls took.
    pub allocator_time: Duration,
    /// The views of segments that were made.
    pub views: u64,
    /// The part of [`allocator_time`](Self::allocator_time) that views took.
    pub view_time: Duration,
    /// Calls that mapped pages of virtual memory.
    pub maps: u64,
    /// Calls that unmapped pages.
    pub unmaps: u64,
    /// The part of [`allocator_time`](Self::allocator_time) that mapping and unmapping took.
    pub remap_time: Duration,
    /// The part of that in which free pages moved to where a block needed them.
    pub move_time: Duration,
    /// The pool's counters at the end; `None` without a pool.
    pub statistics: Option<PoolStatistics>,
    /// The time that passed on the clock of the device: with the mock, what was recorded, or 10 us an event, and what its calls cost.
    pub passed_time: Duration,
    /// What was taken from the device at the trace's end.
    pub at_end: AtEnd,
    /// The figures of each round; empty if the trace is replayed once.
    pub rounds: Vec<Round>,
    /// The work that the device had not finished; `None` if it is not behind ([`ReplaySettings::behind`](crate::ReplaySettings::behind)).
    pub pending: Option<Pending>,
}

/// What is live at the end of a trace, and what is still taken from the device then: the rest is what a pool keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AtEnd {
    /// The live bytes of the program, as requested.
    pub live_bytes: u64,
    /// The bytes that were taken from the device.
    pub reserved_bytes: u64,
    /// What is left of them if the pool is then trimmed ([`free_held`](binpool::MemoryPool::free_held)).
    pub trimmed_bytes: u64,
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

/// Kernels found other numbers in blocks than those they had written.
#[derive(Debug, thiserror::Error)]
#[error(
    "{blocks} blocks were overwritten while they were in use: this is a bug of the pool, or of the driver"
)]
struct Overwritten {
    blocks: u64,
}

/// Another thread failed first.
#[derive(Debug, thiserror::Error)]
#[error("another thread of the replay failed")]
struct Stopped;

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

    /// This failure, in the round of this index.
    fn in_round(mut self, round: usize) -> Self {
        if round > 0 {
            self.event = format!("{}, in round {}", self.event, round + 1);
        }
        self
    }
}

/// Replays `trace` with blocks from `allocator`. `progress` is called now and then with the number of events that are done. The settings
/// for the allocator, for kernels and for a device that lags behind apply only to a [`Device`](crate::Device).
///
/// # Errors
///
/// [`Failure`], which names the event.
pub fn replay<A: Allocator + Clone>(
    trace: &Trace,
    allocator: A,
    settings: &ReplaySettings,
    progress: impl Fn(usize),
) -> Result<Outcome, Failure> {
    let fill: NewCommands<'_, A::Backend> = &|_| Ok(Box::new(Fill));
    let commands = (settings.touch == Touch::Fill).then_some(fill);
    let gauges = DeviceGauges::default();
    replay_with(trace, allocator, settings, commands, gauges, &progress)
}

/// Makes the commands that are enqueued on each block, for this many queues.
pub(crate) type NewCommands<'a, B> = &'a dyn Fn(usize) -> Result<Box<dyn Commands<B>>, Error>;

/// As [`replay`], with these commands on each block, and what the device shows by itself.
pub(crate) fn replay_with<A: Allocator + Clone>(
    trace: &Trace,
    allocator: A,
    settings: &ReplaySettings,
    commands: Option<NewCommands<'_, A::Backend>>,
    device: DeviceGauges<'_>,
    progress: &dyn Fn(usize),
) -> Result<Outcome, Failure> {
    let run = Run::new(trace, allocator.backend(), settings, commands)?;
    let limit_bytes = settings.capacity_bytes.unwrap_or(u64::MAX);
    // Below the limit: a request that the limit refuses is not a call to the device.
    let counted = Statistics::new(allocator);
    let watched = Reserved::new(counted.clone());
    let reserved = watched.bytes();
    let gauges = Gauges {
        reading: &|| counted.reading(),
        reserved: &reserved,
        device,
    };
    match &settings.pool {
        Some(options) => {
            let home = run
                .queues
                .first()
                .ok_or_else(|| Failure::setup("the trace has no streams"))?;
            let pool = options
                .clone()
                .limit(limit_bytes)
                .build(watched, home)
                .map_err(Failure::setup)?;
            run.with(&pool, &gauges, progress)
        }
        None => run.with(
            &Unpooled(Limit::new(watched, limit_bytes)),
            &gauges,
            progress,
        ),
    }
}

/// A queue for each of this many streams.
pub(crate) fn queues_of<B: Backend>(streams: usize, backend: &B) -> Result<Vec<B::Queue>, Error> {
    const MOST: usize = 1024;
    if streams > MOST {
        return Err(Error::unsupported(format!(
            "{streams} streams: up to {MOST} can be replayed, since each takes a queue"
        )));
    }
    let queue = |_| backend.create_queue(QueueOrder::InOrder);
    (0..streams).map(queue).collect()
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
pub(crate) struct Run<'a, B: Backend> {
    trace: &'a Trace,
    queues: Vec<B::Queue>,
    parts: Parts,
    commands: Option<Box<dyn Commands<B>>>,
    rounds: usize,
    /// The bytes that are live, as they were asked for, where rounds are told apart.
    live: Watermark,
    /// Set once a thread has failed.
    has_failed: AtomicBool,
}

/// The number of events between two calls of `progress`.
pub(crate) const STRIDE: usize = 4096;

/// The blocks that a part has, by their slots.
type Left<S> = Vec<Option<<S as Source>::Block>>;

/// What all parts have left when they have been played.
struct Played<S: Source> {
    /// The blocks of each part.
    left: Vec<Left<S>>,
    /// The time from the moment at which all have begun.
    host_time: Duration,
    warm_host_time: Option<Duration>,
    rounds: Vec<Round>,
    pending: Option<Pending>,
}

impl<'a, B: Backend> Run<'a, B> {
    /// Prepares the replay of a trace on the threads of the settings, in their rounds: its queues, and the commands on them.
    pub(crate) fn new(
        trace: &'a Trace,
        backend: &B,
        settings: &ReplaySettings,
        commands: Option<NewCommands<'_, B>>,
    ) -> Result<Self, Failure> {
        let streams = trace.streams();
        let stream_of_block = queues_of_blocks(trace, &streams);
        let parts = Parts::of(trace, &stream_of_block, streams.len(), settings.threads);
        let queues = queues_of(streams.len() * parts.copies, backend).map_err(Failure::setup)?;
        let commands = commands.map(|new| new(queues.len())).transpose();
        let live = Watermark::of_threads(parts.parts.len());
        Ok(Self {
            trace,
            queues,
            parts,
            commands: commands.map_err(Failure::setup)?,
            rounds: settings.rounds,
            live,
            has_failed: AtomicBool::new(false),
        })
    }

    /// Replays the trace with blocks from `source`. `gauges` show what it takes from the device.
    pub(crate) fn with<S>(
        &self,
        source: &S,
        gauges: &Gauges<'_>,
        progress: &dyn Fn(usize),
    ) -> Result<Outcome, Failure>
    where
        S: Source<Backend = B> + Sync,
        S::Block: Send,
    {
        let began = source.backend().now();
        let Played {
            left,
            host_time,
            warm_host_time,
            rounds,
            pending,
        } = self.play_all(source, gauges, progress)?;
        let passed_time = source.backend().now().saturating_sub(began);
        let statistics = source.statistics();
        let device = (gauges.reading)();
        source.trim();
        let copies = self.parts.copies as u64;
        let at_end = AtEnd {
            live_bytes: self.trace.end_live_bytes() * copies,
            reserved_bytes: device.current_bytes,
            trimmed_bytes: (gauges.reading)().current_bytes,
        };
        let end = self.trace.events().len();
        let failed = |error| Failure::at(self.trace, end, false, error);
        for (part, mut blocks) in self.parts.parts.iter().zip(left) {
            for number in part.operations.never_freed() {
                let operation = &part.operations.all[number];
                if let Some(block) = blocks[operation.slot as usize].take() {
                    // What is left is of the first round: later ones free all that they allocate.
                    let step = Step {
                        part,
                        round: 0,
                        number,
                    };
                    self.free(source, step, operation, block).map_err(failed)?;
                }
            }
        }
        let mut overwritten = 0;
        for (number, queue) in self.queues.iter().enumerate() {
            queue.finish().map_err(failed)?;
            if let Some(commands) = &self.commands {
                let backend = source.backend();
                let wrong = commands.wrong_blocks(backend, queue, number);
                overwritten += u64::from(wrong.map_err(failed)?);
            }
        }
        if overwritten > 0 {
            let source = Overwritten {
                blocks: overwritten,
            };
            return Err(Failure::at(self.trace, end, false, source));
        }
        if let Some(blocks @ 1..) = source.statistics().map(|it| it.active_blocks) {
            return Err(Failure::at(self.trace, end, false, StillActive { blocks }));
        }
        Ok(Outcome {
            allocations: self.allocations(self.rounds),
            pairs: self.trace.frees() as u64 * copies * self.rounds as u64,
            hits: statistics.map_or(0, |it| it.hits),
            device_allocations: device.allocations,
            device_releases: device.releases,
            peak_reserved_bytes: device.peak_bytes,
            peak_live_bytes: statistics.map_or(device.peak_bytes, |it| it.peak_active_bytes),
            host_time,
            warm_host_time,
            allocator_time: device.time,
            views: device.views,
            view_time: device.view_time,
            maps: device.maps,
            unmaps: device.unmaps,
            remap_time: device.map_time,
            move_time: Duration::from_nanos(statistics.map_or(0, |it| it.move_nanoseconds)),
            statistics,
            passed_time,
            at_end,
            rounds,
            pending,
        })
    }

    /// The blocks that the first this many rounds allocate together.
    fn allocations(&self, rounds: usize) -> u64 {
        let later = rounds.saturating_sub(1) * self.trace.frees();
        (self.trace.allocations() + later) as u64 * self.parts.copies as u64
    }

    /// Replays each part on a thread of its own, the first one on this thread.
    fn play_all<S>(
        &self,
        source: &S,
        gauges: &Gauges<'_>,
        progress: &dyn Fn(usize),
    ) -> Result<Played<S>, Failure>
    where
        S: Source<Backend = B> + Sync,
        S::Block: Send,
    {
        let Some((first, others)) = self.parts.parts.split_first() else {
            return Ok(Played {
                left: Vec::new(),
                host_time: Duration::ZERO,
                warm_host_time: None,
                rounds: Vec::new(),
                pending: None,
            });
        };
        let mut ledger = Ledger::new(gauges, &self.live);
        let meeting = Barrier::new(self.parts.parts.len());
        thread::scope(|scope| {
            let play = |part| {
                let meeting = &meeting;
                move || {
                    let blocks = no_blocks::<S>(part);
                    meeting.wait();
                    self.play(source, part, blocks, meeting, &mut |_| {}, &|_| {})
                }
            };
            let others: Vec<_> = others.iter().map(|part| scope.spawn(play(part))).collect();
            let blocks = no_blocks::<S>(first);
            let mut round_ended = |round| {
                let hits = source.statistics().map_or(0, |it| it.hits);
                ledger.end_round(self.allocations(round + 1), hits);
            };
            meeting.wait();
            let start = Instant::now();
            let mut results =
                vec![self.play(source, first, blocks, &meeting, &mut round_ended, progress)];
            for other in others {
                let result = other.join();
                results.push(result.unwrap_or_else(|panic| resume_unwind(panic)));
            }
            let host_time = start.elapsed();
            // The failure of a thread that was stopped says less.
            results.sort_by_key(
                |result| matches!(result, Err(failure) if failure.source.is::<Stopped>()),
            );
            let left = results.into_iter().collect::<Result<_, _>>()?;
            Ok(Played {
                left,
                host_time,
                warm_host_time: ledger.warm_host_time(),
                pending: ledger.pending(),
                rounds: ledger.rounds,
            })
        })
    }

    /// Replays a part as many times as there are rounds. Returns the blocks that it has left. Where there are several rounds, all parts
    /// meet after each, and `round_ended` is called before any begins the next.
    fn play<S>(
        &self,
        source: &S,
        part: &Part,
        mut blocks: Left<S>,
        meeting: &Barrier,
        round_ended: &mut dyn FnMut(usize),
        progress: &dyn Fn(usize),
    ) -> Result<Left<S>, Failure>
    where
        S: Source<Backend = B>,
    {
        let meets = self.rounds > 1;
        for round in 0..self.rounds {
            let play = || self.play_round(source, part, round, &mut blocks, progress);
            // A part that panics meets the others before it ends, or they would wait for it.
            let played = catch_unwind(AssertUnwindSafe(play));
            if !matches!(played, Ok(Ok(()))) {
                self.has_failed.store(true, Ordering::Relaxed);
            }
            if meets {
                meeting.wait();
            }
            let played = played.unwrap_or_else(|panic| resume_unwind(panic));
            played.map_err(|failure| failure.in_round(round))?;
            if self.has_failed.load(Ordering::Relaxed) {
                let end = self.trace.events().len();
                return Err(Failure::at(self.trace, end, false, Stopped));
            }
            if meets {
                round_ended(round);
                meeting.wait();
            }
        }
        Ok(blocks)
    }

    fn play_round<S>(
        &self,
        source: &S,
        part: &Part,
        round: usize,
        blocks: &mut Left<S>,
        progress: &dyn Fn(usize),
    ) -> Result<(), Failure>
    where
        S: Source<Backend = B>,
    {
        let done = round * self.trace.events().len();
        let at = |number| Step {
            part,
            round,
            number,
        };
        for (chunk, operations) in part.operations.all.chunks(STRIDE).enumerate() {
            let first = chunk * STRIDE;
            progress(done + at(first).event());
            if self.has_failed.load(Ordering::Relaxed) {
                return Err(Failure::at(self.trace, at(first).event(), false, Stopped));
            }
            for (number, operation) in (first..).zip(operations) {
                let place = &mut blocks[operation.slot as usize];
                if operation.is_free {
                    let freed = place.take().map_or(Ok(()), |block| {
                        self.free(source, at(number), operation, block)
                    });
                    freed.map_err(|error| {
                        Failure::at(self.trace, at(number).event(), false, error)
                    })?;
                } else if place.is_none() {
                    // Otherwise it is never freed, and has been there since the first round.
                    let block = self.allocate(source, at(number), operation);
                    *place = Some(block.map_err(|error| self.refused(at(number), error))?);
                }
            }
        }
        Ok(())
    }

    /// The failure of an allocation, or of the commands on its block.
    #[cold]
    fn refused(&self, step: Step<'_>, error: PoolError) -> Failure {
        let out_of_memory = match &error {
            PoolError::Allocator(error) => error.is_out_of_memory(),
            error => error.is_out_of_memory(),
        };
        Failure::at(self.trace, step.event(), out_of_memory, error)
    }

    #[inline]
    fn allocate<S>(
        &self,
        source: &S,
        step: Step<'_>,
        operation: &Operation,
    ) -> Result<S::Block, PoolError>
    where
        S: Source<Backend = B>,
    {
        let queue = &self.queues[step.part.first_queue + operation.queue as usize];
        let block = source.allocate(queue, operation.bytes)?;
        if self.rounds > 1 {
            self.live.add(operation.bytes as u64);
        }
        if let Some(commands) = &self.commands {
            self.command(source, step, operation, &block, |block| {
                commands.begin(block)
            })?;
        }
        Ok(block)
    }

    #[inline]
    fn free<S>(
        &self,
        source: &S,
        step: Step<'_>,
        operation: &Operation,
        block: S::Block,
    ) -> Result<(), Error>
    where
        S: Source<Backend = B>,
    {
        if let Some(commands) = &self.commands {
            self.command(source, step, operation, &block, |block| commands.end(block))?;
        }
        if self.rounds > 1 {
            self.live.remove(operation.bytes as u64);
        }
        source.free(block)
    }

    /// Enqueues commands on a block, unless it has no bytes.
    #[inline(never)]
    fn command<S>(
        &self,
        source: &S,
        step: Step<'_>,
        operation: &Operation,
        block: &S::Block,
        enqueue: impl FnOnce(&InUse<'_, B>) -> Result<(), Error>,
    ) -> Result<(), Error>
    where
        S: Source<Backend = B>,
    {
        let queue_number = step.part.first_queue + operation.queue as usize;
        let queue = &self.queues[queue_number];
        let Some(memory) = S::memory(block, queue) else {
            return Ok(());
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "blocks that are 2^32 apart do not live together"
        )]
        let number = (step.round * self.parts.copies * self.trace.allocations()
            + step.part.first_block
            + step.block()) as u32;
        enqueue(&InUse {
            backend: source.backend(),
            queue,
            queue_number,
            memory,
            number,
        })
    }
}

/// No block yet in any slot of a part.
fn no_blocks<S: Source>(part: &Part) -> Left<S> {
    let mut blocks = Vec::new();
    blocks.resize_with(part.operations.slots, || None);
    blocks
}

/// An operation of a part, in a round.
#[derive(Clone, Copy)]
struct Step<'a> {
    part: &'a Part,
    round: usize,
    /// The index of the operation.
    number: usize,
}

impl Step<'_> {
    /// The number of its block in the trace.
    fn block(self) -> usize {
        self.part.operations.origins[self.number].0
    }

    /// The index of its event.
    fn event(self) -> usize {
        self.part.operations.origins[self.number].1
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

    /// The time on the host a pair of an allocation and its free in the rounds from the third on, in nanoseconds; `None` if there are
    /// fewer than three.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn warm_ns_per_pair(&self) -> Option<f64> {
        let pairs = self.pairs as f64 / self.rounds.len() as f64;
        Some(self.warm_host_time?.as_nanos() as f64 / pairs.max(1.0))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use std::sync::Arc;

    use binpool::{DeferredAllocator, adaptors::AllocatorStatistics};
    use binpool_mock::{MockBackend, MockDevice};
    use parking_lot::Mutex;

    use super::*;

    type Plain = Unpooled<DeferredAllocator<MockBackend>>;

    #[test]
    fn up_to_1024_streams_have_a_queue_each() {
        let backend = MockDevice::new().backend();
        assert_eq!(queues_of(1024, &backend).unwrap().len(), 1024);
        assert!(queues_of(1025, &backend).is_err());
    }

    /// A source that counts one block too many.
    struct Miscounting(Plain);

    impl Source for Miscounting {
        type Backend = MockBackend;
        type Block = <Plain as Source>::Block;

        fn backend(&self) -> &MockBackend {
            self.0.backend()
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
        ) -> Option<&'b <MockBackend as Backend>::Memory> {
            Plain::memory(block, queue)
        }

        fn statistics(&self) -> Option<PoolStatistics> {
            let mut statistics = PoolStatistics::default();
            statistics.active_blocks = 1;
            Some(statistics)
        }
    }

    #[test]
    fn a_source_that_counts_freed_blocks_as_active_is_found_out() {
        let trace = Trace::parse("t", &b"a 0 100 0\n"[..]).unwrap();
        let backend = MockDevice::new().backend();
        let run = Run::<MockBackend> {
            trace: &trace,
            queues: queues_of(1, &backend).unwrap(),
            parts: Parts::of(&trace, &[0], 1, 1),
            commands: None,
            rounds: 1,
            live: Watermark::default(),
            has_failed: AtomicBool::new(false),
        };
        let source = Miscounting(Unpooled(DeferredAllocator::new(&backend)));
        let gauges = Gauges {
            reading: &AllocatorStatistics::default,
            reserved: &Watermark::default(),
            device: DeviceGauges::default(),
        };
        let failure = run.with(&source, &gauges, &|_| {}).unwrap_err();
        assert_eq!(failure.to_string(), "t: at the end");
        assert!(failure.source.to_string().contains("counts 1 as active"));
    }

    /// Notes the numbers of the blocks that it is called for.
    #[derive(Clone, Default)]
    struct Numbers {
        seen: Arc<Mutex<Vec<u32>>>,
        /// How many blocks of each queue it says are overwritten.
        overwritten: u32,
    }

    impl Commands<MockBackend> for Numbers {
        fn begin(&self, block: &InUse<'_, MockBackend>) -> Result<(), Error> {
            self.seen.lock().push(block.number);
            Ok(())
        }

        fn end(&self, _: &InUse<'_, MockBackend>) -> Result<(), Error> {
            Ok(())
        }

        fn wrong_blocks(
            &self,
            _: &MockBackend,
            _: &<MockBackend as Backend>::Queue,
            _: usize,
        ) -> Result<u32, Error> {
            Ok(self.overwritten)
        }
    }

    /// The failure of a replay with these commands, if it fails.
    fn replay_of_numbers(numbers: &Numbers) -> Option<Failure> {
        let trace = Trace::parse("t", &b"a 0 100 0\na 1 100 0\nf 0\na 2 9 0\n"[..]).unwrap();
        let commands = |_| {
            let commands: Box<dyn Commands<MockBackend>> = Box::new(numbers.clone());
            Ok(commands)
        };
        let settings = ReplaySettings {
            threads: 3,
            rounds: 2,
            ..ReplaySettings::default()
        };
        let allocator = DeferredAllocator::new(&MockDevice::new().backend());
        let gauges = DeviceGauges::default();
        let commands = Some(&commands as _);
        replay_with(&trace, allocator, &settings, commands, gauges, &|_| {}).err()
    }

    #[test]
    fn a_replay_in_which_blocks_are_overwritten_fails() {
        let numbers = Numbers {
            overwritten: 2,
            ..Numbers::default()
        };
        // Of each of three copies, which have a queue each.
        let failure = replay_of_numbers(&numbers).unwrap();
        assert!(
            failure
                .source
                .to_string()
                .starts_with("6 blocks were overwritten")
        );
    }

    /// Otherwise kernels would not see that a block was handed out twice.
    #[test]
    fn every_block_of_a_replay_has_a_number_of_its_own() {
        let numbers = Numbers::default();
        assert!(replay_of_numbers(&numbers).is_none());
        let mut seen = numbers.seen.lock().clone();
        seen.sort_unstable();
        seen.dedup();
        let what = "three copies of three blocks, and of the one that is freed another time";
        assert_eq!(seen.len(), 12, "{what}: {seen:?}");
    }
}
