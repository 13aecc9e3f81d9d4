//! How a snapshot is taken.

use std::{
    collections::HashMap,
    time::{SystemTime, UNIX_EPOCH},
};

use binpool_allocators::{
    Allocator, Backend, Memory, Queue,
    segments::{RangeKey, RangeState, Segments},
};

use super::{
    BlockState, FORMAT, Snapshot, SnapshotBlock, SnapshotSegment, SnapshotSettings,
    SnapshotShortage, VERSION,
};
use crate::{
    MemoryPool, OutOfMemoryReport, ReusePolicy, ScrubPolicy,
    seeing::{
        asker::{self, Asker},
        life::{Life, Ownership},
        ticks::Ticks,
    },
    shared::Shared,
    state::{
        State,
        bins::{Bins, Block, HeldBlock},
    },
};

impl<A: Allocator> MemoryPool<A> {
    /// The pool at this moment: every segment and block, the counters and the settings. Where the pool
    /// [watches](Self::watch), blocks in use are there with their tags, call sites and ages. The blocks that threads keep at
    /// hand go to the pool's bins meanwhile, so the next request of each thread takes longer.
    ///
    /// `binpool view FILE` draws it. See [`snapshot_at_out_of_memory`](crate::PoolOptions::snapshot_at_out_of_memory), too.
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

impl<A: Allocator> Shared<A> {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let settings = self.settings();
        let unix_time = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_time_ms = unix_time.map_or(0, |time| time.as_millis());
        self.look(|state| {
            let (segments, blocks) = state.segments_and_blocks();
            Snapshot {
                format: FORMAT.to_owned(),
                version: VERSION,
                unix_time_ms: u64::try_from(unix_time_ms).unwrap_or(u64::MAX),
                settings: SnapshotSettings {
                    is_holding: state.holding,
                    is_watching: state.watch.tape.is_some(),
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
        let limits = self.allocator.backend().limits();
        SnapshotSettings {
            device: limits.device_name.clone(),
            device_bytes: limits.capacity_bytes,
            capacity_bytes: self.allocator.capacity_bytes(),
            largest_block_bytes: self.allocator.largest_block() as u64,
            alignment_bytes: self.alignment.bytes() as u64,
            segments: self.has_segments,
            reuse: reuse_name(self.policy).to_owned(),
            scrub: scrub_name(self.scrubber.policy()).to_owned(),
            release_threshold_bytes: Some(self.release_threshold).filter(|bytes| *bytes < u64::MAX),
            is_holding: true,
            is_watching: false,
        }
    }
}

/// A block that is in the pool's hands.
struct Kept<'a, A: Allocator> {
    block: &'a Block<A>,
    state: BlockState,
    /// The number of the queue whose order alone keeps it from its next user.
    queue: Option<u64>,
}

impl<'a, A: Allocator> Kept<'a, A> {
    fn new(held: &'a HeldBlock<A>, state: BlockState, queue: Option<u64>) -> Self {
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

impl<A: Allocator> State<A> {
    /// To be called while no thread keeps anything at hand.
    fn segments_and_blocks(&self) -> (Vec<SnapshotSegment>, Vec<SnapshotBlock>) {
        let mut in_segments: HashMap<RangeKey, SnapshotBlock> = HashMap::new();
        let mut blocks = Vec::new();
        let mut add = |range: Option<RangeKey>, block| match range {
            Some(range) => drop(in_segments.insert(range, block)),
            None => blocks.push(block),
        };
        for kept in self.kept() {
            add(kept.block.range, kept.describe());
        }
        if let Some(tape) = &self.watch.tape {
            for (life, ownership) in self.watch.ledger.active() {
                add(life.range, active(life, ownership, tape.ticks()));
            }
        }
        let segments = self.segments.iter().flat_map(Segments::iter);
        let segments = segments.map(|segment| SnapshotSegment {
            memory: segment.memory.id().get(),
            bytes: segment.memory.bytes() as u64,
            ranges: segment
                .ranges
                .into_iter()
                .map(|(region, state)| SnapshotBlock {
                    offset: region.offset as u64,
                    bytes: region.bytes as u64,
                    ..match state {
                        RangeState::Free(uses) if !self.lanes.are_over(uses) => pending(),
                        RangeState::Free(_) => SnapshotBlock::default(),
                        RangeState::Taken(range) => {
                            in_segments.remove(&range).unwrap_or_else(unknown)
                        }
                    }
                })
                .collect(),
        });
        (segments.collect(), blocks)
    }

    /// The blocks that are neither in the program's hands nor free ranges.
    fn kept(&self) -> Vec<Kept<'_, A>> {
        let mut kept = Vec::new();
        for (_, lane) in self.lanes.iter() {
            let queue = Some(lane.queue.id().get());
            let stock = lane.stock.iter();
            kept.extend(stock.map(|held| Kept::new(held, BlockState::Held, queue)));
        }
        let common = self.common.iter();
        kept.extend(common.map(|held| Kept::new(held, BlockState::Held, None)));
        kept.extend(self.pending.iter().map(|held| {
            let state = if self.lanes.are_over(&held.uses) {
                BlockState::Held
            } else {
                BlockState::Pending
            };
            Kept::new(held, state, None)
        }));
        let unscrubbed = self.unscrubbed.iter().flat_map(Bins::iter);
        let withheld = unscrubbed.chain(self.strand.ranges());
        kept.extend(withheld.map(|held| Kept::new(held, BlockState::Withheld, None)));
        kept
    }
}

fn active(life: &Life, ownership: Ownership, ticks: &Ticks) -> SnapshotBlock {
    let Ownership {
        asked,
        since,
        asker,
        queue,
        ..
    } = ownership;
    let age = ticks.since(since).as_nanos();
    SnapshotBlock {
        bytes: life.bytes as u64,
        state: BlockState::Active,
        asked_bytes: Some(asked),
        tag: asker::name_of(asker.tag),
        call_site: asker::name_of(asker.call_site),
        queue: Some(queue),
        age_ns: Some(u64::try_from(age).unwrap_or(u64::MAX)),
        ..SnapshotBlock::default()
    }
}

/// A block in the program's hands of which no note was taken.
fn unknown() -> SnapshotBlock {
    SnapshotBlock {
        state: BlockState::Active,
        ..SnapshotBlock::default()
    }
}

fn pending() -> SnapshotBlock {
    SnapshotBlock {
        state: BlockState::Pending,
        ..SnapshotBlock::default()
    }
}

impl SnapshotShortage {
    pub(crate) fn new(report: &OutOfMemoryReport, asker: Option<Asker>) -> Self {
        let name_of = |number: Option<u32>| number.and_then(asker::name_of);
        Self {
            requested_bytes: report.requested_bytes as u64,
            class_bytes: report.class_bytes as u64,
            held_bytes: report.held_bytes,
            pending_bytes: report.pending_bytes,
            largest_held_bytes: report.largest_held_bytes,
            released_bytes: report.released_bytes,
            verdict: report.verdict.name().to_owned(),
            reason: report.verdict.to_string(),
            advice: report.verdict.advice().to_owned(),
            tag: name_of(asker.map(|asker| asker.tag)),
            call_site: name_of(asker.map(|asker| asker.call_site)),
        }
    }
}

const fn reuse_name(policy: ReusePolicy) -> &'static str {
    match policy {
        ReusePolicy::SameQueue => "same_queue",
        ReusePolicy::Opportunistic => "opportunistic",
        ReusePolicy::InsertWait => "insert_wait",
        ReusePolicy::WaitOnHost => "wait_on_host",
    }
}

const fn scrub_name(policy: ScrubPolicy) -> &'static str {
    match policy {
        ScrubPolicy::Never => "never",
        ScrubPolicy::OnFree => "on_free",
        ScrubPolicy::OnHandOut => "on_hand_out",
    }
}
