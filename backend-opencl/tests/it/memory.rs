//! Buffers and sub-buffers: how they are made, and how long they live.

use std::slice::from_ref;

use binpool_allocators::{
    Align, Backend, Event, HostUse, InvalidRequest, Memory, MemoryFlags, MemoryKind, ObjectKind,
    Outcome, Queue, QueueOrder, Region, Result, SvmBackend, SvmGrain,
};

use crate::common::{Bench, numbered, refusal};

#[test]
fn blocks_that_no_device_has_are_refused_before_the_device_is_asked() {
    let bench = Bench::new();
    let create = |bytes| bench.backend.create_buffer(bytes, MemoryFlags::empty());
    assert_eq!(refusal(create(0)), InvalidRequest::ZeroSize);
    let largest = bench.backend.limits().largest_block_bytes;
    for requested in [largest + 1, usize::MAX - 1, usize::MAX] {
        let refused = InvalidRequest::TooLarge { requested, largest };
        assert_eq!(refusal(create(requested)), refused);
    }
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
    let refused = InvalidRequest::ContradictoryFlags { flags };
    assert_eq!(refusal(bench.backend.create_buffer(16, flags)), refused);
}

#[test]
fn the_largest_block_can_be_had() {
    let bench = Bench::new();
    let largest = bench.backend.limits().largest_block_bytes;
    let memory = bench.buffer(largest);
    assert_eq!(memory.bytes(), largest);
}

#[test]
fn every_flag_is_understood_by_the_runtime() {
    let bench = Bench::new();
    for flag in MemoryFlags::all().iter() {
        let memory = bench.backend.create_buffer(256, flag).unwrap();
        bench.backend.commit(&bench.queue, &memory).unwrap();
        assert_eq!(memory.kind(), MemoryKind::Buffer);
    }
    // The runtime was told: it refuses what the flag excludes.
    let memory = bench
        .backend
        .create_buffer(256, MemoryFlags::HOST_NO_ACCESS)
        .unwrap();
    let written = bench.backend.write(&bench.queue, &memory, 0, &[1_u8]);
    assert!(written.is_err());
}

#[test]
fn buffers_have_a_handle_and_no_address() {
    let bench = Bench::new();
    let memory = bench.buffer(256);
    let view = bench
        .backend
        .create_sub_region(&memory, Region::first(128))
        .unwrap();
    assert!(memory.raw().is_some_and(|raw| !raw.is_null()));
    assert!(view.raw().is_none());
    for memory in [&memory, &view] {
        assert!(bench.backend.svm_address(memory).is_none());
    }
    assert_ne!(memory.id(), view.id());
}

#[test]
fn views_show_their_part_of_the_block_and_outlive_it() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let memory = bench.buffer(8 * align);
    bench.write(&memory, &numbered(8 * align));
    let view = bench
        .backend
        .create_sub_region(&memory, Region::new(2 * align, 4 * align))
        .unwrap();
    // A view of a view is a view of the block.
    let inner = bench
        .backend
        .create_sub_region(&view, Region::new(align, align))
        .unwrap();
    drop(memory);
    let all = numbered(8 * align);
    assert_eq!(bench.read(&view), all[2 * align..6 * align]);
    drop(view);
    assert_eq!(bench.read(&inner), all[3 * align..4 * align]);
    bench.backend.commit(&bench.queue, &inner).unwrap();
    bench.backend.release(inner, &[]).unwrap();
}

#[test]
fn views_that_the_device_does_not_have_are_refused_with_the_reason() {
    let bench = Bench::new();
    let alignment = bench.backend.limits().alignment;
    let align = alignment.bytes();
    let memory = bench.buffer(4 * align);
    let view = |offset, bytes| {
        let region = Region::new(offset, bytes);
        bench.backend.create_sub_region(&memory, region)
    };
    let offset = align / 2;
    let misaligned = refusal(view(offset, 1));
    assert_eq!(misaligned, InvalidRequest::Misaligned { offset, alignment });
    assert!(misaligned.to_string().contains(&alignment.to_string()));
    assert_eq!(refusal(view(0, 0)), InvalidRequest::ZeroSize);
    for (offset, bytes) in [
        (0, 4 * align + 1),
        (4 * align, 1),
        (usize::MAX, 1),
        (align, usize::MAX),
    ] {
        let size = 4 * align;
        let refused = InvalidRequest::OutOfBounds {
            offset,
            bytes,
            size,
        };
        assert_eq!(refusal(view(offset, bytes)), refused);
    }

    // The offset counts within the whole block.
    let parent = view(align, 2 * align).unwrap();
    let inner = bench
        .backend
        .create_sub_region(&parent, Region::new(offset, 1));
    let offset = align + offset;
    assert_eq!(
        refusal(inner),
        InvalidRequest::Misaligned { offset, alignment }
    );
}

