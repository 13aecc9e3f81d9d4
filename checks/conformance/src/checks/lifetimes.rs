//! Checks that objects which the caller drops early stay valid for the commands that use them.

use std::{slice::from_ref, sync::Arc};

use binpool_allocators::{Backend, Event, Queue, Region};

use crate::{
    Fixture,
    bench::{Bench, eventually, numbered},
};

const SIZE: usize = 65_536;

/// The command still runs, and does not write to memory of another block.
pub fn memory_may_be_dropped_while_a_command_uses_it<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (source, target) = (bench.filled(SIZE, 3), bench.filled(SIZE, 1));
    let gate = bench.gate();
    let copy = bench.copy(&bench.queue, &source, (&target, 0), from_ref(&gate));
    drop(source);
    let other = bench.another_queue();
    let newcomer = bench.buffer(SIZE);
    bench.fill(&other, &newcomer, 9, &[]).wait().unwrap();
    bench.open(&gate);
    copy.wait().unwrap();
    assert_eq!(bench.read(&target), vec![3; SIZE]);
    assert_eq!(bench.read(&newcomer), vec![9; SIZE]);
}

/// `release` neither waits for its events nor frees before them.
pub fn memory_is_released_after_its_events<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (source, target) = (bench.filled(SIZE, 3), bench.buffer(SIZE));
    let gate = bench.gate();
    let copy = bench.copy(&bench.queue, &source, (&target, 0), from_ref(&gate));
    bench.backend.release(source, from_ref(&copy)).unwrap();
    bench.open(&gate);
    copy.wait().unwrap();
    assert_eq!(bench.read(&target), vec![3; SIZE]);
    bench.backend.release(target, &[]).unwrap();
}

/// The command keeps the whole block alive.
pub fn a_region_may_be_dropped_while_a_command_uses_it<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (block, target) = (bench.filled(2 * SIZE, 3), bench.filled(SIZE, 1));
    let region = bench.region(&block, Region::new(SIZE, SIZE));
    let gate = bench.gate();
    let copy = bench.copy(&bench.queue, &region, (&target, 0), from_ref(&gate));
    drop((block, region));
    let (other, newcomer) = (bench.another_queue(), bench.buffer(2 * SIZE));
    bench.fill(&other, &newcomer, 9, &[]).wait().unwrap();
    bench.open(&gate);
    copy.wait().unwrap();
    assert_eq!(bench.read(&target), vec![3; SIZE]);
}

/// The bytes are discarded, without any other effect.
pub fn a_pending_read_may_be_dropped_early<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.filled(SIZE, 4);
    for _ in 0..10 {
        let gate = bench.gate();
        let read = bench.read_later(&bench.queue, &buffer, from_ref(&gate));
        let event = read.event().clone();
        drop(read);
        bench.open(&gate);
        event.wait().unwrap();
    }
    assert_eq!(bench.read(&buffer), vec![4; SIZE]);
}

/// Forgetting a read has the same effect as dropping it.
pub fn a_pending_read_may_be_forgotten<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.filled(1024, 4);
    let gate = bench.gate();
    // A backend cannot tell a forgotten read from one that is held, and this check must leave nothing behind.
    let _forgotten = bench.read_later(&bench.queue, &buffer, from_ref(&gate));
    drop(buffer);
    bench.open(&gate);
    bench.queue.finish().unwrap();
}

/// The backend keeps the data until it is written.
pub fn written_data_is_kept_until_it_is_written<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(SIZE);
    let gate = bench.gate();
    let (on, data) = (bench.queue.after(from_ref(&gate)), numbered(SIZE).into());
    let written = bench.backend.enqueue_write(on, &buffer, 0, data).unwrap();
    // The host's allocator is likely to hand out the freed data here.
    let spoiler = vec![255_u8; SIZE];
    bench.open(&gate);
    written.wait().unwrap();
    assert_eq!(bench.read(&buffer), numbered(SIZE));
    drop(spoiler);
}

/// The backend drops the data afterwards.
pub fn written_data_is_given_back<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(SIZE);
    let data: Arc<[u8]> = numbered(SIZE).into();
    for bytes in [Arc::clone(&data), data[..0].into()] {
        bench
            .backend
            .enqueue_write(&bench.queue, &buffer, 0, Arc::clone(&bytes))
            .unwrap()
            .wait()
            .unwrap();
        let owners = 1 + usize::from(Arc::ptr_eq(&bytes, &data));
        assert!(
            eventually(|| Arc::strong_count(&bytes) == owners),
            "the backend keeps the data of a write that has ended"
        );
    }
}

/// Commands go on without their queues and events.
pub fn queues_and_events_may_be_dropped_early<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.filled(SIZE, 1);
    let gate = bench.gate();
    let last = {
        let queue = bench.another_queue();
        drop(bench.fill(&queue, &buffer, 2, from_ref(&gate)));
        bench.fill(&queue, &buffer, 3, &[])
    };
    bench.open(&gate);
    drop(gate);
    last.wait().unwrap();
    assert_eq!(bench.read(&buffer), vec![3; SIZE]);
}
