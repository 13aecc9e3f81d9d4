//! Checks that all methods may be called from any thread.

use std::iter::{once, repeat_n};

use binpool_allocators::{Backend, Event, EventStatus, MemoryFlags, Queue, QueueOrder, Region};

use crate::{Fixture, bench::Bench, sweep::on_threads};

const THREADS: u8 = 4;
const ROUNDS: usize = 25;

/// Each thread with a queue of its own.
pub fn threads_share_a_backend<F: Fixture>(fixture: &F) {
    let backend = fixture.backend();
    on_threads(0..THREADS, |thread| {
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        for round in 1..ROUNDS {
            check_a_buffer(&backend, &queue, round * 97, thread);
        }
    });
}

/// All threads on one queue.
pub fn threads_share_a_queue<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    on_threads(0..THREADS, |thread| {
        for round in 1..ROUNDS {
            check_a_buffer(&bench.backend, &bench.queue, round * 97, thread);
        }
    });
}

fn check_a_buffer<B: Backend>(backend: &B, queue: &B::Queue, size: usize, byte: u8) {
    let buffer = backend.create_buffer(size, MemoryFlags::empty()).unwrap();
    let all = Region::first(size);
    let fill = backend.enqueue_fill(queue, &buffer, all, &[byte]).unwrap();
    let read = backend
        .enqueue_read(queue.after(std::slice::from_ref(&fill)), &buffer, all)
        .unwrap();
    assert_eq!(read.wait().unwrap(), vec![byte; size]);
    fill.wait().unwrap();
}

/// The threads commit as those of a program do that share an immediate allocator.
pub fn threads_commit_on_one_queue<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    on_threads(1..=usize::from(THREADS), |thread| {
        for round in 1..100 {
            let buffer = bench.buffer(round * thread * 31);
            bench.backend.commit(&bench.queue, &buffer).unwrap();
        }
    });
}

/// All threads that wait for one event go on.
pub fn threads_wait_for_one_event<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(65_536);
    for byte in 0..20 {
        let fill = bench.fill(&bench.queue, &buffer, byte, &[]);
        on_threads(repeat_n((), THREADS.into()), |()| {
            fill.wait().unwrap();
            assert_eq!(fill.status().unwrap(), EventStatus::Complete);
        });
    }
}

/// A block goes from thread to thread, and the last one releases it.
pub fn a_block_may_be_released_by_another_thread<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for byte in 0..20 {
        let buffer = bench.filled(4096, byte);
        on_threads(once(buffer), |buffer| {
            assert_eq!(bench.read(&buffer), [byte; 4096]);
            bench.backend.release(buffer, &[]).unwrap();
        });
    }
}
