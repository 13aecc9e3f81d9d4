//! The parts of a replay, one for each thread: what each does, worked out before the clock starts.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use binpool_recordings::{Event, Trace};

/// An allocation or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    /// The bytes of the block.
    pub(crate) bytes: usize,
    /// The block's place among those that the part has at once.
    pub(crate) slot: u32,
    /// The queue of the block, counted from the part's first one.
    pub(crate) queue: u32,
    pub(crate) is_free: bool,
}

/// What a thread does in a round, and where the trace says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations {
    pub(crate) all: Vec<Operation>,
    /// The number of the block of each operation, and the index of its event.
    pub(crate) origins: Vec<(usize, usize)>,
    /// The most blocks at once.
    pub(crate) slots: usize,
}

/// What one thread replays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) operations: Arc<Operations>,
    /// The number of the queue of the first stream.
    pub(crate) first_queue: usize,
    /// The number of the first block.
    pub(crate) first_block: usize,
}

/// The parts of a replay by threads, and how many queues and copies of the trace they take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) parts: Vec<Part>,
    pub(crate) copies: usize,
}

impl Operations {
    /// Returns the operations of the blocks that `is_of` names. `queues` says the queue of each block, `freed` which blocks are ever freed.
    ///
    /// A slot is used again once its block is freed, so what a thread holds stays in its processor's cache. The slot of a block that is
    /// never freed has no other block, since it lives on in later rounds.
    fn of(
        trace: &Trace,
        queues: &[usize],
        freed: &HashSet<usize>,
        is_of: impl Fn(usize) -> bool,
    ) -> Self {
        let mut operations = Self::default();
        let mut empty = Vec::new();
        let mut blocks = BTreeMap::new();
        for (index, event) in trace.events().iter().enumerate() {
            let (Event::Allocate { block, .. } | Event::Free { block }) = *event;
            if !is_of(block) {
                continue;
            }
            let operation = match *event {
                Event::Allocate { bytes, .. } => {
                    let used = if freed.contains(&block) {
                        empty.pop()
                    } else {
                        None
                    };
                    let slot = used.unwrap_or_else(|| {
                        operations.slots += 1;
                        operations.slots - 1
                    });
                    let operation = Operation {
                        bytes,
                        slot: u32::try_from(slot).unwrap_or(u32::MAX),
                        queue: u32::try_from(queues[block]).unwrap_or(u32::MAX),
                        is_free: false,
                    };
                    blocks.insert(block, operation);
                    operation
                }
                Event::Free { .. } => {
                    let Some(allocated) = blocks.remove(&block) else {
                        continue;
                    };
                    empty.push(allocated.slot as usize);
                    Operation {
                        is_free: true,
                        ..allocated
                    }
                }
            };
            operations.all.push(operation);
            operations.origins.push((block, index));
        }
        operations
    }

    /// Returns the operations that allocate the blocks that are never freed.
    pub(crate) fn never_freed(&self) -> impl Iterator<Item = usize> {
        let mut last = vec![None; self.slots];
        for (number, operation) in self.all.iter().enumerate() {
            last[operation.slot as usize] = (!operation.is_free).then_some(number);
        }
        last.into_iter().flatten()
    }
}

