//! Pools over the backend: blocks on two streams, from several threads, and in pages that move while commands use them.

use std::{
    slice::from_ref,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use binpool::{
    Allocator, Backend, GrowableBuffer, ImmediateAllocator, Memory, MemoryPool, PoolOptions,
    PooledBuffer, Queue, VirtualMemoryAllocator,
};
use binpool_conformance::Random;
use binpool_cuda::{CudaBackend, CudaEvent, CudaQueue, DriverPoolAllocator};

use crate::common::{Device, PAGE, queue};

#[test]
fn a_block_that_grows_stays_at_its_address_and_takes_what_is_mapped() {
    let device = Device::new(64 * PAGE);
    let backend = device.backend();
    let queues = [(); 2].map(|()| queue(&backend));
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queues[0]).unwrap();
    let mut block = pool.growable_on(&queues[0], 1 << 40).unwrap();
    let address = |block: &GrowableBuffer<CudaBackend>| {
        let memory = block.memory_on(&queues[0]).unwrap();
        memory.device_address().unwrap()
    };
    let start = address(&block);
    for mark in 1..=8 {
        block.grow(PAGE).unwrap();
        let region = block.size() - PAGE..;
        block.enqueue_fill(&queues[0], region, &[mark]).unwrap();
    }
    assert_eq!((address(&block), device.used()), (start, 8 * PAGE));
    // A kernel of the program's own, held back, on the second queue.
    let held = AtomicU32::new(0);
    device.hold(queues[1].raw(), &held);
    device.fill(queues[1].raw(), start, 8 * PAGE);
    block.record_use(&queues[1]).unwrap();
    block.shrink(6 * PAGE).unwrap();
    assert_eq!(device.used(), 8 * PAGE);
    held.store(1, Ordering::SeqCst);
    for queue in &queues {
        queue.finish().unwrap();
    }
    block.shrink(0).unwrap();
    assert_eq!(device.used(), 2 * PAGE);
    let mut bytes = vec![0_u8; 2 * PAGE];
    block.read(&queues[0], 0, &mut bytes).unwrap();
    assert_eq!(bytes, vec![7; 2 * PAGE]);
    // The same for a drop.
    held.store(0, Ordering::SeqCst);
    device.hold(queues[1].raw(), &held);
    device.fill(queues[1].raw(), start, 2 * PAGE);
    drop(block);
    assert_eq!(device.used(), 2 * PAGE);
    held.store(1, Ordering::SeqCst);
    queues[1].finish().unwrap();
    assert!(!backend.is_lost());
    drop((pool, queues, backend));
    assert_eq!((device.objects(), device.used()), (0, 0));
}

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

fn steps(pool: &MemoryPool<CudaBackend>, queues: &[CudaQueue; 2], random: &mut Random) {
    let mut blocks = Vec::new();
    for step in 0..150_usize {
        if blocks.len() > 6 {
            let (block, mark, queue): (PooledBuffer<CudaBackend>, u8, &CudaQueue) =
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

/// A pool of pages on one stream, whose blocks of a page each are in use. Each is filled with the number of its block, but these fills wait for
/// the gate.
struct Filled {
    device: Device,
    backend: CudaBackend,
    queue: CudaQueue,
    pool: MemoryPool<CudaBackend>,
    blocks: Vec<PooledBuffer<CudaBackend>>,
    gate: CudaEvent,
}

impl Filled {
    fn new() -> Self {
        let device = Device::new(64 * PAGE);
        let backend = device.backend();
        let queue = queue(&backend);
        let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
        let blocks: Vec<_> = (0..12).map(|_| pool.allocate(PAGE).unwrap()).collect();
        let gate = backend.create_user_event().unwrap();
        for (number, block) in (0_u8..).zip(&blocks) {
            let queue = queue.after(from_ref(&gate));
            block.enqueue_fill(queue, .., &[number]).unwrap();
        }
        Self {
            device,
            backend,
            queue,
            pool,
            blocks,
            gate,
        }
    }

    /// Drops every other block, and gets one for which no two neighbours are free.
    fn scattered(&mut self) -> PooledBuffer<CudaBackend> {
        let mut number = 0;
        self.blocks.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        let block = self.pool.allocate(4 * PAGE).unwrap();
        block.enqueue_fill(&self.queue, .., &[100_u8]).unwrap();
        block
    }

    /// Lets the commands run, and checks all bytes, and that nothing is left in the end.
    fn check(self, block: PooledBuffer<CudaBackend>) {
        let Self {
            device,
            backend,
            queue,
            pool,
            blocks,
            gate,
        } = self;
        drop(gate);
        let is_full_of = |block: &PooledBuffer<CudaBackend>, byte| {
            let read = block.enqueue_read(&queue, ..).unwrap().wait().unwrap();
            read.iter().all(|seen| *seen == byte)
        };
        assert!(is_full_of(&block, 100));
        for (number, block) in (1..).step_by(2).zip(&blocks) {
            assert!(is_full_of(block, number), "block {number}");
        }
        drop((block, blocks));
        pool.trim_to(0);
        assert_eq!(pool.statistics().managed_bytes, 0);
        assert!(!backend.is_lost());
        drop((pool, queue, backend));
        assert_eq!((device.objects(), device.used()), (0, 0));
    }
}

#[test]
fn pages_move_while_commands_of_the_stream_use_them() {
    let mut filled = Filled::new();
    let before = filled.pool.statistics();
    let created = filled.device.calls("cuMemCreate");
    let block = filled.scattered();
    let after = filled.pool.statistics();
    assert_eq!((after.maps - before.maps, after.unmaps), (4, 0));
    assert_eq!(filled.device.calls("cuMemCreate"), created);
    assert_eq!(after.managed_bytes, before.managed_bytes);
    filled.check(block);
}

#[test]
fn a_pool_whose_pages_get_no_second_address_takes_new_ones() {
    for (call, before) in [("cuMemMap", 0), ("cuMemMap", 2), ("cuMemSetAccess", 1)] {
        let mut filled = Filled::new();
        let used = filled.device.used();
        filled.device.fail(call, before, 1, 999);
        let block = filled.scattered();
        // The second addresses that pages had got before are given up.
        assert_eq!(filled.pool.statistics().unmaps, before, "{call}");
        assert_eq!(filled.device.used(), used + 4 * PAGE, "{call}");
        filled.check(block);
    }
}
