//! Operation sequences against a pool on a small mock device.
#![no_main]

use arbitrary::Arbitrary;
use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
use binpool_mock::MockDevice;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Operation {
    /// Allocates for one of the queues.
    Allocate {
        bytes: usize,
        queue: u8,
    },
    /// Uses a live block on one of the queues.
    Use {
        block: u8,
        queue: u8,
    },
    /// Drops a live block.
    Drop {
        block: u8,
    },
    FreeHeld,
    StopHolding,
    ResumeHolding,
}

const CAPACITY: u64 = 1 << 20;

fuzz_target!(|operations: Vec<Operation>| {
    let device = MockDevice::builder().capacity_bytes(CAPACITY).build();
    let backend = device.backend();
    let queues = [
        QueueOrder::InOrder,
        QueueOrder::InOrder,
        QueueOrder::OutOfOrder,
    ]
    .map(|order| {
        backend
            .create_queue(order)
            .expect("the mock has both orders")
    });
    let allocator = ImmediateAllocator::new(&backend).expect("the mock makes queues");
    let pool = MemoryPool::new(allocator, &queues[0]).expect("the queue is the backend's");
    let mut live = Vec::new();
    let mut active_bytes = 0_u64;
    for operation in operations {
        match operation {
            Operation::Allocate { bytes, queue } => {
                let queue = &queues[usize::from(queue) % queues.len()];
                match pool.allocate_on(queue, bytes) {
                    Ok(block) => {
                        assert_eq!(block.size(), bytes);
                        assert!(block.class_size() >= bytes);
                        active_bytes += bytes as u64;
                        live.push(block);
                    }
                    Err(error) => assert!(error.is_out_of_memory(), "{error}"),
                }
            }
            Operation::Use { block, queue } if !live.is_empty() => {
                let block = &live[usize::from(block) % live.len()];
                let queue = &queues[usize::from(queue) % queues.len()];
                block
                    .enqueue_fill(queue, 0..block.size(), &[7], &[])
                    .expect("the whole block is in bounds");
            }
            Operation::Drop { block } if !live.is_empty() => {
                let block = live.swap_remove(usize::from(block) % live.len());
                active_bytes -= block.size() as u64;
            }
            Operation::FreeHeld => drop(pool.free_held()),
            Operation::StopHolding => pool.stop_holding(),
            Operation::ResumeHolding => pool.resume_holding(),
            Operation::Use { .. } | Operation::Drop { .. } => {}
        }
        let statistics = pool.statistics();
        assert_eq!(statistics.active_bytes, active_bytes);
        assert!(statistics.managed_bytes <= CAPACITY);
        assert_eq!(
            device.statistics().committed_bytes,
            statistics.managed_bytes
        );
    }
    drop(live);
    drop(pool);
    assert_eq!(device.statistics().live_blocks, 0);
});
