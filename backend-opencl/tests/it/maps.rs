//! Maps: what the host sees and writes, and who is kept out meanwhile.

use std::{mem, slice::from_ref, thread};

use binpool::{ImmediateAllocator, MemoryPool, Queue};
use binpool_allocators::{
    Backend, Event, EventStatus, HostUse, InvalidRequest, Memory, MemoryFlags, MemoryKind,
    ObjectKind, Region, SvmBackend, SvmGrain,
};
use binpool_opencl::{ClMemory, MapMode, PendingMap};

use crate::common::{Bench, numbered, refusal, wait_until, watch};

const SIZE: usize = 4096;

/// A buffer, a view of one, and shared virtual memory of every kind that the device has, full of `byte`.
fn all_kinds(bench: &Bench, byte: u8) -> Vec<ClMemory> {
    let (whole, alignment) = (bench.buffer(4 * SIZE), bench.backend.limits().alignment);
    let part = Region::new(alignment.bytes().max(SIZE), SIZE);
    let view = bench.backend.create_sub_region(&whole, part).unwrap();
    let grains = [SvmGrain::Coarse, SvmGrain::Fine];
    let support = bench.backend.limits().svm;
    let shared = grains.into_iter().filter(|grain| grain.is_in(support));
    let shared = shared.map(|grain| bench.backend.allocate_svm(SIZE, None, grain, None).unwrap());
    let kinds = [bench.buffer(SIZE), view]
        .into_iter()
        .chain(shared)
        .collect::<Vec<_>>();
    for memory in &kinds {
        bench.write(memory, &[byte; SIZE]);
    }
    kinds
}

#[test]
fn a_map_shows_what_the_memory_holds() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 0) {
        bench.write(&memory, &numbered(SIZE));
        let map = bench
            .backend
            .map::<u8>(&bench.queue, &memory, 256..1024)
            .unwrap();
        assert_eq!(&map[..], &numbered(SIZE)[256..1024], "{memory:?}");
    }
}

#[test]
fn what_is_written_to_a_map_is_there_for_the_device() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 1) {
        let mut map = bench
            .backend
            .map_mut::<u32>(&bench.queue, &memory, 256..512)
            .unwrap();
        assert_eq!(map.len(), 64);
        assert_eq!(map[0], 0x0101_0101);
        map[0] = 0x0202_0202;
        map[63] = 0x0303_0303;
        map.unmap().unwrap();
        let bytes = bench.read(&memory);
        assert_eq!(bytes[252..264], [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1]);
        assert_eq!(bytes[504..516], [1, 1, 1, 1, 3, 3, 3, 3, 1, 1, 1, 1]);
    }
}

#[test]
fn a_map_to_write_keeps_what_is_not_written() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 1) {
        let mut map = bench
            .backend
            .enqueue_map_mut::<u8>(&bench.queue, &memory, 256..512, MapMode::Write)
            .and_then(PendingMap::wait)
            .unwrap();
        map[1] = 2;
        map.unmap().unwrap();
        assert_eq!(bench.read(&memory)[255..259], [1, 1, 2, 1], "{memory:?}");
    }
}

#[test]
fn memory_that_the_host_only_writes_is_mapped_to_write() {
    let bench = Bench::new();
    let flags = MemoryFlags::HOST_WRITE_ONLY;
    let memory = bench.backend.create_buffer(64, flags).unwrap();
    bench.fill(&bench.queue, &memory, 5, &[]);
    let refused = bench.backend.map_mut::<u8>(&bench.queue, &memory, 0..64);
    let way = HostUse::Read;
    assert_eq!(refusal(refused), InvalidRequest::HostAccess { way, flags });
    let map = bench
        .backend
        .enqueue_map_mut::<u8>(&bench.queue, &memory, 0..64, MapMode::Write);
    map.unwrap().wait().unwrap()[3] = 6;
    let copy = bench.buffer(64);
    bench
        .backend
        .enqueue_copy(&bench.queue, &memory, Region::first(64), &copy, 0)
        .unwrap();
    assert_eq!(bench.read(&copy)[..5], [5, 5, 5, 6, 5]);
}

