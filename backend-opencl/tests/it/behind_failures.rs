//! After a command that fails early, nothing is freed, unmapped or handed out while an earlier command still uses it.
//!
//! In each test A waits for one gate and uses memory, and F after it waits for another gate, which fails. On `PoCL` F fails at
//! once, with A pending; on NVIDIA's runtime it fails after A. What must hold is the same.

use std::{
    slice::from_ref,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use binpool::{PoolOptions, ReusePolicy};
use binpool_allocators::{
    Backend, Event, EventStatus, ImmediateAllocator, Queue, Region, SvmAllocator, SvmBackend,
    SvmGrain,
};
use binpool_opencl::{ClEvent, ClMemory, ClQueue, MapMode, OpenClBackend, SvmOptions};

use crate::common::{Bench, let_commands_run, wait_until, watch};

const BYTES: usize = 1 << 20;

/// A queue on which A is pending, and after it F has failed or will fail.
struct Failing {
    bench: Bench,
    /// What A waits for.
    gate: ClEvent,
    a: ClEvent,
    f: ClEvent,
}

impl Failing {
    /// `enqueue_a` enqueues A on the queue, after the gate.
    fn new(bench: Bench, queue: &ClQueue, enqueue_a: impl FnOnce(&ClEvent) -> ClEvent) -> Self {
        let (gate, fails) = (bench.gate(), bench.gate());
        let a = enqueue_a(&gate);
        let f = bench
            .backend
            .enqueue_marker(queue.after(from_ref(&fails)))
            .unwrap();
        queue.flush().unwrap();
        bench.fail_gate(&fails);
        Self { bench, gate, a, f }
    }

    /// Checks that A is pending, lets it run, and waits for it.
    fn let_a_end(&self) {
        assert_eq!(self.a.status().unwrap(), EventStatus::Pending);
        self.bench.open_gate(&self.gate);
        self.a.wait().unwrap();
        assert!(self.f.wait().is_err());
    }
}

/// Shared virtual memory, and whether it has been freed.
fn shared(backend: &OpenClBackend, options: &SvmOptions) -> (ClMemory, Arc<AtomicBool>) {
    let memory = backend
        .svm_empty::<u8>(BYTES, options)
        .unwrap()
        .into_memory();
    let freed = watch(&memory);
    (memory, freed)
}

#[test]
fn shared_memory_is_not_freed_under_a_command_that_stands_before_a_failed_one() {
    for is_bound in [false, true] {
        let bench = Bench::new();
        let queue = bench.queue.clone();
        let options = SvmOptions {
            queue: is_bound.then(|| queue.clone()),
            ..SvmOptions::coarse()
        };
        let (memory, freed) = shared(&bench.backend, &options);
        let backend = bench.backend.clone();
        let failing = Failing::new(bench, &queue, |gate| {
            let first = Region::new(0, 16);
            let a = backend.enqueue_fill(queue.after(from_ref(gate)), &memory, first, &[1_u8]);
            a.unwrap()
        });
        // The last command on the memory, and the last on the queue. It has nothing to do with what failed.
        let last = Region::new(64, 16);
        let c = backend
            .enqueue_fill(&queue, &memory, last, &[2_u8])
            .unwrap();
        drop(memory);
        assert_eq!(
            c.status().unwrap(),
            EventStatus::Pending,
            "it comes after A"
        );
        assert!(!freed.load(Ordering::SeqCst), "bound: {is_bound}");
        failing.let_a_end();
        wait_until(&freed);
    }
}

#[test]
fn shared_memory_that_a_pool_releases_is_not_freed_under_a_command_that_stands_before_a_failed_one()
{
    let bench = Bench::new();
    let (backend, queue) = (bench.backend.clone(), bench.queue.clone());
    let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let pool = PoolOptions::new().segments(false);
    let pool = pool.build(allocator, &queue).unwrap();
    let block = pool.allocate(BYTES).unwrap();
    let freed = watch(block.memory_on(&queue).unwrap());
    let failing = Failing::new(bench, &queue, |gate| {
        let a = block.enqueue_fill(queue.after(from_ref(gate)), 0..16, &[1_u8]);
        a.unwrap()
    });
    drop(block);
    assert_eq!(pool.free_held(), BYTES as u64);
    assert!(!freed.load(Ordering::SeqCst));
    failing.let_a_end();
    wait_until(&freed);
}

#[test]
fn shared_memory_is_not_freed_where_a_command_fails_while_it_is_dropped() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let unordered = bench.out_of_order_queue();
    for round in 0..6 {
        let (memory, freed) = shared(backend, &SvmOptions::coarse());
        let [first, fails, others] = [(); 3].map(|()| bench.gate());
        let fill = |queue: &ClQueue, offset, gate: &ClEvent| {
            let region = Region::new(offset, 16);
            let filled =
                backend.enqueue_fill(queue.after(from_ref(gate)), &memory, region, &[1_u8]);
            filled.unwrap()
        };
        let a = fill(queue, 0, &first);
        // It stands for A, which is before it on its queue.
        fill(queue, 64, &fails);
        // Looking at all of these takes a while.
        let many: Vec<_> = (0..1000)
            .map(|i| fill(&unordered, 4096 + 64 * i, &others))
            .collect();
        queue.flush().unwrap();
        unordered.flush().unwrap();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                for _ in 0..round * 200 {
                    thread::yield_now();
                }
                bench.fail_gate(&fails);
            });
            start.wait();
            drop(memory);
        });
        bench.open_gate(&others);
        for other in many {
            other.wait().unwrap();
        }
        assert_eq!(a.status().unwrap(), EventStatus::Pending);
        assert!(!freed.load(Ordering::SeqCst), "round {round}");
        bench.open_gate(&first);
        a.wait().unwrap();
        wait_until(&freed);
    }
}

