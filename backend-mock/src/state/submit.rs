//! How a command is enqueued on the mock.
//!
//! Everything that a command touches and waits for is fixed here: its queue
//! and number, its whole wait list (including ended events), and the byte ranges that it reads and writes.
//! The race detector is called here, and where commands end.

use std::borrow::Cow;

use binpool_allocators::{
    EventId, FailureOrder, HostUse, MemoryFlags, MemoryId, QueueId, QueueOrder, Result,
};
use smallvec::SmallVec;

use super::{
    State,
    records::{Access, Accesses, Command, Edge, EventKey, Operand, Progress, Waiter},
    refuse,
    submission::Submission,
};
use crate::{CallKind, CommandId, HostWait, cause::Cause, effect::Effect};

/// The events that a command must wait for.
#[derive(Debug, Default)]
struct Dependencies {
    pending: SmallVec<[(EventKey, Edge); 4]>,
    failed: Option<EventId>,
}

impl State {
    fn dependencies(&self, submission: &Submission<'_>) -> Dependencies {
        let mut dependencies = Dependencies::default();
        let mut order = |key: EventKey| {
            if self.is_in_place(key) {
                dependencies.pending.push((key, Edge::Order));
            }
        };
        if let Some(queue) = self.queues.get(submission.queue) {
            let waits_for_all = submission.waits_for_all() && queue.order == QueueOrder::OutOfOrder;
            if waits_for_all && queue.pending > 0 {
                let all = self.commands.values();
                all.filter(|command| command.queue == submission.queue)
                    .for_each(|command| order(command.event));
            } else if let Some(last) = queue.last {
                order(last);
            }
        }
        for key in submission.wait_for {
            if self.is_in_place(*key) {
                dependencies.pending.push((*key, Edge::WaitList));
            }
            if let Some(event) = self.events.get(*key)
                && matches!(event.progress, Progress::Failed(_))
            {
                dependencies.failed = Some(event.id);
            }
        }
        dependencies
    }

    /// Refuses a blocking call that the host could not wait for.
    pub(crate) fn check_wait(&self, submission: &Submission<'_>) -> Result<()> {
        let kind = submission.kind;
        if self.is_inside_kernel() {
            return refuse(kind, Cause::WaitInsideKernel);
        }
        if self.config.host_waits == HostWait::Block {
            return Ok(());
        }
        let dependencies = self.dependencies(submission);
        let order = self.config.limits.failure_order;
        if dependencies.failed.is_some() && order != FailureOrder::Kept {
            return Ok(()); // It fails at once.
        }
        let events: SmallVec<[EventKey; 4]> = dependencies
            .pending
            .iter()
            .map(|(event, _)| *event)
            .collect();
        self.endless_wait(&events)
            .map_or(Ok(()), |error| refuse(kind, error))
    }

    /// Makes the call that enqueues a command. It takes the work if it succeeds; otherwise the work stays with the caller,
    /// which must drop it without the lock: a kernel may hold handles of this device.
    pub(crate) fn submit(
        &mut self,
        submission: &mut Submission<'_>,
    ) -> Result<(EventKey, EventId)> {
        let (kind, bytes) = (submission.kind, submission.bytes());
        let committed = self.statistics.committed_bytes;
        let is_use = kind == CallKind::Launch && matches!(submission.effect, Effect::Nothing);
        let result = self.call(kind, bytes, |state| state.enqueue(submission));
        let nothing_new = self.statistics.committed_bytes == committed;
        self.charge(|costs| match kind {
            CallKind::Marker => costs.marker,
            CallKind::Barrier => costs.barrier,
            // It stands for commands of a program whose own costs do not count.
            CallKind::Launch if is_use => 0.0,
            CallKind::Launch => costs.enqueue,
            // The cost of a commit includes its enqueue and its wait.
            CallKind::Commit if !nothing_new => 0.0,
            CallKind::Commit => costs.enqueue + costs.wait,
            CallKind::Write | CallKind::Read => costs.enqueue + costs.transfer(bytes) + costs.wait,
            _ => costs.enqueue + costs.transfer(bytes),
        });
        result
    }