#[test]
fn maps_to_write_are_enqueued_behind_what_they_wait_for() {
    let bench = Bench::new();
    let memory = bench.filled(SIZE, 1);
    let gate = bench.gate();
    let (backend, queue) = (&bench.backend, &bench.queue);
    bench.fill(queue, &memory, 2, from_ref(&gate));
    let write = backend.enqueue_map_mut::<u8>(queue, &memory, 0..8, MapMode::Write);
    let overwrite = backend.enqueue_map_mut::<u8>(queue, &memory, 8..16, MapMode::Overwrite);
    let (write, overwrite) = (write.unwrap(), overwrite.unwrap());
    // What is mapped is the host's from the call on.
    let read = backend.enqueue_read(queue, &memory, Region::new(8, 4));
    assert!(matches!(refusal(read), InvalidRequest::Mapped { .. }));
    bench.open_gate(&gate);
    let mut map = write.wait().unwrap();
    map[0] = 3;
    drop(map);
    overwrite.wait().unwrap().fill(4);
    let expected = [3, 2, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 2];
    assert_eq!(bench.read(&memory)[..17], expected);
}

#[test]
fn a_map_that_overwrites_keeps_what_is_around() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 1) {
        let mut map = bench
            .backend
            .enqueue_map_mut::<u8>(&bench.queue, &memory, 256..512, MapMode::Overwrite)
            .and_then(PendingMap::wait)
            .unwrap();
        map.fill(7);
        drop(map);
        let expected = [[1; 256].as_slice(), &[7; 256], &[1; SIZE - 512]].concat();
        assert_eq!(bench.read(&memory), expected);
    }
}

#[test]
fn a_pooled_block_is_mapped_up_to_the_size_that_was_asked_for() {
    let bench = Bench::new();
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    let pool = MemoryPool::new(allocator, &bench.queue).unwrap();
    let block = pool.allocate(1000).unwrap();
    assert!(block.class_size() > 1000);
    let beyond = bench.backend.map::<u8>(&bench.queue, &block, 0..1001);
    assert_eq!(
        refusal(beyond),
        InvalidRequest::OutOfBounds {
            offset: 0,
            bytes: 1001,
            size: 1000
        }
    );
    let other = bench.another_queue();
    bench
        .backend
        .map_mut::<u8>(&other, &block, 0..1000)
        .unwrap()
        .fill(5);
    let mut bytes = [0_u8; 1000];
    block.read(&bench.queue, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 1000]);
    let half = block.view(0..500).unwrap();
    assert_eq!(
        *bench.backend.map::<u8>(&other, &half, 0..500).unwrap(),
        [5; 500]
    );
}

#[test]
fn the_device_is_kept_out_of_what_is_mapped_to_be_written() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    for memory in all_kinds(&bench, 1) {
        let other = bench.filled(SIZE, 2);
        let map = backend.map_mut::<u8>(queue, &memory, 512..1024).unwrap();
        let region = Region::new(1023, 1);
        let offset = memory.offset() + 512;
        let mapped = InvalidRequest::Mapped { offset, bytes: 512 };
        assert_eq!(
            refusal(backend.enqueue_fill(queue, &memory, region, &[1_u8])),
            mapped
        );
        assert_eq!(
            refusal(backend.enqueue_read(queue, &memory, region)),
            mapped
        );
        assert_eq!(
            refusal(backend.read(queue, &memory, 0, &mut [0_u8; SIZE])),
            mapped
        );
        assert_eq!(refusal(backend.write(queue, &memory, 600, &[1_u8])), mapped);
        let copied = backend.enqueue_copy(queue, &memory, region, &other, 0);
        assert_eq!(refusal(copied), mapped);
        let copied = backend.enqueue_copy(queue, &other, region, &memory, 512);
        assert_eq!(refusal(copied), mapped);
        if memory.kind() == MemoryKind::Buffer {
            // SVM is committed already.
            assert_eq!(refusal(backend.commit(queue, &memory)), mapped);
        }
        // The bytes around are free.
        backend.write(queue, &memory, 0, &[9_u8; 512]).unwrap();
        backend.write(queue, &memory, 1024, &[9_u8; 512]).unwrap();
        drop(map);
        assert_eq!(bench.read(&memory)[510..514], [9, 9, 1, 1]);
    }
}

