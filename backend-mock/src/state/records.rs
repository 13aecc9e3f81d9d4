//! What a device knows of its memory, queues, commands and events.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use binpool_allocators::{
    EventId, EventStatus, MemoryFlags, MemoryId, MemoryKind, QueueId, QueueOrder, Region,
};
use smallvec::SmallVec;

use crate::{
    CallKind, CommandId, Touch,
    cause::Cause,
    clock::{Clock, Position},
    effect::Effect,
    storage::Storage,
    table::Key,
};

pub(crate) type ObjectKey = Key<Object>;
pub(crate) type BlockKey = Key<Block>;
pub(crate) type EventKey = Key<EventRecord>;
pub(crate) type QueueKey = Key<QueueRecord>;

/// A whole buffer, or a whole allocation of SVM.
#[derive(Debug)]
pub(crate) struct Block {
    /// The identity of the object that it was created with.
    pub(crate) id: MemoryId,
    pub(crate) bytes: usize,
    pub(crate) kind: MemoryKind,
    pub(crate) flags: MemoryFlags,
    pub(crate) committed: bool,
    /// The contents, which are allocated when they are first touched.
    pub(crate) storage: Option<Arc<Storage>>,
    /// The number of objects, of commands that use it, and of pending frees.
    pub(crate) references: usize,
    /// The number of live views.
    pub(crate) views: u64,
    pub(crate) created_by_call: u64,
    /// The queue that frees are ordered on.
    pub(crate) queue: Option<QueueKey>,
    pub(crate) touches: Touches,
    /// What is mapped to it, if it is a reservation.
    pub(crate) mappings: Option<Mappings>,
    /// The number of addresses at which these are mapped, if they are pages.
    pub(crate) addresses: usize,
}

impl Block {
    /// Its bytes of the device: none for a reservation.
    pub(crate) fn created_bytes(&self) -> u64 {
        if self.mappings.is_some() {
            0
        } else {
            self.bytes as u64
        }
    }
}

/// An object that the host holds: a block, or a view of one.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) id: MemoryId,
    pub(crate) block: BlockKey,
    /// Its region in the block.
    pub(crate) region: Region,
    pub(crate) is_view: bool,
    pub(crate) created_by_call: u64,
}

/// An object that is passed to a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) key: ObjectKey,
    pub(crate) id: MemoryId,
    /// The region in its block.
    pub(crate) region: Region,
}

/// The address of the first reservation, as drivers have them: no address of the host.
pub(super) const FIRST_ADDRESS: u64 = 0x3_0000_0000_0000;

/// What is mapped to a reservation: pages by where they are, with their sizes.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// The address of the first byte.
    pub(crate) address: u64,
    pub(super) pages: BTreeMap<usize, (usize, BlockKey)>,
}

/// A range of bytes that a command reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) block: BlockKey,
    /// The block, or the view of it, that was passed to the command.
    pub(crate) memory: MemoryId,
    /// The region, counted from the start of the block.
    pub(crate) region: Region,
}

pub(crate) type Accesses = SmallVec<[Access; 2]>;

/// A command that has not ended, or that failed early and keeps its place.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) id: CommandId,
    pub(crate) kind: CallKind,
    pub(crate) name: Cow<'static, str>,
    pub(crate) queue: QueueKey,
    pub(crate) queue_id: QueueId,
    pub(crate) event: EventKey,
    /// The events that it waited for when it was enqueued: its wait list, and those that its queue's order adds.
    pub(crate) waits_for: SmallVec<[EventKey; 2]>,
    /// How many of them have not ended.
    pub(super) blocked_by: usize,
    /// An event of its wait list that has failed.
    pub(super) poison: Option<EventId>,
    /// Set if its event has failed, and it only keeps its place: later commands still come after all that it waits for.
    pub(super) has_failed: bool,
    pub(crate) reads: Accesses,
    pub(crate) writes: Accesses,
    pub(crate) effect: Effect,
    /// When it ends by the device's clock, if it waits for nothing; zero where the device is not behind.
    pub(crate) due: Duration,
    /// `None` if races are not detected.
    pub(super) clock: Option<CommandClock>,
}

#[derive(Debug)]
pub(crate) struct QueueRecord {
    pub(crate) id: QueueId,
    pub(crate) order: QueueOrder,
    /// The event that later commands wait for: of the last command of an in-order queue, or the last barrier of another.
    pub(super) last: Option<EventKey>,
    /// The number of its commands in [`State`](super::State).
    pub(super) pending: usize,
    /// Set if the host holds the queue.
    pub(super) held: bool,
    pub(super) clocks: QueueClocks,
}

/// The state of an event.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    Pending,
    Complete,
    Failed(Cause),
}

impl Progress {
    pub(crate) const fn status(&self) -> EventStatus {
        match self {
            Self::Pending => EventStatus::Pending,
            Self::Complete => EventStatus::Complete,
            Self::Failed(_) => EventStatus::Failed,
        }
    }
}

/// How a command depends on an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// By the queue's order: the command runs even if the event has failed.
    Order,
    /// By the wait list: the command fails with the event.
    WaitList,
}

/// What waits for the end of an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    Command(CommandId, Edge),
    PendingFree(Key<PendingFree>),
}

/// A block that is freed when some events have ended.
#[derive(Debug)]
pub(crate) struct PendingFree {
    pub(super) block: BlockKey,
    pub(super) remaining: usize,
}

#[derive(Debug)]
pub(crate) struct EventRecord {
    pub(crate) id: EventId,
    pub(crate) progress: Progress,
    /// The command of the event; `None` for user events.
    pub(super) command: Option<CommandId>,
    /// Set if the host holds the event.
    pub(super) held: bool,
    pub(super) waiters: SmallVec<[Waiter; 2]>,
    /// Once the event has ended, everything that comes before what waits for it.
    pub(super) clock: Option<Arc<Clock>>,
}

/// The commands that touched a block.
#[derive(Debug, Default)]
pub(crate) struct Touches {
    /// The commands that one which ends later may race with, in the order of their ends.
    pub(super) open: VecDeque<(Position, Touch)>,
    pub(super) recent: VecDeque<Touch>,
}

/// The order of the commands of a queue, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct QueueClocks {
    /// The number of commands that were enqueued.
    pub(super) issued: u64,
    /// Every command that has left its place, and everything before it. A marker for all comes after these.
    pub(super) ended: Clock,
    /// The commands that the host has seen to end once it has seen the queue finish.
    pub(super) finished: Clock,
    /// Everything that comes before a command that waits for the queue's [last](QueueRecord::last) command, once that has left
    /// its place.
    pub(super) order: Clock,
}

/// A command's position in its queue, and the commands that are known to come before it.
#[derive(Debug)]
pub(crate) struct CommandClock {
    pub(super) position: Position,
    pub(super) before: Clock,
}
