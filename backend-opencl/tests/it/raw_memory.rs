//! Commands that a program enqueues itself, with the handles that `lend` lends.

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    slice::from_ref,
};

use binpool::{DeferredAllocator, MemoryPool};
use binpool_allocators::{
    AsMemory, Backend, Event, EventStatus, InvalidRequest, MemoryFlags, Outcome, Queue, QueueOrder,
};
use binpool_opencl::{ClEvent, ClQueue, OpenClBackend};

use crate::common::{
    Bench,
    kernels::{Kernels, pattern},
    refusal,
};

/// Fills `bytes` bytes from `offset` on, as a program does that knows nothing of this crate.
fn fill(
    backend: &OpenClBackend,
    queue: &ClQueue,
    (handle, offset): (*mut c_void, usize),
    bytes: usize,
    pattern: u8,
    wait_for: &[ClEvent],
) -> ClEvent {
    let wait: Vec<_> = wait_for.iter().map(ClEvent::raw).collect();
    let list = if wait.is_empty() {
        std::ptr::null()
    } else {
        wait.as_ptr()
    };
    // SAFETY: (1) queue, buffer and events live; (2) the pattern is read before the call returns.
    let filled = unsafe {
        cl3::command_queue::enqueue_fill_buffer(
            queue.raw(),
            handle,
            (&raw const pattern).cast(),
            1,
            offset,
            bytes,
            u32::try_from(wait.len()).unwrap(),
            list,
        )
    };
    // SAFETY: The event is the one that the call has just returned.
    unsafe { backend.wrap_raw_event(filled.unwrap()) }.unwrap()
}

#[test]
fn handles_are_those_of_the_bytes_that_were_passed() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let buffer = bench.filled(4 * align, 0);
    let part = buffer.slice(align..2 * align).unwrap();
    let inner = part.slice(..align / 2).unwrap();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let lent: [&dyn AsMemory<OpenClBackend>; 3] = [&buffer, &part, &inner];
    let lent = backend.lend(queue, &lent).unwrap();
    assert_eq!(lent[0].kernel_argument().unwrap(), buffer.raw().unwrap());
    for (raw, offset) in lent.iter().zip([0, align, align]) {
        let whole = raw.whole_and_offset().unwrap();
        assert_eq!(whole, (buffer.raw().unwrap(), offset));
    }
    let whole = |index: usize| lent[index].whole_and_offset().unwrap();
    fill(backend, queue, whole(1), align, 1, &[]);
    fill(backend, queue, whole(2), align / 2, 2, &[]);
    lent.end().unwrap();
    let halves = [vec![2; align / 2], vec![1; align / 2]].concat();
    let expected = [vec![0; align], halves, vec![0; 2 * align]].concat();
    assert_eq!(bench.read(&buffer), expected);
}

#[test]
fn blocks_of_nothing_have_no_handle_and_shared_memory_says_what_it_has() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let pool = MemoryPool::new(DeferredAllocator::new(backend), queue).unwrap();
    let nothing = pool.allocate(0).unwrap();
    let shared = bench.svm(4096);
    let lent = backend.lend(queue, &[&nothing, &shared]).unwrap();
    assert!(lent[0].kernel_argument().unwrap().is_null());
    assert!(lent[0].whole_and_offset().unwrap().0.is_null());
    for refused in [
        lent[1].kernel_argument().map(|_| ()),
        lent[1].whole_and_offset().map(|_| ()),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("as_buffer"), "{error}");
    }
    lent.end().unwrap();
    let elsewhere = Bench::new();
    let foreign = elsewhere.buffer(64);
    assert!(matches!(
        refusal(backend.lend(queue, &[&foreign])),
        InvalidRequest::ForeignObject { .. }
    ));
}

/// Fills the memory by a command of the program's own between two of this crate, all of them on queues of their own.
fn is_ordered_on(bench: &Bench, own: &ClQueue, memory: &impl AsMemory<OpenClBackend>) {
    let (before, after) = (bench.another_queue(), bench.another_queue());
    let backend = &bench.backend;
    let gate = bench.gate();
    let first = backend.enqueue_fill(before.after(from_ref(&gate)), memory, .., &[1]);
    let first = first.unwrap();
    before.flush().unwrap();
    let lent = backend.lend(own, &[memory]).unwrap();
    let whole = lent[0].whole_and_offset().unwrap();
    let second = fill(backend, own, whole, memory.size(), 2, &[]);
    drop(lent);
    own.flush().unwrap();
    let read = backend.enqueue_read(&after, memory, ..).unwrap();
    for command in [&first, &second] {
        assert_eq!(command.status().unwrap(), EventStatus::Pending);
    }
    bench.open_gate(&gate);
    assert_eq!(read.wait().unwrap(), vec![2; memory.size()]);
}

