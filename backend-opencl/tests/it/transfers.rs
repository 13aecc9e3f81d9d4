//! Writes, reads, copies and fills of buffers.

use std::{slice::from_ref, sync::Arc};

use binpool_allocators::{Backend, Error, Event, EventStatus, InvalidRequest, Queue, Region};

use crate::common::{Bench, numbered, refusal, until_given_back};

#[test]
fn bytes_come_back_as_they_were_written() {
    let bench = Bench::new();
    let memory = bench.filled(1000, 0);
    bench
        .backend
        .write(&bench.queue, &memory, 100, &numbered(300))
        .unwrap();
    let mut data = vec![9_u8; 500];
    bench
        .backend
        .read(&bench.queue, &memory, 50, &mut data)
        .unwrap();
    assert_eq!(data[..50], [0; 50]);
    assert_eq!(data[50..350], numbered(300));
    assert_eq!(data[350..], [0; 150]);
}

#[test]
fn a_write_that_waits_keeps_its_bytes_until_it_has_run() {
    let bench = Bench::new();
    let memory = bench.filled(4096, 0);
    let gate = bench.gate();
    let data: Arc<[u8]> = numbered(4096).into();
    let write = bench
        .backend
        .enqueue_write(
            bench.queue.after(from_ref(&gate)),
            &memory,
            0,
            Arc::clone(&data),
        )
        .unwrap();
    assert!(Arc::strong_count(&data) > 1);
    let weak = Arc::downgrade(&data);
    drop(data);
    assert!(weak.upgrade().is_some());
    bench.open_gate(&gate);
    write.wait().unwrap();
    assert_eq!(bench.read(&memory), numbered(4096));
    while weak.upgrade().is_some() {
        std::thread::yield_now();
    }
}

#[test]
fn a_write_gives_its_bytes_back_even_where_its_event_is_dropped() {
    let bench = Bench::new();
    let memory = bench.filled(64, 0);
    let data: Arc<[u8]> = numbered(64).into();
    // Dropped at once, and most likely over before its event is looked at.
    for _ in 0..100 {
        let write = bench
            .backend
            .enqueue_write(&bench.queue, &memory, 0, Arc::clone(&data));
        drop(write.unwrap());
    }
    bench.queue.finish().unwrap();
    until_given_back(&data);
}

#[test]
fn a_read_hands_out_its_bytes_when_they_are_there() {
    let bench = Bench::new();
    let memory = bench.buffer(1000);
    bench.write(&memory, &numbered(1000));
    let gate = bench.gate();
    let overwrite = bench.fill(&bench.queue, &memory, 4, from_ref(&gate));
    let read = bench
        .backend
        .enqueue_read(&bench.queue, &memory, Region::new(10, 500))
        .unwrap();
    assert_eq!(read.event().status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    assert_eq!(read.wait().unwrap(), vec![4; 500]);
    overwrite.wait().unwrap();
}

#[test]
fn a_read_may_be_dropped_or_forgotten_before_the_bytes_arrive() {
    let bench = Bench::new();
    let memory = bench.filled(1 << 20, 6);
    for forget in [false, true] {
        let gate = bench.gate();
        let read = bench
            .backend
            .enqueue_read(
                bench.queue.after(from_ref(&gate)),
                &memory,
                Region::first(1 << 20),
            )
            .unwrap();
        let event = read.event().clone();
        if forget {
            std::mem::forget(read);
        } else {
            drop(read);
        }
        // Memory that was given back too early would be handed out here, and written over by the read.
        let strangers: Vec<_> = (0..4).map(|_| vec![1_u8; 1 << 20]).collect();
        bench.open_gate(&gate);
        event.wait().unwrap();
        assert!(strangers.iter().flatten().all(|&byte| byte == 1));
    }
}

#[test]
fn copies_go_between_buffers_views_and_places_of_one_buffer() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let source = bench.buffer(4 * align);
    bench.write(&source, &numbered(4 * align));
    let target = bench.filled(4 * align, 0);
    let view = bench
        .backend
        .create_sub_region(&target, Region::new(align, 2 * align))
        .unwrap();
    let copy = |from, region, to, offset| {
        bench
            .backend
            .enqueue_copy(&bench.queue, from, region, to, offset)
            .unwrap()
            .wait()
            .unwrap();
    };
    copy(&source, Region::new(3, align), &view, 7);
    let mut expected = vec![0; 4 * align];
    expected[align + 7..2 * align + 7].copy_from_slice(&numbered(4 * align)[3..3 + align]);
    assert_eq!(bench.read(&target), expected);

    copy(&target, Region::new(align, align), &target, 3 * align);
    expected.copy_within(align..2 * align, 3 * align);
    assert_eq!(bench.read(&target), expected);
}

