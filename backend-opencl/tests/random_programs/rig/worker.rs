//! A thread of a program: what it has in hand, and what the model says of it.

use std::{fmt, sync::Arc, time::Duration};

use binpool_allocators::{Backend, Event, PendingRead, Queue, QueueOrder};
use binpool_conformance::Random;
use binpool_opencl::{ClEvent, ClQueue, OpenClBackend, PendingTransfer};

use super::{
    accepted::Refusal,
    counts::Counts,
    gates::{Gates, Opening},
    kernels::Kernels,
    object::Object,
    picture::Picture,
    program::Program,
};
use crate::model::{
    cells::{Cell, Sources},
    commands::{CommandId, Commands, Gates as Mask},
    expected,
    roots::{Place, Roots},
};

/// A queue, and what its commands may wait for.
#[derive(Debug)]
struct Slot {
    queue: ClQueue,
    gates: Mask,
}

/// The wait list of a command.
#[derive(Default)]
pub(crate) struct Wait {
    pub(crate) events: Vec<ClEvent>,
    pub(crate) gates: Mask,
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.events.len();
        write!(f, "behind {events} events")?;
        if self.gates == 0 {
            return Ok(());
        }
        let gates = (0..Mask::BITS).filter(|gate| self.gates >> gate & 1 == 1);
        write!(f, " (gates {:?})", gates.collect::<Vec<_>>())
    }
}

/// A read under way, in either form.
pub(crate) enum Reading {
    Bytes(PendingRead<ClEvent>),
    Owned(PendingTransfer<u8>),
}

pub(crate) struct Read {
    pub(crate) reading: Reading,
    pub(crate) expected: Vec<Cell>,
    pub(crate) command: CommandId,
    pub(crate) what: String,
}

pub(crate) struct Worker<'p> {
    pub(crate) program: &'p Program<'p>,
    thread: usize,
    /// The steps that are left, the next one last.
    steps: Vec<usize>,
    step: usize,
    slots: Vec<Slot>,
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) pictures: Vec<Arc<Picture>>,
    pub(crate) gates: Gates,
    pub(crate) commands: Commands,
    pub(crate) sources: Sources,
    pub(crate) roots: Roots,
    pub(crate) reads: Vec<Read>,
    pub(crate) counts: Counts,
    named: usize,
}

impl<'p> Worker<'p> {
    pub(crate) fn new(program: &'p Program<'p>, thread: usize, mut steps: Vec<usize>) -> Self {
        steps.reverse();
        let slot = |queue: &ClQueue| Slot {
            queue: queue.clone(),
            gates: 0,
        };
        // On NVIDIA's driver a command can still read as pending when a map after it has completed, with its bytes.
        let limits = program.device.backend.limits();
        let lag = Duration::from_secs(u64::from(limits.device_name.contains("NVIDIA")));
        Self {
            slots: program.queues.iter().map(slot).collect(),
            program,
            thread,
            steps,
            step: 0,
            objects: Vec::new(),
            pictures: Vec::new(),
            gates: Gates::default(),
            commands: Commands::new(lag),
            sources: Sources::default(),
            roots: Roots::default(),
            reads: Vec::new(),
            counts: Counts::default(),
            named: 0,
        }
    }

    /// The numbers of the next step: they are the same whichever steps come before.
    pub(crate) fn next_step(&mut self) -> Option<Random> {
        self.step = self.steps.pop()?;
        let seed = self.program.seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
        Some(Random::new(seed ^ (self.step as u64) << 20))
    }

