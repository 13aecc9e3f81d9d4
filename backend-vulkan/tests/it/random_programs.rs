//! Random programs beside a model, whose commands the core puts in order: on several queues, with user events in between that are resolved at
//! any time, and queues and memory that are dropped while commands wait. `BINPOOL_RANDOM_PROGRAMS` says how many there are.

use std::env;

use binpool_allocators::{Backend, Event, MemoryFlags, Outcome, PendingRead, Queue, QueueOrder};
use binpool_conformance::Random;
use binpool_vulkan::{VulkanBackend, VulkanEvent, VulkanMemory, VulkanQueue};

use crate::common;

/// Sizes with and without words, of bytes that a command carries and of bytes that pass through the host.
const SIZES: [usize; 4] = [333, 4096, 70_001, 200_000];

/// A read that may not have ended, and the bytes that it is to bring.
struct Reading {
    read: PendingRead<VulkanEvent>,
    expected: Vec<u8>,
}

struct Program {
    backend: VulkanBackend,
    random: Random,
    queues: Vec<VulkanQueue>,
    /// Each with the bytes that it has once all commands have ended.
    blocks: Vec<(VulkanMemory, Vec<u8>)>,
    gates: Vec<VulkanEvent>,
    reads: Vec<Reading>,
}

impl Program {
    fn new(backend: &VulkanBackend, seed: u64) -> Self {
        let mut program = Self {
            backend: backend.clone(),
            random: Random::new(seed),
            queues: (0..3).map(|_| queue(backend)).collect(),
            blocks: Vec::new(),
            gates: Vec::new(),
            reads: Vec::new(),
        };
        for _ in 0..3 {
            let block = program.block();
            program.blocks.push(block);
        }
        program
    }

    fn block(&mut self) -> (VulkanMemory, Vec<u8>) {
        let bytes = SIZES[self.random.below(SIZES.len())];
        let flags = [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT][self.random.below(2)];
        let memory = self.backend.create_buffer(bytes, flags).unwrap();
        let queue = &self.queues[self.random.below(3)];
        self.backend
            .enqueue_fill(queue, &memory, .., &[0_u8])
            .unwrap();
        (memory, vec![0; bytes])
    }

    fn any_bytes(&mut self, bytes: usize) -> Vec<u8> {
        let first = self.random.below(256);
        let step = 1 + self.random.below(9);
        let byte = |index| u8::try_from((first + step * index) % 251).unwrap();
        (0..bytes).map(byte).collect()
    }

    fn region(&mut self, most: usize) -> (usize, usize) {
        let offset = self.random.below(most);
        (offset, 1 + self.random.below(most - offset))
    }

    fn step(&mut self) {
        let (queue, index) = (self.random.below(3), self.random.below(3));
        let size = self.blocks[index].1.len();
        let (offset, bytes) = self.region(size);
        match self.random.below(12) {
            0..3 => {
                let data = self.any_bytes(bytes);
                let (memory, model) = &mut self.blocks[index];
                model[offset..offset + bytes].copy_from_slice(&data);
                self.backend
                    .enqueue_write(&self.queues[queue], memory, offset, data.into())
                    .unwrap();
            }
            3 | 4 => {
                let length = [1, 2, 3, 4, 8, 12][self.random.below(6)];
                let pattern = self.any_bytes(length);
                let offset = offset / length * length;
                let end = offset + bytes / length * length;
                let (memory, model) = &mut self.blocks[index];
                for place in model[offset..end].chunks_mut(length) {
                    place.copy_from_slice(&pattern);
                }
                self.backend
                    .enqueue_fill(&self.queues[queue], memory, offset..end, &pattern)
                    .unwrap();
            }
            5 | 6 => {
                let other = (index + 1) % 3;
                let size = self.blocks[other].1.len();
                let (to, most) = self.region(size);
                let bytes = bytes.min(most);
                let data = self.blocks[index].1[offset..offset + bytes].to_vec();
                let (from, into) = (&self.blocks[index].0, &self.blocks[other].0);
                let region = offset..offset + bytes;
                self.backend
                    .enqueue_copy(&self.queues[queue], from, region, into, to)
                    .unwrap();
                self.blocks[other].1[to..to + bytes].copy_from_slice(&data);
            }
            7 | 8 => {
                let (memory, model) = &self.blocks[index];
                let region = offset..offset + bytes;
                let expected = model[region.clone()].to_vec();
                let read = self
                    .backend
                    .enqueue_read(&self.queues[queue], memory, region);
                let read = read.unwrap();
                // Those that are not looked at are dropped at any time.
                if self.random.below(4) > 0 {
                    self.reads.push(Reading { read, expected });
                }
            }
            9 if self.gates.len() < 3 => {
                let gate = self.backend.create_user_event().unwrap();
                let gated = self.queues[queue].after(std::slice::from_ref(&gate));
                self.backend.enqueue_barrier(gated).unwrap();
                self.gates.push(gate);
            }
            9 | 10 => self.open_any_gate(),
            _ if self.random.below(2) == 0 => self.queues[queue] = self::queue(&self.backend),
            _ => self.blocks[index] = self.block(),
        }
    }

    fn open_any_gate(&mut self) {
        if self.gates.is_empty() {
            return;
        }
        let index = self.random.below(self.gates.len());
        let gate = self.gates.swap_remove(index);
        // One that is dropped completes.
        if self.random.below(3) > 0 {
            self.backend
                .resolve_user_event(&gate, Outcome::Complete)
                .unwrap();
        }
    }

    fn end(mut self) {
        while !self.gates.is_empty() {
            self.open_any_gate();
        }
        for Reading { read, expected } in self.reads {
            assert!(
                read.wait().unwrap() == expected,
                "a read brought other bytes"
            );
        }
        for (memory, model) in self.blocks {
            let mut bytes = vec![0_u8; model.len()];
            self.backend
                .read(&self.queues[0], &memory, 0, &mut bytes)
                .unwrap();
            assert!(bytes == model, "a block has other bytes at the end");
        }
        assert!(self.queues.iter().all(|queue| {
            let last = self.backend.enqueue_marker(queue).unwrap();
            queue.finish().unwrap();
            last.has_ended()
        }));
    }
}

fn queue(backend: &VulkanBackend) -> VulkanQueue {
    backend.create_queue(QueueOrder::InOrder).unwrap()
}

fn run(backend: &VulkanBackend) {
    let programs = env::var("BINPOOL_RANDOM_PROGRAMS").map_or(20, |number| number.parse().unwrap());
    binpool_allocators::runtime::Runtime::core(backend).order_conflicts();
    for seed in 0..programs {
        let mut program = Program::new(backend, seed);
        for _ in 0..120 {
            program.step();
        }
        program.end();
    }
}

#[test]
fn random_programs_have_the_results_of_a_model() {
    run(&common::backend());
}

#[test]
fn random_programs_on_queues_that_run_in_any_order_have_the_results_of_a_model() {
    for families in [&[0, 0, 0][..], &[0, 1, 1, 0]] {
        run(&common::queues::parts(families, 1).backend());
    }
}
