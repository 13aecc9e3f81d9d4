//! A model of the clock: every order in which threads free and request a block and make fences, and in which fences end or fail,
//! for each [`FailureOrder`].
//!
//! The pool's side is the real one: the clock, [`QueueStates`], and their comparisons. The device's side is a list of the commands
//! that use the block and have not ended, each with what it comes after. A command ends only where the pool sees that by a fence:
//! one that ends earlier could only be in the way of fewer others. Where commands fail early ([`FailureOrder::FailsEarly`]), any
//! fence may fail at any time, whatever has ended. Where they lose their places ([`FailureOrder::Lost`]), a command comes after the
//! one before it alone.

use std::{
    fmt,
    hash::{Hash, Hasher},
    iter,
    num::NonZeroUsize,
    sync::Arc,
    thread,
};

use binpool_allocators::{EventStatus, FailureOrder, QueueOrder};
use smallvec::SmallVec;
use stateright::{Checker, Model, Property};

use crate::{
    central::queue_states::QueueStates,
    order::{
        fence::{Fence, NewFence},
        queue_uses::QueueUses,
        timestamps::{Clock, QueueKey, QueueUse, Timestamp},
    },
    paper::{Paper, PaperEvent, PaperQueue},
};

/// The number of queues: in order, in order, out of order.
const QUEUES: usize = 3;

/// A set of commands that have not ended, a bit for the place of each in [`World::commands`].
type Commands = u32;

/// A set of queues, a bit for each.
type QueueSet = u8;

/// A command that uses the block and has not ended.
#[derive(Clone, Debug)]
struct Command {
    /// The lease by which it uses the block.
    lease: u8,
    /// The commands that end before it starts, whatever fails.
    after: Commands,
}

/// A queue on the device.
#[derive(Clone, Debug, Default)]
struct DeviceQueue {
    /// Its commands.
    own: Commands,
    /// Its commands, and all that these come after.
    all: Commands,
    /// What its next command comes after.
    next_after: Commands,
}

/// A fence, or a wait of the host for a whole queue.
#[derive(Clone, Debug)]
struct ModelFence {
    queue: usize,
    at: QueueUse,
    is_host_wait: bool,
    /// Set once the marker is enqueued, or the wait has begun.
    is_enqueued: bool,
    /// What it comes after, or what the host waits for.
    after: Commands,
    /// The lease that had been freed when the clock moved on, if that was the last one.
    freed: Option<u8>,
}

/// The only block.
#[derive(Clone, Debug)]
enum Block {
    /// Leased for a queue, and used on this and others.
    InUse { queue: usize, used_on: QueueSet },
    /// Freed at this moment, and not in the pool's lists yet: a thread has cached it.
    Cached {
        queue: usize,
        used_on: QueueSet,
        at: Timestamp,
    },
    /// Free, with these uses.
    Free(QueueUses),
}

/// The pool's side.
struct Pool {
    states: QueueStates<Paper, ()>,
    clock: Arc<Clock>,
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        let clock = Arc::<Clock>::default();
        while clock.now() < self.clock.now() {
            clock.move_on();
        }
        Self {
            states: self.states.without_blocks(Arc::clone(&clock)),
            clock,
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.states.fmt(f)
    }
}

/// A state of the model.
#[derive(Clone, Debug)]
struct World {
    pool: Pool,
    /// In the order in which they were enqueued.
    commands: Vec<Command>,
    queues: [DeviceQueue; QUEUES],
    /// The fences that have begun and have not ended.
    fences: Vec<ModelFence>,
    /// The number of fences that have ended.
    past_fences: usize,
    block: Block,
    /// The number of leases so far.
    leases: u8,
    /// The number of uses besides the first one of each lease.
    further_uses: usize,
    barriers: usize,
    /// The queues whose uses of the free block are known to have ended, by the record of what happened.
    ended: QueueSet,
    /// The queues whose uses of the free block each queue comes after, by the same record.
    behind: [QueueSet; QUEUES],
}

/// What can happen.
#[derive(Clone, Debug, PartialEq)]
enum Action {
    /// The block is handed out for this queue, whose next command uses it.
    Allocate(usize),
    /// A command of this queue uses the block.
    Use(usize),
    /// The user frees the block, and reads the clock.
    Free,
    /// The block comes to the pool's lists.
    Arrive,
    /// A fence of this queue begins, or a wait of the host for it.
    Begin { queue: usize, is_host_wait: bool },
    /// The marker of a fence is enqueued, or a wait begins.
    Enqueue(usize),
    /// This queue is made to wait for the commands that keep the block from it.
    Wait(usize),
    /// A fence ends, or a wait of the host, and the pool sees that.
    End { fence: usize, status: EventStatus },
}