    /// Enqueues a command, and commits the memory that it touches.
    fn enqueue(&mut self, submission: &mut Submission<'_>) -> Result<(EventKey, EventId)> {
        let Dependencies { pending, failed } = self.dependencies(submission);
        let (kind, queue) = (submission.kind, submission.queue);
        let name = submission.name.clone();
        let reads = self.accesses(&submission.reads, kind, &name)?;
        let writes = self.accesses(&submission.writes, kind, &name)?;
        self.check_flags(kind, &reads, &writes)?;
        if kind == CallKind::Launch {
            check_arguments(&name, &reads, &writes)?;
        }
        let blocks = reads.iter().chain(&writes).map(|access| access.block);
        self.commit_blocks(blocks, kind)?;

        let work = match std::mem::take(&mut submission.effect) {
            work @ Effect::Kernel(_) => work,
            _ if reads.is_empty() && writes.is_empty() => Effect::Nothing,
            work => work,
        };
        let clock = self.command_clock(submission);
        self.last_command += 1;
        let id = CommandId(self.last_command);
        let (event, event_id) = self.new_event(Some(id));
        for access in reads.iter().chain(&writes) {
            if let Some(block) = self.blocks.get_mut(access.block) {
                block.references += 1;
            }
        }
        let mut queue_id = None;
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.pending += 1;
            queue_id = Some(queue.id);
            if queue.order == QueueOrder::InOrder || submission.is_barrier() {
                queue.last = Some(event);
            }
        }
        for (key, edge) in &pending {
            if let Some(event) = self.events.get_mut(*key) {
                event.waiters.push(Waiter::Command(id, *edge));
            }
        }
        let blocked_by = pending.len();
        self.commands.insert(
            id,
            Command {
                id,
                kind,
                name,
                queue,
                queue_id: queue_id.unwrap_or_else(QueueId::fresh),
                event,
                waits_for: pending.into_iter().map(|(event, _)| event).collect(),
                blocked_by,
                poison: failed,
                has_failed: false,
                reads,
                writes,
                effect: work,
                due: self.due(kind),
                clock,
            },
        );
        if let Some(ending) = self.advance(id) {
            self.end(ending);
        }
        Ok((event, event_id))
    }

    fn accesses(&mut self, operands: &[Operand], kind: CallKind, name: &str) -> Result<Accesses> {
        let mut accesses = Accesses::new();
        for operand in operands {
            let block = self.find(*operand, kind, name)?;
            // A command over no bytes touches nothing.
            if operand.region.bytes > 0 {
                accesses.push(Access {
                    block,
                    memory: operand.id,
                    region: operand.region,
                });
            }
        }
        Ok(accesses)
    }

    /// Refuses accesses that the flags of a buffer do not allow.
    fn check_flags(&self, kind: CallKind, reads: &Accesses, writes: &Accesses) -> Result<()> {
        let check: fn(MemoryFlags, MemoryId, HostUse) -> Result<()> = match kind {
            CallKind::Write | CallKind::EnqueueWrite | CallKind::Read | CallKind::EnqueueRead => {
                |flags, _, way| flags.check_host(way)
            }
            CallKind::Launch => check_kernel,
            _ => return Ok(()),
        };
        let reads = reads.iter().map(|access| (access, HostUse::Read));
        let writes = writes.iter().map(|access| (access, HostUse::Write));
        for (access, way) in reads.chain(writes) {
            if let Some(block) = self.blocks.get(access.block) {
                check(block.flags, access.memory, way)?;
            }
        }
        Ok(())
    }
}

fn check_kernel(flags: MemoryFlags, memory: MemoryId, way: HostUse) -> Result<()> {
    let (forbidden, access) = match way {
        HostUse::Read => (MemoryFlags::WRITE_ONLY, "read by kernels"),
        HostUse::Write => (MemoryFlags::READ_ONLY, "written by kernels"),
    };
    if flags.intersects(forbidden) {
        return refuse(CallKind::Launch, Cause::AccessDenied { memory, access });
    }
    Ok(())
}

/// Refuses a kernel that writes an argument which shares bytes with another one.
fn check_arguments(name: &str, reads: &Accesses, writes: &Accesses) -> Result<()> {
    let arguments: SmallVec<[&Access; 8]> = reads.iter().chain(writes).collect();
    for write in reads.len()..arguments.len() {
        for other in 0..write {
            let (one, two) = (arguments[write], arguments[other]);
            if one.block == two.block && one.region.overlaps(two.region) {
                let kernel = Cow::Owned(name.to_owned());
                return refuse(
                    CallKind::Launch,
                    Cause::OverlappingArguments {
                        kernel,
                        write,
                        other,
                    },
                );
            }
        }
    }
    Ok(())
}
