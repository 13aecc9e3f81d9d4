//! Checks of kernels, where the fixture launches them.

use std::slice::from_ref;

use binpool_allocators::{Backend, Event, On, Queue};

use crate::{
    Fixture,
    bench::{Bench, assert_stays_pending},
    checks::hazards::gated_queue,
};

const SIZE: usize = 4096;
// Bytes of numbers between 0.1 and 10.
const SUM: u8 = 0x3f;
const OPERAND: u8 = 0x40;

/// What a kernel leaves in a sum.
fn added() -> Vec<u8> {
    let [sum, operand] = [SUM, OPERAND].map(|byte| f32::from_ne_bytes([byte; 4]));
    (sum + operand).to_ne_bytes().repeat(SIZE / 4)
}

/// A sum, an operand, and a buffer for what is seen of the sum.
fn arguments<B: Backend>(bench: &Bench<B>) -> [B::Memory; 3] {
    [SUM, OPERAND, 0].map(|byte| bench.filled(SIZE, byte))
}

/// It waits for all of them, and the commands after it on its queue for the kernel.
pub fn a_kernel_waits_for_its_wait_list<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let queue = bench.another_queue();
    for order in [[0, 1], [1, 0]] {
        let ([sum, operand, seen], gates) = (arguments(&bench), [bench.gate(), bench.gate()]);
        let on = queue.after(&gates);
        let Some(kernel) = fixture.launch_add(&bench.backend, on, &sum, &operand) else {
            return;
        };
        let copied = bench.copy(&queue, &sum, (&seen, 0), &[]);
        queue.flush().unwrap();
        for index in order {
            assert_stays_pending(&kernel);
            assert_stays_pending(&copied);
            bench.open(&gates[index]);
        }
        copied.wait().unwrap();
        assert_eq!(bench.read(&seen), added());
    }
}

/// The kernel still runs, and does not touch memory of another block.
pub fn memory_may_be_dropped_while_a_kernel_uses_it<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let ([sum, operand, seen], gate) = (arguments(&bench), bench.gate());
    let on = bench.queue.after(from_ref(&gate));
    let launched = fixture.launch_add(&bench.backend, on, &sum, &operand);
    drop(bench.copy(&bench.queue, &sum, (&seen, 0), &[]));
    drop((sum, operand));
    let (other, newcomers) = (bench.another_queue(), [(); 2].map(|()| bench.buffer(SIZE)));
    for newcomer in &newcomers {
        bench.fill(&other, newcomer, 9, &[]).wait().unwrap();
    }
    bench.open(&gate);
    let expected = launched.map_or(vec![SUM; SIZE], |_| added());
    assert_eq!(bench.read(&seen), expected);
    for newcomer in &newcomers {
        assert_eq!(bench.read(newcomer), [9; SIZE]);
    }
}

/// A read of what the kernel writes, a write of what it reads, and another kernel.
pub fn commands_come_after_a_kernel_on_another_queue<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let ((slow, gate), [sum, operand, seen]) = (gated_queue(&bench), arguments(&bench));
    let launch = |queue| fixture.launch_add(&bench.backend, On::from(queue), &sum, &operand);
    if launch(&slow).is_none() {
        return;
    }
    let queues = [(); 3].map(|()| bench.another_queue());
    let next = [
        bench.copy(&queues[0], &sum, (&seen, 0), &[]),
        launch(&queues[1]).unwrap(),
        bench.fill(&queues[2], &operand, 9, &[]),
    ];
    next.iter().for_each(assert_stays_pending);
    bench.open(&gate);
    for event in &next {
        event.wait().unwrap();
    }
    assert_eq!(bench.read(&seen), added());
}

/// Reads and writes of what it writes, and writes of what it reads.
pub fn a_kernel_comes_after_commands_on_other_queues<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for last in 0..3 {
        let ([sum, operand, seen], slow) =
            (arguments(&bench), [(); 3].map(|()| gated_queue(&bench)));
        let half = bench.region(&sum, (SIZE / 2..SIZE).into());
        drop(bench.copy(&slow[0].0, &sum, (&seen, 0), &[]));
        drop(bench.fill(&slow[1].0, &operand, SUM, &[]));
        drop(bench.fill(&slow[2].0, &half, OPERAND, &[]));
        let on = On::from(&bench.queue);
        let launched = fixture.launch_add(&bench.backend, on, &sum, &operand);
        for index in (0..3).filter(|index| *index != last) {
            bench.open(&slow[index].1);
        }
        launched.iter().for_each(assert_stays_pending);
        bench.open(&slow[last].1);
        if launched.is_some() {
            // The upper half was filled with the operand.
            assert_eq!(bench.read(&sum)[SIZE / 2..], added()[SIZE / 2..]);
            assert_eq!(bench.read(&seen), [SUM; SIZE]);
        }
    }
}
