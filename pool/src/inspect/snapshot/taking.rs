//! How a snapshot is taken.

use std::{
    collections::HashMap,
    time::{SystemTime, UNIX_EPOCH},
};

use binpool_allocators::{Backend, Memory, Queue};
use binpool_trace::{
    BlockState, SnapshotBlock, SnapshotSegment, SnapshotSettings, SnapshotShortage,
};

use crate::{
    MemoryPool, OutOfMemoryReport,
    inspect::snapshot::Snapshot,
    order::{queue_uses::QueueUses, timestamps::QueueUse},
    shared::{Bins, Block, HeldBlock, Shared, State},
    track::{
        allocation_record::{AllocationRecord, Ownership},
        caller::Caller,
        names,
        ticks::Ticks,
    },
};
use binpool_segments::{RangeKey, RangeState, SegmentState};

/// # Snapshots
impl<B: Backend> MemoryPool<B> {
    /// Returns a snapshot of the pool at this moment: every segment and block, the counters and the settings. If the
    /// pool [watches](Self::watch), active blocks have their tags, call sites and ages. Takes the pool's lock, and
    /// moves the blocks of thread caches to the bins, so the next request of each thread takes longer.
    ///
    /// `binpool view FILE` draws it. [`snapshot_at_out_of_memory`](crate::PoolOptions::snapshot_at_out_of_memory)
    /// writes one when memory runs out.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use binpool::{BlockState, Snapshot};
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(4096)?;
    /// let snapshot = pool.snapshot();
    /// let first = &snapshot.segments[0].ranges[0];
    /// assert_eq!((first.state, first.bytes), (BlockState::Active, 4096));
    /// assert_eq!(Snapshot::from_json(&snapshot.to_json()?)?, snapshot);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.handle().snapshot()
    }
}

impl<B: Backend> Shared<B> {
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.return_unviewed();
        let settings = self.settings();
        let unix_time = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_time_ms = unix_time.map_or(0, |time| time.as_millis());
        self.inspect(|state| {
            let (segments, blocks) = state.segments_and_blocks();
            Snapshot {
                format: Snapshot::FORMAT.to_owned(),
                version: Snapshot::VERSION,
                unix_time_ms: u64::try_from(unix_time_ms).unwrap_or(u64::MAX),
                settings: SnapshotSettings {
                    is_holding: state.holding,
                    is_watching: state.watch.event_buffer.is_some(),
                    ..settings
                },
                statistics: state.statistics(),
                segments,
                blocks,
                out_of_memory: None,
            }
        })
    }

    fn settings(&self) -> SnapshotSettings {
        let limits = self.backend.limits();
        SnapshotSettings {
            device: limits.device_name.clone(),
            device_bytes: limits.capacity_bytes,
            capacity_bytes: self.allocator.capacity_bytes(),
            largest_block_bytes: self.allocator.largest_block() as u64,
            alignment_bytes: self.alignment.bytes() as u64,
            segments: self.carves,
            reuse: self.policy.name().to_owned(),
            scrub: self.scrubber.policy().name().to_owned(),
            release_threshold_bytes: Some(self.retain.release_threshold())
                .filter(|bytes| *bytes < u64::MAX),
            is_holding: true,
            is_watching: false,
        }
    }
}

/// A free block that is not a free range: held, or kept out of use.
struct Retained<'a, B: Backend> {
    block: &'a Block<B>,
    state: BlockState,
    /// The number of the queue whose order alone keeps it from its next user.
    queue: Option<u64>,
}

impl<'a, B: Backend> Retained<'a, B> {
    fn new(held: &'a HeldBlock<B>, state: BlockState, queue: Option<u64>) -> Self {
        Self {
            block: &held.block,
            state,
            queue,
        }
    }

    fn describe(&self) -> SnapshotBlock {
        SnapshotBlock {
            bytes: self.block.bytes as u64,
            state: self.state,
            queue: self.queue,
            ..SnapshotBlock::default()
        }
    }
}

