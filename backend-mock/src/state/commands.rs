//! Commands and queues, and the end of commands.

use binpool_allocators::{EventStatus, FailureOrder, QueueId, QueueOrder};

use super::{
    State,
    events::Ending,
    records::{Command, EventKey, QueueClocks, QueueKey, QueueRecord},
};
use crate::{CommandId, CommandRecord, cause::Cause, effect::Effect};

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

    pub(crate) fn drop_queue(&mut self, key: QueueKey) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.held = false;
            if queue.pending == 0 {
                self.queues.remove(key);
            }
        }
    }

    /// Ends a command, and everything that fails with it.
    pub(super) fn end_command(&mut self, id: CommandId, result: Result<(), Cause>) {
        if let Some(ending) = self.retire(id, result) {
            self.end(ending);
        }
    }

    /// Removes a command from its place and drops its references to memory. The caller must end what this returns.
    pub(super) fn retire(&mut self, id: CommandId, result: Result<(), Cause>) -> Option<Ending> {
        let mut command = self.commands.remove(&id)?;
        self.ready.remove(&id);
        self.clock_command(&mut command, &result);
        if !command.has_failed {
            self.drop_memory_references(&mut command, result.is_ok());
        }
        if command.blocked_by > 0 {
            self.stop_waiting(&command);
        }
        if let Some(queue) = self.queues.get_mut(command.queue) {
            queue.pending -= 1;
            if queue.pending == 0 && !queue.held {
                self.queues.remove(command.queue);
            }
        }
        Some(Ending {
            event: command.event,
            result,
            keeps_place: false,
        })
    }

    /// Lets a command fail that keeps its place. The caller must end what this returns.
    pub(super) fn fail_early(&mut self, id: CommandId, error: Cause) -> Option<Ending> {
        if self.commands.get(&id)?.has_failed {
            return None;
        }
        let mut command = self.commands.remove(&id)?;
        self.drop_memory_references(&mut command, false);
        command.has_failed = true;
        let event = command.event;
        self.commands.insert(id, command);
        Some(Ending {
            event,
            result: Err(error),
            keeps_place: true,
        })
    }

    /// Drops the references to memory of a command that has ended.
    fn drop_memory_references(&mut self, command: &mut Command, succeeded: bool) {
        for access in command.reads.drain(..).chain(command.writes.drain(..)) {
            self.drop_block_reference(access.block);
        }
        if self.config.log_calls {
            self.command_log.push(CommandRecord {
                id: command.id,
                name: command.name.clone(),
                queue: command.queue_id,
                status: if succeeded {
                    EventStatus::Complete
                } else {
                    EventStatus::Failed
                },
            });
        }
        if let work @ Effect::Kernel(_) = std::mem::replace(&mut command.effect, Effect::Nothing) {
            self.trash.push(work);
        }
    }

    /// Returns the number of commands that have not ended.
    pub(crate) fn pending_commands(&self) -> usize {
        let all = self.commands.values();
        all.filter(|command| !command.has_failed).count()
    }

    /// The events of a queue's pending commands. Where some prove the end of others, only those are returned.
    pub(crate) fn unfinished(&self, queue: QueueKey) -> Vec<EventKey> {
        let Some(record) = self.queues.get(queue).filter(|queue| queue.pending > 0) else {
            return Vec::new();
        };
        let last_says_it_all = self.config.limits.failure_order == FailureOrder::Kept;
        if record.order == QueueOrder::InOrder && last_says_it_all {
            return record.last.into_iter().collect();
        }
        let all = self.commands.values();
        all.filter(|command| command.queue == queue && !command.has_failed)
            .map(|command| command.event)
            .collect()
    }
}
