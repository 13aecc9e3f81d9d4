//! Random programs, and a model that knows what each of their commands had to wait for.

use std::collections::BTreeSet;

use binpool_allocators::{Backend, Event, EventStatus, Memory, Outcome, Queue, QueueOrder, Region};
use binpool_mock::{Call, Completion, MockDevice, MockEvent, MockMemory, MockStatistics};
use proptest::prelude::*;

use super::Rig;

pub const BUFFERS: usize = 3;
pub const BYTES: usize = 8;
/// One in-order queue and two out of order, besides the in-order one of the rig.
const ORDERS: [QueueOrder; 3] = [
    QueueOrder::InOrder,
    QueueOrder::OutOfOrder,
    QueueOrder::OutOfOrder,
];

/// What a program does next. Numbers pick among what there is, modulo how much there is.
#[derive(Clone, Debug)]
pub enum Step {
    Fill {
        queue: usize,
        buffer: usize,
        byte: u8,
        wait_for: Vec<usize>,
    },
    Copy {
        queue: usize,
        from: usize,
        to: usize,
        wait_for: Vec<usize>,
    },
    Add {
        queue: usize,
        from: usize,
        to: usize,
        wait_for: Vec<usize>,
    },
    Marker {
        queue: usize,
        wait_for: Vec<usize>,
    },
    Barrier {
        queue: usize,
        wait_for: Vec<usize>,
    },
    Gate,
    Resolve {
        gate: usize,
        outcome: bool,
    },
    Status {
        event: usize,
    },
    Wait {
        event: usize,
    },
    Finish {
        queue: usize,
    },
    Replace {
        buffer: usize,
    },
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait_for = || prop::collection::vec(0..1000usize, 0..3);
    let queue = || 0..=ORDERS.len();
    let buffer = || 0..BUFFERS;
    let step = prop_oneof![
        4 => (queue(), buffer(), 1..100u8, wait_for())
            .prop_map(|(queue, buffer, byte, wait_for)| Step::Fill { queue, buffer, byte, wait_for }),
        2 => (queue(), buffer(), buffer(), wait_for())
            .prop_map(|(queue, from, to, wait_for)| Step::Copy { queue, from, to, wait_for }),
        2 => (queue(), buffer(), buffer(), wait_for())
            .prop_map(|(queue, from, to, wait_for)| Step::Add { queue, from, to, wait_for }),
        1 => (queue(), wait_for()).prop_map(|(queue, wait_for)| Step::Marker { queue, wait_for }),
        1 => (queue(), wait_for()).prop_map(|(queue, wait_for)| Step::Barrier { queue, wait_for }),
        1 => Just(Step::Gate),
        1 => (0..1000usize, prop::bool::weighted(0.8))
            .prop_map(|(gate, outcome)| Step::Resolve { gate, outcome }),
        1 => (0..1000usize).prop_map(|event| Step::Status { event }),
        1 => (0..1000usize).prop_map(|event| Step::Wait { event }),
        1 => queue().prop_map(|queue| Step::Finish { queue }),
        1 => buffer().prop_map(|buffer| Step::Replace { buffer }),
    ];
    prop::collection::vec(step, 0..60)
}

/// What a command does to the blocks, which are numbered in the order of their creation.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    Nothing,
    Fill(usize, u8),
    Copy(usize, usize),
    Add(usize, usize),
}

/// A command, as the model has it.
#[derive(Clone, Debug)]
pub struct Expected {
    pub effect: Effect,
    queue: usize,
    is_barrier: bool,
    /// The commands that must end before it.
    pub after: BTreeSet<usize>,
    /// Those of them, and the gates, whose failure is its own.
    pub wait_list: Vec<Source>,
}

/// Where an event comes from: a command or a gate, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Command(usize),
    Gate(usize),
}

/// A gate, as the model has it: how it was resolved, and how many commands had ended before.
#[derive(Clone, Copy, Debug)]
pub struct Resolved {
    pub outcome: Outcome,
    pub ended_before: usize,
}

