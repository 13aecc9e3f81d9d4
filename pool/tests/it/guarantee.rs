//! The guarantee: no out-of-memory while a fitting free block exists anywhere in the pool, whichever queues used it, and
//! none while the device has room once everything that is free has gone back to it.

use binpool::{PoolOptions, QueueOrder, ReusePolicy};
use binpool_mock::{CallKind, Completion, MockDevice, MockQueue};
use proptest::prelude::*;

use crate::common::{Block, MIB, Rig, SMALLEST};

const CAPACITY: usize = 16 * MIB;

#[derive(Clone, Debug)]
enum Step {
    /// Asks for this many bytes for the queue at this place.
    Allocate(usize, usize),
    /// Enqueues a fill of the block at this place on the queue at that.
    Use(usize, usize),
    Drop(usize),
}

fn any_size() -> impl Strategy<Value = usize> {
    prop_oneof![
        1..=SMALLEST * 8,
        1..=MIB,
        MIB..=CAPACITY / 2,
        CAPACITY / 2..=CAPACITY,
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any_size(), any::<usize>()).prop_map(|(bytes, queue)| Step::Allocate(bytes, queue)),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(block, queue)| Step::Use(block, queue)),
        3 => any::<usize>().prop_map(Step::Drop),
    ]
}

struct Program {
    rig: Rig,
    queues: Vec<MockQueue>,
    live: Vec<Block>,
}

impl Program {
    fn new(options: PoolOptions, seed: u64) -> Self {
        let rig = Rig::with_options(
            MockDevice::builder()
                .capacity_bytes(CAPACITY as u64)
                .completion(Completion::Seeded(seed)),
            options,
        );
        let queues = vec![
            rig.queue.clone(),
            rig.another_queue(QueueOrder::InOrder),
            rig.another_queue(QueueOrder::OutOfOrder),
        ];
        Self {
            rig,
            queues,
            live: Vec::new(),
        }
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Allocate(bytes, queue) => return self.allocate(bytes, queue % self.queues.len()),
            Step::Use(block, queue) if !self.live.is_empty() => {
                let block = &self.live[block % self.live.len()];
                let queue = &self.queues[queue % self.queues.len()];
                block.order_before(queue).unwrap();
                block.enqueue_fill(queue, 0..block.size(), &[1_u8]).unwrap();
            }
            Step::Drop(block) if !self.live.is_empty() => {
                let place = block % self.live.len();
                drop(self.live.swap_remove(place));
            }
            Step::Use(..) | Step::Drop(_) => {}
        }
        Ok(())
    }

    fn allocate(&mut self, bytes: usize, queue: usize) -> Result<(), TestCaseError> {
        let (pool, queue) = (&self.rig.pool, &self.queues[queue]);
        let error = match pool.allocate_on(queue, bytes) {
            Ok(block) => {
                self.live.push(block);
                return Ok(());
            }
            Err(error) => error,
        };
        let report = error.out_of_memory().expect("no other failure");
        let needed = report.class_bytes as u64;
        // Every command can end, and the ladder waits for it.
        prop_assert_eq!(report.pending_bytes, 0, "{}", report);
        prop_assert!(report.largest_held_bytes < needed, "{}", report);
        prop_assert!(
            CAPACITY as u64 - report.managed_bytes < needed,
            "{}",
            report
        );
        // Nothing that could have been done would have helped.
        pool.free_held();
        let room = CAPACITY as u64 - self.rig.device.statistics().committed_bytes;
        prop_assert!(room < needed, "{} bytes are left: {}", room, report);
        prop_assert!(pool.allocate_on(queue, bytes).is_err());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(400),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn memory_runs_out_only_where_nothing_fits(
        policy in prop::sample::select(&ReusePolicy::ALL[..]),
        segments in any::<bool>(),
        seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 1..120),
    ) {
        let options = PoolOptions::new().reuse(policy).segments(segments);
        let mut program = Program::new(options, seed);
        for step in &steps {
            program.run(step)?;
        }
        program.live.clear();
        program.rig.pool.trim_to(0);
        program.rig.device.run();
        prop_assert_eq!(program.rig.pool.managed_bytes(), 0);
        prop_assert_eq!(program.rig.blocks_on_device(), 0);
        prop_assert_eq!(program.rig.device.statistics().live_sub_regions, 0);
        prop_assert!(program.rig.device.violations().is_empty());
    }
}

/// With segments, too, however many pieces the free memory is in.
#[test]
fn a_full_device_is_asked_no_more_than_twice() {
    for segments in [false, true] {
        let rig = Rig::with_options(
            MockDevice::builder().capacity_bytes(CAPACITY as u64),
            PoolOptions::new().segments(segments),
        );
        let blocks: Vec<_> = (1..=64)
            .map_while(|size| rig.pool.allocate(size * SMALLEST * 32).ok())
            .collect();
        drop(blocks);
        let asked = rig.device.call_count(CallKind::Commit);
        drop(rig.pool.allocate(CAPACITY).unwrap());
        let asked = rig.device.call_count(CallKind::Commit) - asked;
        assert!(
            asked <= 2,
            "{asked} device allocations, segments: {segments}"
        );
    }
}
