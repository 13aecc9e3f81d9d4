//! Commands and queues, and how commands end.

use std::borrow::Cow;

use binpool_allocators::{EventId, EventStatus, MemoryId, QueueId, QueueOrder, Region, Result};
use smallvec::SmallVec;

use super::{BlockKey, CommandClock, EventKey, QueueClocks, QueueKey, State};
use crate::{CallKind, CommandId, CommandRecord, MockError, work::Work};

/// A range of bytes that a command reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) block: BlockKey,
    /// The block, or the view of it, that the command was given.
    pub(crate) memory: MemoryId,
    /// Counted from the start of the block.
    pub(crate) region: Region,
}

pub(crate) type Accesses = SmallVec<[Access; 2]>;

/// A command that has not ended.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) id: CommandId,
    pub(crate) kind: CallKind,
    pub(crate) name: Cow<'static, str>,
    pub(crate) queue: QueueKey,
    pub(crate) queue_id: QueueId,
    pub(crate) event: EventKey,
    /// The events that it waited for when it was enqueued: its wait list, and what its queue's order adds.
    pub(crate) waits_for: SmallVec<[EventKey; 2]>,
    /// How many of them have not ended.
    pub(super) blocked_by: usize,
    /// One of its wait list that has failed.
    pub(super) poison: Option<EventId>,
    pub(crate) reads: Accesses,
    pub(crate) writes: Accesses,
    pub(crate) work: Work,
    /// `None` where races are not looked for.
    pub(super) clock: Option<CommandClock>,
}

#[derive(Debug)]
pub(crate) struct QueueRecord {
    pub(crate) id: QueueId,
    pub(crate) order: QueueOrder,
    /// What later commands wait for: the last command of an in-order queue, the last barrier of another.
    pub(super) last: Option<EventKey>,
    /// Its commands that have not ended.
    pub(super) pending: usize,
    /// Whether the host holds it.
    pub(super) held: bool,
    pub(super) clocks: QueueClocks,
}

impl State {
    pub(crate) fn create_queue(&mut self, order: QueueOrder) -> (QueueKey, QueueId) {
        self.charge(|costs| costs.create_queue);
        let id = QueueId::fresh();
        let key = self.queues.insert(QueueRecord {
            id,
            order,
            last: None,
            pending: 0,
            held: true,
            clocks: QueueClocks::default(),
        });
        (key, id)
    }

    pub(crate) fn let_go_of_queue(&mut self, key: QueueKey) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.held = false;
            if queue.pending == 0 {
                self.queues.remove(key);
            }
        }
    }

    /// Ends a command, and everything that fails with it.
    pub(super) fn end_command(&mut self, id: CommandId, result: Result<(), MockError>) {
        if let Some((event, result)) = self.retire(id, result) {
            self.end_event(event, result);
        }
    }

    /// Takes a command out of its queue and lets go of its memory. What it gives back is to be ended.
    pub(super) fn retire(
        &mut self,
        id: CommandId,
        result: Result<(), MockError>,
    ) -> Option<(EventKey, Result<(), MockError>)> {
        let mut command = self.commands.remove(&id)?;
        self.ready.remove(&id);
        self.clock_command(&mut command, &result);
        for access in command.reads.iter().chain(&command.writes) {
            self.let_go_of_block(access.block);
        }
        if let Some(queue) = self.queues.get_mut(command.queue) {
            queue.pending -= 1;
            if queue.pending == 0 && !queue.held {
                self.queues.remove(command.queue);
            }
        }
        if self.config.log_calls {
            self.command_log.push(CommandRecord {
                id,
                name: command.name,
                queue: command.queue_id,
                status: match result {
                    Ok(()) => EventStatus::Complete,
                    Err(_) => EventStatus::Failed,
                },
            });
        }
        if let Work::Kernel(_) = command.work {
            self.trash.push(command.work);
        }
        Some((command.event, result))
    }

    /// The events of a queue's commands that have not ended, as few as say it all.
    pub(crate) fn unfinished(&self, queue: QueueKey) -> Vec<EventKey> {
        let Some(record) = self.queues.get(queue).filter(|queue| queue.pending > 0) else {
            return Vec::new();
        };
        if record.order == QueueOrder::InOrder {
            return record.last.into_iter().collect();
        }
        let all = self.commands.values();
        all.filter(|command| command.queue == queue)
            .map(|command| command.event)
            .collect()
    }
}