#[test]
fn a_map_that_is_dropped_while_it_is_pending_ends_after_it_was_made() {
    // F comes after the map, or after its end; or the end's own next user fails.
    for when in ["before the end", "after the end"] {
        let bench = Bench::new();
        let (backend, queue) = (&bench.backend, &bench.queue);
        let memory = bench.filled(BYTES, 7);
        let (gate, fails) = (bench.gate(), bench.gate());
        let map = backend
            .enqueue_map_mut::<u8>(
                queue.after(from_ref(&gate)),
                &memory,
                Region::first(BYTES),
                MapMode::ReadWrite,
            )
            .unwrap();
        let made = map.event().clone();
        backend
            .enqueue_marker(queue.after(from_ref(&fails)))
            .unwrap();
        queue.flush().unwrap();
        if when == "before the end" {
            bench.fail_gate(&fails);
            drop(map);
        } else {
            drop(map);
            bench.fail_gate(&fails);
        }
        assert_eq!(made.status().unwrap(), EventStatus::Pending, "{when}");
        // It comes after the end of the map, or fails with F on a runtime that fails in turn; it never comes before.
        let filled = bench.fill(&bench.another_queue(), &memory, 8, &[]);
        assert_eq!(filled.status().unwrap(), EventStatus::Pending, "{when}");
        bench.open_gate(&gate);
        made.wait().unwrap();
        let expected = if filled.wait().is_ok() { 8 } else { 7 };
        queue.finish().unwrap();
        assert_eq!(bench.read(&memory), vec![expected; BYTES], "{when}");
    }
}

