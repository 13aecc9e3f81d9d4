//! Small programs on a few queues, as a list of what the host does.

use std::collections::BTreeSet;

use binpool_allocators::{
    Backend, Event, FailureOrder, MemoryFlags, Outcome, Queue, QueueOrder, Region,
};
use binpool_mock::{Completion, Failures, MockDevice, MockEvent, Violation};
use proptest::prelude::*;

pub(crate) const BLOCKS: usize = 2;
pub(crate) const ORDERS: [QueueOrder; 3] = [
    QueueOrder::InOrder,
    QueueOrder::InOrder,
    QueueOrder::OutOfOrder,
];
const HALF: usize = 8;
const MOST_COMMANDS: usize = 7;

/// What a command does. Blocks have two halves: of two bits, the lower one is the first half.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Fill {
        block: usize,
        halves: u8,
    },
    /// From the first half of one block to the first half of the other.
    Copy {
        from: usize,
    },
    Marker,
    Barrier,
}

/// What the host does. Numbers of events pick among the events so far.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Enqueue {
        work: Work,
        queue: usize,
        wait_for: Vec<usize>,
    },
    Gate,
    Open(usize, Outcome),
    Wait(usize),
    Finish(usize),
}

fn works() -> impl Strategy<Value = Work> {
    prop_oneof![
        5 => (0..BLOCKS, 1..4_u8).prop_map(|(block, halves)| Work::Fill { block, halves }),
        2 => (0..BLOCKS).prop_map(|from| Work::Copy { from }),
        1 => Just(Work::Marker),
        2 => Just(Work::Barrier),
    ]
}

/// Programs whose gates fail with this probability.
pub(crate) fn steps(failing: f64) -> impl Strategy<Value = Vec<Step>> {
    let outcomes = prop::bool::weighted(failing).prop_map(|fails| {
        if fails {
            Outcome::Failed
        } else {
            Outcome::Complete
        }
    });
    let any = || 0..100_usize;
    let queue = || 0..ORDERS.len();
    // Mostly none: where much is ordered, little races.
    let wait_for = prop_oneof![
        3 => Just(Vec::new()),
        2 => prop::collection::vec(any(), 1..3),
    ];
    let step = prop_oneof![
        8 => (works(), queue(), wait_for)
            .prop_map(|(work, queue, wait_for)| Step::Enqueue { work, queue, wait_for }),
        1 => Just(Step::Gate),
        2 => (any(), outcomes).prop_map(|(gate, outcome)| Step::Open(gate, outcome)),
        3 => any().prop_map(Step::Wait),
        1 => queue().prop_map(Step::Finish),
    ];
    prop::collection::vec(step, 4..20)
}

/// Something to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Command(usize),
    Gate(usize),
}

/// A command of a program.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) work: Work,
    pub(crate) queue: usize,
    pub(crate) wait_for: Vec<Source>,
    /// What has to end before it, by the rules of queues alone.
    pub(crate) after: BTreeSet<usize>,
    /// Set if it fails, whatever comes when: it waits for something that does.
    pub(crate) is_doomed: bool,
    /// Set if it fails in some run: as many commands do as stand after one that does, where failures spread.
    pub(crate) may_fail: bool,
}

/// What the host does, with every number resolved, and nothing that would wait forever.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Enqueue(usize),
    Gate,
    Open(usize, Outcome),
    Wait(Source),
    Finish(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) failures: Failures,
    pub(crate) commands: Vec<Command>,
    pub(crate) actions: Vec<Action>,
}

/// Two commands, the one that was enqueued first first, and a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    pub(crate) block: usize,
    pub(crate) commands: [usize; 2],
}

impl Command {
    /// The commands of its wait list.
    fn listed(&self) -> impl Iterator<Item = &usize> {
        self.wait_for.iter().filter_map(|source| match source {
            Source::Command(number) => Some(number),
            Source::Gate(_) => None,
        })
    }
}

impl Work {
    /// The halves of a block that it reads and those that it writes.
    pub(crate) fn touches(self, block: usize) -> (u8, u8) {
        match self {
            Self::Fill {
                block: filled,
                halves,
            } if filled == block => (0, halves),
            Self::Copy { from } if from == block => (1, 0),
            Self::Copy { .. } => (0, 1),
            _ => (0, 0),
        }
    }

    fn is_fence(self) -> bool {
        matches!(self, Self::Marker | Self::Barrier)
    }
}

