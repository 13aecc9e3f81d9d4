//! Commands that use the same bytes come one after another, whatever queues they are on, without any wait list.

use std::{ops::Range, slice::from_ref};

use binpool_allocators::{Backend, Event, EventStatus, MemoryFlags, PendingRead, Queue, Region};
use binpool_opencl::{ClEvent, ClMemory, ClQueue};
use proptest::prelude::*;

use crate::common::{Bench, numbered};

const SIZE: usize = 4096;

/// A queue whose commands stand after a gate until that is opened.
fn gated_queue(bench: &Bench) -> (ClQueue, ClEvent) {
    let (queue, gate) = (bench.another_queue(), bench.gate());
    bench
        .backend
        .enqueue_barrier(queue.after(from_ref(&gate)))
        .unwrap();
    (queue, gate)
}

fn copy(bench: &Bench, queue: &ClQueue, from: &ClMemory, to: &ClMemory) -> ClEvent {
    let all = Region::first(SIZE);
    let copied = bench.backend.enqueue_copy(queue, from, all, to, 0);
    copied.unwrap()
}

/// The second write may fail as soon as its gate does, while the first one, which it came after, is still to run.
#[test]
fn a_command_that_fails_early_hides_none_before_it() {
    let bench = Bench::new();
    let (slow, gate) = gated_queue(&bench);
    let (memory, seen) = (bench.filled(SIZE, 1), bench.buffer(SIZE));
    let first = bench.fill(&slow, &memory, 2, &[]);
    let doomed = bench.gate();
    let second = bench.fill(&bench.another_queue(), &memory, 3, from_ref(&doomed));
    bench.fail_gate(&doomed);
    // Time enough for a runtime that fails it at once.
    bench.fill(&bench.queue, &seen, 9, &[]).wait().unwrap();
    if second.status().unwrap() == EventStatus::Pending {
        bench.open_gate(&gate);
        assert!(second.wait().is_err());
        assert_eq!(bench.read(&memory), [2; SIZE]);
        return;
    }
    assert_eq!(first.status().unwrap(), EventStatus::Pending);
    let copied = copy(&bench, &bench.queue, &memory, &seen);
    assert_eq!(copied.status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    assert_eq!(bench.read(&seen), [2; SIZE]);
}

/// Of one in-order queue, too: `PoCL` runs what stands after a command that has failed without waiting for the rest.
#[test]
fn what_stands_behind_a_failed_command_comes_after_what_stands_before_it() {
    let bench = Bench::new();
    let (slow, gate) = gated_queue(&bench);
    let (memory, other) = (bench.filled(SIZE, 1), bench.filled(SIZE, 1));
    let doomed = bench.gate();
    bench.fill(&slow, &memory, 2, &[]);
    let failing = bench.fill(&slow, &other, 2, from_ref(&doomed));
    bench.fail_gate(&doomed);
    // Time enough for a runtime that fails it at once.
    bench
        .fill(&bench.queue, &bench.buffer(SIZE), 9, &[])
        .wait()
        .unwrap();
    let last = bench.fill(&slow, &memory, 3, &[]);
    bench.open_gate(&gate);
    assert!(failing.wait().is_err());
    // On NVIDIA's it fails with what stands before it.
    let byte = if last.wait().is_ok() { 3 } else { 2 };
    assert_eq!(bench.read(&memory), [byte; SIZE]);
}

/// A buffer that no command has written.
fn unwritten(bench: &Bench, bytes: usize) -> ClMemory {
    let data = vec![0_u8; bytes];
    let none = MemoryFlags::empty();
    bench.backend.create_buffer_from(&data, none).unwrap()
}

/// Enqueues a read of this region on a queue of its own. If it comes after a command that fails, it fails with it.
fn read_elsewhere(bench: &Bench, memory: &ClMemory, region: Range<usize>) -> PendingRead<ClEvent> {
    let queue = bench.another_queue();
    bench.backend.enqueue_read(&queue, memory, region).unwrap()
}

#[test]
fn bytes_that_no_command_has_used_before_are_ordered_like_others() {
    let bench = Bench::new();
    // Each is the start of 64 bytes.
    let none: &[usize] = &[];
    for used in [none, &[0], &[64], &[192], &[0, 192]] {
        let memory = unwritten(&bench, 256);
        for start in used {
            let region = Region::new(*start, 64);
            let filled = bench
                .backend
                .enqueue_fill(&bench.queue, &memory, region, &[2_u8]);
            filled.unwrap();
        }
        let (queue, gate) = (bench.another_queue(), bench.gate());
        let filled = bench.fill(&queue, &memory, 1, from_ref(&gate));
        let reads = [0, 64, 128, 192].map(|start| {
            let read = read_elsewhere(&bench, &memory, start..start + 64);
            (start, read)
        });
        bench.fail_gate(&gate);
        assert!(filled.wait().is_err());
        for (start, read) in reads {
            assert!(read.wait().is_err(), "byte {start}, used before: {used:?}");
        }
    }
}

#[test]
fn a_copy_within_one_buffer_reads_one_part_and_writes_the_other_however_many_parts_there_are() {
    let bench = Bench::new();
    let memory = unwritten(&bench, 8192);
    let (queue, gate) = (bench.another_queue(), bench.gate());
    let behind = queue.after(from_ref(&gate));
    let copied = bench
        .backend
        .enqueue_copy(behind, &memory, 0..64, &memory, 64)
        .unwrap();
    for part in 0..200 {
        let start = 256 + 32 * part;
        let region = Region::new(start, 16);
        let filled = bench
            .backend
            .enqueue_fill(&bench.queue, &memory, region, &[2_u8]);
        filled.unwrap();
    }
    let beside = read_elsewhere(&bench, &memory, 0..64);
    let behind = read_elsewhere(&bench, &memory, 64..128);
    bench.fail_gate(&gate);
    assert!(copied.wait().is_err());
    assert!(behind.wait().is_err(), "it reads what the copy writes");
    assert_eq!(beside.wait().unwrap(), [0; 64]);
}

#[test]
fn a_write_comes_after_all_of_many_reads() {
    const MANY: usize = 20;
    let bench = Bench::new();
    let queues: Vec<_> = (0..MANY).map(|_| bench.another_queue()).collect();
    let copies = bench.buffer(MANY * 64);
    for failing in [0, MANY / 2, MANY - 1] {
        let memory = unwritten(&bench, 64);
        let gates: Vec<_> = queues.iter().map(|_| bench.gate()).collect();
        for (at, (queue, gate)) in queues.iter().zip(&gates).enumerate() {
            let behind = queue.after(from_ref(gate));
            let copied = bench
                .backend
                .enqueue_copy(behind, &memory, .., &copies, at * 64);
            copied.unwrap();
        }
        let written = bench.fill(&bench.another_queue(), &memory, 1, &[]);
        for (at, gate) in gates.iter().enumerate() {
            if at == failing {
                bench.fail_gate(gate);
            } else {
                bench.open_gate(gate);
            }
        }
        assert!(written.wait().is_err(), "it came before read {failing}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Fill {
        queue: usize,
        buffer: usize,
        region: (usize, usize),
        byte: u8,
    },
    Copy {
        queue: usize,
        from: usize,
        to: usize,
        region: (usize, usize),
        target: usize,
    },
    Write {
        queue: usize,
        buffer: usize,
        offset: usize,
        bytes: usize,
    },
    Read {
        queue: usize,
        buffer: usize,
    },
}

const BYTES: usize = 512;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let region =
        || (0..BYTES, 1..BYTES).prop_map(|(start, bytes)| (start, bytes.min(BYTES - start)));
    let (queue, buffer) = (0..4_usize, 0..2_usize);
    let step = prop_oneof![
        (queue.clone(), buffer.clone(), region(), any::<u8>()).prop_map(
            |(queue, buffer, region, byte)| Step::Fill {
                queue,
                buffer,
                region,
                byte
            }
        ),
        (queue.clone(), buffer.clone(), region(), 0..BYTES).prop_map(
            |(queue, from, region, target)| {
                let bytes = region.1.min(BYTES - target);
                Step::Copy {
                    queue,
                    from,
                    to: 1 - from,
                    region: (region.0, bytes),
                    target,
                }
            }
        ),
        (queue.clone(), buffer.clone(), region()).prop_map(|(queue, buffer, (offset, bytes))| {
            Step::Write {
                queue,
                buffer,
                offset,
                bytes,
            }
        }),
        (queue, buffer).prop_map(|(queue, buffer)| Step::Read { queue, buffer }),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the queues, and whichever of them gets going first, the result is that of one command after the other.
    #[test]
    fn commands_do_what_they_would_do_one_after_another(
        steps in steps(),
        order in Just([0_usize, 1, 2, 3]).prop_shuffle(),
        held in any::<bool>(),
    ) {
        let bench = Bench::new();
        let queues = [
            bench.another_queue(),
            bench.another_queue(),
            bench.out_of_order_queue(),
            bench.out_of_order_queue(),
        ];
        let buffers = [bench.filled(BYTES, 0), unwritten(&bench, BYTES)];
        let backend = &bench.backend;
        let gates: Vec<_> = queues.iter().map(|queue| {
            let gate = bench.gate();
            backend.enqueue_barrier(queue.after(from_ref(&gate))).unwrap();
            gate
        }).collect();
        if !held {
            for gate in &gates {
                bench.open_gate(gate);
            }
        }
        let mut model = [vec![0_u8; BYTES], vec![0_u8; BYTES]];
        let mut reads = Vec::new();
        for step in steps {
            match step {
                Step::Fill { queue, buffer, region: (start, bytes), byte } => {
                    model[buffer][start..start + bytes].fill(byte);
                    let region = Region::new(start, bytes);
                    backend.enqueue_fill(&queues[queue], &buffers[buffer], region, &[byte]).unwrap();
                }
                Step::Copy { queue, from, to, region: (start, bytes), target } => {
                    let moved = model[from][start..start + bytes].to_vec();
                    model[to][target..target + bytes].copy_from_slice(&moved);
                    let region = Region::new(start, bytes);
                    backend
                        .enqueue_copy(&queues[queue], &buffers[from], region, &buffers[to], target)
                        .unwrap();
                }
                Step::Write { queue, buffer, offset, bytes } => {
                    let data = numbered(bytes);
                    model[buffer][offset..offset + bytes].copy_from_slice(&data);
                    backend.enqueue_write(&queues[queue], &buffers[buffer], offset, data.into()).unwrap();
                }
                Step::Read { queue, buffer } => {
                    let all = Region::first(BYTES);
                    let read = backend.enqueue_read(&queues[queue], &buffers[buffer], all).unwrap();
                    reads.push((read, model[buffer].clone()));
                }
            }
        }
        if held {
            for queue in order {
                bench.open_gate(&gates[queue]);
            }
        }
        for (read, expected) in reads {
            prop_assert_eq!(read.wait().unwrap(), expected);
        }
        for (buffer, expected) in buffers.iter().zip(&model) {
            prop_assert_eq!(&bench.read(buffer), expected);
        }
    }
}