#[test]
fn the_device_may_read_what_is_mapped_to_be_read() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    for memory in all_kinds(&bench, 3) {
        let map = backend.map::<u8>(queue, &memory, 0..SIZE).unwrap();
        assert_eq!(bench.read(&memory), [3; SIZE]);
        assert!(matches!(
            refusal(backend.write(queue, &memory, 0, &[1_u8])),
            InvalidRequest::Mapped { .. }
        ));
        let again = if memory.kind() == MemoryKind::Buffer {
            backend.map::<u8>(queue, &memory, 0..SIZE).unwrap()
        } else {
            // Shared virtual memory has one map from the same byte on.
            let again = refusal(backend.map::<u8>(queue, &memory, 0..1));
            assert!(matches!(again, InvalidRequest::Mapped { .. }));
            backend.map::<u8>(queue, &memory, 64..SIZE).unwrap()
        };
        assert_eq!(map[SIZE - again.len()..], again[..]);
        assert!(matches!(
            refusal(backend.map_mut::<u8>(queue, &memory, 100..101)),
            InvalidRequest::Mapped { .. }
        ));
        drop(map);
        assert!(matches!(
            refusal(backend.write(queue, &memory, SIZE - 1, &[1_u8])),
            InvalidRequest::Mapped { .. }
        ));
        assert!(again.iter().all(|byte| *byte == 3));
        drop(again);
        backend.write(queue, &memory, 0, &[1_u8]).unwrap();
    }
}

#[test]
fn what_is_mapped_to_be_written_is_not_mapped_again() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    for memory in all_kinds(&bench, 0) {
        let first = backend.map_mut::<u8>(queue, &memory, 0..1024).unwrap();
        let mapped = |offset, bytes| InvalidRequest::Mapped { offset, bytes };
        let base = memory.offset();
        assert_eq!(
            refusal(backend.map::<u8>(queue, &memory, 1000..2000)),
            mapped(base, 1024)
        );
        assert_eq!(
            refusal(backend.map_mut::<u8>(queue, &memory, 0..1)),
            mapped(base, 1024)
        );
        let view = backend
            .create_sub_region(&memory, Region::first(512))
            .unwrap();
        assert_eq!(
            refusal(backend.map::<u8>(queue, &view, 0..512)),
            mapped(base, 1024)
        );
        let mut beside = backend.map_mut::<u8>(queue, &memory, 1024..2048).unwrap();
        beside.fill(6);
        drop((first, beside));
        assert_eq!(bench.read(&memory)[1024..2048], [6; 1024]);
    }
}

#[test]
fn a_map_comes_after_what_other_queues_do_to_the_memory() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 1) {
        let (slow, gate) = (bench.another_queue(), bench.gate());
        bench.fill(&slow, &memory, 2, from_ref(&gate));
        let pending = bench
            .backend
            .enqueue_map::<u8>(&bench.queue, &memory, 0..SIZE)
            .unwrap();
        assert_eq!(pending.event().status().unwrap(), EventStatus::Pending);
        bench.open_gate(&gate);
        assert_eq!(pending.wait().unwrap()[..], [2; SIZE]);
    }
}

/// It waits for the command, so it fails with it.
#[test]
fn a_map_fails_with_a_command_of_another_queue_that_it_comes_after() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 1) {
        let (slow, gate) = (bench.another_queue(), bench.gate());
        let filled = bench.fill(&slow, &memory, 2, from_ref(&gate));
        let pending = bench
            .backend
            .enqueue_map::<u8>(&bench.another_queue(), &memory, 0..SIZE);
        bench.fail_gate(&gate);
        assert!(filled.wait().is_err());
        assert!(pending.unwrap().wait().is_err(), "{memory:?}");
        bench.write(&memory, &[3; SIZE]);
    }
}

#[test]
fn commands_of_other_queues_come_after_the_end_of_a_map() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 1) {
        let (slow, gate) = (bench.another_queue(), bench.gate());
        let mut map = bench
            .backend
            .map_mut::<u8>(&slow, &memory, 0..SIZE)
            .unwrap();
        map.fill(4);
        let ended = map.unmap_on(slow.after(from_ref(&gate))).unwrap();
        let seen = bench.buffer(SIZE);
        let all = Region::first(SIZE);
        let copied = bench
            .backend
            .enqueue_copy(&bench.queue, &memory, all, &seen, 0)
            .unwrap();
        assert_eq!(copied.status().unwrap(), EventStatus::Pending);
        bench.open_gate(&gate);
        ended.wait().unwrap();
        assert_eq!(bench.read(&seen), [4; SIZE]);
    }
}