#[test]
fn views_permit_what_their_flags_and_those_of_the_whole_do() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let shared = bench
        .backend
        .allocate_svm(4 * align, None, SvmGrain::Coarse, None);
    for memory in [bench.buffer(4 * align), shared.unwrap()] {
        bench.write(&memory, &vec![1; 4 * align]);
        let flags = MemoryFlags::READ_ONLY | MemoryFlags::HOST_READ_ONLY;
        let view = memory.slice_with_flags(align..3 * align, flags).unwrap();
        assert_eq!(
            (view.flags(), view.bytes(), view.offset()),
            (flags, 2 * align, align)
        );
        assert_eq!(bench.read(&view), vec![1; 2 * align]);
        let way = HostUse::Write;
        let write = bench.backend.write(&bench.queue, &view, 0, &[2_u8]);
        assert_eq!(refusal(write), InvalidRequest::HostAccess { way, flags });
        // The whole is as it was, and a view of the view as the view is.
        bench.write(&memory, &vec![2; 4 * align]);
        let inner = view.slice(align..).unwrap();
        assert_eq!((inner.flags(), bench.read(&inner)), (flags, vec![2; align]));
        let closed = view
            .slice_with_flags(.., MemoryFlags::HOST_NO_ACCESS)
            .unwrap();
        assert_eq!(
            closed.flags(),
            MemoryFlags::READ_ONLY | MemoryFlags::HOST_NO_ACCESS
        );
        for more in [MemoryFlags::WRITE_ONLY, MemoryFlags::HOST_WRITE_ONLY] {
            let flags = flags | more;
            let refused = InvalidRequest::ContradictoryFlags { flags };
            assert_eq!(refusal(view.slice_with_flags(.., more)), refused);
        }
        assert_eq!(memory.backend().raw_context(), bench.backend.raw_context());
    }
}

#[test]
fn a_block_that_is_dropped_stays_until_its_commands_have_ended() {
    let bench = Bench::new();
    let other = bench.another_queue();
    let source = bench.buffer(1 << 16);
    let target = bench.filled(1 << 16, 0);
    let gate = bench.gate();
    let fill = bench.fill(&bench.queue, &source, 5, from_ref(&gate));
    let copy = bench
        .backend
        .enqueue_copy(
            other.after(&[fill]),
            &source,
            Region::first(1 << 16),
            &target,
            0,
        )
        .unwrap();
    drop(source);
    // Whatever the runtime hands out now, it is not the block that is still in use.
    let stranger = bench.backend.create_buffer(1 << 16, MemoryFlags::empty());
    let overwrite = bench.fill(&bench.another_queue(), &stranger.unwrap(), 9, &[]);
    overwrite.wait().unwrap();
    bench.open_gate(&gate);
    copy.wait().unwrap();
    assert_eq!(bench.read(&target), vec![5; 1 << 16]);
}

/// What a call says to an object of another context.
fn foreign<T: std::fmt::Debug>(result: Result<T>, kind: ObjectKind) {
    assert_eq!(refusal(result), InvalidRequest::ForeignObject { kind });
}

#[test]
fn objects_of_another_context_are_refused_by_every_call() {
    let (own, other) = (Bench::new(), Bench::new());
    let (backend, queue, wrong_queue) = (&own.backend, &own.queue, &other.queue);
    let (memory, wrong_memory) = (own.buffer(16), other.buffer(16));
    let wrong_event = [other.gate()];
    let all = Region::first(16);

    foreign(backend.check_queue(wrong_queue), ObjectKind::Queue);
    foreign(backend.commit(wrong_queue, &memory), ObjectKind::Queue);
    foreign(backend.commit(queue, &wrong_memory), ObjectKind::Memory);
    foreign(
        backend.create_sub_region(&wrong_memory, all),
        ObjectKind::Memory,
    );

    for (queue, memory, events, kind) in [
        (wrong_queue, &memory, &[][..], ObjectKind::Queue),
        (queue, &wrong_memory, &[][..], ObjectKind::Memory),
        (queue, &memory, &wrong_event[..], ObjectKind::Event),
    ] {
        foreign(
            backend.write(queue.after(events), memory, 0, &[1_u8; 16]),
            kind,
        );
        foreign(
            backend.read(queue.after(events), memory, 0, &mut [0_u8; 16]),
            kind,
        );
        let data = [1; 16].into();
        foreign(
            backend.enqueue_write(queue.after(events), memory, 0, data),
            kind,
        );
        foreign(backend.enqueue_read(queue.after(events), memory, all), kind);
        foreign(
            backend.enqueue_fill(queue.after(events), memory, all, &[1_u8]),
            kind,
        );
        let half = Region::first(8);
        foreign(
            backend.enqueue_copy(queue.after(events), memory, half, memory, 8),
            kind,
        );
    }
    let into = backend.enqueue_copy(queue, &memory, all, &wrong_memory, 0);
    foreign(into, ObjectKind::Memory);
    for (queue, events, kind) in [
        (wrong_queue, &[][..], ObjectKind::Queue),
        (queue, &wrong_event[..], ObjectKind::Event),
    ] {
        foreign(backend.enqueue_marker(queue.after(events)), kind);
        foreign(backend.enqueue_barrier(queue.after(events)), kind);
    }
    let resolved = backend.resolve_user_event(&wrong_event[0], Outcome::Complete);
    foreign(resolved, ObjectKind::Event);
    foreign(backend.release(memory, &wrong_event), ObjectKind::Event);
    foreign(backend.release(wrong_memory, &[]), ObjectKind::Memory);
    other.open_gate(&wrong_event[0]);
}

#[test]
fn queues_that_the_device_does_not_have_are_unsupported() {
    let bench = Bench::new();
    let made = bench.backend.create_queue(QueueOrder::OutOfOrder);
    assert_eq!(made.is_ok(), bench.backend.limits().out_of_order_queues);
    assert!(bench.backend.limits().alignment >= Align::ONE);
}