/// The bounds of a model.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    failures: FailureOrder,
    fences: usize,
    leases: u8,
    further_uses: usize,
    barriers: usize,
    /// Whether the host waits for whole queues where fences would do.
    has_host_waits: bool,
}

impl Bounds {
    fn is_ordered(&self, queue: usize) -> bool {
        is_in_order(queue) && self.failures != FailureOrder::Lost
    }

    /// Returns whether all that a fence comes after has ended on the device once the fence ends like this.
    fn has_ended_all(&self, status: EventStatus) -> bool {
        match self.failures {
            FailureOrder::Kept => true,
            FailureOrder::FailsEarly => status == EventStatus::Complete,
            FailureOrder::Lost => false,
        }
    }
}

fn order_of(queue: usize) -> QueueOrder {
    [
        QueueOrder::InOrder,
        QueueOrder::InOrder,
        QueueOrder::OutOfOrder,
    ][queue]
}

fn is_in_order(queue: usize) -> bool {
    order_of(queue) == QueueOrder::InOrder
}

fn key(queue: usize) -> QueueKey {
    QueueKey::new(queue)
}

fn queues_of(set: QueueSet) -> impl Iterator<Item = usize> {
    (0..QUEUES).filter(move |queue| set & (1 << queue) != 0)
}

/// The set without the command at this place, for a list from which that is taken out.
fn without(set: Commands, place: usize) -> Commands {
    let below = set & ((1 << place) - 1);
    below | ((set >> (place + 1)) << place)
}

impl World {
    fn new(bounds: &Bounds) -> Self {
        let clock = Arc::<Clock>::default();
        let mut states = QueueStates::new(bounds.failures, Arc::clone(&clock));
        for queue in 0..QUEUES {
            let paper = PaperQueue::new(order_of(queue));
            assert_eq!(states.find_or_add(&paper), key(queue));
        }
        Self {
            pool: Pool { states, clock },
            commands: Vec::new(),
            queues: Default::default(),
            fences: Vec::new(),
            past_fences: 0,
            block: Block::Free(QueueUses::new()),
            leases: 0,
            further_uses: 0,
            barriers: 0,
            ended: 0,
            behind: [0; QUEUES],
        }
    }

    /// Returns whether the pool lets this queue have the block.
    fn may_have(&self, uses: &QueueUses, queue: usize) -> bool {
        uses.iter()
            .all(|use_| self.pool.states.is_before(*use_, key(queue)))
    }

    /// Returns the same by the record of what happened.
    fn should_have(&self, bounds: &Bounds, uses: &QueueUses, queue: usize) -> bool {
        let own = if bounds.is_ordered(queue) {
            1 << queue
        } else {
            0
        };
        let known = self.ended | self.behind[queue] | own;
        uses.iter().all(|use_| known & (1 << use_.key.get()) != 0)
    }

    /// Enqueues a command that uses the block and comes after these, besides what its queue puts before it.
    fn enqueue(&mut self, bounds: &Bounds, queue: usize, after: Commands) {
        let device_queue = &mut self.queues[queue];
        let after = after | device_queue.next_after;
        let command = 1 << self.commands.len();
        let lease = self.leases;
        self.commands.push(Command { lease, after });
        device_queue.own |= command;
        device_queue.all |= command | after;
        if bounds.is_ordered(queue) {
            device_queue.next_after |= command | after;
        } else if is_in_order(queue) {
            // Once this one has failed, the next one waits for nothing.
            device_queue.next_after = command;
        }
    }

    /// Ends these commands.
    fn end(&mut self, commands: Commands) {
        for place in (0..self.commands.len()).rev() {
            if commands & (1 << place) == 0 {
                continue;
            }
            self.commands.remove(place);
            for command in &mut self.commands {
                command.after = without(command.after, place);
            }
            for queue in &mut self.queues {
                for set in [&mut queue.own, &mut queue.all, &mut queue.next_after] {
                    *set = without(*set, place);
                }
            }
            for fence in &mut self.fences {
                fence.after = without(fence.after, place);
            }
        }
    }

    /// The lease by which the block was used last, if it is free.
    fn freed(&self) -> Option<u8> {
        match self.block {
            Block::InUse { .. } => None,
            Block::Cached { .. } | Block::Free(_) => Some(self.leases),
        }
    }

