//! What is remembered of commands is forgotten once it does not matter any more.

use std::{collections::VecDeque, ops::Range, slice::from_ref};

use binpool_allocators::{Backend, Queue, Region};

use crate::{alone, common::Bench, resident_bytes};

const SIZE: usize = 4096;

#[test]
fn a_buffer_does_not_remember_every_command_for_ever() {
    const PIECES: usize = 200_000;
    let _alone = alone();
    let bench = Bench::new();
    let memory = bench.buffer(4 * PIECES);
    let fill = |pieces: Range<usize>| {
        for piece in pieces {
            let region = Region::new(4 * piece, 4);
            let fill = bench
                .backend
                .enqueue_fill(&bench.queue, &memory, region, &[1_u8; 4]);
            fill.unwrap();
            if piece % 500 == 0 {
                bench.queue.finish().unwrap();
            }
        }
        bench.queue.finish().unwrap();
        resident_bytes()
    };
    let before = fill(0..PIECES / 10);
    let after = fill(PIECES / 10..PIECES);
    assert!(after < before + (64 << 20), "{before} bytes, then {after}");
}

/// Each of them waits for the one before, on another queue, and none has ended.
#[test]
fn a_long_line_of_commands_is_let_go_of() {
    let _alone = alone();
    let bench = Bench::new();
    let memory = bench.filled(SIZE, 0);
    let queues = [bench.another_queue(), bench.another_queue()];
    let gate = bench.gate();
    bench.fill(&queues[0], &memory, 1, from_ref(&gate));
    for step in 0..2000 {
        bench.fill(&queues[step % 2], &memory, 2, &[]);
    }
    bench.open_gate(&gate);
    assert_eq!(bench.read(&memory), [2; SIZE]);
    // Much longer, with the last hundred always pending.
    let before = resident_bytes();
    let mut line = VecDeque::new();
    for step in 0..40_000 {
        let gate = bench.gate();
        bench.fill(&queues[step % 2], &memory, 3, from_ref(&gate));
        line.push_back(gate);
        if line.len() > 100 {
            bench.open_gate(&line.pop_front().unwrap());
        }
    }
    for gate in line {
        bench.open_gate(&gate);
    }
    for queue in &queues {
        queue.finish().unwrap();
    }
    let after = resident_bytes();
    assert!(after < before + (13 << 20), "{before} bytes, then {after}");
    drop(memory);
}
