//! Checks of backends that put conflicting commands in order: what uses the same bytes, whatever queue it is on, without any wait list.

use std::slice::from_ref;

use binpool_allocators::{Backend, Event, Region};

use crate::{
    Fixture,
    bench::{Bench, assert_stays_pending},
    sweep::on_threads,
};

const SIZE: usize = 4096;

/// A queue whose commands come after a gate.
pub(crate) fn gated_queue<B: Backend>(bench: &Bench<B>) -> (B::Queue, B::Event) {
    let (queue, gate) = (bench.another_queue(), bench.gate());
    drop(bench.barrier_on(&queue, from_ref(&gate)));
    (queue, gate)
}

/// A read sees what a write on another queue has written before.
pub fn a_read_comes_after_a_write_on_another_queue<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (slow, gate) = gated_queue(&bench);
    let (memory, seen) = (bench.filled(SIZE, 1), bench.buffer(SIZE));
    drop(bench.fill(&slow, &memory, 2, &[]));
    let copied = bench.copy(&bench.queue, &memory, (&seen, 0), &[]);
    assert_stays_pending(&copied);
    bench.open(&gate);
    assert_eq!(bench.read(&seen), [2; SIZE]);
}

/// A write changes nothing that a read on another queue is still to see, and comes after earlier writes.
pub fn a_write_comes_after_reads_and_writes_on_other_queues<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (slow, gate) = gated_queue(&bench);
    let (memory, seen) = (bench.filled(SIZE, 1), bench.buffer(SIZE));
    drop(bench.copy(&slow, &memory, (&seen, 0), &[]));
    let written = bench.fill(&bench.queue, &memory, 2, &[]);
    assert_stays_pending(&written);
    let (other, other_gate) = gated_queue(&bench);
    drop(bench.fill(&other, &memory, 3, &[]));
    let last = bench.fill(&bench.queue, &memory, 4, &[]);
    bench.open(&gate);
    written.wait().unwrap();
    assert_stays_pending(&last);
    bench.open(&other_gate);
    assert_eq!(bench.read(&seen), [1; SIZE]);
    assert_eq!(bench.read(&memory), [4; SIZE]);
}

/// A write waits for each of many reads, the first as well as the last.
pub fn a_write_comes_after_all_of_many_reads<F: Fixture>(fixture: &F) {
    const MANY: usize = 20;
    let bench = Bench::new(fixture);
    for held in [0, MANY / 2, MANY - 1] {
        let (memory, copies) = (bench.filled(SIZE, 1), bench.buffer(MANY * SIZE));
        let slow: Vec<_> = (0..MANY).map(|_| gated_queue(&bench)).collect();
        for (index, (queue, _)) in slow.iter().enumerate() {
            drop(bench.copy(queue, &memory, (&copies, index * SIZE), &[]));
        }
        let written = bench.fill(&bench.another_queue(), &memory, 2, &[]);
        for (_, (_, gate)) in slow.iter().enumerate().filter(|(index, _)| *index != held) {
            bench.open(gate);
        }
        assert_stays_pending(&written);
        bench.open(&slow[held].1);
        assert!(bench.read(&copies).iter().all(|byte| *byte == 1));
        assert_eq!(bench.read(&memory), [2; SIZE]);
    }
}

/// Two reads do not conflict.
pub fn reads_of_two_queues_do_not_wait_for_each_other<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (slow, gate) = gated_queue(&bench);
    let (memory, other) = (bench.filled(SIZE, 1), bench.buffer(SIZE));
    let held = bench.copy(&slow, &memory, (&other, 0), &[]);
    assert_eq!(bench.read(&memory), [1; SIZE]);
    bench.completes_once_open(&gate, &held);
}

/// Commands on different bytes of one block do not conflict.
pub fn commands_on_other_bytes_of_a_buffer_do_not_wait<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (slow, gate) = gated_queue(&bench);
    let memory = bench.filled(2 * SIZE, 1);
    let [first, second] = [0, SIZE].map(|offset| bench.region(&memory, Region::new(offset, SIZE)));
    let held = bench.fill(&slow, &first, 2, &[]);
    bench.fill(&bench.queue, &second, 3, &[]).wait().unwrap();
    assert_eq!(bench.read(&second), [3; SIZE]);
    assert_stays_pending(&held);
    bench.open(&gate);
    assert_eq!(bench.read(&memory), [[2; SIZE], [3; SIZE]].concat());
}

/// Views of the same bytes conflict, with each other and with their block.
pub fn views_that_overlap_are_seen_to_be_the_same_bytes<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (slow, gate) = gated_queue(&bench);
    let memory = bench.filled(2 * SIZE, 1);
    let view = bench.region(&memory, Region::new(SIZE / 2, SIZE));
    drop(bench.fill(&slow, &view, 2, &[]));
    let all = bench.fill(&bench.queue, &memory, 3, &[]);
    assert_stays_pending(&all);
    bench.open(&gate);
    assert_eq!(bench.read(&memory), [3; 2 * SIZE]);
}

/// The order of an out-of-order queue is that of its conflicts.
pub fn commands_of_an_out_of_order_queue_come_one_after_another_too<F: Fixture>(fixture: &F) {
    const STEPS: u8 = 250;
    let bench = Bench::new(fixture);
    let Some(queue) = bench.out_of_order_queue() else {
        return;
    };
    let (memory, copies) = (bench.buffer(SIZE), bench.buffer(usize::from(STEPS) * SIZE));
    for byte in 0..STEPS {
        drop(bench.fill(&queue, &memory, byte, &[]));
        let to = usize::from(byte) * SIZE;
        drop(bench.copy(&queue, &memory, (&copies, to), &[]));
    }
    let copies = bench.read(&copies);
    for (byte, copy) in (0..STEPS).zip(copies.chunks(SIZE)) {
        assert_eq!(copy, [byte; SIZE], "copy {byte}");
    }
}

/// No thread sees half of another one's write.
pub fn threads_with_queues_of_their_own_share_a_buffer<F: Fixture>(fixture: &F) {
    const THREADS: u8 = 4;
    let bench = Bench::new(fixture);
    let memory = bench.filled(SIZE, 0);
    on_threads(1..=THREADS, |byte| {
        let queue = bench.another_queue();
        let seen = bench.buffer(SIZE);
        for _ in 0..50 {
            drop(bench.fill(&queue, &memory, byte, &[]));
            drop(bench.copy(&queue, &memory, (&seen, 0), &[]));
            let seen = bench.read(&seen);
            assert!(seen.iter().all(|other| *other == seen[0]), "torn: {seen:?}");
        }
    });
    assert!((1..=THREADS).contains(&bench.read(&memory)[0]));
}