    fn begin(&mut self, queue: usize, is_host_wait: bool) -> Option<()> {
        let states = &mut self.pool.states;
        let at = if is_host_wait {
            states.begin_finish(key(queue))?.1
        } else {
            let NewFence { at, .. } = states.begin_fence(key(queue))?;
            at
        };
        self.fences.push(ModelFence {
            queue,
            at,
            is_host_wait,
            is_enqueued: false,
            after: 0,
            freed: self.freed(),
        });
        Some(())
    }

    /// Enqueues the marker of a fence, or begins a wait of the host.
    fn enqueue_fence(&mut self, fence: usize) {
        let ModelFence {
            queue,
            is_host_wait,
            ..
        } = self.fences[fence];
        let after = if is_host_wait {
            self.queues[queue].own
        } else {
            self.queues[queue].all
        };
        let fence = &mut self.fences[fence];
        fence.after = after;
        fence.is_enqueued = true;
        if !is_host_wait {
            let _surplus = self.pool.states.add_fence(Fence {
                key: fence.at.key,
                timestamp: fence.at.timestamp,
                event: PaperEvent::new(),
            });
        }
    }

    /// Ends a fence, which the pool sees in a [check](crate::shared::Shared::check), or a wait of the host.
    fn end_fence(&mut self, bounds: &Bounds, fence: usize, status: EventStatus) {
        let freed = self.freed();
        let fence = self.fences.remove(fence);
        self.past_fences += 1;
        if fence.is_host_wait || bounds.has_ended_all(status) {
            self.end(fence.after);
        }
        if fence.is_host_wait || bounds.failures.ends_all_before(status) {
            drop(self.pool.states.note_ended(fence.at));
            if freed.is_some() && fence.freed == freed {
                self.ended |= 1 << fence.queue;
            }
        } else if let Some(queue_state) = self.pool.states.get_mut(fence.at.key) {
            let _failed = queue_state.forget_fence(fence.at.timestamp);
        }
    }

    /// The fences that the pool remembers after the uses which keep the block from this queue; `None` if one is missing.
    fn fences_before(&self, uses: &QueueUses, queue: usize) -> Option<Vec<usize>> {
        let states = &self.pool.states;
        let in_the_way = uses
            .iter()
            .filter(|use_| !states.is_before(**use_, key(queue)));
        let fences = in_the_way.map(|use_| {
            let fence = states.get(use_.key)?.fence_after(use_.timestamp)?.at();
            self.fences.iter().position(|other| other.at == fence)
        });
        fences.collect()
    }

    /// Makes a queue wait for these fences, by a barrier: all that is enqueued on it later comes after what they come after.
    fn wait(&mut self, fences: &[usize], queue: usize) {
        self.barriers += 1;
        for fence in fences {
            let ModelFence {
                queue: of,
                at,
                after,
                freed,
                ..
            } = self.fences[*fence];
            self.queues[queue].all |= after;
            self.queues[queue].next_after |= after;
            if let Some(queue_state) = self.pool.states.get_mut(key(queue)) {
                queue_state.put_behind(at);
            }
            if freed == Some(self.leases) {
                self.behind[queue] |= 1 << of;
            }
        }
    }

    fn allocate(&mut self, bounds: &Bounds, queue: usize) {
        self.leases += 1;
        self.block = Block::InUse {
            queue,
            used_on: 1 << queue,
        };
        (self.ended, self.behind) = (0, [0; QUEUES]);
        self.enqueue(bounds, queue, 0);
    }

    /// Uses the block on a queue. On another than its own, the program puts the command after all that the next command of its
    /// own queue comes after.
    fn use_block(&mut self, bounds: &Bounds, queue: usize) {
        self.further_uses += 1;
        let Block::InUse {
            queue: own,
            used_on,
        } = &mut self.block
        else {
            return;
        };
        *used_on |= 1 << queue;
        let after = self.queues[*own].next_after;
        self.enqueue(bounds, queue, after);
    }

    fn free(&mut self) {
        if let Block::InUse { queue, used_on } = self.block {
            let at = self.pool.clock.now();
            self.block = Block::Cached { queue, used_on, at };
        }
    }

    fn arrive(&mut self) {
        if let Block::Cached { queue, used_on, at } = self.block {
            let others = queues_of(used_on & !(1 << queue));
            let used_on = iter::once(queue).chain(others);
            let uses = used_on.map(|queue| self.pool.states.stamp_at(key(queue), at));
            self.block = Block::Free(uses.collect());
        }
    }
}

/// What a state is compared by.
type Canonical = SmallVec<[u32; 128]>;