#[test]
fn a_map_can_be_ended_on_another_queue() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 1) {
        let mut map = bench
            .backend
            .map_mut::<u8>(&bench.queue, &memory, 0..SIZE)
            .unwrap();
        map[9] = 9;
        map.unmap_on(&bench.another_queue())
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!(bench.read(&memory)[8..11], [1, 9, 1]);
        let map = bench
            .backend
            .map::<u8>(&bench.queue, &memory, 0..SIZE)
            .unwrap();
        let stranger = Bench::new();
        let kind = ObjectKind::Queue;
        assert_eq!(
            refusal(map.unmap_on(&stranger.queue)),
            InvalidRequest::ForeignObject { kind }
        );
        // It was ended anyway.
        bench.write(&memory, &[2; SIZE]);
    }
}

#[test]
fn a_pending_map_may_be_dropped() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 1) {
        let gate = bench.gate();
        let queue = bench.another_queue();
        let pending = bench.backend.enqueue_map_mut::<u8>(
            queue.after(from_ref(&gate)),
            &memory,
            0..SIZE,
            MapMode::ReadWrite,
        );
        let pending = pending.unwrap();
        assert!(matches!(
            refusal(bench.backend.read(&bench.queue, &memory, 0, &mut [0_u8])),
            InvalidRequest::Mapped { .. }
        ));
        drop(pending);
        bench.open_gate(&gate);
        assert_eq!(bench.read(&memory), [1; SIZE]);
    }
}

/// A map whose end comes before it is made would keep the memory.
#[test]
fn a_pending_map_that_is_dropped_ends_after_it_was_made() {
    let bench = Bench::new();
    for reads in [false, true] {
        for queue in [bench.another_queue(), bench.out_of_order_queue()] {
            for memory in all_kinds(&bench, 1) {
                let (gate, destroyed) = (bench.gate(), watch(&memory));
                let behind = queue.after(from_ref(&gate));
                let made = if reads {
                    let pending = bench.backend.enqueue_map::<u8>(behind, &memory, ..);
                    pending.unwrap().event().clone()
                } else {
                    let pending = bench.backend.enqueue_map_mut::<u8>(
                        behind,
                        &memory,
                        ..,
                        MapMode::ReadWrite,
                    );
                    pending.unwrap().event().clone()
                };
                assert_eq!(made.status().unwrap(), EventStatus::Pending);
                bench.open_gate(&gate);
                made.wait().unwrap();
                bench.write(&memory, &[2; SIZE]);
                assert_eq!(bench.read(&memory), [2; SIZE]);
                drop(memory);
                wait_until(&destroyed);
            }
        }
    }
}

#[test]
fn a_map_that_fails_leaves_the_memory_unmapped() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 1) {
        for failed_before in [true, false] {
            let gate = bench.gate();
            let queue = bench.another_queue();
            if failed_before {
                bench.fail_gate(&gate);
            }
            let pending = bench.backend.enqueue_map_mut::<u8>(
                queue.after(from_ref(&gate)),
                &memory,
                0..SIZE,
                MapMode::ReadWrite,
            );
            if !failed_before {
                bench.fail_gate(&gate);
            }
            assert!(pending.and_then(PendingMap::wait).is_err());
            bench.write(&memory, &[2; SIZE]);
            assert_eq!(bench.read(&memory), [2; SIZE]);
        }
    }
}

#[test]
fn a_map_that_is_forgotten_keeps_the_memory_and_keeps_commands_out() {
    let bench = Bench::new();
    for memory in all_kinds(&bench, 1) {
        mem::forget(
            bench
                .backend
                .map_mut::<u8>(&bench.queue, &memory, 0..SIZE)
                .unwrap(),
        );
        assert!(matches!(
            refusal(bench.backend.write(&bench.queue, &memory, 0, &[1_u8])),
            InvalidRequest::Mapped { .. }
        ));
        drop(memory);
        bench.queue_is_alive();
    }
}

#[test]
fn maps_go_to_other_threads() {
    let bench = Bench::new();
    let memory = bench.filled(SIZE, 1);
    let mut map = bench
        .backend
        .map_mut::<u8>(&bench.queue, &memory, 0..SIZE)
        .unwrap();
    thread::scope(|scope| {
        for part in map.chunks_mut(1024) {
            scope.spawn(move || part.fill(8));
        }
    });
    thread::scope(|scope| scope.spawn(move || drop(map)).join()).unwrap();
    assert_eq!(bench.read(&memory), [8; SIZE]);
}

