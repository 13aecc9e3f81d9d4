//! Reuse across queues on a real runtime: whatever the policy, the queues and the memory, no command of a former
//! owner runs against the new one's.

use std::thread;

use binpool::{
    Allocator, Backend, DeferredAllocator, Event, ImmediateAllocator, MemoryPool, PoolOptions,
    Queue, ReusePolicy, SvmAllocator, SvmGrain,
};
use binpool_opencl::{ClQueue, OpenClBackend};

use crate::common::{Bench, contents};

const SIZE: usize = 1 << 20;

/// The recipe that corrupts PyOpenCL's pool (its issues 447, 449, 645): fill with 1 after a gate on `first`,
/// release, allocate again for `second`, fill with 2, open the gate. The new owner reads 2.
fn new_owner_keeps_its_bytes(
    bench: &Bench,
    pool: &MemoryPool<OpenClBackend>,
    first: &ClQueue,
    second: &ClQueue,
) {
    let gate = bench.gate();
    let old = pool.allocate_on(first, SIZE).unwrap();
    old.enqueue_fill(first.after(std::slice::from_ref(&gate)), 0..SIZE, &[1_u8])
        .unwrap();
    drop(old);
    let renew = || {
        let new = pool.allocate_on(second, SIZE).unwrap();
        let filled = new.enqueue_fill(second, 0..SIZE, &[2_u8]).unwrap();
        (new, filled)
    };
    let (new, filled) = if pool.reuse_policy() == ReusePolicy::WaitOnHost {
        // The host waits for the gate, so another thread has to open it.
        thread::scope(|scope| {
            scope.spawn(|| bench.open_gate(&gate));
            renew()
        })
    } else {
        let renewed = renew();
        bench.open_gate(&gate);
        renewed
    };
    first.finish().unwrap();
    filled.wait().unwrap();
    assert_eq!(
        contents(&new, second),
        vec![2; SIZE],
        "{:?}, {first:?} to {second:?}",
        pool.reuse_policy()
    );
}

fn nothing_is_overwritten<A: Allocator<Backend = OpenClBackend>>(
    bench: &Bench,
    allocator: impl Fn(&Bench) -> A,
) {
    for policy in ReusePolicy::ALL {
        let pool = PoolOptions::new()
            .reuse(policy)
            .build(allocator(bench), &bench.queue)
            .unwrap();
        let (first, second) = (&bench.queue, &bench.another_queue());
        let mut pairs = vec![(first, second), (second, first)];
        let unordered;
        if bench.backend.limits().out_of_order_queues {
            unordered = [bench.out_of_order_queue(), bench.out_of_order_queue()];
            let [third, fourth] = &unordered;
            pairs.extend([
                (third, third),
                (first, third),
                (third, first),
                (third, fourth),
            ]);
        }
        for (first, second) in pairs.into_iter().cycle().take(18) {
            new_owner_keeps_its_bytes(bench, &pool, first, second);
        }
    }
}

fn svm(bench: &Bench) -> SvmAllocator<OpenClBackend> {
    SvmAllocator::new(&bench.backend, SvmGrain::Coarse).unwrap()
}

fn immediate(bench: &Bench) -> ImmediateAllocator<OpenClBackend> {
    ImmediateAllocator::new(&bench.backend).unwrap()
}

#[test]
fn buffers_are_not_overwritten() {
    nothing_is_overwritten(&Bench::new(), immediate);
}

#[test]
fn deferred_buffers_are_not_overwritten() {
    nothing_is_overwritten(&Bench::new(), |bench| {
        DeferredAllocator::new(&bench.backend)
    });
}

#[test]
fn svm_is_not_overwritten() {
    nothing_is_overwritten(&Bench::new(), svm);
}

#[test]
fn svm_that_is_freed_on_a_queue_is_not_overwritten() {
    nothing_is_overwritten(&Bench::new(), |bench| {
        svm(bench).with_queue(&bench.queue).unwrap()
    });
}

/// The recipe with a block that was bound to the second queue, unbound, or released by a command in between.
fn a_moved_block_is_not_overwritten<A: Allocator<Backend = OpenClBackend>>(
    bench: &Bench,
    allocator: A,
) {
    let pool = PoolOptions::new()
        .reuse(ReusePolicy::SameQueue)
        .build(allocator, &bench.queue)
        .unwrap();
    let (first, second) = (&bench.queue, &bench.another_queue());
    for way in 0..3 {
        let gate = bench.gate();
        let mut old = pool.allocate_on(first, SIZE).unwrap();
        old.enqueue_fill(first.after(std::slice::from_ref(&gate)), 0..SIZE, &[1_u8])
            .unwrap();
        let memory = old.memory_id();
        match way {
            0 => {
                old.bind_to_queue(second).unwrap();
                drop(old);
            }
            1 => {
                bench.open_gate(&gate);
                old.unbind_from_queue().unwrap();
                drop(old);
            }
            _ => drop(old.enqueue_release(Some(second), &[]).unwrap()),
        }
        let new = pool.allocate_on(second, SIZE).unwrap();
        assert_eq!(new.memory_id(), memory, "way {way}");
        let filled = new.enqueue_fill(second, 0..SIZE, &[2_u8]).unwrap();
        if way != 1 {
            bench.open_gate(&gate);
        }
        first.finish().unwrap();
        filled.wait().unwrap();
        assert_eq!(contents(&new, second), vec![2; SIZE], "way {way}");
        drop(new.detach());
    }
}

#[test]
fn blocks_that_move_between_queues_are_not_overwritten() {
    let bench = Bench::new();
    a_moved_block_is_not_overwritten(&bench, immediate(&bench));
    a_moved_block_is_not_overwritten(&bench, svm(&bench));
    let bound = svm(&bench).with_queue(&bench.queue).unwrap();
    a_moved_block_is_not_overwritten(&bench, bound);
}