/// What became of a program.
#[derive(Debug)]
pub struct Run {
    pub commands: Vec<Expected>,
    pub gates: Vec<Option<Resolved>>,
    /// The commands in the order in which they ended, with their names.
    pub ended: Vec<(usize, String, EventStatus)>,
    /// The numbers of the blocks that are there at the end, and what is in them.
    pub contents: Vec<(usize, Vec<u8>)>,
    pub calls: Vec<Call>,
    pub statistics: MockStatistics,
}

struct Runner {
    rig: Rig,
    queues: Vec<binpool_mock::MockQueue>,
    buffers: Vec<(usize, MockMemory)>,
    blocks: usize,
    events: Vec<(Source, MockEvent)>,
    commands: Vec<Expected>,
    gates: Vec<Option<Resolved>>,
}

/// Runs a program to its end.
pub fn run(steps: &[Step], completion: Completion) -> Run {
    let rig = Rig::on(MockDevice::builder().completion(completion).log_calls(true));
    let mut queues = vec![rig.queue.clone()];
    queues.extend(ORDERS.map(|order| rig.queue(order)));
    let mut runner = Runner {
        buffers: (0..BUFFERS)
            .map(|block| (block, rig.buffer(BYTES)))
            .collect(),
        rig,
        queues,
        blocks: BUFFERS,
        events: Vec::new(),
        commands: Vec::new(),
        gates: Vec::new(),
    };
    for step in steps {
        runner.step(step);
    }
    runner.finish()
}

impl Runner {
    fn step(&mut self, step: &Step) {
        let all = Region::first(BYTES);
        match step {
            Step::Fill {
                queue,
                buffer,
                byte,
                wait_for,
            } => {
                let block = self.buffers[*buffer].0;
                self.enqueue(
                    *queue,
                    wait_for,
                    Effect::Fill(block, *byte),
                    false,
                    |this, queue, wait_for| {
                        let memory = &this.buffers[*buffer].1;
                        this.rig
                            .backend
                            .enqueue_fill(queue, memory, all, &[*byte], wait_for)
                            .unwrap()
                    },
                );
            }
            Step::Copy { from, to, .. } | Step::Add { from, to, .. } if from == to => {}
            Step::Copy {
                queue,
                from,
                to,
                wait_for,
            } => {
                let effect = Effect::Copy(self.buffers[*from].0, self.buffers[*to].0);
                self.enqueue(*queue, wait_for, effect, false, |this, queue, wait_for| {
                    let (from, to) = (&this.buffers[*from].1, &this.buffers[*to].1);
                    this.rig
                        .backend
                        .enqueue_copy(queue, from, all, to, 0, wait_for)
                        .unwrap()
                });
            }
            Step::Add {
                queue,
                from,
                to,
                wait_for,
            } => {
                let effect = Effect::Add(self.buffers[*from].0, self.buffers[*to].0);
                self.enqueue(*queue, wait_for, effect, false, |this, queue, wait_for| {
                    let (from, to) = (&this.buffers[*from].1, &this.buffers[*to].1);
                    let add = |reads: &[&[u8]], writes: &mut [&mut [u8]]| {
                        for (to, from) in writes[0].iter_mut().zip(reads[0]) {
                            *to = to.wrapping_add(*from);
                        }
                    };
                    this.rig
                        .backend
                        .launch(queue, "add", &[from], &[to], add, wait_for)
                        .unwrap()
                });
            }
            Step::Marker { queue, wait_for } => {
                self.enqueue(
                    *queue,
                    wait_for,
                    Effect::Nothing,
                    false,
                    |this, queue, wait_for| {
                        this.rig.backend.enqueue_marker(queue, wait_for).unwrap()
                    },
                );
            }
            Step::Barrier { queue, wait_for } => {
                self.enqueue(
                    *queue,
                    wait_for,
                    Effect::Nothing,
                    true,
                    |this, queue, wait_for| {
                        this.rig.backend.enqueue_barrier(queue, wait_for).unwrap()
                    },
                );
            }
            Step::Gate => {
                self.events
                    .push((Source::Gate(self.gates.len()), self.rig.gate()));
                self.gates.push(None);
            }
            Step::Resolve { gate, outcome } => {
                if !self.gates.is_empty() {
                    self.resolve(gate % self.gates.len(), *outcome);
                }
            }
            Step::Status { event } => {
                if !self.events.is_empty() {
                    self.events[event % self.events.len()].1.status().unwrap();
                }
            }
            // Both may fail, where something failed or a gate is closed.
            Step::Wait { event } => {
                if !self.events.is_empty() {
                    let _ended = self.events[event % self.events.len()].1.wait();
                }
            }
            Step::Finish { queue } => {
                let _ended = self.queues[*queue].finish();
            }
            Step::Replace { buffer } => {
                self.buffers[*buffer] = (self.blocks, self.rig.buffer(BYTES));
                self.blocks += 1;
            }
        }
    }

