//! The pool over OpenCL: what it promises holds on a real runtime.

use binpool::{
    Allocator, DeferredAllocator, Event, ImmediateAllocator, MemoryPool, PoolOptions, Queue,
    SvmAllocator, SvmGrain, adaptors::Statistics,
};
use binpool_opencl::OpenClBackend;

use crate::common::{Bench, contents, numbered};

const SIZE: usize = 1 << 20;

fn immediate(bench: &Bench) -> MemoryPool<OpenClBackend> {
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    MemoryPool::new(allocator, &bench.queue).unwrap()
}

fn svm(bench: &Bench) -> MemoryPool<OpenClBackend> {
    let allocator = SvmAllocator::new(&bench.backend, SvmGrain::Coarse).unwrap();
    MemoryPool::new(allocator, &bench.queue).unwrap()
}

/// A gated fill, then release and allocation on the same in-order queue: the very same block, at once.
#[test]
fn the_same_queue_has_its_block_back_at_once() {
    let bench = Bench::new();
    let pool = svm(&bench);
    let gate = bench.gate();
    let old = pool.allocate(SIZE).unwrap();
    old.enqueue_fill(
        bench.queue.after(std::slice::from_ref(&gate)),
        0..SIZE,
        &[1_u8],
    )
    .unwrap();
    let address = old.address();
    drop(old);
    let new = pool.allocate(SIZE).unwrap();
    assert_eq!(new.address(), address);
    let filled = new.enqueue_fill(&bench.queue, 0..SIZE, &[2_u8]).unwrap();
    bench.open_gate(&gate);
    filled.wait().unwrap();
    assert_eq!(contents(&new, &bench.queue), vec![2; SIZE]);
}

#[test]
fn blocks_are_reused_and_keep_their_contents() {
    let bench = Bench::new();
    let pool = immediate(&bench);
    let mut live = Vec::new();
    for round in 0..200_usize {
        let size = 1 + round * 7919 % 100_000;
        let block = pool.allocate(size).unwrap();
        let data: Vec<u8> = numbered(size)
            .into_iter()
            .map(|byte| byte ^ u8::try_from(round).unwrap())
            .collect();
        block
            .enqueue_write(&bench.queue, 0, data.clone().into())
            .unwrap();
        live.push((block, data));
        if live.len() > 8 {
            let (block, data) = live.swap_remove(round % 8);
            assert_eq!(contents(&block, &bench.queue), data);
        }
    }
    let statistics = pool.statistics();
    assert!(statistics.hits > 0);
    drop(live);
    assert_eq!(pool.free_held(), statistics.managed_bytes);
    assert_eq!(pool.managed_bytes(), 0);
}

#[test]
fn a_block_exactly_as_large_as_the_device_gives_can_be_asked_for() {
    let bench = Bench::new();
    // Deferred: promised, and never touched, so that it need not really be there.
    let pool = MemoryPool::new(DeferredAllocator::new(&bench.backend), &bench.queue).unwrap();
    let largest = pool.allocator().largest_block();
    let block = pool.allocate(largest).unwrap();
    assert_eq!(block.class_size(), largest);
    let error = pool.allocate(largest + 1).unwrap_err();
    assert_eq!(
        error.out_of_memory().map(|report| report.verdict),
        Some(binpool::Verdict::NeverFits)
    );
}

#[test]
fn a_view_of_a_pooled_block_can_be_used_and_migrated() {
    let bench = Bench::new();
    let pool = immediate(&bench);
    let block = pool.allocate(SIZE).unwrap();
    block.write(&bench.queue, 0, &numbered(SIZE)).unwrap();
    let view = block.view(4096..8192).unwrap();
    let memory = view.memory_on(&bench.queue).unwrap();
    assert_eq!(bench.read(memory), numbered(SIZE)[4096..8192]);
    binpool::Backend::commit(&bench.backend, &bench.queue, memory).unwrap();
    let misaligned = block.view(4097..8192).unwrap_err().to_string();
    let alignment = pool.allocator().alignment().to_string();
    assert!(misaligned.contains(&alignment), "{misaligned}");
}

#[test]
fn threads_share_a_pool_on_queues_of_their_own() {
    let bench = Bench::new();
    let pool = immediate(&bench);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (pool, queue) = (pool.clone(), bench.another_queue());
            scope.spawn(move || {
                for round in 0..50_usize {
                    let size = 1 + round * 7919 % 50_000;
                    let block = pool.allocate_on(&queue, size).unwrap();
                    block.enqueue_fill(&queue, 0..size, &[thread]).unwrap();
                    assert_eq!(contents(&block, &queue), vec![thread; size]);
                }
            });
        }
    });
    assert_eq!(pool.active_blocks(), 0);
    pool.free_held();
    assert_eq!(pool.managed_bytes(), 0);
}

#[test]
fn a_pool_that_is_trimmed_to_nothing_has_nothing() {
    let bench = Bench::new();
    for segments in [false, true] {
        let allocator = Statistics::new(ImmediateAllocator::new(&bench.backend).unwrap());
        let meter = allocator.clone();
        let options = PoolOptions::new().segments(segments);
        let pool = options.build(allocator, &bench.queue).unwrap();
        let blocks: Vec<_> = (1..50_usize)
            .map(|step| {
                let block = pool.allocate(step * 7919 % 100_000 + 1).unwrap();
                let all = 0..block.size();
                block.enqueue_fill(&bench.queue, all, &[1_u8]).unwrap();
                block
            })
            .collect();
        drop(blocks);
        let managed = pool.managed_bytes();
        assert!(managed > 0);
        assert_eq!(meter.reading().current_bytes, managed);
        assert_eq!(pool.trim_to(0), managed);
        assert_eq!(pool.managed_bytes(), 0);
        assert_eq!(meter.reading().current_bytes, 0);
    }
}