#[test]
fn what_cannot_be_mapped_is_refused_with_the_reason() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let stranger = Bench::new();
    for memory in all_kinds(&bench, 1) {
        let map = |region: Region| refusal(backend.map::<u32>(queue, &memory, region));
        assert_eq!(map(Region::new(8, 0)), InvalidRequest::ZeroSize);
        assert_eq!(
            map(Region::new(0, 7)),
            InvalidRequest::NotWholeElements {
                bytes: 7,
                element: 4
            }
        );
        for (offset, bytes) in [(SIZE, 4), (4, SIZE), (usize::MAX, 4), (4, usize::MAX - 3)] {
            let size = SIZE;
            assert_eq!(
                map(Region::new(offset, bytes)),
                InvalidRequest::OutOfBounds {
                    offset,
                    bytes,
                    size
                }
            );
        }
        if memory.kind() != MemoryKind::Buffer {
            // A buffer may be anywhere in the host's memory, and its parts as well.
            let misaligned = map(Region::new(2, 8));
            assert!(matches!(
                misaligned,
                InvalidRequest::ElementsMisaligned { .. }
            ));
        }
        let nothing = refusal(backend.map::<()>(queue, &memory, 0..4));
        assert_eq!(
            nothing,
            InvalidRequest::NotWholeElements {
                bytes: 4,
                element: 0
            }
        );
        let foreign = |kind| InvalidRequest::ForeignObject { kind };
        let refused = refusal(backend.map::<u8>(&stranger.queue, &memory, 0..4));
        assert_eq!(refused, foreign(ObjectKind::Queue));
        let refused = refusal(stranger.backend.map::<u8>(&stranger.queue, &memory, 0..4));
        assert_eq!(refused, foreign(ObjectKind::Memory));
        let gate = stranger.gate();
        let refused = refusal(backend.map::<u8>(queue.after(from_ref(&gate)), &memory, 0..4));
        assert_eq!(refused, foreign(ObjectKind::Event));
        // Nothing of all that has left a map behind.
        bench.write(&memory, &[2; SIZE]);
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn a_map_has_shapes_orders_and_strides() {
    use ndarray::{ShapeBuilder, array};

    let bench = Bench::new();
    let memory = bench.buffer(24);
    bench.write(&memory, &[1, 2, 3, 4, 5, 6].map(u32::to_ne_bytes).concat());
    let map = bench
        .backend
        .map::<u32>(&bench.queue, &memory, 0..24)
        .unwrap();
    assert_eq!(map.shaped((2, 3)).unwrap(), array![[1, 2, 3], [4, 5, 6]]);
    assert_eq!(
        map.shaped((2, 3).f()).unwrap(),
        array![[1, 3, 5], [2, 4, 6]]
    );
    assert_eq!(map.shaped((3,).strides((2,))).unwrap(), array![1, 3, 5]);
    assert!(map.shaped((2, 4)).is_err());
    drop(map);
    let mut map = bench
        .backend
        .map_mut::<u32>(&bench.queue, &memory, 0..24)
        .unwrap();
    map.shaped_mut((2, 3)).unwrap()[[1, 0]] = 40;
    assert!(map.shaped_mut((6,).strides((0,))).is_err());
    assert_eq!(map[3], 40);
}

/// `PoCL` and Intel's runtime keep memory after a map of it has failed, until that map is unmapped, too.
#[test]
fn memory_of_which_a_map_has_failed_can_go() {
    let bench = Bench::new();
    let buffer = bench
        .backend
        .create_host_buffer(vec![1_u8; 4096], MemoryFlags::empty())
        .unwrap();
    let gates = [bench.gate()];
    let on = bench.queue.after(&gates);
    let map = bench
        .backend
        .enqueue_map_mut::<u8>(on, &buffer, 0..64, MapMode::ReadWrite);
    bench.fail_gate(&gates[0]);
    assert!(map.unwrap().wait().is_err());
    assert_eq!(buffer.into_host().unwrap(), [1; 4096]);
}

/// `PoCL` takes the end of one map for that of another of the same address, and frees what the command that makes it works on.
#[test]
fn the_end_of_a_map_comes_after_other_maps_of_the_same_bytes_are_made() {
    for fails in [false, true] {
        let bench = Bench::new();
        let (backend, other_queue) = (&bench.backend, bench.another_queue());
        let memory = bench.filled(SIZE, 7);
        let gate = bench.gate();
        let pending = backend
            .enqueue_map::<u8>(other_queue.after(from_ref(&gate)), &memory, ..)
            .unwrap();
        let map = backend.map::<u8>(&bench.queue, &memory, ..).unwrap();
        let ended = map.unmap().unwrap();
        // What stands after it on its queue does not wait for the other map.
        let next = bench.fill(&bench.queue, &bench.buffer(SIZE), 1, &[]);
        next.wait().unwrap();
        assert_eq!(ended.status().unwrap(), EventStatus::Pending);
        if fails {
            bench.fail_gate(&gate);
            assert!(pending.wait().is_err());
        } else {
            bench.open_gate(&gate);
            assert_eq!(pending.wait().unwrap()[..], [7; SIZE]);
        }
        ended.wait().unwrap();
        bench.write(&memory, &[8; SIZE]);
        assert_eq!(bench.read(&memory), [8; SIZE]);
    }
}

/// What was mapped for a command that fails is let go by an unmap of its address.
#[test]
fn a_map_that_fails_leaves_another_of_the_same_bytes_that_is_still_being_made() {
    let bench = Bench::new();
    let (backend, other_queue) = (&bench.backend, bench.another_queue());
    let memory = bench.filled(SIZE, 7);
    let (gate, fails) = (bench.gate(), bench.gate());
    let pending = backend
        .enqueue_map::<u8>(other_queue.after(from_ref(&gate)), &memory, ..)
        .unwrap();
    let failing = backend
        .enqueue_map::<u8>(bench.queue.after(from_ref(&fails)), &memory, ..)
        .unwrap();
    bench.fail_gate(&fails);
    assert!(failing.wait().is_err());
    bench.open_gate(&gate);
    let map = pending.wait().unwrap();
    assert_eq!(map[..], [7; SIZE]);
    drop(map);
    bench.write(&memory, &[8; SIZE]);
    assert_eq!(bench.read(&memory), [8; SIZE]);
}

/// On `PoCL`, which must not be told to wait for what has failed, such a map is refused: no command waits for its turn.
#[test]
fn a_map_that_is_refused_behind_a_failure_holds_back_nothing() {
    let bench = Bench::new();
    let (memory, other) = (bench.filled(SIZE, 7), bench.buffer(SIZE));
    let (gate, failed) = (bench.gate(), bench.gate());
    bench.fill(&bench.queue, &other, 1, from_ref(&gate));
    bench.fail_gate(&failed);
    let behind = bench.queue.after(from_ref(&failed));
    let map = bench.backend.enqueue_map::<u8>(behind, &memory, ..);
    if map.is_err() {
        let filled = bench.fill(&bench.another_queue(), &memory, 8, &[]);
        filled.wait().unwrap();
    }
    bench.open_gate(&gate);
}

/// The runtime keeps memory that stays mapped.
#[test]
fn a_map_ends_though_something_that_its_end_waits_for_fails() {
    for fails_before in [true, false] {
        let bench = Bench::new();
        let buffer = bench
            .backend
            .create_host_buffer(vec![1_u8; 4096], MemoryFlags::empty())
            .unwrap();
        let gate = bench.gate();
        let map = bench.backend.map_mut::<u8>(&bench.queue, &buffer, ..);
        let map = map.unwrap();
        if fails_before {
            bench.fail_gate(&gate);
            let _failed_or_not = map.unmap_on(bench.queue.after(from_ref(&gate)));
        } else {
            // By the order of its queue, too.
            bench.fill(&bench.queue, &bench.buffer(64), 1, from_ref(&gate));
            let _failed_or_not = map.unmap_on(bench.queue.after(from_ref(&gate)));
            bench.fail_gate(&gate);
        }
        assert_eq!(buffer.into_host().unwrap(), [1; 4096]);
    }
}

/// Intel's runtime loses count where a map is enqueued while the ends of two others are pending.
#[test]
fn memory_is_destroyed_however_many_of_its_maps_ended_together() {
    let bench = Bench::new();
    let memory = bench.buffer(8192);
    for _ in 0..20 {
        let part = |range| {
            let mapped = bench.backend.map_mut::<u8>(&bench.queue, &memory, range);
            mapped.unwrap()
        };
        drop((part(0..4096), part(4096..8192)));
        let all = bench.backend.map::<u8>(&bench.queue, &memory, ..).unwrap();
        let first = bench.backend.map::<u8>(&bench.queue, &memory, 64..128);
        drop((all, first.unwrap()));
    }
    while memory.info().unwrap().map_count != Some(0) {
        thread::yield_now();
    }
    let destroyed = watch(&memory);
    drop(memory);
    wait_until(&destroyed);
}
