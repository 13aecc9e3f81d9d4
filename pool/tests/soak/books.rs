//! What the threads have done, and whether the pools, the budget and the device say the same.

use std::{ops::AddAssign, sync::atomic::Ordering};

use binpool_mock::CallKind;

use crate::{
    process,
    rig::{Held, POOLS, Rig},
};

/// What was done. The first ones by pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) allocated: [u64; POOLS],
    pub(crate) out_of_memory: [u64; POOLS],
    /// Allocations that failed for another reason.
    pub(crate) failed: [u64; POOLS],
    pub(crate) dropped: u64,
    pub(crate) sent: u64,
    pub(crate) cached: u64,
    pub(crate) marked: u64,
    pub(crate) checked: u64,
    pub(crate) moved: u64,
    pub(crate) enqueued_releases: u64,
    pub(crate) detached: u64,
    pub(crate) stopped_holding: u64,
    pub(crate) trimmed: u64,
    pub(crate) limits_changed: u64,
    pub(crate) operations: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        for pool in 0..POOLS {
            self.allocated[pool] += other.allocated[pool];
            self.out_of_memory[pool] += other.out_of_memory[pool];
            self.failed[pool] += other.failed[pool];
        }
        self.dropped += other.dropped;
        self.sent += other.sent;
        self.cached += other.cached;
        self.marked += other.marked;
        self.checked += other.checked;
        self.moved += other.moved;
        self.enqueued_releases += other.enqueued_releases;
        self.detached += other.detached;
        self.stopped_holding += other.stopped_holding;
        self.trimmed += other.trimmed;
        self.limits_changed += other.limits_changed;
        self.operations += other.operations;
    }
}

impl Tally {
    /// A block that was marked has its mark in every byte. Whether a call failed that was to tell is not looked at.
    pub(crate) fn check_bytes(&mut self, rig: &Rig, held: &Held) {
        let Some((mark, queue)) = held.mark else {
            return;
        };
        let mut bytes = vec![!mark; held.block.size()];
        if held.block.read(&rig.queues[queue], 0, &mut bytes).is_ok() {
            self.checked += 1;
            assert!(
                bytes.iter().all(|byte| *byte == mark),
                "a block was overwritten"
            );
        }
    }

    /// A soak in which something never happened says nothing about it.
    pub(crate) fn check_that_everything_happened(&self, operations: u64) {
        let rare = [
            self.out_of_memory.iter().sum(),
            self.failed.iter().sum(),
            self.dropped,
            self.sent,
            self.cached,
            self.marked,
            self.checked,
            self.moved,
            self.enqueued_releases,
            self.detached,
            self.stopped_holding,
            self.trimmed,
            self.limits_changed,
        ];
        let all = rare.iter().chain(&self.allocated);
        assert!(all.into_iter().all(|count| *count > 0), "{self:#?}");
        // The rest of a division by threads and checkpoints.
        assert!(self.operations + 1000 > operations);
    }
}

/// The counters are those of the blocks in hand, and of what was done.
pub(crate) fn check(rig: &Rig, hands: &[Vec<Held>], tally: &Tally) {
    let mut blocks = [0_u64; POOLS];
    let mut asked = [0_u64; POOLS];
    let mut in_use = [0_u64; POOLS];
    let mut count = |held: &Held| {
        blocks[held.pool] += 1;
        asked[held.pool] += held.block.size() as u64;
        in_use[held.pool] += held.block.class_size() as u64;
    };
    hands.iter().flatten().for_each(&mut count);
    rig.for_each_waiting(&mut count);
    let mut managed = 0;
    for (place, pool) in rig.pools.iter().enumerate() {
        let statistics = pool.statistics();
        let active = (statistics.active_blocks, statistics.active_bytes);
        assert_eq!(active, (blocks[place], asked[place]), "pool {place}");
        assert_eq!(
            statistics.managed_bytes,
            statistics.held_bytes + in_use[place],
            "pool {place}"
        );
        // A block that was found, and counted, may fail to be scrubbed.
        let unscrubbed = if rig.scrubs[place] {
            tally.failed[place]
        } else {
            0
        };
        let allocated = tally.allocated[place]..=tally.allocated[place] + unscrubbed;
        let counted = statistics.hits + statistics.misses;
        assert!(
            allocated.contains(&counted),
            "pool {place}: {counted} hits and misses, {allocated:?} allocations"
        );
        assert_eq!(
            statistics.out_of_memory, tally.out_of_memory[place],
            "pool {place}"
        );
        managed += statistics.managed_bytes;
    }
    assert_eq!(rig.budget.used_bytes(), managed);
    let device = rig.device.statistics();
    assert_eq!(device.committed_bytes, managed);
    assert_eq!(rig.device.pending_commands(), 0);
    assert!(
        rig.device.violations().is_empty(),
        "{:#?}",
        rig.device.violations()
    );
}

/// Nothing is alive but the queues.
pub(crate) fn check_empty(rig: &Rig, queues: usize) {
    let device = rig.device.statistics();
    assert_eq!((device.live_blocks, device.live_sub_regions), (0, 0));
    assert_eq!(
        (rig.device.live_events(), rig.device.live_queues()),
        (0, queues)
    );
    assert_eq!(rig.budget.used_bytes(), 0);
}

/// The figures of a checkpoint.
pub(crate) fn line(rig: &Rig, tally: &Tally) -> String {
    let device = rig.device.statistics();
    let allocated: u64 = tally.allocated.iter().sum();
    let refused: u64 = tally.out_of_memory.iter().sum();
    let resident = process::resident_bytes().unwrap_or(0) >> 20;
    let heap = process::heap_bytes() >> 10;
    let asked = device.calls.get(CallKind::CreateBuffer) + device.calls.get(CallKind::AllocateSvm);
    format!(
        "{} operations, {allocated} allocations, {asked} of the device, {refused} out of memory, {} hooks, {} faults, \
         {} threads; {} events, {} MiB of the device, {resident} MiB resident, {heap} KiB of the heap",
        tally.operations,
        rig.hooks_called.load(Ordering::Relaxed),
        device.injected_faults,
        rig.lives.load(Ordering::Relaxed),
        rig.device.live_events(),
        device.committed_bytes >> 20,
    )
}
