//! Shared virtual memory: its allocation, its release, and the commands on it.

use std::{
    slice::from_ref,
    sync::{Arc, atomic::Ordering},
};

use binpool_allocators::{
    Align, Backend, Error, Event, EventStatus, InvalidRequest, Memory, MemoryKind, Queue, Region,
    SvmBackend, SvmGrain,
};
use binpool_opencl::{ClEvent, ClMemory, ClOn, ClQueue};

use crate::common::{Bench, numbered, refusal, wait_until, watch};

const GRAINS: [SvmGrain; 3] = [SvmGrain::Coarse, SvmGrain::Fine, SvmGrain::FineAtomics];

impl Bench {
    fn svm_of(&self, bytes: usize, grain: SvmGrain, queue: Option<&ClQueue>) -> ClMemory {
        self.backend
            .allocate_svm(bytes, None, grain, queue)
            .unwrap()
    }

    /// The kinds of SVM that the device has.
    fn grains(&self) -> Vec<SvmGrain> {
        let svm = self.backend.limits().svm;
        assert!(
            svm.any(),
            "the device under test has no SVM: choose another one"
        );
        GRAINS
            .into_iter()
            .filter(|grain| grain.is_in(svm))
            .collect()
    }
}

#[test]
fn blocks_have_an_address_of_the_alignment_that_was_asked_for() {
    let bench = Bench::new();
    for grain in bench.grains() {
        for bytes in [1, 100, 1 << 20] {
            let plain = bench.svm_of(bytes, grain, None);
            assert_eq!(
                (plain.bytes(), plain.kind()),
                (bytes, MemoryKind::Svm(grain))
            );
            assert!(plain.raw().is_none());
            let address = bench.backend.svm_address(&plain).unwrap().addr().get();
            assert!(bench.backend.limits().alignment.divides(address));
            for alignment in [1, 2, 64, 128] {
                let alignment = Align::new(alignment).unwrap();
                let memory = bench
                    .backend
                    .allocate_svm(bytes, Some(alignment), grain, None)
                    .unwrap();
                let address = bench.backend.svm_address(&memory).unwrap().addr().get();
                assert!(alignment.divides(address), "{address:#x} for {alignment}");
            }
        }
    }
}