#[test]
fn copies_that_overlap_are_refused() {
    let bench = Bench::new();
    let memory = bench.filled(100, 0);
    let copy = |from, to| {
        let queue = &bench.queue;
        bench
            .backend
            .enqueue_copy(queue, &memory, Region::new(from, 10), &memory, to)
    };
    for (from, to) in [(0, 9), (9, 0), (5, 5)] {
        let refused = InvalidRequest::OverlappingCopy {
            from,
            to,
            bytes: 10,
        };
        assert_eq!(refusal(copy(from, to)), refused);
    }
    copy(0, 10).unwrap().wait().unwrap();
}

#[test]
fn fills_repeat_their_pattern() {
    let bench = Bench::new();
    let memory = bench.filled(1024, 0);
    for length in [1, 2, 4, 8, 16, 32, 64, 128] {
        let pattern = numbered(length);
        let region = Region::new(128, 256);
        bench
            .backend
            .enqueue_fill(&bench.queue, &memory, region, &pattern)
            .unwrap();
        let data = bench.read(&memory);
        assert_eq!(data[128..384], pattern.repeat(256 / length), "{length}");
        assert!(
            data[..128]
                .iter()
                .chain(&data[384..])
                .all(|&byte| byte == 0)
        );
    }
}

#[test]
fn patterns_that_opencl_has_no_fill_for_are_copied() {
    let bench = Bench::new();
    for length in [3, 48, 129, 256, 512] {
        let memory = bench.filled(8 * length, 0);
        let pattern = numbered(length);
        let region = Region::new(length, 5 * length);
        bench
            .backend
            .enqueue_fill(&bench.queue, &memory, region, &pattern)
            .unwrap();
        let zeros = |times| vec![0; times * length];
        let expected = [zeros(1), pattern.repeat(5), zeros(2)].concat();
        assert_eq!(bench.read(&memory), expected, "{length}");
    }
}

#[test]
fn patterns_that_do_not_fit_are_refused() {
    let bench = Bench::new();
    let memory = bench.buffer(1024);
    let fill = |offset, bytes, length: usize| {
        let region = Region::new(offset, bytes);
        let pattern = vec![1_u8; length];
        bench
            .backend
            .enqueue_fill(&bench.queue, &memory, region, &pattern)
    };
    assert_eq!(refusal(fill(0, 0, 0)), InvalidRequest::EmptyPattern);
    for (offset, bytes, pattern) in [(2, 8, 4), (4, 6, 4), (0, 64, 128), (1, 12, 12)] {
        let refused = InvalidRequest::PatternMismatch {
            offset,
            bytes,
            pattern,
        };
        assert_eq!(refusal(fill(offset, bytes, pattern)), refused);
    }
}

#[test]
fn regions_outside_the_block_are_refused_by_every_command() {
    let bench = Bench::new();
    let (queue, size) = (&bench.queue, 64);
    let (memory, large) = (bench.filled(size, 1), bench.buffer(256));
    let backend = &bench.backend;
    for (offset, bytes) in [
        (0, 65),
        (64, 1),
        (65, 0),
        (1, 64),
        (usize::MAX, 0),
        (usize::MAX, 1),
    ] {
        let refused = InvalidRequest::OutOfBounds {
            offset,
            bytes,
            size,
        };
        let region = Region::new(offset, bytes);
        let data = vec![0_u8; bytes];
        let read = backend.enqueue_read(queue, &memory, region);
        assert_eq!(refusal(read), refused);
        let fill = backend.enqueue_fill(queue, &memory, region, &[1_u8]);
        assert_eq!(refusal(fill), refused);
        let from = backend.enqueue_copy(queue, &memory, region, &large, 0);
        assert_eq!(refusal(from), refused);
        let into = backend.enqueue_copy(queue, &large, Region::first(bytes), &memory, offset);
        assert_eq!(refusal(into), refused);
        let write = backend.write(queue, &memory, offset, &data);
        assert_eq!(refusal(write), refused);
        let write = backend.enqueue_write(queue, &memory, offset, data.into());
        assert_eq!(refusal(write), refused);
        let read = backend.read(queue, &memory, offset, &mut vec![0_u8; bytes]);
        assert_eq!(refusal(read), refused);
    }
    // Sizes that no host has either are not taken for its lack of memory.
    let (offset, bytes) = (0, usize::MAX);
    let read = backend.enqueue_read(queue, &memory, Region::first(bytes));
    let refused = InvalidRequest::OutOfBounds {
        offset,
        bytes,
        size,
    };
    assert_eq!(refusal(read), refused);
    assert_eq!(bench.read(&memory), [1; 64]);
}

