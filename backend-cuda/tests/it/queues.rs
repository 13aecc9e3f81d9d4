//! Streams that were there before.

use std::{
    collections::HashSet,
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
};

use binpool_allocators::{Backend, Error, Event, MemoryFlags, Queue, QueueOrder, Region};

use binpool_cuda::CudaBackend;

use crate::common::{Device, bytes, current_context, queue};

#[test]
fn one_stream_is_one_queue_however_often_it_is_wrapped() {
    let backend = Device::new(1 << 24).backend();
    let made = queue(&backend);
    // SAFETY: The stream lives as long as `made`.
    let wrapped = unsafe { backend.wrap_raw_queue(made.raw()) }.unwrap();
    assert_eq!((wrapped.id(), &wrapped), (made.id(), &made));
    let legacy = backend.legacy_default_queue();
    // SAFETY: The default stream lives.
    let null = unsafe { backend.wrap_raw_queue(std::ptr::null_mut()) }.unwrap();
    assert_eq!(legacy, null);
    let queues = [
        made,
        wrapped,
        legacy,
        null,
        backend.per_thread_default_queue(),
    ];
    let all: HashSet<_> = queues.iter().map(Queue::id).collect();
    assert_eq!(all.len(), 3);
}

#[test]
fn a_stream_alone_leads_to_its_device_whatever_context_is_current() {
    let [device, other] = Device::pair(1 << 24);
    let (backend, theirs) = (device.backend(), other.backend());
    let made = queue(&backend);
    let find = |stream| {
        // SAFETY: The stream lives as long as `made`, or is a default stream.
        unsafe { CudaBackend::from_raw_queue_of(device.library(), stream) }
    };
    other.make_current();
    let (same, wrapped) = find(made.raw()).unwrap();
    assert_eq!(wrapped, made);
    assert_eq!(same.raw_context(), backend.raw_context());
    assert_eq!(current_context(), theirs.raw_context());
    let (current, default) = find(std::ptr::null_mut()).unwrap();
    assert_eq!(default, theirs.legacy_default_queue());
    assert_eq!(current.raw_context(), theirs.raw_context());
}

#[test]
fn default_streams_run_commands() {
    let backend = Device::new(1 << 24).backend();
    for queue in [
        backend.legacy_default_queue(),
        backend.per_thread_default_queue(),
    ] {
        let block = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
        let fill = backend.enqueue_fill(&queue, &block, Region::first(64), &[7_u8, 8]);
        fill.unwrap().wait().unwrap();
        assert_eq!(bytes(&backend, &queue, &block), [7, 8].repeat(32));
    }
}

fn is_unsupported<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Unsupported { .. }))
}

#[test]
fn commands_on_the_default_stream_of_another_thread_are_refused() {
    let backend = Device::new(1 << 24).backend();
    let own = backend.per_thread_default_queue();
    let block = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let event = backend.enqueue_marker(&own).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let all = Region::first(64);
            let fill = backend.enqueue_fill(&own, &block, all, &[1_u8]);
            assert!(is_unsupported(&fill), "{fill:?}");
            let marker = backend.enqueue_marker(own.after(&[event]));
            assert!(is_unsupported(&marker), "{marker:?}");
            assert_ne!(backend.per_thread_default_queue(), own);
        });
    });
    own.finish().unwrap();
}

#[test]
fn others_wait_for_the_default_stream_of_a_thread_that_lives_or_has_ended() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let [one, two, done] = [(); 3].map(|()| AtomicU32::new(0));
    let hold = |word| {
        let own = backend.per_thread_default_queue();
        device.hold(own.raw(), word);
        own
    };
    let (send, receive) = mpsc::channel();
    // What is seen is judged at the end: the thread ends whatever it is.
    let (others, seen, waits) = thread::scope(|scope| {
        scope.spawn(|| {
            send.send(hold(&one)).unwrap();
            while done.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
        });
        let ended = scope.spawn(|| hold(&two)).join().unwrap();
        let alive = receive.recv().unwrap();
        let markers = [&alive, &ended].map(|queue| backend.enqueue_marker(queue).unwrap());
        // Another stream does not wait for what it comes before.
        let other = queue(&backend);
        let others = backend.enqueue_marker(&other).unwrap().wait();
        let mut seen = Vec::new();
        for word in [&one, &two] {
            seen.extend(markers.each_ref().map(Event::has_ended));
            word.store(1, Ordering::Release);
        }
        let waits = markers.each_ref().map(Event::wait);
        let finishes = [&alive, &ended].map(Queue::finish);
        done.store(1, Ordering::Release);
        (others, seen, [waits, finishes])
    });
    others.unwrap();
    // The marker is one of the whole context, and so after both.
    assert_eq!(seen, [false; 4]);
    assert!(waits.iter().flatten().all(Result::is_ok), "{waits:?}");
}

#[test]
fn nobody_waits_for_a_whole_context_that_a_user_event_holds_back() {
    let backend = Device::new(1 << 24).backend();
    let theirs = thread::scope(|scope| {
        let own = scope.spawn(|| backend.per_thread_default_queue());
        own.join().unwrap()
    });
    let gate = backend.create_user_event().unwrap();
    let held = backend
        .enqueue_marker((queue(&backend)).after(std::slice::from_ref(&gate)))
        .unwrap();
    assert!(is_unsupported(&backend.enqueue_marker(&theirs)));
    assert!(is_unsupported(&theirs.finish()));
    drop(gate);
    held.wait().unwrap();
    backend.enqueue_marker(&theirs).unwrap().wait().unwrap();
    theirs.finish().unwrap();
}

#[test]
fn a_wait_for_the_stream_of_another_thread_spoils_no_capture() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let theirs = thread::scope(|scope| {
        let own = scope.spawn(|| backend.per_thread_default_queue());
        own.join().unwrap()
    });
    let captured = queue(&backend);
    let (refused, graph) = device.capture(&captured, || {
        let marker = backend.enqueue_marker(&theirs);
        is_unsupported(&marker) && is_unsupported(&theirs.finish())
    });
    assert!(refused);
    graph.unwrap();
}

#[test]
fn out_of_order_queues_are_refused() {
    let backend = Device::new(1 << 24).backend();
    let refused = backend.create_queue(QueueOrder::OutOfOrder);
    assert!(is_unsupported(&refused), "{refused:?}");
}
