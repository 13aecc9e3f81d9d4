//! Pools that scrub on a real runtime: whatever the queues, the policy and the memory, the next user reads zeros.

use binpool::{
    Allocator, Backend, Event, ImmediateAllocator, Memory, MemoryPool, PoolOptions, Queue, Region,
    ReusePolicy, ScrubPolicy, SvmAllocator, SvmGrain,
};
use binpool_opencl::{ClQueue, OpenClBackend};

use crate::common::Bench;

const SIZE: usize = 1 << 20;

/// What a tenant leaves.
const SECRET: u8 = 0x5e;

const SCRUBBING: [ScrubPolicy; 2] = [ScrubPolicy::OnFree, ScrubPolicy::OnHandOut];

/// Leaves a secret in a block of `first`, written on `writer` after a gate where that may be, and reads what the next
/// user on `second` gets.
fn next_user_reads_zeros(
    bench: &Bench,
    pool: &MemoryPool<OpenClBackend>,
    [first, writer, second]: [&ClQueue; 3],
) {
    let gate = bench.gate();
    let old = pool.allocate_on(first, SIZE).unwrap();
    old.order_before(writer).unwrap();
    let memory = old.memory_on(writer).unwrap();
    let all = Region::first(memory.bytes());
    bench
        .backend
        .enqueue_fill(
            writer.after(std::slice::from_ref(&gate)),
            memory,
            all,
            &[SECRET],
        )
        .unwrap();
    drop(old);
    // With the gate shut the host would wait forever.
    let waits = pool.reuse_policy() == ReusePolicy::WaitOnHost;
    if waits {
        bench.open_gate(&gate);
    }
    let new = pool.allocate_on(second, SIZE - 100).unwrap();
    let memory = new.memory_on(second).unwrap();
    let all = Region::first(memory.bytes());
    let read = bench.backend.enqueue_read(second, memory, all).unwrap();
    if !waits {
        bench.open_gate(&gate);
    }
    first.flush().unwrap();
    writer.flush().unwrap();
    let bytes = read.wait().unwrap();
    assert!(
        bytes.iter().all(|byte| *byte == 0),
        "{:?}, {:?}, {first:?}, {writer:?}, {second:?}",
        pool.scrub_policy(),
        pool.reuse_policy()
    );
}

fn no_user_reads_a_secret<A: Allocator<Backend = OpenClBackend>>(
    bench: &Bench,
    allocator: impl Fn(&Bench) -> A,
    segments: bool,
) {
    for (scrub, reuse) in SCRUBBING
        .into_iter()
        .flat_map(|scrub| ReusePolicy::ALL.map(|reuse| (scrub, reuse)))
    {
        let pool = PoolOptions::new()
            .scrub(scrub)
            .reuse(reuse)
            .segments(segments)
            .build(allocator(bench), &bench.queue)
            .unwrap();
        let mut queues = vec![bench.queue.clone(), bench.another_queue()];
        if bench.backend.limits().out_of_order_queues {
            queues.push(bench.out_of_order_queue());
        }
        for first in &queues {
            for writer in &queues {
                for second in &queues {
                    next_user_reads_zeros(bench, &pool, [first, writer, second]);
                }
            }
        }
        let statistics = pool.statistics();
        assert!(statistics.hits > 0, "{statistics:?}");
    }
}

fn immediate(bench: &Bench) -> ImmediateAllocator<OpenClBackend> {
    ImmediateAllocator::new(&bench.backend).unwrap()
}

fn svm(bench: &Bench) -> SvmAllocator<OpenClBackend> {
    SvmAllocator::new(&bench.backend, SvmGrain::Coarse).unwrap()
}

#[test]
fn no_user_reads_a_secret_in_buffers() {
    for segments in [false, true] {
        no_user_reads_a_secret(&Bench::new(), immediate, segments);
    }
}

#[test]
fn no_user_reads_a_secret_in_shared_virtual_memory() {
    for segments in [false, true] {
        no_user_reads_a_secret(&Bench::new(), svm, segments);
    }
}

/// A release is a fill: at the end of its event the memory is clean.
#[test]
fn a_released_block_is_clean_by_the_end_of_its_event() {
    let bench = Bench::new();
    let pool = PoolOptions::new()
        .scrub(ScrubPolicy::OnFree)
        .build(svm(&bench), &bench.queue)
        .unwrap();
    let other = bench.another_queue();
    let old = pool.allocate(SIZE).unwrap();
    old.enqueue_fill(&bench.queue, 0..SIZE, &[SECRET]).unwrap();
    let address = old.address();
    let end = old.enqueue_release(Some(&other), &[]).unwrap();
    end.wait().unwrap();
    let new = pool.allocate_on(&other, SIZE).unwrap();
    assert_eq!(new.address(), address);
    assert_eq!(crate::common::contents(&new, &other), vec![0; SIZE]);
}

/// A user event that fails, or is dropped, fails the command of the first user that waits for it, and the fill of zeros after
/// that command, too.
fn next_user_reads_zeros_where_the_fill_failed<A: Allocator<Backend = OpenClBackend>>(
    allocator: impl Fn(&Bench) -> A,
) {
    for (segments, on_another_queue, dropped) in [false, true]
        .into_iter()
        .flat_map(|segments| [false, true].map(|other| (segments, other)))
        .flat_map(|(segments, other)| [false, true].map(|dropped| (segments, other, dropped)))
    {
        let bench = Bench::new();
        let pool = PoolOptions::new()
            .segments(segments)
            .scrub(ScrubPolicy::OnFree)
            .build(allocator(&bench), &bench.queue)
            .unwrap();
        let other = bench.another_queue();
        let writer = if on_another_queue {
            &other
        } else {
            &bench.queue
        };
        let old = pool.allocate(SIZE).unwrap();
        old.enqueue_fill(&bench.queue, 0..SIZE, &[SECRET]).unwrap();
        old.order_before(writer).unwrap();
        let gate = bench.gate();
        let after = writer.after(std::slice::from_ref(&gate));
        old.enqueue_fill(after, 0..1, &[SECRET]).unwrap();
        drop(old);
        if dropped {
            drop(gate);
        } else {
            bench.fail_gate(&gate);
        }
        // The fill has failed by then, where it does.
        for queue in [&bench.queue, &other] {
            queue.finish().unwrap();
        }
        let new = pool.allocate(SIZE).unwrap();
        assert!(
            crate::common::contents(&new, &bench.queue) == vec![0; SIZE],
            "segments {segments}, on another queue {on_another_queue}, dropped {dropped}"
        );
    }
}

#[test]
fn next_user_of_a_buffer_reads_zeros_where_the_fill_failed() {
    next_user_reads_zeros_where_the_fill_failed(immediate);
}

#[test]
fn next_user_of_shared_virtual_memory_reads_zeros_where_the_fill_failed() {
    next_user_reads_zeros_where_the_fill_failed(svm);
}