impl Program {
    pub(crate) fn new(steps: &[Step], failures: Failures) -> Self {
        let mut program = Self {
            failures,
            commands: Vec::new(),
            actions: Vec::new(),
        };
        let mut sources: Vec<Source> = Vec::new();
        let mut open: Vec<bool> = Vec::new();
        let pick = |sources: &[Source], number: usize| -> Option<Source> {
            sources.get(number.checked_rem(sources.len())?).copied()
        };
        for step in steps {
            match step {
                Step::Enqueue {
                    work,
                    queue,
                    wait_for,
                } if program.commands.len() < MOST_COMMANDS => {
                    let waits = wait_for.iter().filter_map(|number| pick(&sources, *number));
                    let wait_for: Vec<Source> = waits.collect();
                    let number = program.commands.len();
                    let after = program.must_come_before(*work, *queue, &wait_for);
                    program.commands.push(Command {
                        work: *work,
                        queue: *queue,
                        wait_for,
                        after,
                        is_doomed: false,
                        may_fail: false,
                    });
                    program.actions.push(Action::Enqueue(number));
                    sources.push(Source::Command(number));
                }
                Step::Gate if open.len() < 2 => {
                    sources.push(Source::Gate(open.len()));
                    program.actions.push(Action::Gate);
                    open.push(false);
                }
                Step::Open(number, outcome) if !open.is_empty() => {
                    let gate = number % open.len();
                    if !open[gate] {
                        open[gate] = true;
                        program.actions.push(Action::Open(gate, *outcome));
                    }
                }
                Step::Wait(number) => {
                    if let Some(source) = pick(&sources, *number) {
                        program.actions.push(Action::Wait(source));
                    }
                }
                Step::Finish(queue) => program.actions.push(Action::Finish(*queue)),
                Step::Enqueue { .. } | Step::Gate | Step::Open(..) => {}
            }
        }
        let closed = (0..open.len()).filter(|gate| !open[*gate]);
        let opened = closed.map(|gate| Action::Open(gate, Outcome::Complete));
        program.actions.extend(opened);
        for number in 0..program.commands.len() {
            let command = &program.commands[number];
            let is_doomed = command.wait_for.iter().any(|source| program.fails(*source));
            let may_fail = is_doomed
                || failures.spread && {
                    let mut before = command.after.iter().chain(command.listed());
                    before.any(|number| program.commands[*number].may_fail)
                };
            let command = &mut program.commands[number];
            (command.is_doomed, command.may_fail) = (is_doomed, may_fail);
        }
        program.leave_out_endless_waits();
        program
    }

    /// The halves of its block that both commands of a pair touch, one of them to write.
    pub(crate) fn raced_halves(&self, pair: Pair) -> u8 {
        let touches = |number: usize| self.commands[number].work.touches(pair.block);
        let [(reads, writes), (other_reads, other_writes)] = pair.commands.map(touches);
        writes & (other_reads | other_writes) | reads & other_writes
    }

    /// Returns whether this fails, where all earlier commands are known to be doomed or not.
    fn fails(&self, source: Source) -> bool {
        match source {
            Source::Command(number) => self.commands[number].is_doomed,
            Source::Gate(gate) => self.actions.iter().any(
                |action| matches!(action, Action::Open(opened, Outcome::Failed) if *opened == gate),
            ),
        }
    }

    /// Keeps what the host waits for before it has opened the gates in the way.
    fn leave_out_endless_waits(&mut self) {
        let actions = std::mem::take(&mut self.actions);
        let all = Self {
            actions: actions.clone(),
            ..self.clone()
        };
        let mut open = BTreeSet::new();
        let mut enqueued = 0;
        self.actions = actions;
        self.actions.retain(|action| {
            match action {
                Action::Open(gate, _) => {
                    open.insert(*gate);
                }
                Action::Enqueue(_) => enqueued += 1,
                Action::Wait(source) => return !all.is_gated(*source, &open),
                Action::Finish(queue) => {
                    let mut commands = all.commands[..enqueued].iter().enumerate();
                    return !commands.any(|(number, command)| {
                        command.queue == *queue && all.is_gated(Source::Command(number), &open)
                    });
                }
                Action::Gate => {}
            }
            true
        });
    }

    fn must_come_before(&self, work: Work, queue: usize, wait_for: &[Source]) -> BTreeSet<usize> {
        let in_order = ORDERS[queue] == QueueOrder::InOrder;
        let earlier = self.commands.iter().enumerate();
        let mut earlier = earlier.filter(|(_, earlier)| earlier.queue == queue);
        if !in_order && work.is_fence() && wait_for.is_empty() {
            return earlier.map(|(number, _)| number).collect();
        }
        // Through the last one, after those before it: unless the last one fails, and its place is lost.
        earlier
            .rfind(|(_, earlier)| in_order || matches!(earlier.work, Work::Barrier))
            .map(|(number, _)| number)
            .into_iter()
            .collect()
    }