impl World {
    /// Adds the moments of a queue, as their ranks: they are only compared with one another. Those up to which its uses have ended in
    /// any case are the same.
    fn add_ranks(&self, queue: usize, canonical: &mut Canonical) {
        let key = key(queue);
        let Pool { states, clock } = &self.pool;
        let ended = states
            .get(key)
            .map_or_else(Timestamp::default, |it| it.ended);
        let mut moments: SmallVec<[Timestamp; 32]> = SmallVec::new();
        moments.push(clock.now());
        for (other, queue_state) in states.iter() {
            moments.push(queue_state.behind(key).unwrap_or(ended));
            if other == key {
                moments.extend(queue_state.fences().map(|fence| fence.timestamp));
            }
        }
        let fences = self.fences.iter().filter(|fence| fence.queue == queue);
        moments.extend(fences.map(|fence| fence.at.timestamp));
        match &self.block {
            Block::InUse { .. } => {}
            Block::Cached { at, .. } => moments.push(*at),
            Block::Free(uses) => {
                let uses = uses.iter().filter(|use_| use_.key == key);
                moments.extend(uses.map(|use_| use_.timestamp));
            }
        }
        for moment in &mut moments {
            *moment = (*moment).max(ended);
        }
        let mut ranks = moments.clone();
        ranks.push(ended);
        ranks.sort_unstable();
        ranks.dedup();
        canonical.push(word(moments.len()));
        canonical.extend(moments.iter().map(|moment| {
            let rank = ranks.iter().position(|other| other == moment);
            word(rank.unwrap())
        }));
    }

    /// All that what follows depends on.
    fn canonical(&self) -> Canonical {
        let mut canonical = Canonical::new();
        canonical.extend(match &self.block {
            Block::InUse { queue, used_on } => [0, word(*queue), u32::from(*used_on)],
            Block::Cached { queue, used_on, .. } => [1, word(*queue), u32::from(*used_on)],
            Block::Free(uses) => {
                let queues = uses.iter().map(|use_| 1 << use_.key.get());
                [2, 0, queues.fold(0, |all, queue| all | queue)]
            }
        });
        let counts = [self.past_fences, self.further_uses, self.barriers];
        canonical.extend(counts.map(word));
        canonical.extend([u32::from(self.leases), u32::from(self.ended)]);
        canonical.extend(self.behind.map(u32::from));
        canonical.push(word(self.commands.len()));
        for command in &self.commands {
            canonical.extend([u32::from(command.lease), command.after]);
        }
        for queue in &self.queues {
            canonical.extend([queue.own, queue.all, queue.next_after]);
        }
        for queue in 0..QUEUES {
            self.add_ranks(queue, &mut canonical);
            // Fences of different queues began in an order that nothing depends on.
            let fences = self.fences.iter().filter(|fence| fence.queue == queue);
            canonical.push(word(fences.clone().count()));
            for fence in fences {
                let is_after_last_use = fence.freed == Some(self.leases);
                let flags = [fence.is_host_wait, fence.is_enqueued, is_after_last_use];
                canonical.extend(flags.map(u32::from));
                canonical.push(fence.after);
            }
        }
        canonical
    }
}

fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap()
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.canonical().hash(hasher);
    }
}

