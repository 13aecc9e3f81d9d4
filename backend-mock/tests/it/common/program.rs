//! Random programs, and a model that knows what each of their commands had to wait for.

use std::collections::BTreeSet;

use binpool_allocators::{Backend, Event, EventStatus, Memory, Outcome, Queue, QueueOrder, Region};
use binpool_mock::{
    Call, Completion, Failures, MockDevice, MockEvent, MockMemory, MockQueue, MockStatistics,
    Violation,
};
use proptest::prelude::*;

use super::Rig;

pub(crate) const BUFFERS: usize = 3;
pub(crate) const BYTES: usize = 8;
/// One in-order queue and two out of order, besides the in-order one of the rig.
const ORDERS: [QueueOrder; 3] = [
    QueueOrder::InOrder,
    QueueOrder::OutOfOrder,
    QueueOrder::OutOfOrder,
];

/// A command of a program. Numbers are those of the buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    Fill(usize, u8),
    Copy(usize, usize),
    Add(usize, usize),
    Marker,
    Barrier,
}

/// What a program does next. Numbers pick among what there is, modulo how much there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Enqueue(Command, usize, Vec<usize>),
    Gate,
    Resolve(usize, bool),
    Status(usize),
    Wait(usize),
    Finish(usize),
    Replace(usize),
}

fn commands() -> impl Strategy<Value = Command> {
    let buffer = || 0..BUFFERS;
    let pair = || (buffer(), 1..BUFFERS).prop_map(|(from, apart)| (from, (from + apart) % BUFFERS));
    prop_oneof![
        4 => (buffer(), 1..100u8).prop_map(|(buffer, byte)| Command::Fill(buffer, byte)),
        2 => pair().prop_map(|(from, to)| Command::Copy(from, to)),
        2 => pair().prop_map(|(from, to)| Command::Add(from, to)),
        1 => Just(Command::Marker),
        1 => Just(Command::Barrier),
    ]
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let queue = || 0..=ORDERS.len();
    let any = || 0..1000usize;
    let enqueue = (commands(), queue(), prop::collection::vec(any(), 0..3));
    let step = prop_oneof![
        10 => enqueue.prop_map(|(command, queue, wait_for)| Step::Enqueue(command, queue, wait_for)),
        1 => Just(Step::Gate),
        1 => (any(), prop::bool::weighted(0.8))
            .prop_map(|(gate, complete)| Step::Resolve(gate, complete)),
        1 => any().prop_map(Step::Status),
        1 => any().prop_map(Step::Wait),
        1 => queue().prop_map(Step::Finish),
        1 => (0..BUFFERS).prop_map(Step::Replace),
    ];
    prop::collection::vec(step, 0..60)
}

/// What a command does to the blocks, which are numbered in the order of their creation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    Nothing,
    Fill(usize, u8),
    Copy(usize, usize),
    Add(usize, usize),
}

/// A command, as the model has it.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) effect: Effect,
    queue: usize,
    is_barrier: bool,
    /// The commands that must end before it.
    pub(crate) after: BTreeSet<usize>,
    /// Those of them, and the gates, whose failure is its own.
    pub(crate) wait_list: Vec<Source>,
}

impl Expected {
    /// The gates of its wait list.
    pub(crate) fn gates(&self) -> impl Iterator<Item = usize> {
        self.wait_list.iter().filter_map(|source| match source {
            Source::Gate(gate) => Some(*gate),
            Source::Command(_) => None,
        })
    }
}

/// Where an event comes from: a command or a gate, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Command(usize),
    Gate(usize),
}

/// A gate, as the model has it: how it was resolved, and how many commands had ended before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    pub(crate) outcome: Outcome,
    pub(crate) ended_before: usize,
}

/// What became of a program.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) commands: Vec<Expected>,
    pub(crate) gates: Vec<Option<Resolved>>,
    /// The commands in the order in which they ended, with their names.
    pub(crate) ended: Vec<(usize, String, EventStatus)>,
    /// The numbers of the blocks that are there at the end, and what is in them.
    pub(crate) contents: Vec<(usize, Vec<u8>)>,
    pub(crate) calls: Vec<Call>,
    pub(crate) statistics: MockStatistics,
}

struct Runner {
    rig: Rig,
    queues: Vec<MockQueue>,
    buffers: Vec<(usize, MockMemory)>,
    blocks: usize,
    events: Vec<(Source, MockEvent)>,
    commands: Vec<Expected>,
    gates: Vec<Option<Resolved>>,
}

