//! Streams that were there before.

use std::{collections::HashSet, thread};

use binpool_allocators::{Backend, Error, Event, MemoryFlags, Queue, QueueOrder, Region};

use crate::common::{Device, bytes, queue};

#[test]
fn one_stream_is_one_queue_however_often_it_is_wrapped() {
    let backend = Device::new(1 << 24).backend();
    let made = queue(&backend);
    // SAFETY: The stream lives as long as `made`.
    let wrapped = unsafe { backend.wrap_raw_stream(made.cu_stream()) }.unwrap();
    assert_eq!((wrapped.id(), &wrapped), (made.id(), &made));
    let legacy = backend.legacy_default_queue();
    // SAFETY: The default stream lives.
    let null = unsafe { backend.wrap_raw_stream(std::ptr::null_mut()) }.unwrap();
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
fn default_streams_run_commands() {
    let backend = Device::new(1 << 24).backend();
    for queue in [
        backend.legacy_default_queue(),
        backend.per_thread_default_queue(),
    ] {
        let block = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
        let fill = backend.enqueue_fill(&queue, &block, Region::first(64), &[7, 8], &[]);
        fill.unwrap().wait().unwrap();
        assert_eq!(bytes(&backend, &queue, &block), [7, 8].repeat(32));
    }
}

#[test]
fn the_default_stream_of_a_thread_is_refused_on_another() {
    let backend = Device::new(1 << 24).backend();
    let own = backend.per_thread_default_queue();
    thread::scope(|scope| {
        scope.spawn(|| {
            let refused = backend.enqueue_marker(&own, &[]);
            assert!(
                matches!(refused, Err(Error::Unsupported { .. })),
                "{refused:?}"
            );
            assert!(own.finish().is_err());
            assert_ne!(backend.per_thread_default_queue(), own);
        });
    });
    own.finish().unwrap();
}

#[test]
fn out_of_order_queues_are_refused() {
    let backend = Device::new(1 << 24).backend();
    let refused = backend.create_queue(QueueOrder::OutOfOrder);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
}