    fn enqueue(
        &mut self,
        queue: usize,
        wait_for: &[usize],
        effect: Effect,
        is_barrier: bool,
        enqueue: impl FnOnce(&Self, &binpool_mock::MockQueue, &[MockEvent]) -> MockEvent,
    ) {
        let waits: Vec<_> = wait_for
            .iter()
            .filter(|_| !self.events.is_empty())
            .map(|index| self.events[index % self.events.len()].clone())
            .collect();
        let (wait_list, events): (Vec<Source>, Vec<MockEvent>) = waits.into_iter().unzip();
        let number = self.commands.len();
        let is_fence = matches!(effect, Effect::Nothing);
        let in_order = self.queues[queue].order() == QueueOrder::InOrder;
        let earlier = || (0..number).filter(|earlier| self.commands[*earlier].queue == queue);
        let mut after: BTreeSet<usize> = if in_order || (is_fence && wait_list.is_empty()) {
            earlier().collect()
        } else {
            earlier()
                .filter(|earlier| self.commands[*earlier].is_barrier)
                .collect()
        };
        after.extend(wait_list.iter().filter_map(|source| match source {
            Source::Command(command) => Some(*command),
            Source::Gate(_) => None,
        }));
        let event = enqueue(self, &self.queues[queue], &events);
        self.commands.push(Expected {
            effect,
            queue,
            is_barrier,
            after,
            wait_list,
        });
        self.events.push((Source::Command(number), event));
    }

    fn resolve(&mut self, gate: usize, complete: bool) {
        if self.gates[gate].is_some() {
            return;
        }
        let outcome = if complete {
            Outcome::Complete
        } else {
            Outcome::Failed
        };
        let ended_before = self.rig.device.ended_commands().len();
        let (_, event) = &self
            .events
            .iter()
            .find(|(source, _)| *source == Source::Gate(gate))
            .unwrap();
        self.rig.backend.resolve_user_event(event, outcome).unwrap();
        self.gates[gate] = Some(Resolved {
            outcome,
            ended_before,
        });
    }

    fn finish(mut self) -> Run {
        for gate in 0..self.gates.len() {
            self.resolve(gate, true);
        }
        self.rig.device.run();
        assert_eq!(self.rig.device.pending_commands(), 0);
        let ended = self.rig.device.ended_commands();
        let ended = ended.into_iter().map(|command| {
            let number = usize::try_from(command.id.get()).unwrap() - 1;
            (number, command.name.into_owned(), command.status)
        });
        let ended = ended.collect();
        let contents = self
            .buffers
            .iter()
            .map(|(block, memory)| (*block, self.rig.contents(memory)))
            .collect();
        assert!(
            self.buffers
                .iter()
                .all(|(_, memory)| memory.bytes() == BYTES)
        );
        let device = self.rig.device.clone();
        let run = Run {
            ended,
            contents,
            calls: device.calls(),
            statistics: device.statistics(),
            commands: std::mem::take(&mut self.commands),
            gates: std::mem::take(&mut self.gates),
        };
        drop(self);
        assert!(device.leaks().is_empty(), "{}", device.leaks());
        assert!(device.violations().is_empty());
        run
    }
}
