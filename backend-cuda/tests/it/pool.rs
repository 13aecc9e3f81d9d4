//! Pools over the backend: blocks on two streams, from several threads.

use std::thread;

use binpool::{
    Allocator, Backend, ImmediateAllocator, MemoryPool, PoolOptions, VirtualMemoryAllocator,
    random::Random,
};
use binpool_cuda::{CudaBackend, CudaQueue, DriverPoolAllocator};

use crate::common::{Device, PAGE, queue};

/// Threads that allocate, fill, check and free blocks on two queues.
fn program<A: Allocator<Backend = CudaBackend>>(
    device: &Device,
    allocator: A,
    backend: CudaBackend,
) {
    let queues = [(); 2].map(|()| queue(&backend));
    let pool = PoolOptions::new().build(allocator, &queues[0]).unwrap();
    thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|seed| {
            let (pool, queues) = (&pool, &queues);
            scope.spawn(move || steps(pool, queues, &mut Random::new(seed)))
        });
        // Their caches are gone with them, which the end of the scope does not wait for.
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(pool.statistics().active_blocks, 0);
    assert!(!backend.is_lost());
    drop((pool, queues, backend));
    assert_eq!((device.objects(), device.used()), (0, 0));
}

fn steps<A: Allocator<Backend = CudaBackend>>(
    pool: &MemoryPool<A>,
    queues: &[CudaQueue; 2],
    random: &mut Random,
) {
    let mut blocks = Vec::new();
    for step in 0..150_usize {
        if blocks.len() > 6 {
            let (block, mark, queue): (binpool::PooledBuffer<A>, u8, &CudaQueue) =
                blocks.swap_remove(random.below(blocks.len()));
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
fn blocks_of_two_streams_keep_their_bytes() {
    let device = Device::new(256 * PAGE);
    let backend = device.backend();
    program(&device, ImmediateAllocator::new(&backend).unwrap(), backend);
}

#[test]
fn blocks_in_pages_keep_their_bytes() {
    let device = Device::new(256 * PAGE);
    let backend = device.backend();
    program(&device, VirtualMemoryAllocator::new(&backend), backend);
    assert!(device.calls("cuMemMap") > 0);
}

#[test]
fn blocks_of_the_drivers_pool_keep_their_bytes() {
    let device = Device::new(256 * PAGE);
    let backend = device.backend();
    program(
        &device,
        DriverPoolAllocator::new(&backend).unwrap(),
        backend,
    );
}

#[test]
fn a_pool_that_finds_no_memory_says_so() {
    let backend = Device::new(8 * PAGE).backend();
    let queue = queue(&backend);
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    let _block = pool.allocate(6 * PAGE).unwrap();
    assert!(pool.allocate(6 * PAGE).unwrap_err().is_out_of_memory());
    let _ = backend.limits();
}