#[test]
fn requests_that_no_device_grants_are_refused_with_the_reason() {
    let bench = Bench::new();
    let limits = bench.backend.limits();
    let allocate =
        |bytes, alignment, grain| bench.backend.allocate_svm(bytes, alignment, grain, None);
    assert_eq!(
        refusal(allocate(0, None, SvmGrain::Coarse)),
        InvalidRequest::ZeroSize
    );
    let largest = limits.largest_block_bytes;
    for requested in [largest + 1, usize::MAX] {
        let refused = InvalidRequest::TooLarge { requested, largest };
        assert_eq!(
            refusal(allocate(requested, None, SvmGrain::Coarse)),
            refused
        );
    }
    let largest = limits.largest_svm_alignment;
    for alignment in [256, 1 << 40] {
        let alignment = Align::new(alignment).unwrap();
        let refused = InvalidRequest::AlignmentTooLarge { alignment, largest };
        let allocated = allocate(64, Some(alignment), SvmGrain::Coarse);
        assert_eq!(refusal(allocated), refused);
    }
    for grain in GRAINS.into_iter().filter(|grain| !grain.is_in(limits.svm)) {
        let error = allocate(64, None, grain).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    let queue = bench.out_of_order_queue();
    let bound = bench
        .backend
        .allocate_svm(64, None, SvmGrain::Coarse, Some(&queue));
    assert_eq!(refusal(bound), InvalidRequest::OutOfOrderQueue);
    let stranger = Bench::new();
    let bound = bench
        .backend
        .allocate_svm(64, None, SvmGrain::Coarse, Some(&stranger.queue));
    assert!(matches!(
        refusal(bound),
        InvalidRequest::ForeignObject { .. }
    ));
}

#[test]
fn transfers_work_as_on_buffers() {
    let bench = Bench::new();
    let backend = &bench.backend;
    for grain in bench.grains() {
        let memory = bench.svm_of(1000, grain, None);
        backend.commit(&bench.queue, &memory).unwrap();
        bench.fill(&bench.queue, &memory, 3, &[]);
        backend
            .write(&bench.queue, &memory, 100, &numbered(300))
            .unwrap();
        let data: Arc<[u8]> = numbered(50).into();
        backend
            .enqueue_write(&bench.queue, &memory, 500, data)
            .unwrap();
        let read = backend
            .enqueue_read(&bench.queue, &memory, Region::new(90, 20))
            .unwrap();
        let mut expected = vec![3; 1000];
        expected[100..400].copy_from_slice(&numbered(300));
        expected[500..550].copy_from_slice(&numbered(50));
        assert_eq!(bench.read(&memory), expected);
        assert_eq!(read.wait().unwrap(), expected[90..110]);
        for length in [1, 16, 128] {
            let region = Region::new(128, 256);
            backend
                .enqueue_fill(&bench.queue, &memory, region, &numbered(length))
                .unwrap();
            let filled = bench.read(&memory);
            assert_eq!(filled[128..384], numbered(length).repeat(256 / length));
            assert_eq!((filled[127], filled[384]), (expected[127], expected[384]));
        }
    }
}

#[test]
fn copies_go_between_every_two_kinds_of_memory() {
    let bench = Bench::new();
    let kinds = || {
        let mut kinds = vec![bench.filled(400, 0)];
        for grain in bench.grains() {
            kinds.push(bench.svm_of(400, grain, None));
            bench.write(kinds.last().unwrap(), &[0; 400]);
        }
        kinds
    };
    for source in kinds() {
        bench.write(&source, &numbered(400));
        for target in kinds() {
            let gate = bench.gate();
            let queue = bench.another_queue();
            let region = Region::new(10, 300);
            let copy = bench
                .backend
                .enqueue_copy(queue.after(from_ref(&gate)), &source, region, &target, 50)
                .unwrap();
            assert_eq!(copy.status().unwrap(), EventStatus::Pending);
            bench.open_gate(&gate);
            copy.wait().unwrap();
            let mut expected = vec![0; 400];
            expected[50..350].copy_from_slice(&numbered(400)[10..310]);
            assert_eq!(
                bench.read(&target),
                expected,
                "{:?} to {:?}",
                source.kind(),
                target.kind()
            );
        }
    }
}

#[test]
fn regions_keep_their_block_and_show_their_part_of_it() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    for grain in bench.grains() {
        let memory = bench.svm_of(4 * align, grain, None);
        bench.write(&memory, &numbered(4 * align));
        let base = bench.backend.svm_address(&memory).unwrap().addr().get();
        let region = Region::new(align, 3 * align);
        let part = bench.backend.create_sub_region(&memory, region).unwrap();
        let inner = bench
            .backend
            .create_sub_region(&part, Region::new(align, align))
            .unwrap();
        let address = bench.backend.svm_address(&inner).unwrap().addr().get();
        assert_eq!(address, base + 2 * align);
        assert_eq!(inner.kind(), MemoryKind::Svm(grain));
        drop((memory, part));
        assert_eq!(
            bench.read(&inner),
            numbered(4 * align)[2 * align..3 * align]
        );
        let offset = 1;
        let misaligned = bench
            .backend
            .create_sub_region(&inner, Region::new(offset, 1));
        assert!(matches!(
            refusal(misaligned),
            InvalidRequest::Misaligned { .. }
        ));
    }
}

/// Blocks that the runtime may place where a block was that it freed too early.
fn strangers(bench: &Bench, bytes: usize) -> Vec<ClMemory> {
    let blocks: Vec<_> = (0..8)
        .map(|_| bench.svm_of(bytes, SvmGrain::Coarse, None))
        .collect();
    let queue = bench.another_queue();
    for block in &blocks {
        bench.fill(&queue, block, 1, &[]);
    }
    queue.finish().unwrap();
    blocks
}