/// Runs a program to its end.
pub(crate) fn run(steps: &[Step], completion: Completion, failures: Failures) -> Run {
    let builder = MockDevice::builder().completion(completion);
    let rig = Rig::on(builder.failures(failures).log_calls(true));
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
        match step {
            Step::Enqueue(command, queue, wait_for) => self.enqueue(*command, *queue, wait_for),
            Step::Gate => {
                let gate = Source::Gate(self.gates.len());
                self.events.push((gate, self.rig.gate()));
                self.gates.push(None);
            }
            Step::Resolve(gate, complete) => {
                if !self.gates.is_empty() {
                    self.resolve(gate % self.gates.len(), *complete);
                }
            }
            Step::Status(event) => {
                if let Some((_, event)) = self.event(*event) {
                    event.status().unwrap();
                }
            }
            // Both fail where something failed or a gate is closed, and that is well.
            Step::Wait(event) => {
                let _ended = self.event(*event).map(|(_, event)| event.wait());
            }
            Step::Finish(queue) => {
                let _ended = self.queues[*queue].finish();
            }
            Step::Replace(buffer) => {
                self.buffers[*buffer] = (self.blocks, self.rig.buffer(BYTES));
                self.blocks += 1;
            }
        }
    }

    fn event(&self, number: usize) -> Option<&(Source, MockEvent)> {
        self.events.get(number.checked_rem(self.events.len())?)
    }

    fn enqueue(&mut self, command: Command, queue: usize, wait_for: &[usize]) {
        let waits = wait_for
            .iter()
            .filter_map(|number| self.event(*number).cloned());
        let (wait_list, events): (Vec<Source>, Vec<MockEvent>) = waits.unzip();
        let number = self.commands.len();
        let event = self.submit(command, &self.queues[queue], &events);
        let expected = Expected {
            effect: self.effect(command),
            queue,
            is_barrier: matches!(command, Command::Barrier),
            after: self.must_come_before(command, queue, &wait_list),
            wait_list,
        };
        self.commands.push(expected);
        self.events.push((Source::Command(number), event));
    }

    fn submit(&self, command: Command, queue: &MockQueue, wait_for: &[MockEvent]) -> MockEvent {
        let (backend, all) = (&self.rig.backend, Region::first(BYTES));
        let memory = |buffer: usize| &self.buffers[buffer].1;
        let event = match command {
            Command::Fill(buffer, byte) => {
                backend.enqueue_fill(queue.after(wait_for), memory(buffer), all, &[byte])
            }
            Command::Copy(from, to) => {
                backend.enqueue_copy(queue.after(wait_for), memory(from), all, memory(to), 0)
            }
            Command::Add(from, to) => {
                let add = |reads: &[&[u8]], writes: &mut [&mut [u8]]| {
                    for (to, from) in writes[0].iter_mut().zip(reads[0]) {
                        *to = to.wrapping_add(*from);
                    }
                };
                backend.launch(
                    queue.after(wait_for),
                    "add",
                    &[memory(from)],
                    &[memory(to)],
                    add,
                )
            }
            Command::Marker => backend.enqueue_marker(queue.after(wait_for)),
            Command::Barrier => backend.enqueue_barrier(queue.after(wait_for)),
        };
        event.unwrap()
    }

    fn effect(&self, command: Command) -> Effect {
        let block = |buffer: usize| self.buffers[buffer].0;
        match command {
            Command::Fill(buffer, byte) => Effect::Fill(block(buffer), byte),
            Command::Copy(from, to) => Effect::Copy(block(from), block(to)),
            Command::Add(from, to) => Effect::Add(block(from), block(to)),
            Command::Marker | Command::Barrier => Effect::Nothing,
        }
    }

    /// The commands that must have ended before one that is enqueued now may.
    fn must_come_before(
        &self,
        command: Command,
        queue: usize,
        wait_list: &[Source],
    ) -> BTreeSet<usize> {
        let is_fence = matches!(command, Command::Marker | Command::Barrier);
        let in_order = self.queues[queue].order() == QueueOrder::InOrder;
        let after_all = in_order || (is_fence && wait_list.is_empty());
        let earlier = self.commands.iter().enumerate();
        let of_queue = earlier
            .filter(|(_, earlier)| earlier.queue == queue && (after_all || earlier.is_barrier))
            .map(|(number, _)| number);
        let listed = wait_list.iter().filter_map(|source| match source {
            Source::Command(command) => Some(*command),
            Source::Gate(_) => None,
        });
        of_queue.chain(listed).collect()
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
        // These programs order nothing, so that their commands race; they do nothing else wrong.
        let violations = device.violations();
        let races = |violation: &Violation| matches!(violation, Violation::Race(_));
        assert!(violations.iter().all(races), "{violations:?}");
        run
    }
}