#[test]
fn commands_over_no_bytes_are_ordered_like_any_other() {
    let bench = Bench::new();
    let (queue, backend) = (&bench.another_queue(), &bench.backend);
    let memory = bench.filled(64, 8);
    let gate = bench.gate();
    let wait = [gate.clone()];
    let read = backend
        .enqueue_read(queue.after(&wait), &memory, Region::new(64, 0))
        .unwrap();
    let events = [
        read.event().clone(),
        backend
            .enqueue_fill(queue.after(&wait), &memory, Region::new(0, 0), &[1_u8])
            .unwrap(),
        backend
            .enqueue_write(queue.after(&wait), &memory, 64, Arc::from([]))
            .unwrap(),
        backend
            .enqueue_copy(queue.after(&wait), &memory, Region::new(5, 0), &memory, 5)
            .unwrap(),
        // By the queue's own order.
        backend
            .enqueue_fill(queue, &memory, Region::new(0, 0), &[1_u8])
            .unwrap(),
    ];
    for event in &events {
        assert_eq!(event.status().unwrap(), EventStatus::Pending);
    }
    bench.open_gate(&gate);
    for event in &events {
        event.wait().unwrap();
    }
    assert_eq!(read.wait().unwrap(), [0_u8; 0]);
    backend.write(queue, &memory, 0, &[0_u8; 0]).unwrap();
    backend.read(queue, &memory, 64, &mut [0_u8; 0]).unwrap();
    assert_eq!(bench.read(&memory), [8; 64]);
}

#[test]
fn blocking_transfers_of_no_bytes_end_with_their_lists() {
    let bench = Bench::new();
    let memory = bench.filled(64, 0);
    for queue in [bench.another_queue(), bench.out_of_order_queue()] {
        let failed = bench.gate();
        bench.fail_gate(&failed);
        let on = || queue.after(from_ref(&failed));
        let written = bench.backend.write_part(on(), (&memory, 0), &[0_u8; 0]);
        assert!(matches!(written, Err(Error::Backend(_))), "{written:?}");
        let read = bench.backend.read_part(on(), (&memory, 0), &mut [0_u8; 0]);
        assert!(matches!(read, Err(Error::Backend(_))), "{read:?}");
    }
}

#[test]
fn blocking_transfers_of_an_out_of_order_queue_wait_for_their_own_lists_only() {
    let bench = Bench::new();
    let queue = bench.out_of_order_queue();
    let (memory, busy) = (bench.filled(64, 0), bench.filled(64, 0));
    let gate = bench.gate();
    let gated = bench.fill(&queue, &busy, 1, from_ref(&gate));
    if !bench.overtakes() {
        bench.open_gate(&gate);
    }
    let mut data = [9_u8; 64];
    bench
        .backend
        .write(&queue, &memory, 0, &[3_u8; 64])
        .unwrap();
    bench.backend.read(&queue, &memory, 0, &mut data).unwrap();
    assert_eq!(data, [3; 64]);
    bench.backend.write(&queue, &memory, 0, &[0_u8; 0]).unwrap();
    bench.backend.commit(&queue, &memory).unwrap();
    if bench.overtakes() {
        assert_eq!(gated.status().unwrap(), EventStatus::Pending);
        bench.open_gate(&gate);
    }
    gated.wait().unwrap();
}