/// Drops a block under gated fills on `queues`, and checks that no other bytes are written over.
fn drop_under_commands(bench: &Bench, bound: Option<&ClQueue>, queues: &[ClQueue]) {
    const BYTES: usize = 1 << 20;
    let memory = bench.svm_of(BYTES, SvmGrain::Coarse, bound);
    let gate = bench.gate();
    let fills: Vec<_> = queues
        .iter()
        .flat_map(|queue| {
            let first = bench.fill(queue, &memory, 7, from_ref(&gate));
            let second = bench.fill(queue, &memory, 8, from_ref(&gate));
            [first, second]
        })
        .collect();
    drop(memory);
    let strangers = strangers(bench, BYTES);
    // The free holds nothing up: each queue's own memory can be used once the queue gets there.
    bench.open_gate(&gate);
    for fill in &fills {
        fill.wait().unwrap();
    }
    for queue in queues {
        queue.finish().unwrap();
    }
    for stranger in &strangers {
        assert!(bench.read(stranger).iter().all(|&byte| byte == 1));
    }
}

#[test]
fn a_block_is_freed_after_the_commands_that_use_it() {
    let bench = Bench::new();
    let (one, two) = (bench.another_queue(), bench.another_queue());
    let loose = bench.out_of_order_queue();
    for bound in [None, Some(&one), Some(&bench.queue)] {
        drop_under_commands(&bench, bound, from_ref(&one));
        drop_under_commands(&bench, bound, from_ref(&loose));
        drop_under_commands(&bench, bound, &[one.clone(), two.clone()]);
        drop_under_commands(&bench, bound, &[two.clone(), loose.clone(), one.clone()]);
    }
}

#[test]
fn a_free_that_waits_for_one_queue_holds_up_no_other() {
    let bench = Bench::new();
    let other = bench.another_queue();
    for bound in [None, Some(&bench.queue)] {
        let memory = bench.svm_of(4096, SvmGrain::Coarse, bound);
        let gate = bench.gate();
        // Reads, since writes on two queues would wait for one another.
        let copies = [(); 2].map(|()| bench.buffer(4096));
        let copy = |on: ClOn<'_>, to| {
            let copied = bench.backend.enqueue_copy(on, &memory, .., to, 0);
            copied.unwrap()
        };
        let held = copy(other.after(from_ref(&gate)), &copies[0]);
        copy((&bench.queue).into(), &copies[1]);
        bench.backend.release(memory, from_ref(&gate)).unwrap();
        // Would never end if the free stood in this queue.
        let buffer = bench.filled(64, 5);
        assert_eq!(bench.read(&buffer), [5; 64]);
        assert_eq!(held.status().unwrap(), EventStatus::Pending);
        bench.open_gate(&gate);
        held.wait().unwrap();
    }
}

#[test]
fn a_released_block_waits_for_the_events_it_is_given() {
    let bench = Bench::new();
    let memory = bench.svm_of(1 << 20, SvmGrain::Coarse, None);
    let address = bench.backend.svm_address(&memory).unwrap();
    let gate = bench.gate();
    bench.backend.release(memory, from_ref(&gate)).unwrap();
    let held = strangers(&bench, 1 << 20);
    let place = |memory| bench.backend.svm_address(memory).unwrap();
    assert!(held.iter().all(|memory| place(memory) != address));
    bench.open_gate(&gate);
}

const MANY: usize = 20;

/// Opens all gates but one.
fn open_others(bench: &Bench, gates: &[ClEvent], last: usize) {
    let others = gates.iter().enumerate().filter(|(at, _)| *at != last);
    others.for_each(|(_, gate)| bench.open_gate(gate));
}

