//! Commands that fail while commands before them are pending: whatever the device makes of the order after them, no
//! block is used by two at a time, and none is lost.

use std::slice::from_ref;

use binpool::{Backend, Outcome, PoolOptions, Queue, QueueOrder, Region, ReusePolicy};
use binpool_allocators::FailureOrder;
use binpool_mock::{Completion, Failures, MockDevice, MockEvent, MockQueue};

use crate::common::{Block, Rig};

const BYTES: usize = 1000;

/// A block whose fill on `first` is pending, and after it on that queue a command that waits for what is to fail.
struct Scene {
    rig: Rig,
    first: MockQueue,
    second: MockQueue,
    gate: MockEvent,
    failing: MockEvent,
    filled: MockEvent,
    block: Option<Block>,
}

impl Scene {
    fn new(device: MockDevice, options: PoolOptions, order: QueueOrder) -> Self {
        let rig = Rig::over(device, options);
        let [gate, failing] = [rig.gate(), rig.gate()];
        let first = rig.another_queue(order);
        let block = rig.pool.allocate_on(&first, BYTES).unwrap();
        let filled = fill(&block, &first, from_ref(&gate));
        rig.backend
            .enqueue_marker(first.after(from_ref(&failing)))
            .unwrap();
        Self {
            second: rig.another_queue(QueueOrder::InOrder),
            rig,
            first,
            gate,
            failing,
            filled,
            block: Some(block),
        }
    }

    fn fail(&self) {
        let failed = self
            .rig
            .backend
            .resolve_user_event(&self.failing, Outcome::Failed);
        failed.unwrap();
    }

    /// A block for each queue is used there, where there is memory for it.
    fn others_allocate(&self) {
        for queue in [&self.second, &self.first, &self.rig.queue] {
            if let Ok(block) = self.rig.pool.allocate_on(queue, BYTES) {
                fill(&block, queue, &[]);
            }
        }
    }

    /// The pending command runs; nothing has raced, and everything is there again.
    fn end(self, name: &str) {
        let Self {
            rig, gate, block, ..
        } = self;
        drop(block);
        // A program may have opened it.
        let _opened = rig.backend.resolve_user_event(&gate, Outcome::Complete);
        rig.device.run();
        let violations = rig.device.violations();
        assert!(violations.is_empty(), "{name}: {violations:#?}");
        assert_eq!(rig.pool.active_blocks(), 0, "{name}");
        rig.pool.free_held();
        assert_eq!(rig.pool.managed_bytes(), 0, "{name}");
        assert_eq!(rig.blocks_on_device(), 0, "{name}");
    }
}

fn fill(block: &Block, queue: &MockQueue, wait_for: &[MockEvent]) -> MockEvent {
    block
        .enqueue_fill(queue.after(wait_for), 0..block.size(), &[1])
        .unwrap()
}

/// Runs a program in every way to fail, under every policy, on a device of this many bytes.
fn everywhere(capacity: usize, program: impl Fn(&mut Scene)) {
    for failures in Failures::ALL {
        for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
            for policy in ReusePolicy::ALL {
                for completion in [Completion::AtOnce, Completion::Manual] {
                    for segments in [false, true] {
                        let device = MockDevice::builder()
                            .capacity_bytes(capacity as u64)
                            .completion(completion)
                            .failures(failures)
                            .build();
                        let options = PoolOptions::new().segments(segments).reuse(policy);
                        let name = format!(
                            "{failures:?}, {order:?}, {policy:?}, {completion:?}, {segments}"
                        );
                        let mut scene = Scene::new(device, options, order);
                        program(&mut scene);
                        scene.end(&name);
                    }
                }
            }
        }
    }
}

const PLENTY: usize = 1 << 20;

#[test]
fn a_block_freed_before_the_failure_has_no_other_user() {
    everywhere(PLENTY, |scene| {
        scene.block = None;
        // The queue has markers on it by now.
        scene.others_allocate();
        scene.fail();
        scene.others_allocate();
        scene.others_allocate();
    });
}

#[test]
fn a_block_freed_after_the_failure_has_no_other_user() {
    everywhere(PLENTY, |scene| {
        scene.fail();
        scene.block = None;
        scene.others_allocate();
        scene.others_allocate();
    });
}

/// There is no other memory: it is refused, or waited for.
#[test]
fn the_only_block_there_is_has_no_other_user() {
    everywhere(1024, |scene| {
        scene.block = None;
        scene.others_allocate();
        scene.fail();
        scene.others_allocate();
    });
}

/// A block that was also used on another queue waits for markers on both.
#[test]
fn a_block_of_two_queues_waits_for_both() {
    everywhere(PLENTY, |scene| {
        if let Some(block) = scene.block.take() {
            block.record_use(&scene.second).unwrap();
        }
        scene.others_allocate();
        scene.fail();
        scene.others_allocate();
    });
}