#[test]
fn commands_of_the_programs_own_take_their_turn_on_every_queue() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let buffer = bench.buffer(4 * align);
    let part = buffer.slice(align..).unwrap();
    let mut queues = vec![bench.another_queue()];
    if bench.backend.limits().out_of_order_queues {
        queues.push(bench.out_of_order_queue());
    }
    for queue in &queues {
        is_ordered_on(&bench, queue, &part);
        let pool = MemoryPool::new(DeferredAllocator::new(&bench.backend), queue).unwrap();
        is_ordered_on(&bench, queue, &pool.allocate(10_000).unwrap());
    }
}

#[test]
fn a_panic_does_not_hide_what_was_enqueued() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let buffer = bench.buffer(4096);
    let gate = bench.gate();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let lent = backend.lend(queue, &[&buffer]).unwrap();
        let whole = lent[0].whole_and_offset().unwrap();
        fill(backend, queue, whole, 4096, 7, from_ref(&gate));
        panic!("after the fill");
    }));
    assert!(panicked.is_err());
    queue.flush().unwrap();
    let read = backend.enqueue_read(&bench.another_queue(), &buffer, ..);
    bench.open_gate(&gate);
    assert_eq!(read.unwrap().wait().unwrap(), [7; 4096]);
}

/// On NVIDIA's driver a guard holds a lock for which another thread may wait that has the turn of some memory.
#[test]
fn a_thread_has_one_guard_at_a_time() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let (one, two) = (bench.buffer(64), bench.buffer(64));
    let lent = backend.lend(queue, &[&one]).unwrap();
    let second = backend.lend(queue, &[&two]).unwrap_err().to_string();
    assert!(
        second.contains("lend all memory of a command together"),
        "{second}"
    );
    lent.end().unwrap();
    backend.lend(queue, &[&two, &one]).unwrap().end().unwrap();
}

/// An object of the runtime is made only for a kernel, an image or the program itself.
#[test]
fn parts_that_are_only_copied_make_no_call_of_the_runtime() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let buffer = bench.filled(2 * align, 5);
    let references = || buffer.info().unwrap().reference_count;
    let before = references();
    let part = buffer.slice(align..).unwrap();
    assert_eq!(bench.read(&part), vec![5; align]);
    bench.fill(&bench.queue, &part, 6, &[]).wait().unwrap();
    assert_eq!(
        bench.read(&buffer),
        [vec![5; align], vec![6; align]].concat()
    );
    bench.queue.finish().unwrap();
    assert_eq!(references(), before);
    let info = part.info().unwrap();
    assert_eq!((info.bytes, info.reference_count), (align, Some(1)));
}

/// Every other launch is one of the program's own. NVIDIA's driver crashes where kernels have used two sub-buffers that share
/// bytes, or where a command has the last reference to one.
#[test]
fn parts_may_go_while_kernels_of_the_program_and_of_this_crate_use_them() {
    let kernels = Kernels::open();
    let backend = &kernels.backend;
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let align = backend.limits().alignment.bytes();
    let (flags, words) = (MemoryFlags::empty(), align / 4);
    let buffer = backend.create_buffer(3 * align, flags).unwrap();
    let errors = backend.create_buffer_from(&[0_u32], flags).unwrap();
    for seed in 0..50 {
        let gate = backend.create_user_event().unwrap();
        let (outer, inner) = (
            buffer.slice(align..).unwrap(),
            buffer.slice(2 * align..).unwrap(),
        );
        kernels.write_pattern(&queue, (&outer, 2 * words), seed, from_ref(&gate));
        kernels.check_pattern(&queue, (&outer, 2 * words), seed, &errors, &[]);
        kernels.write_pattern(&queue, (&inner, words), !seed, &[]);
        kernels.check_pattern(&queue, (&inner, words), !seed, &errors, &[]);
        kernels.check_pattern(&queue, (&outer, words), seed, &errors, &[]);
        drop((outer, inner));
        backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        let mut bytes = vec![0_u8; 2 * align];
        backend.read(&queue, &buffer, align, &mut bytes).unwrap();
        let expected = [pattern(seed, words), pattern(!seed, words)].concat();
        assert_eq!(bytes, expected);
    }
    let mut count = [1_u8; 4];
    backend.read(&queue, &errors, 0, &mut count).unwrap();
    assert_eq!(count, [0; 4], "words that kernels found wrong");
}