#[test]
fn a_block_is_freed_after_the_last_of_many_commands_whichever_that_is() {
    let bench = Bench::new();
    let queues: Vec<_> = (0..MANY).map(|_| bench.another_queue()).collect();
    let copies = bench.buffer(MANY * 64);
    for last in [0, MANY / 2, MANY - 1] {
        let memory = bench.svm_of(64, SvmGrain::Coarse, None);
        let freed = watch(&memory);
        let gates: Vec<_> = queues.iter().map(|_| bench.gate()).collect();
        let copied: Vec<_> = (0..MANY)
            .map(|at| {
                let behind = queues[at].after(from_ref(&gates[at]));
                let copied = bench
                    .backend
                    .enqueue_copy(behind, &memory, .., &copies, at * 64);
                copied.unwrap()
            })
            .collect();
        open_others(&bench, &gates, last);
        for (at, copied) in copied.iter().enumerate() {
            if at != last {
                copied.wait().unwrap();
            }
        }
        drop(memory);
        assert!(!freed.load(Ordering::SeqCst), "command {last} uses it");
        bench.open_gate(&gates[last]);
        copied[last].wait().unwrap();
        wait_until(&freed);
    }
}

#[test]
fn a_block_is_freed_after_the_last_of_many_events_whichever_that_is() {
    let bench = Bench::new();
    for last in [0, MANY / 2, MANY - 1] {
        let memory = bench.svm_of(64, SvmGrain::Coarse, None);
        let freed = watch(&memory);
        let gates: Vec<_> = (0..MANY).map(|_| bench.gate()).collect();
        open_others(&bench, &gates, last);
        bench.backend.release(memory, &gates).unwrap();
        assert!(!freed.load(Ordering::SeqCst), "event {last} is pending");
        bench.open_gate(&gates[last]);
        wait_until(&freed);
    }
}

#[test]
fn a_block_whose_commands_fail_brings_nothing_down() {
    let bench = Bench::new();
    for bound in [false, true] {
        let queue = bench.another_queue();
        let memory = bench.svm_of(4096, SvmGrain::Coarse, bound.then_some(&queue));
        let gate = bench.gate();
        let fill = bench.fill(&queue, &memory, 1, from_ref(&gate));
        drop(memory);
        bench.fail_gate(&gate);
        fill.wait().unwrap_err();
        queue.finish().unwrap();
    }
}

#[test]
fn many_commands_on_one_block_are_not_all_remembered_for_ever() {
    let bench = Bench::new();
    let queue = bench.out_of_order_queue();
    let memory = bench.svm_of(64, SvmGrain::Coarse, None);
    for _ in 0..1000 {
        bench.fill(&queue, &memory, 1, &[]);
    }
    queue.finish().unwrap();
    bench.backend.release(memory, &[]).unwrap();
}

#[test]
fn blocks_are_used_and_dropped_from_many_threads() {
    let bench = Bench::new();
    let queues = [bench.another_queue(), bench.out_of_order_queue()];
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (bench, queues) = (&bench, &queues);
            scope.spawn(move || {
                for round in 0..50 {
                    let bound = (round % 2 == 0).then_some(&queues[0]);
                    let memory = bench.svm_of(4096, SvmGrain::Coarse, bound);
                    let event = bench.fill(&queues[0], &memory, thread, &[]);
                    bench.fill(&queues[1], &memory, thread, &[event]);
                }
            });
        }
    });
    for queue in &queues {
        queue.finish().unwrap();
    }
}

/// A block that keeps what it was released after must not be one more owner of that event.
#[test]
fn a_user_event_that_memory_was_released_behind_fails_when_the_program_drops_it() {
    let bench = Bench::new();
    let memory = bench.backend.allocate_svm(64, None, SvmGrain::Coarse, None);
    let memory = memory.unwrap();
    let all = Region::first(64);
    let view = bench.backend.create_sub_region(&memory, all).unwrap();
    let gate = bench.gate();
    let behind = bench.fill(&bench.queue, &bench.buffer(64), 1, from_ref(&gate));
    bench.backend.release(memory, from_ref(&gate)).unwrap();
    drop(gate);
    assert!(behind.wait().is_err());
    drop(view);
}