/// Later commands wait for the end of the map alone, which stands for the map and everything before it.
#[test]
fn the_end_of_a_dropped_map_that_fails_comes_after_what_the_map_was_to_come_after() {
    let bench = Bench::new();
    let memory = bench.filled(BYTES, 7);
    let [slow, mapping, other] = [(); 3].map(|()| bench.another_queue());
    let (gate, fails) = (bench.gate(), bench.gate());
    let a = bench.fill(&slow, &memory, 8, from_ref(&gate));
    let behind = mapping.after(from_ref(&fails));
    let map = bench
        .backend
        .enqueue_map_mut::<u8>(behind, &memory, .., MapMode::ReadWrite);
    drop(map.unwrap());
    bench.fail_gate(&fails);
    let filled = bench.fill(&other, &memory, 9, &[]);
    let_commands_run(&bench);
    assert_eq!(a.status().unwrap(), EventStatus::Pending);
    assert_eq!(filled.status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    a.wait().unwrap();
    // It fails with the map where failures spread.
    let expected = if filled.wait().is_ok() { 9 } else { 8 };
    assert_eq!(bench.read(&memory), vec![expected; BYTES]);
}

#[test]
fn events_of_failed_commands_live_until_the_runtime_is_done_with_them() {
    let bench = Bench::new();
    let backend = &bench.backend;
    let (one, two) = (bench.another_queue(), bench.another_queue());
    let memory = bench.buffer(4096);
    let gate = bench.gate();
    let w = bench.fill(&one, &memory, 1, from_ref(&gate));
    one.flush().unwrap();
    for _ in 0..300 {
        // It waits for W, and has failed; its event and its memory go.
        let (other, fails) = (bench.buffer(4096), bench.gate());
        bench.fill(&two, &other, 1, &[w.clone(), fails.clone()]);
        two.flush().unwrap();
        bench.fail_gate(&fails);
    }
    // What was freed is used for something else.
    let rubbish: Vec<Vec<u8>> = (0..1200).map(|i| vec![0xEE; 300 + i % 200]).collect();
    bench.open_gate(&gate); // W ends, and the runtime tells those that waited for it.
    w.wait().unwrap();
    one.finish().unwrap();
    assert_eq!(rubbish.len(), 1200);
    assert!(backend.enqueue_marker(&two).is_ok());
    bench.queue_is_alive();
}

#[test]
fn a_pool_hands_no_block_to_another_queue_while_a_command_before_a_failed_one_uses_it() {
    for unordered in [false, true] {
        let bench = Bench::new();
        let backend = bench.backend.clone();
        let (one, two) = if unordered {
            (bench.out_of_order_queue(), bench.another_queue())
        } else {
            (bench.another_queue(), bench.another_queue())
        };
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let options = PoolOptions::new().segments(false);
        let pool = options.build(allocator, &two).unwrap();
        let block = pool.allocate_on(&one, BYTES).unwrap();
        let id = block.memory_id();
        let gates = [bench.gate(), bench.gate()];
        let a = block
            .enqueue_fill(one.after(&gates[..1]), 0..16, &[1_u8])
            .unwrap();
        backend.enqueue_marker(one.after(&gates[1..])).unwrap();
        one.flush().unwrap();
        // The pool's marker stands after both, or is enqueued after the failure.
        if unordered {
            drop(block);
            bench.fail_gate(&gates[1]);
        } else {
            bench.fail_gate(&gates[1]);
            drop(block);
        }
        let other = pool.allocate_on(&two, BYTES).unwrap();
        assert_ne!(other.memory_id(), id, "unordered: {unordered}");
        assert_eq!(a.status().unwrap(), EventStatus::Pending);
        bench.open_gate(&gates[0]);
        a.wait().unwrap();
        // Now it is free for every queue. On NVIDIA's runtime the pool's marker has failed, and another one has to end first.
        let mut others = Vec::new();
        let comes_back = (0..10).any(|_| {
            one.finish().unwrap();
            others.push(pool.allocate_on(&two, BYTES).unwrap());
            others.last().is_some_and(|block| block.memory_id() == id)
        });
        assert!(comes_back, "unordered: {unordered}");
    }
}

#[test]
fn a_block_in_use_by_its_bare_handle_is_not_reused_behind_a_failure() {
    let bench = Bench::new();
    let backend = bench.backend.clone();
    let (one, two) = (bench.another_queue(), bench.another_queue());
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    let options = PoolOptions::new().segments(false);
    let options = options.reuse(ReusePolicy::InsertWait);
    let pool = options.build(allocator, &one).unwrap();
    let (gate, fails) = (bench.gate(), bench.gate());
    let block = pool.allocate_on(&one, BYTES).unwrap();
    let handle = block.memory_on(&one).unwrap().raw().unwrap();
    let (pattern, wait) = (0xAA_u8, [gate.raw()]);
    // SAFETY: (1) queue, buffer and event live; (2) the pattern is read before the call returns; (3) the pool was told of the
    // queue by `memory_on`.
    let a = unsafe {
        cl3::command_queue::enqueue_fill_buffer(
            one.raw(),
            handle,
            (&raw const pattern).cast(),
            1,
            0,
            4096,
            1,
            wait.as_ptr(),
        )
    }
    .unwrap();
    // SAFETY: The event is the one that the call has just returned.
    let a = unsafe { backend.wrap_raw_event(a) }.unwrap();
    let _f = backend.enqueue_marker(one.after(from_ref(&fails))).unwrap();
    one.flush().unwrap();
    drop(fails); // A user event that is dropped unresolved has failed.
    drop(block);
    let next = pool.allocate_on(&two, BYTES).unwrap();
    let filled = next.enqueue_fill(&two, 0..4096, &[0x55]).unwrap();
    if !bench.is_nvidia() {
        // There the fill waits for the gate.
        two.finish().unwrap();
    }
    assert_eq!(a.status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    a.wait().unwrap();
    let mut seen = [0; 4];
    let read = next.read(&two, 0, &mut seen);
    // Where the failure spreads, the next user's commands may fail with it, and never work on other bytes.
    if filled.wait().is_ok() && read.is_ok() {
        assert_eq!(seen, [0x55; 4]);
    }
}

/// Enqueues a fill of shared virtual memory, after `gate`, that this crate knows nothing of.
fn enqueue_by_bare_handles(
    bench: &Bench,
    queue: &ClQueue,
    memory: &ClMemory,
    gate: &ClEvent,
) -> ClEvent {
    let address = bench.backend.svm_address(memory).unwrap();
    let (pattern, wait) = (0xAA_u8, [gate.raw()]);
    // SAFETY: (1) queue and event live; (2) the pattern is read before the call returns; (3) the memory has 4096 bytes, and it
    // is released only after what this fill stands before.
    let filled = unsafe {
        cl3::command_queue::enqueue_svm_mem_fill(
            queue.raw(),
            address.as_ptr().cast(),
            (&raw const pattern).cast(),
            1,
            4096,
            1,
            wait.as_ptr(),
        )
    };
    // SAFETY: The event is the one that the call has just returned.
    unsafe { bench.backend.wrap_raw_event(filled.unwrap()) }.unwrap()
}

#[test]
fn shared_memory_outlives_all_that_its_queue_has_where_a_failure_has_lost_the_order_of_the_queue() {
    let bench = Bench::new();
    let queue = bench.queue.clone();
    let options = SvmOptions {
        queue: Some(queue.clone()),
        ..SvmOptions::coarse()
    };
    let (memory, freed) = shared(&bench.backend, &options);
    let gate = bench.gate();
    let a = enqueue_by_bare_handles(&bench, &queue, &memory, &gate);
    let fails = bench.gate();
    let behind = queue.after(from_ref(&fails));
    let _f = bench.backend.enqueue_marker(behind).unwrap();
    queue.flush().unwrap();
    bench.fail_gate(&fails);
    drop(memory);
    assert_eq!(a.status().unwrap(), EventStatus::Pending);
    assert!(!freed.load(Ordering::SeqCst));
    bench.open_gate(&gate);
    a.wait().unwrap();
    wait_until(&freed);
}

#[test]
fn shared_memory_that_is_released_after_a_failed_command_outlives_what_stands_before_that() {
    let bench = Bench::new();
    let queue = bench.queue.clone();
    let (memory, freed) = shared(&bench.backend, &SvmOptions::coarse());
    let gate = bench.gate();
    let a = enqueue_by_bare_handles(&bench, &queue, &memory, &gate);
    let fails = bench.gate();
    let behind = queue.after(from_ref(&fails));
    let f = bench.backend.enqueue_marker(behind).unwrap();
    queue.flush().unwrap();
    bench.fail_gate(&fails);
    bench.backend.release(memory, from_ref(&f)).unwrap();
    assert_eq!(a.status().unwrap(), EventStatus::Pending);
    assert!(!freed.load(Ordering::SeqCst));
    bench.open_gate(&gate);
    a.wait().unwrap();
    wait_until(&freed);
}

#[test]
fn a_queue_keeps_its_order_behind_a_failure() {
    let bench = Bench::new();
    let (backend, queue) = (bench.backend.clone(), bench.queue.clone());
    let (used, other) = (bench.filled(64, 1), bench.filled(64, 1));
    let failing = Failing::new(bench, &queue, |gate| {
        let all = Region::first(64);
        let a = backend.enqueue_fill(queue.after(from_ref(gate)), &used, all, &[2_u8]);
        a.unwrap()
    });
    // Other memory, no wait list: only the queue puts these after A.
    let all = Region::first(64);
    let c = backend.enqueue_fill(&queue, &other, all, &[3_u8]).unwrap();
    let marker = backend.enqueue_marker(&queue).unwrap();
    let barrier = backend.enqueue_barrier(&queue).unwrap();
    for behind in [&c, &marker, &barrier] {
        assert_eq!(behind.status().unwrap(), EventStatus::Pending);
    }
    failing.let_a_end();
    queue.finish().unwrap();
    for behind in [c, marker, barrier] {
        assert!(behind.status().unwrap().has_ended());
    }
}

#[test]
fn a_barrier_that_fails_early_keeps_what_comes_after_it_behind_what_it_waits_for() {
    let bench = Bench::new();
    let backend = &bench.backend;
    let slow = bench.another_queue();
    for queue in [bench.another_queue(), bench.out_of_order_queue()] {
        let (gate, fails) = (bench.gate(), bench.gate());
        let memory = bench.buffer(64);
        let w = bench.fill(&slow, &memory, 1, from_ref(&gate));
        slow.flush().unwrap();
        backend
            .enqueue_barrier(queue.after(&[w.clone(), fails.clone()]))
            .unwrap();
        queue.flush().unwrap();
        bench.fail_gate(&fails);
        let behind = bench.fill(&queue, &bench.buffer(64), 2, &[]);
        let marker = backend.enqueue_marker(&queue).unwrap();
        let barrier = backend.enqueue_barrier(&queue).unwrap();
        for event in [&behind, &marker, &barrier] {
            assert_eq!(event.status().unwrap(), EventStatus::Pending);
        }
        bench.open_gate(&gate);
        w.wait().unwrap();
        for event in [behind, marker, barrier] {
            let _failed_or_not = event.wait();
            assert!(event.status().unwrap().has_ended());
        }
        queue.finish().unwrap();
        slow.finish().unwrap();
    }
}

#[test]
fn a_queue_whose_bare_handle_the_program_has_refuses_markers_behind_a_failure_until_it_is_finished()
{
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let _handle = queue.raw();
    let fails = bench.gate();
    let f = backend
        .enqueue_marker(queue.after(from_ref(&fails)))
        .unwrap();
    queue.flush().unwrap();
    bench.fail_gate(&fails);
    assert!(f.wait().is_err());
    let marker = backend.enqueue_marker(queue);
    let refused = marker.unwrap_err().to_string();
    assert!(refused.contains("call `finish` first"), "{refused}");
    queue.finish().unwrap();
    backend.enqueue_marker(queue).unwrap().wait().unwrap();
}

/// The last command on the memory waits for those before it. That it fails early says nothing of them.
#[test]
fn shared_memory_is_not_freed_where_the_last_command_on_it_fails_after_it_was_dropped() {
    let bench = Bench::new();
    let (memory, freed) = shared(&bench.backend, &SvmOptions::coarse());
    let [gate, fails] = [bench.gate(), bench.gate()];
    let [one, two] = [(); 2].map(|()| bench.another_queue());
    let fill = |queue: &ClQueue, gate| {
        let filled = bench.backend.enqueue_fill(
            queue.after(from_ref(gate)),
            &memory,
            Region::new(0, 16),
            &[1_u8],
        );
        filled.unwrap()
    };
    let a = fill(&one, &gate);
    let _f = fill(&two, &fails);
    two.flush().unwrap();
    drop(memory);
    bench.fail_gate(&fails);
    let_commands_run(&bench);
    assert_eq!(a.status().unwrap(), EventStatus::Pending);
    assert!(!freed.load(Ordering::SeqCst), "A uses it");
    bench.open_gate(&gate);
    a.wait().unwrap();
    wait_until(&freed);
}

/// Intel's runtime failed the fill in more than half of the rounds: the end of the map, on a queue of the backend's own, failed a
/// little later than the map, and with it what was enqueued meanwhile.
#[test]
fn a_command_that_is_enqueued_after_finish_does_not_fail_with_a_dropped_map() {
    let bench = Bench::new();
    let backend = &bench.backend;
    for _ in 0..10 {
        let queue = bench.another_queue();
        let memory = bench.buffer(BYTES);
        let [opens, fails] = [bench.gate(), bench.gate()];
        drop(
            backend
                .enqueue_map_mut::<u8>(
                    queue.after(from_ref(&opens)),
                    &memory,
                    ..,
                    MapMode::ReadWrite,
                )
                .unwrap(),
        );
        let failing = queue.after(from_ref(&fails));
        let fill = backend.enqueue_fill(failing, &memory, 0..16, &[1_u8]);
        bench.fail_gate(&fails);
        drop(
            backend
                .enqueue_map_mut::<u8>(&queue, &memory, .., MapMode::ReadWrite)
                .unwrap(),
        );
        bench.open_gate(&opens);
        queue.finish().unwrap();
        assert!(fill.unwrap().wait().is_err());
        let after = backend.enqueue_fill(&queue, &memory, 0..16, &[2_u8]);
        after.unwrap().wait().unwrap();
    }
}