impl Model for Bounds {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        match &world.block {
            Block::Free(uses) => {
                // Before the first lease, the two queues in order are the same.
                let queues = (0..QUEUES).filter(|queue| world.leases > 0 || *queue != 1);
                for queue in queues.filter(|_| world.leases < self.leases) {
                    if world.may_have(uses, queue) {
                        actions.push(Action::Allocate(queue));
                    } else if world.barriers < self.barriers
                        && world.fences_before(uses, queue).is_some()
                    {
                        actions.push(Action::Wait(queue));
                    }
                }
            }
            Block::InUse { .. } => {
                if world.further_uses < self.further_uses {
                    actions.extend((0..QUEUES).map(Action::Use));
                }
                actions.push(Action::Free);
            }
            Block::Cached { .. } => actions.push(Action::Arrive),
        }
        if world.fences.len() + world.past_fences < self.fences && world.leases > 0 {
            for queue in 0..QUEUES {
                // Where commands lose their places, the pool makes no fence.
                actions.push(Action::Begin {
                    queue,
                    is_host_wait: false,
                });
                if self.has_host_waits || self.failures == FailureOrder::Lost {
                    actions.push(Action::Begin {
                        queue,
                        is_host_wait: true,
                    });
                }
            }
        }
        for (fence, it) in world.fences.iter().enumerate() {
            if it.is_enqueued {
                let status = EventStatus::Complete;
                actions.push(Action::End { fence, status });
                if !it.is_host_wait {
                    let status = EventStatus::Failed;
                    actions.push(Action::End { fence, status });
                }
            } else {
                actions.push(Action::Enqueue(fence));
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        match action {
            Action::Allocate(queue) => world.allocate(self, queue),
            Action::Use(queue) => world.use_block(self, queue),
            Action::Free => world.free(),
            Action::Arrive => world.arrive(),
            Action::Begin {
                queue,
                is_host_wait,
            } => world.begin(queue, is_host_wait)?,
            Action::Enqueue(fence) => world.enqueue_fence(fence),
            Action::Wait(queue) => {
                if let Block::Free(uses) = &world.block {
                    let fences = world.fences_before(uses, queue)?;
                    world.wait(&fences, queue);
                }
            }
            Action::End { fence, status } => world.end_fence(self, fence, status),
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "each use comes after those of former users",
                |_, world: &World| {
                    world.commands.iter().all(|next| {
                        let former = world.commands.iter().enumerate();
                        let mut former = former.filter(|(_, it)| it.lease < next.lease);
                        former.all(|(place, _)| next.after & (1 << place) != 0)
                    })
                },
            ),
            Property::always(
                "the numbers say what the record says",
                |bounds: &Self, world: &World| {
                    let Block::Free(uses) = &world.block else {
                        return true;
                    };
                    (0..QUEUES).all(|queue| {
                        world.may_have(uses, queue) == world.should_have(bounds, uses, queue)
                    })
                },
            ),
            Property::sometimes(
                "the last user gets the block",
                |bounds: &Self, world: &World| {
                    let leases = || world.commands.iter().map(|command| command.lease);
                    // Where commands lose their places, those of all former users have ended.
                    let have_all_ended = leases().min() == Some(bounds.leases);
                    leases().max() == Some(bounds.leases)
                        && have_all_ended == (bounds.failures == FailureOrder::Lost)
                },
            ),
        ]
    }
}

/// Goes through all states within these bounds. Returns their number.
fn check(bounds: Bounds) -> usize {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let checker = bounds.checker().threads(threads);
    let checker = checker.spawn_bfs().join();
    checker.assert_properties();
    let states = checker.unique_state_count();
    println!("{bounds:?}: {states} states");
    states
}

const SMALL: Bounds = Bounds {
    failures: FailureOrder::Kept,
    fences: 2,
    leases: 3,
    further_uses: 1,
    barriers: 1,
    has_host_waits: false,
};

#[test]
#[cfg_attr(miri, ignore = "too many states, of code without a pointer")]
fn no_block_is_handed_out_while_a_command_that_used_it_may_run() {
    let fails_early = Bounds {
        failures: FailureOrder::FailsEarly,
        ..SMALL
    };
    let loses_places = Bounds {
        failures: FailureOrder::Lost,
        ..SMALL
    };
    let waits_on_host = Bounds {
        leases: 2,
        has_host_waits: true,
        ..SMALL
    };
    assert_eq!(check(SMALL), 24_906);
    assert_eq!(check(fails_early), 34_127);
    assert_eq!(check(loses_places), 5_286);
    assert_eq!(check(waits_on_host), 31_062);
}

const LARGE: Bounds = Bounds {
    fences: 4,
    leases: 3,
    barriers: 2,
    ..SMALL
};

#[test]
#[ignore = "takes ten minutes and 7 GiB: scripts/proofs"]
fn no_block_is_handed_out_while_a_command_that_used_it_may_run_with_four_fences() {
    let more_uses = Bounds {
        further_uses: 2,
        ..LARGE
    };
    let fails_early = Bounds {
        failures: FailureOrder::FailsEarly,
        ..LARGE
    };
    let loses_places = Bounds {
        failures: FailureOrder::Lost,
        ..more_uses
    };
    let waits_on_host = Bounds {
        leases: 2,
        barriers: 1,
        has_host_waits: true,
        ..LARGE
    };
    let fails_early_waits_on_host = Bounds {
        failures: FailureOrder::FailsEarly,
        ..waits_on_host
    };
    assert_eq!(check(loses_places), 1_479_663);
    assert_eq!(check(fails_early), 10_408_338);
    assert_eq!(check(waits_on_host), 8_011_294);
    assert_eq!(check(fails_early_waits_on_host), 10_726_093);
    assert_eq!(check(more_uses), 22_847_157);
}