    pub(crate) fn backend(&self) -> &'p OpenClBackend {
        &self.program.device.backend
    }

    pub(crate) fn kernels(&self) -> &'p Kernels {
        &self.program.device.kernels
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.program.threads == 1
    }

    /// Tells of the step before it is taken.
    pub(crate) fn say(&self, what: fmt::Arguments<'_>) {
        if self.program.trace {
            eprintln!("[{}] {}: {what}", self.thread, self.step);
        }
    }

    pub(crate) fn fresh_name(&mut self, kind: &str) -> String {
        self.named += 1;
        format!("{kind}{}", self.named)
    }

    // Queues.

    pub(crate) fn any_queue(&self, random: &mut Random) -> usize {
        random.below(self.slots.len())
    }

    pub(crate) fn queue(&self, slot: usize) -> ClQueue {
        self.slots[slot].queue.clone()
    }

    pub(crate) fn queue_gates(&self, slot: usize) -> Mask {
        self.slots[slot].gates
    }

    /// Drops a queue, and has another of its kind instead.
    pub(crate) fn replace_queue(&mut self, slot: usize) {
        let order = self.slots[slot].queue.order();
        let queue = self.backend().create_queue(order);
        self.slots[slot] = Slot {
            queue: queue.expect("a queue can be made"),
            gates: 0,
        };
    }

    pub(crate) fn finish_queues(&mut self) {
        for slot in &self.slots {
            slot.queue.finish().expect("a queue can be finished");
        }
    }

    // Wait lists and gates.

    /// Up to three events: of commands that are pending or have ended, of other threads, and user events.
    pub(crate) fn wait_list(&self, random: &mut Random) -> Wait {
        let mut wait = Wait::default();
        for _ in 0..[0, 0, 0, 1, 1, 2, 3][random.below(7)] {
            match random.below(8) {
                0..4 => {
                    let held = self.commands.held();
                    if let Some(&id) = held.get(random.below(held.len())) {
                        wait.events.extend(self.commands.event(id).cloned());
                        wait.gates |= self.commands.gates(id);
                    }
                }
                4..7 => {
                    if let Some((number, gate)) = self.gates.any(random) {
                        wait.events.push(gate);
                        wait.gates |= 1 << number;
                    }
                }
                _ => {
                    let events = self.program.events.lock().unwrap();
                    wait.events
                        .extend(events.get(random.below(events.len())).cloned());
                }
            }
        }
        wait
    }

    /// Called before anything that may wait for commands after these gates: opens them, since nothing else would.
    ///
    /// Where there are other threads, it opens all: a thread that waits has no closed gates, so no two wait for each other.
    pub(crate) fn may_block(&mut self, gates: Mask, random: &mut Random) {
        let mask = if self.is_alone() { gates } else { Mask::MAX };
        while let Some((number, _)) = self.gates.any_of(mask, random) {
            let opening = match Opening::any(self.program.failing, random) {
                // A wait list in hand would keep it from being the last handle.
                Opening::Dropped => Opening::Failed,
                opening => opening,
            };
            self.open(number, opening);
        }
    }

    pub(crate) fn open(&mut self, number: usize, opening: Opening) {
        self.say(format_args!("gate {number}: {opening:?}"));
        self.gates.open(number, opening, self.backend());
    }

    /// What a command on `slot` with this wait list and this memory may wait for.
    pub(crate) fn gates_of(&self, slot: usize, wait: &Wait, places: &[Place]) -> Mask {
        let places = places.iter().map(|place| self.roots.gates(*place));
        places.fold(wait.gates | self.slots[slot].gates, |all, gates| {
            all | gates
        })
    }

    // Commands.

    /// Takes down a command that was enqueued, with what it may wait for.
    pub(crate) fn enqueued(
        &mut self,
        slot: usize,
        wait: &Wait,
        places: &[Place],
        event: ClEvent,
    ) -> CommandId {
        let gates = self.note(slot, wait, places);
        self.commands.add(event, gates)
    }

    /// The same, of a command whose event the program does not get.
    pub(crate) fn enqueued_without_event(
        &mut self,
        slot: usize,
        wait: &Wait,
        places: &[Place],
    ) -> CommandId {
        let gates = self.note(slot, wait, places);
        self.commands.add_without_event(gates)
    }

    pub(crate) fn note(&mut self, slot: usize, wait: &Wait, places: &[Place]) -> Mask {
        let gates = self.gates_of(slot, wait, places);
        // Of out-of-order queues, too: some runtimes run them in order.
        self.slots[slot].gates |= gates;
        for place in places {
            self.roots.add_gates(*place, gates);
        }
        gates
    }

    /// Takes down that a pool may have put this queue after any of the others, or all of them where there is none.
    pub(crate) fn ordered_by_a_pool(&mut self, slot: Option<usize>) {
        let all = self.slots.iter().fold(0, |all, slot| all | slot.gates);
        match slot {
            Some(slot) => self.slots[slot].gates |= all,
            None => self.slots.iter_mut().for_each(|slot| slot.gates |= all),
        }
    }

    pub(crate) fn may_be_mapped(&self, places: &[Place]) -> bool {
        places.iter().any(|place| self.roots.may_be_mapped(*place))
    }

    /// What a call gave, or `None` if it was refused for a reason that holds: the memory is `mapped`, the device has
    /// no such thing, or an event has failed.
    pub(crate) fn accepted<T>(
        &mut self,
        call: &str,
        result: Result<T, impl Into<Refusal>>,
        mapped: bool,
    ) -> Option<T> {
        let refusal = match result {
            Ok(value) => {
                self.counts.accept(call);
                return Some(value);
            }
            Err(error) => error.into(),
        };
        let holds = match &refusal {
            Refusal::Mapped => mapped,
            Refusal::Invalid(_) => false,
            Refusal::Unsupported(_) => true,
            Refusal::Runtime(_) => self.program.failing,
        };
        if !holds {
            self.violated(format_args!("{call}: {refusal}"));
        }
        self.say(format_args!("... {refusal}"));
        self.counts.refuse(call);
        None
    }

    /// A call that must be refused, and was not a moment ago.
    pub(crate) fn refused<T>(&mut self, call: &str, result: Result<T, impl Into<Refusal>>) {
        match result.map_err(Into::into) {
            Err(Refusal::Invalid(_) | Refusal::Mapped | Refusal::Unsupported(_)) => {
                self.counts.refuse(call);
            }
            Err(Refusal::Runtime(text)) => {
                self.violated(format_args!("{call}: refused by the runtime only: {text}"));
            }
            Ok(_) => self.violated(format_args!("{call}: was accepted")),
        }
    }

    /// Compares what a command brought, which has completed.
    pub(crate) fn compare(&mut self, what: &str, actual: &[u8], expected: &[Cell]) {
        let model = (&self.commands, &self.sources);
        let compared = expected::compare(actual, expected, model, self.program.failing);
        if let Some(wrong) = compared.wrong {
            self.violated(format_args!("{what}: {wrong}"));
        }
        self.counts.compared += compared.bytes as u64;
    }

    /// Waits for a read, and compares what it brought.
    pub(crate) fn take(&mut self, read: Read, random: &mut Random) {
        self.may_block(self.commands.gates(read.command), random);
        self.say(format_args!("wait for {}", read.what));
        let bytes = match read.reading {
            Reading::Bytes(read) => read.wait().map_err(Refusal::from),
            Reading::Owned(read) => read.wait().map_err(Refusal::from),
        };
        if let Some(bytes) = self.accepted("wait for a read", bytes, false) {
            self.compare(&read.what, &bytes, &read.expected);
        }
    }

    pub(crate) fn violated(&self, what: fmt::Arguments<'_>) -> ! {
        let (seed, thread, step) = (self.program.seed, self.thread, self.step);
        panic!("program {seed}, thread {thread}, step {step}: {what}");
    }

    // Memory.

    pub(crate) fn any_object(&self, random: &mut Random) -> Option<Arc<Object>> {
        if !self.is_alone() && random.below(5) == 0 {
            let shared = self.program.shared.lock().unwrap();
            if let Some(object) = shared.get(random.below(shared.len())) {
                return Some(Arc::clone(object));
            }
        }
        self.objects.get(random.below(self.objects.len())).cloned()
    }

    /// Returns whether nothing else that the thread has, and no map, lies where the object did that was here.
    pub(crate) fn is_only(&self, place: Place) -> bool {
        if self.roots.is_kept(place) {
            return false;
        }
        let objects = self.objects.iter().map(|object| object.place);
        let pictures = self.pictures.iter().map(|picture| picture.place);
        let mut others = objects.chain(pictures);
        others.all(|other| other.root != place.root) && !self.roots.may_be_mapped(place)
    }

    pub(crate) fn any_picture(&self, random: &mut Random) -> Option<Arc<Picture>> {
        self.pictures
            .get(random.below(self.pictures.len()))
            .cloned()
    }

    /// Checks that every held event says that its command has ended well, where nothing may fail.
    pub(crate) fn check_events(&mut self) {
        for id in self.commands.held() {
            let event = self.commands.event(id).cloned();
            let ended = event.map_or(Ok(()), |event| event.wait());
            if let Err(error) = ended
                && !self.program.failing
            {
                self.violated(format_args!("{id:?} failed: {error}"));
            }
        }
    }

    pub(crate) fn in_order(&self, slot: usize) -> bool {
        self.slots[slot].queue.order() == QueueOrder::InOrder
    }
}
