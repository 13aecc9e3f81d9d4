//! Random programs against a simple model of the pool.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod common;

use std::collections::BTreeMap;

use binpool::PoolStatistics;
use common::{Block, Rig, class_size};
use proptest::prelude::*;

const CAPACITY: usize = 1 << 20;

/// The pool as a table of numbers: what it holds by size, and what its users have.
#[derive(Debug, Default)]
struct Model {
    held: BTreeMap<usize, usize>,
    counters: PoolStatistics,
    not_holding: bool,
}

impl Model {
    fn take(&mut self, size: usize) {
        let count = self.held.get_mut(&size).expect("a held block");
        *count -= 1;
        if *count == 0 {
            self.held.remove(&size);
        }
        self.counters.held_blocks -= 1;
        self.counters.held_bytes -= size as u64;
    }

    /// Releases the largest held blocks, until they have `enough` bytes.
    fn release(&mut self, enough: usize) -> bool {
        let mut released = 0;
        while released < enough
            && let Some((&size, _)) = self.held.last_key_value()
        {
            self.take(size);
            released += size;
            self.counters.released_blocks += 1;
            self.counters.managed_bytes -= size as u64;
        }
        released > 0
    }

    fn has_room(&self, size: usize) -> bool {
        self.counters.managed_bytes + size as u64 <= CAPACITY as u64
    }

    /// The size of the block that the pool hands out; `None` where it is out of memory.
    fn allocate(&mut self, asked: usize) -> Option<usize> {
        if asked == 0 {
            self.counters.empty_allocations += 1;
            return Some(0);
        }
        if asked > CAPACITY {
            self.counters.out_of_memory += 1;
            return None;
        }
        let size = class_size(asked);
        let exact = self.held.contains_key(&size);
        let larger = self
            .held
            .range(size..=class_size(2 * size))
            .next()
            .map(|(size, _)| *size);
        let got = if exact {
            self.take(size);
            self.counters.hits += 1;
            size
        } else if self.has_room(size) {
            self.miss(size)
        } else if let Some(larger) = larger {
            self.take(larger);
            self.counters.hits += 1;
            larger
        } else if (self.release(size) && self.has_room(size))
            || (self.release(usize::MAX) && self.has_room(size))
        {
            self.miss(size)
        } else {
            self.counters.out_of_memory += 1;
            return None;
        };
        self.counters.active_blocks += 1;
        self.counters.active_bytes += asked as u64;
        let active = self.counters.active_bytes;
        self.counters.peak_active_bytes = self.counters.peak_active_bytes.max(active);
        Some(got)
    }

    fn miss(&mut self, size: usize) -> usize {
        self.counters.misses += 1;
        self.counters.managed_bytes += size as u64;
        let managed = self.counters.managed_bytes;
        self.counters.peak_managed_bytes = self.counters.peak_managed_bytes.max(managed);
        size
    }

    fn free(&mut self, asked: usize, size: usize) {
        if asked == 0 {
            return;
        }
        self.counters.active_blocks -= 1;
        self.counters.active_bytes -= asked as u64;
        if self.not_holding {
            self.counters.managed_bytes -= size as u64;
        } else {
            *self.held.entry(size).or_default() += 1;
            self.counters.held_blocks += 1;
            self.counters.held_bytes += size as u64;
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Allocate(usize),
    Drop(prop::sample::Index),
    Detach(prop::sample::Index),
    FreeHeld,
    StopHolding,
    ResumeHolding,
}

fn any_size() -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => Just(0_usize),
        4 => 1..1024_usize,
        8 => 1024..CAPACITY / 8,
        4 => CAPACITY / 8..CAPACITY,
        1 => Just(CAPACITY),
        1 => Just(CAPACITY + 1),
        1 => Just(usize::MAX),
    ]
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        12 => any_size().prop_map(Operation::Allocate),
        9 => any::<prop::sample::Index>().prop_map(Operation::Drop),
        1 => any::<prop::sample::Index>().prop_map(Operation::Detach),
        1 => Just(Operation::FreeHeld),
        1 => Just(Operation::StopHolding),
        2 => Just(Operation::ResumeHolding),
    ]
}

/// Fills a block with a byte that tells it from its neighbours.
fn stamp(rig: &Rig, block: &Block, mark: u8) {
    block
        .enqueue_fill(&rig.queue, 0..block.size(), &[mark], &[])
        .expect("the whole block is in bounds");
}

fn check_stamp(rig: &Rig, block: &Block, mark: u8) -> Result<(), TestCaseError> {
    let mut bytes = vec![!mark; block.size()];
    block
        .read(&rig.queue, 0, &mut bytes, &[])
        .expect("a read within bounds");
    prop_assert!(
        bytes.iter().all(|byte| *byte == mark),
        "a block was overwritten"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        // What is found is written down as a test of its own.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// One in-order queue: every number is the model's after each step, blocks keep their contents until they
    /// are dropped, memory runs out exactly when the model says so, and nothing is left at the end.
    #[test]
    fn the_pool_does_what_the_model_does(operations in prop::collection::vec(any_operation(), 1..60)) {
        let rig = Rig::with_capacity(CAPACITY);
        let mut model = Model::default();
        let mut live: Vec<(Block, u8)> = Vec::new();
        for (step, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Allocate(asked) => {
                    let mark = u8::try_from(step % 251).expect("below 251");
                    match (rig.pool.allocate(asked), model.allocate(asked)) {
                        (Ok(block), Some(size)) => {
                            prop_assert_eq!((block.size(), block.class_size()), (asked, size));
                            stamp(&rig, &block, mark);
                            live.push((block, mark));
                        }
                        (Err(error), None) => prop_assert!(error.is_out_of_memory()),
                        (got, expected) => {
                            prop_assert!(false, "got {got:?}, the model {expected:?}");
                        }
                    }
                }
                Operation::Drop(index) if !live.is_empty() => {
                    let (block, mark) = live.swap_remove(index.index(live.len()));
                    check_stamp(&rig, &block, mark)?;
                    model.free(block.size(), block.class_size());
                }
                Operation::Detach(index) if !live.is_empty() => {
                    let (block, mark) = live.swap_remove(index.index(live.len()));
                    check_stamp(&rig, &block, mark)?;
                    let holding = std::mem::replace(&mut model.not_holding, true);
                    model.free(block.size(), block.class_size());
                    model.not_holding = holding;
                    drop(block.detach());
                }
                Operation::Drop(_) | Operation::Detach(_) => {}
                Operation::FreeHeld => {
                    let held = model.counters.held_bytes;
                    prop_assert_eq!(rig.pool.free_held(), held);
                    model.release(usize::MAX);
                }
                Operation::StopHolding => {
                    rig.pool.stop_holding();
                    model.release(usize::MAX);
                    model.not_holding = true;
                }
                Operation::ResumeHolding => {
                    rig.pool.resume_holding();
                    model.not_holding = false;
                }
            }
            prop_assert_eq!(rig.pool.statistics(), model.counters);
            let device = rig.device.statistics();
            prop_assert_eq!(device.committed_bytes, model.counters.managed_bytes);
            let blocks = model.counters.active_blocks + model.counters.held_blocks;
            prop_assert_eq!(device.live_blocks as u64, blocks);
        }
        drop(live);
        drop(rig.pool);
        prop_assert_eq!(rig.device.statistics().live_blocks, 0);
        prop_assert!(rig.device.violations().is_empty());
    }
}
