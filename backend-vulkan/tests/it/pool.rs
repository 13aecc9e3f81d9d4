//! Pools over the backend: blocks on two queues, from several threads. `BINPOOL_STRESS_ROUNDS` says how many steps each takes.

use std::{env, thread};

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer, QueueOrder, ReusePolicy,
};
use binpool_conformance::Random;
use binpool_vulkan::{VulkanBackend, VulkanQueue};

use crate::common;

fn steps(pool: &MemoryPool<VulkanBackend>, queues: &[VulkanQueue; 2], random: &mut Random) {
    let mut blocks: Vec<(PooledBuffer<VulkanBackend>, u8, &VulkanQueue)> = Vec::new();
    let rounds = env::var("BINPOOL_STRESS_ROUNDS").map_or(60, |rounds| rounds.parse().unwrap());
    for step in 0..rounds {
        if blocks.len() > 6 {
            let (block, mark, queue) = blocks.swap_remove(random.below(blocks.len()));
            let mut bytes = [0_u8; 2];
            block.read(queue, 0, &mut bytes[..1]).unwrap();
            block
                .read(queue, block.size() - 1, &mut bytes[1..])
                .unwrap();
            assert_eq!(bytes, [mark; 2], "step {step}");
            continue;
        }
        let queue = &queues[random.below(2)];
        let most = [4096, 200_000, 2_000_000][random.below(3)];
        let bytes = 1 + random.below(most);
        let block = pool.allocate_on(queue, bytes).unwrap();
        let mark = u8::try_from(step % 251).unwrap() + 1;
        block.enqueue_fill(queue, 0..bytes, &[mark]).unwrap();
        blocks.push((block, mark, queue));
    }
}

#[test]
fn blocks_of_two_queues_keep_their_bytes() {
    let backend = common::backend();
    let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    for policy in ReusePolicy::ALL {
        let pool = PoolOptions::new()
            .reuse(policy)
            .build(ImmediateAllocator::new(&backend).unwrap(), &queues[0])
            .unwrap();
        thread::scope(|scope| {
            for seed in 0..4 {
                let (pool, queues) = (&pool, &queues);
                scope.spawn(move || steps(pool, queues, &mut Random::new(seed)));
            }
        });
        assert_eq!(pool.statistics().active_blocks, 0);
    }
    assert!(!backend.is_lost());
}