/// What the pool puts in order, before the failure or after it, stays in order.
#[test]
fn a_queue_that_was_put_behind_a_block_comes_after_it() {
    for fails_first in [true, false] {
        everywhere(PLENTY, |scene| {
            if fails_first {
                scene.fail();
            }
            let block = scene.block.take().unwrap();
            // Where a queue's order is lost the host waits, and cannot for what waits for the host.
            let ordered = block.order_before(&scene.second);
            let limits = scene.rig.device.limits();
            assert!(ordered.is_ok() || limits.failure_order == FailureOrder::Lost);
            if !fails_first {
                scene.fail();
            }
            if ordered.is_ok() {
                fill(&block, &scene.second, &[]);
            }
        });
    }
}

#[test]
fn a_block_that_is_bound_to_a_queue_comes_after_its_commands() {
    for fails_first in [true, false] {
        everywhere(PLENTY, |scene| {
            if fails_first {
                scene.fail();
            }
            let mut block = scene.block.take().unwrap();
            let bound = block.bind_to_queue(&scene.second);
            if !fails_first {
                scene.fail();
            }
            if bound.is_ok() {
                fill(&block, &scene.second, &[]);
            }
            drop(block);
            scene.others_allocate();
        });
    }
}

#[test]
fn a_block_that_is_released_by_a_command_goes_after_its_commands() {
    for fails_first in [true, false] {
        everywhere(PLENTY, |scene| {
            if fails_first {
                scene.fail();
            }
            let block = scene.block.take().unwrap();
            let failing = scene.failing.clone();
            drop(block.enqueue_release(Some(&scene.second), &[failing]));
            if !fails_first {
                scene.fail();
            }
            scene.others_allocate();
            scene.others_allocate();
        });
    }
}

/// The pool is told of an event that ends after another one has failed.
#[test]
fn a_block_that_is_released_behind_events_waits_for_all_of_them() {
    everywhere(PLENTY, |scene| {
        let block = scene.block.take().unwrap();
        let untold = scene.rig.another_queue(QueueOrder::InOrder);
        // Of this command the pool knows its event alone.
        let memory = block.memory_on(&scene.first).unwrap();
        let all = Region::first(BYTES);
        let read = scene
            .rig
            .backend
            .enqueue_read(untold.after(from_ref(&scene.filled)), memory, all)
            .unwrap();
        let events = [read.event().clone(), scene.failing.clone()];
        scene.rig.open(&scene.gate);
        scene.fail();
        drop(block.enqueue_release(Some(&scene.second), &events));
        scene.others_allocate();
        scene.others_allocate();
    });
}

/// Where the host has waited for a queue once, it waits again for what comes after.
#[test]
fn a_queue_that_was_waited_for_is_waited_for_again() {
    everywhere(PLENTY, |scene| {
        scene.fail();
        scene.rig.open(&scene.gate);
        scene.block = None;
        for _ in 0..3 {
            scene.others_allocate();
        }
    });
}

/// The last queue of a block is idle since its commands failed early, while commands of the block's former user still run.
#[test]
fn a_block_that_is_unbound_after_a_failure_is_used_after_its_former_user() {
    for (order, spread, seed) in [FailureOrder::Kept, FailureOrder::FailsEarly]
        .into_iter()
        .flat_map(|order| [false, true].map(|spread| (order, spread)))
        .flat_map(|(order, spread)| (0..8).map(move |seed| (order, spread, seed)))
    {
        let device = MockDevice::builder()
            .completion(Completion::Seeded(seed))
            .failures(Failures { order, spread });
        let options = PoolOptions::new()
            .reuse(ReusePolicy::SameQueue)
            .segments(false);
        let rig = Rig::with_options(device, options);
        let first = rig.another_queue(QueueOrder::OutOfOrder);
        let second = rig.another_queue(QueueOrder::InOrder);
        let block = rig.pool.allocate_on(&first, BYTES).unwrap();
        let memory = block.memory_id();
        let filled = fill(&block, &first, &[]);
        let failing = rig.gate();
        rig.backend
            .enqueue_marker(first.after(from_ref(&failing)))
            .unwrap();
        block.enqueue_release(Some(&second), &[filled]).unwrap();
        let mut block = rig.pool.allocate_on(&second, BYTES).unwrap();
        assert_eq!(block.memory_id(), memory);
        fill(&block, &second, &[]);
        rig.backend
            .resolve_user_event(&failing, Outcome::Failed)
            .unwrap();
        block.unbind_from_queue().unwrap();
        fill(&block, &rig.queue, &[]);
        rig.device.run();
        let violations = rig.device.violations();
        assert!(
            violations.is_empty(),
            "{order:?}, {spread}, seed {seed}: {violations:#?}"
        );
    }
}