    /// Whether a closed gate keeps this from ending.
    fn is_gated(&self, source: Source, open: &BTreeSet<usize>) -> bool {
        match source {
            Source::Gate(gate) => !open.contains(&gate),
            Source::Command(number) => {
                let command = &self.commands[number];
                if command.is_doomed && self.failures.order != FailureOrder::Kept {
                    let mut list = command.wait_for.iter();
                    return list.all(|source| !self.fails(*source) || self.is_gated(*source, open));
                }
                self.has_closed_gate_before(number, open)
            }
        }
    }

    /// Returns whether a closed gate keeps this command in its place.
    fn has_closed_gate_before(&self, number: usize, open: &BTreeSet<usize>) -> bool {
        let command = &self.commands[number];
        let after = command.after.iter().map(|number| Source::Command(*number));
        let mut before = after.chain(command.wait_for.iter().copied());
        before.any(|source| match source {
            Source::Command(number) if self.failures.order.keeps_places() => {
                self.has_closed_gate_before(number, open)
            }
            source => self.is_gated(source, open),
        })
    }

    /// Runs it on a device, which runs commands between the host's actions as `choices` say where it runs none by
    /// itself. The races that are reported.
    pub(crate) fn run(&self, completion: Completion, choices: &[u8]) -> BTreeSet<Pair> {
        let device = MockDevice::builder()
            .completion(completion)
            .failures(self.failures)
            .build();
        let backend = device.backend();
        let queues = ORDERS.map(|order| backend.create_queue(order).unwrap());
        let blocks = [(); BLOCKS].map(|()| {
            backend
                .create_buffer(2 * HALF, MemoryFlags::empty())
                .unwrap()
        });
        let mut events: Vec<MockEvent> = Vec::new();
        let mut gates: Vec<MockEvent> = Vec::new();
        let mut choices = choices.iter().map(|choice| usize::from(*choice));
        for action in &self.actions {
            let event_of = |source: &Source| match source {
                Source::Command(command) => events[*command].clone(),
                Source::Gate(gate) => gates[*gate].clone(),
            };
            match action {
                Action::Enqueue(number) => {
                    let Command {
                        work,
                        queue,
                        wait_for,
                        ..
                    } = &self.commands[*number];
                    let wait_for: Vec<MockEvent> = wait_for.iter().map(event_of).collect();
                    let queue = &queues[*queue];
                    let event = match *work {
                        Work::Fill { block, halves } => {
                            let start = if halves & 1 == 0 { HALF } else { 0 };
                            let end = if halves & 2 == 0 { HALF } else { 2 * HALF };
                            let region = Region::new(start, end - start);
                            backend.enqueue_fill(
                                queue.after(&wait_for),
                                &blocks[block],
                                region,
                                &[1_u8],
                            )
                        }
                        Work::Copy { from } => {
                            let (source, target) = (&blocks[from], &blocks[1 - from]);
                            let region = Region::first(HALF);
                            backend.enqueue_copy(queue.after(&wait_for), source, region, target, 0)
                        }
                        Work::Marker => backend.enqueue_marker(queue.after(&wait_for)),
                        Work::Barrier => backend.enqueue_barrier(queue.after(&wait_for)),
                    };
                    events.push(event.unwrap());
                }
                Action::Gate => gates.push(backend.create_user_event().unwrap()),
                Action::Open(gate, outcome) => {
                    backend.resolve_user_event(&gates[*gate], *outcome).unwrap();
                }
                Action::Wait(source) => {
                    let event = event_of(source);
                    let waited = event.wait();
                    assert!(event.status().unwrap().has_ended(), "{waited:?}");
                }
                Action::Finish(queue) => queues[*queue].finish().unwrap(),
            }
            for _ in 0..choices.next().unwrap_or(0) % 4 {
                let runnable = device.runnable();
                if let Some(place) = choices.next().unwrap_or(0).checked_rem(runnable.len()) {
                    device.run_command(runnable[place]);
                }
            }
        }
        device.run();
        assert_eq!(device.pending_commands(), 0);
        let memories = blocks.each_ref().map(binpool_allocators::Memory::id);
        let reported = device.violations().into_iter().map(|violation| {
            let Violation::Race(race) = violation else {
                panic!("not a race: {violation}");
            };
            let number =
                |command: binpool_mock::CommandId| usize::try_from(command.get()).unwrap() - 1;
            let mut commands = [race.first.command, race.second.command].map(number);
            commands.sort_unstable();
            let block = memories.iter().position(|memory| *memory == race.memory);
            Pair {
                block: block.unwrap(),
                commands,
            }
        });
        reported.collect()
    }
}