impl Parts {
    /// Deals the streams to the threads in turn, or gives each thread a copy of the whole trace where there are fewer streams
    /// than threads. `streams` says the stream of each block, as a number below `count`.
    pub(crate) fn of(trace: &Trace, streams: &[usize], count: usize, threads: usize) -> Self {
        let frees = trace.events().iter().filter_map(|event| match event {
            Event::Free { block } => Some(*block),
            Event::Allocate { .. } => None,
        });
        let freed: HashSet<usize> = frees.collect();
        if threads <= 1 || count < threads {
            let copies = threads.max(1);
            let operations = Arc::new(Operations::of(trace, streams, &freed, |_| true));
            let copy = |number| Part {
                operations: Arc::clone(&operations),
                first_queue: number * count,
                first_block: number * trace.allocations(),
            };
            let parts = (0..copies).map(copy).collect();
            return Self { parts, copies };
        }
        let part = |thread| Part {
            operations: Arc::new(Operations::of(trace, streams, &freed, |block| {
                streams[block] % threads == thread
            })),
            first_queue: 0,
            first_block: 0,
        };
        Self {
            parts: (0..threads).map(part).collect(),
            copies: 1,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn streams_are_dealt_in_turn_and_a_few_streams_are_copied() {
        let lines = b"a 0 100 7\na 1 100 8\na 2 100 9\nf 1\nf 0\nf 2\n";
        let trace = Trace::parse("t", &lines[..]).unwrap();
        let parts = |threads| Parts::of(&trace, &[0, 1, 2], 3, threads);
        let events = |threads: usize| -> Vec<Vec<usize>> {
            let parts = parts(threads).parts;
            let origins = parts.iter().map(|part| &part.operations.origins);
            origins
                .map(|origins| origins.iter().map(|(_, event)| *event).collect())
                .collect()
        };
        assert_eq!(events(1), [[0, 1, 2, 3, 4, 5]]);
        assert_eq!(events(2), [vec![0, 2, 4, 5], vec![1, 3]]);
        assert_eq!(events(3).len(), 3);
        assert_eq!(parts(3).copies, 1);
        let copied = parts(4);
        assert_eq!((copied.copies, copied.parts.len()), (4, 4));
        assert_eq!(copied.parts[3].first_queue, 9);
        assert_eq!(copied.parts[3].first_block, 9);
        assert_eq!(parts(0), parts(1));
    }

    #[test]
    fn a_part_has_any_number_of_queues() {
        let trace = Trace::parse("t", &b"a 0 100 7\nf 0\n"[..]).unwrap();
        let parts = Parts::of(&trace, &[70_000], 70_001, 1).parts;
        let operations = &parts[0].operations.all;
        assert!(operations.iter().all(|operation| operation.queue == 70_000));
    }

    proptest! {
        /// A trace of blocks on three streams, some of which are never freed.
        #[test]
        fn operations_do_what_the_trace_says_and_a_slot_has_one_block_at_a_time(
            frees in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 1..60),
            threads in 1_usize..4,
        ) {
            let (mut lines, mut live) = (Vec::new(), Vec::new());
            for (id, free) in frees.iter().enumerate() {
                lines.push(format!("a {id} {} {}\n", id + 1, id % 3));
                live.push(id);
                if let Some(free) = free {
                    lines.push(format!("f {}\n", live.remove(free.index(live.len()))));
                }
            }
            let trace = Trace::parse("t", lines.concat().as_bytes()).unwrap();
            let streams: Vec<_> = (0..frees.len()).map(|block| block % 3).collect();
            let parts = Parts::of(&trace, &streams, 3, threads);
            let (mut played, mut never_freed) = (Vec::new(), Vec::new());
            for part in parts.parts {
                let operations = &part.operations;
                let mut slots = HashMap::new();
                for (operation, (block, index)) in operations.all.iter().zip(&operations.origins) {
                    prop_assert!((operation.slot as usize) < operations.slots);
                    prop_assert_eq!((operation.bytes, operation.queue as usize), (block + 1, block % 3));
                    let before = if operation.is_free {
                        slots.remove(&operation.slot)
                    } else {
                        slots.insert(operation.slot, *block)
                    };
                    prop_assert_eq!(before, operation.is_free.then_some(*block));
                    prop_assert_eq!(operation.is_free, matches!(trace.events()[*index], Event::Free { .. }));
                    played.push(*index);
                }
                for number in operations.never_freed() {
                    let slot = operations.all[number].slot;
                    let of_slot = operations.all.iter().filter(|operation| operation.slot == slot);
                    prop_assert_eq!(of_slot.count(), 1);
                }
                never_freed.extend(operations.never_freed().map(|number| operations.origins[number].0));
            }
            played.sort_unstable();
            prop_assert_eq!(played, (0..trace.events().len()).collect::<Vec<_>>());
            never_freed.sort_unstable();
            live.sort_unstable();
            prop_assert_eq!(never_freed, live);
        }
    }
}