impl<B: Backend> State<B> {
    /// Must be called while the thread caches are empty and closed.
    fn segments_and_blocks(&self) -> (Vec<SnapshotSegment>, Vec<SnapshotBlock>) {
        let mut in_segments: HashMap<RangeKey, SnapshotBlock> = HashMap::new();
        let mut blocks = Vec::new();
        let mut add = |range: Option<RangeKey>, block| match range {
            Some(range) => drop(in_segments.insert(range, block)),
            None => blocks.push(block),
        };
        for retained in self.retained() {
            add(retained.block.range, retained.describe());
        }
        if let Some(event_buffer) = &self.watch.event_buffer {
            for (record, ownership) in self.watch.allocations.active() {
                add(
                    record.range,
                    active(record, ownership, event_buffer.ticks()),
                );
            }
        }
        let mut segments = Vec::new();
        let mut add = |segment: SegmentState<'_, B::Memory, QueueUses>| {
            let ranges = segment.ranges.into_iter();
            let ranges = ranges.map(|(region, state)| SnapshotBlock {
                offset: region.offset as u64,
                bytes: region.bytes as u64,
                ..match state {
                    RangeState::Free(uses) => self.free_range(uses),
                    RangeState::Taken(range) => in_segments.remove(&range).unwrap_or_else(unknown),
                }
            });
            segments.push(SnapshotSegment {
                memory: segment.memory.id().get(),
                bytes: segment.memory.bytes() as u64,
                ranges: ranges.collect(),
            });
        };
        self.segments.each(&mut add);
        (segments, blocks)
    }

    fn free_range(&self, uses: &[QueueUse]) -> SnapshotBlock {
        let queue = self.queues.ready_for(uses);
        let state = if self.queues.are_pending(uses) {
            BlockState::Pending
        } else {
            BlockState::Free
        };
        SnapshotBlock {
            state,
            queue: queue.map(|queue_state| queue_state.queue.id().get()),
            ..SnapshotBlock::default()
        }
    }

    /// Returns the free blocks that are not free ranges.
    fn retained(&self) -> Vec<Retained<'_, B>> {
        let mut retained = Vec::new();
        for (_, queue_state) in self.queues.iter() {
            let queue = Some(queue_state.queue.id().get());
            let free = queue_state.free_list.iter();
            retained.extend(free.map(|held| Retained::new(held, BlockState::Held, queue)));
        }
        let common = self.idle.iter();
        retained.extend(common.map(|held| Retained::new(held, BlockState::Held, None)));
        retained.extend(self.pending.iter().map(|held| {
            let state = if self.queues.are_pending(&held.uses) {
                BlockState::Pending
            } else {
                BlockState::Held
            };
            Retained::new(held, state, None)
        }));
        let unscrubbed = self.unscrubbed.iter().flat_map(Bins::iter);
        let out_of_use = unscrubbed.chain(self.quarantine.ranges());
        retained.extend(out_of_use.map(|held| Retained::new(held, BlockState::Withheld, None)));
        retained
    }
}

fn active(record: &AllocationRecord, ownership: Ownership, ticks: &Ticks) -> SnapshotBlock {
    let Ownership {
        asked,
        since,
        caller,
        queue,
        ..
    } = ownership;
    let age = ticks.since(since).as_nanos();
    SnapshotBlock {
        bytes: record.place.bytes,
        state: BlockState::Active,
        requested_bytes: Some(asked),
        tag: names::name_of(caller.tag),
        call_site: names::name_of(caller.call_site),
        queue: Some(queue),
        age_ns: Some(u64::try_from(age).unwrap_or(u64::MAX)),
        ..SnapshotBlock::default()
    }
}

/// An active block that is not tracked.
fn unknown() -> SnapshotBlock {
    SnapshotBlock {
        state: BlockState::Active,
        ..SnapshotBlock::default()
    }
}

/// Returns what a snapshot says about the failed request of `caller`.
pub(super) fn shortage(report: &OutOfMemoryReport, caller: Option<Caller>) -> SnapshotShortage {
    let name_of = |number: Option<u32>| number.and_then(names::name_of);
    SnapshotShortage {
        requested_bytes: report.requested_bytes as u64,
        class_bytes: report.class_bytes as u64,
        held_bytes: report.held_bytes,
        pending_bytes: report.pending_bytes,
        largest_held_bytes: report.largest_held_bytes,
        released_bytes: report.released_bytes,
        verdict: report.verdict.name().to_owned(),
        reason: report.reason(),
        advice: report.advice().to_owned(),
        tag: name_of(caller.map(|caller| caller.tag)),
        call_site: name_of(caller.map(|caller| caller.call_site)),
    }
}
