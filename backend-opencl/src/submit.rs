//! Commands on their way to the runtime: the checks of their objects, and the enqueueing after everything that they wait
//! for.

use binpool_allocators::{InvalidRequest, ObjectKind, QueueOrder, Result};
use smallvec::{SmallVec, smallvec};

use crate::{
    backend::OpenClBackend,
    event::ClEvent,
    kept_memory,
    memory::cl_memory::ClMemory,
    order::{
        admission::CommandAdmission, memory_use::MemoryUse, role::OrderRole,
        tracked_command::Earlier,
    },
    queue::ClQueue,
    quirks::{dropped_events::WaitedFor, stand_in_events},
    sys::{ClError, ClResult, EndedOnPanic, EventHandle, Purpose, WaitList},
};

impl OpenClBackend {
    pub(crate) fn check_own_queue(&self, queue: &ClQueue) -> Result<()> {
        foreign_unless(queue.is_of(self.context()), ObjectKind::Queue)
    }

    /// Checks that an object of a context at that address is one of this backend's.
    pub(crate) fn check_context(&self, context: usize, kind: ObjectKind) -> Result<()> {
        foreign_unless(context == self.context().handle.raw().addr(), kind)
    }

    /// Checks that the queue is one of any device of the context: its commands can use the context's memory.
    pub(crate) fn check_queue_of_context(&self, queue: &ClQueue) -> Result<()> {
        foreign_unless(queue.context().is_same(self.context()), ObjectKind::Queue)
    }

    pub(crate) fn check_own_memory(&self, memory: &ClMemory) -> Result<()> {
        foreign_unless(memory.context().is_same(self.context()), ObjectKind::Memory)
    }

    pub(crate) fn check_own_events(&self, events: &[ClEvent]) -> Result<()> {
        let own = events
            .iter()
            .all(|event| event.context().is_same(self.context()));
        foreign_unless(own, ObjectKind::Event)
    }

    /// Returns the wait list of a command of `queue`. The queues of its events are flushed, as the specification asks of a
    /// program that waits on one queue for another.
    pub(crate) fn wait_list<'a>(
        &self,
        queue: &ClQueue,
        events: &'a [ClEvent],
    ) -> Result<WaitList<'a>> {
        self.check_own_events(events)?;
        for event in events {
            if event.queue() != Some(queue) {
                event.flush_producer()?;
            }
        }
        Ok(events.iter().map(ClEvent::handle).collect())
    }

    /// Waits for the turn of an admitted command of `queue`, and returns the locks to enqueue it under, and everything that it
    /// waits for: the events of `wait_for`, and the commands that the logs put before it; or one event for all of these, on a
    /// runtime that needs that (see [`Quirks`](crate::quirks::Quirks)). `None` if it fails before it is enqueued: one of the events has
    /// failed, and the runtime cannot be told to wait for it.
    fn ready<'a>(
        &self,
        queue: &'a ClQueue,
        purpose: Purpose,
        admission: &CommandAdmission<'_>,
        wait_for: &'a [ClEvent],
    ) -> Result<(impl Sized + use<'a>, Option<Awaited<'a>>)> {
        let named = self.wait_list(queue, wait_for)?;
        admission.wait_for_turn();
        let context = queue.context();
        let failed_events_are_fragile = context.quirks.failed_events_are_fragile;
        let enqueueing = context.quirks.while_enqueueing();
        if failed_events_are_fragile && wait_for.iter().any(ClEvent::has_failed) {
            return Ok((enqueueing, None));
        }
        let failed = |error: ClError| error.into_error(purpose);
        let mut events = admission.events(purpose)?;
        if let Some(command) = admission.command()
            && failed_events_are_fragile
        {
            let own = wait_for.iter().map(ClEvent::companion);
            let own: SmallVec<[_; 2]> = own.collect::<ClResult<_>>().map_err(failed)?;
            events.extend(command.companions(own.iter().flatten()).map_err(failed)?);
        }
        let joined = context
            .quirks
            .single_wait(&context.handle, queue.handle(), &named.and(&events))
            .map_err(failed)?;
        let (named, events) = match joined {
            Some(one) => (WaitList::none(), smallvec![one]),
            None => (named, events),
        };
        let kept = if failed_events_are_fragile {
            let mut kept = named.and(&events).handles().map_err(failed)?;
            kept.extend(admission.put_first_by_queue(purpose)?);
            kept
        } else {
            WaitedFor::new()
        };
        let awaited = Awaited {
            named,
            events,
            kept,
        };
        Ok((enqueueing, Some(awaited)))
    }

    /// Enqueues a command of `queue` by `enqueue`, which gets everything that the command has to wait for: the events of
    /// `wait_for`, and the commands that conflict with `uses`. The logs of `uses` track the command from now on.
    pub(crate) fn submit(
        &self,
        queue: &ClQueue,
        purpose: Purpose,
        uses: &[MemoryUse<'_>],
        wait_for: &[ClEvent],
        enqueue: impl FnOnce(&WaitList<'_>) -> ClResult<EventHandle>,
    ) -> Result<ClEvent> {
        let named = Self::named(wait_for);
        let admission = CommandAdmission::of_command(queue, uses, OrderRole::Command, named)?;
        self.submit_admitted(queue, purpose, admission, wait_for, enqueue)
    }

    /// Returns the tracked commands of these events, which a command that waits for them comes after.
    pub(crate) fn named(events: &[ClEvent]) -> Earlier {
        events
            .iter()
            .filter_map(ClEvent::tracked)
            .cloned()
            .collect()
    }

    /// Enqueues a command that is in its logs already by `enqueue`, which gets everything that it has to wait for.
    pub(crate) fn submit_admitted(
        &self,
        queue: &ClQueue,
        purpose: Purpose,
        mut admission: CommandAdmission<'_>,
        wait_for: &[ClEvent],
        enqueue: impl FnOnce(&WaitList<'_>) -> ClResult<EventHandle>,
    ) -> Result<ClEvent> {
        let uses = admission.uses();
        let (enqueueing, awaited) = self.ready(queue, purpose, &admission, wait_for)?;
        let Some(awaited) = awaited else {
            let context = queue.context();
            let event = ClEvent::failed_before_enqueue(context, purpose, admission.command())
                .map_err(|error| error.into_error(purpose))?;
            // It has failed, and later commands still come after what it was to come after.
            admission.enqueued(event.handle(), event.number(), true);
            return Ok(event);
        };
        let (wait, kept) = (awaited.named.and(&awaited.events), awaited.kept);
        let handle = enqueue(&wait).map_err(|error| error.into_error(purpose))?;
        // Until the event owns what the command works on, or the caller waits, a panic must wait for the command.
        let command = EndedOnPanic::new(&handle);
        let stand_in = Self::stand_in(queue, uses, &handle);
        command.disarm();
        let handle = stand_in.unwrap_or(handle);
        let event = ClEvent::tracked_command(queue, handle, purpose, admission.command(), kept);
        let command = EndedOnPanic::new(event.handle());
        admission.enqueued(event.handle(), event.number(), !wait.is_empty());
        kept_memory::note(queue, event.tracked());
        drop(enqueueing);
        command.disarm();
        Ok(event)
    }

    /// Calls `run` with a queue on which nothing is pending, where the runtime needs one, and else with `queue`. `run` waits
    /// for its commands.
    pub(crate) fn on_idle_queue<T>(
        &self,
        queue: &ClQueue,
        run: impl FnOnce(&ClQueue) -> Result<T>,
    ) -> Result<T> {
        let context = self.context();
        let quirks = &context.quirks;
        quirks.on_idle_queue(&context.handle, context.device, |idle| {
            let idle = idle.map(|handle| ClQueue::created(context, handle, QueueOrder::InOrder));
            run(idle.as_ref().unwrap_or(queue))
        })
    }

    /// The event that stands for `event`, of a command of `queue` that was just enqueued, on a runtime whose events keep memory
    /// (see [`stand_in_events`]); `None` if it stands for itself, or none could be made.
    fn stand_in(
        queue: &ClQueue,
        uses: &[MemoryUse<'_>],
        event: &EventHandle,
    ) -> Option<EventHandle> {
        let is_awaited = |used: &MemoryUse<'_>| used.log.end_is_awaited();
        if !queue.context().quirks.events_keep_memory || !uses.iter().any(is_awaited) {
            return None;
        }
        stand_in_events::marker(queue.handle(), event)
            .inspect_err(|error| {
                tracing::error!(%error, "memory stays until the event of a command that used it is dropped");
            })
            .ok()
    }

    /// Enqueues a command by `enqueue`, and waits for it, so that it may work on memory that the caller has borrowed.
    pub(crate) fn submit_and_wait(
        &self,
        queue: &ClQueue,
        purpose: Purpose,
        uses: &[MemoryUse<'_>],
        wait_for: &[ClEvent],
        enqueue: impl FnOnce(&WaitList<'_>) -> ClResult<EventHandle>,
    ) -> Result<()> {
        let event = self.submit(queue, purpose, uses, wait_for, enqueue)?;
        // Until the command has ended, even if a wait fails before.
        let ended = EndedOnPanic::new(event.handle()).wait();
        event.waited(ended)
    }
}

/// The events that a command waits for.
struct Awaited<'a> {
    named: WaitList<'a>,
    events: SmallVec<[EventHandle; 4]>,
    /// References to all of them, on a runtime where they have to live as long as the command's own event.
    kept: WaitedFor,
}

pub(crate) fn foreign_unless(own: bool, kind: ObjectKind) -> Result<()> {
    if own {
        Ok(())
    } else {
        Err(InvalidRequest::ForeignObject { kind }.into())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        slice::from_ref,
        sync::{Arc, Weak},
    };

    use binpool_allocators::{Backend, Event, MemoryFlags, Outcome, Queue, QueueOrder, Region};
    use cl3::event::{CL_COMMAND_MARKER, CL_EVENT_COMMAND_TYPE, get_event_info};

    use crate::{
        backend::OpenClBackend,
        event::ClEvent,
        memory::cl_memory::ClMemory,
        order::tracked_command::TrackedCommand,
        queue::ClQueue,
        sys,
        testing::{open, open_as},
    };

    fn fill(on: &ClQueue, memory: &ClMemory, wait_for: &[ClEvent]) -> ClEvent {
        let filled = memory
            .backend()
            .enqueue_fill(on.after(wait_for), memory, .., &[7_u8]);
        filled.unwrap()
    }

    /// Enqueues this many fills, each of which has failed before the next, and returns how many of them are remembered.
    fn remembered_of(
        backend: &OpenClBackend,
        queue: &ClQueue,
        memory: &ClMemory,
        count: usize,
    ) -> usize {
        let commands: Vec<Weak<TrackedCommand>> = (0..count)
            .map(|_| {
                let gate = backend.create_user_event().unwrap();
                let failed = fill(queue, memory, from_ref(&gate));
                gate.resolve(Outcome::Failed).unwrap();
                assert!(failed.wait().is_err());
                Arc::downgrade(failed.tracked().unwrap())
            })
            .collect();
        commands.iter().filter(|one| one.strong_count() > 0).count()
    }

    #[test]
    fn of_a_line_of_failed_commands_the_last_ones_are_remembered_alone() {
        const COMMANDS: usize = 300;
        let backend = open();
        for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
            let Ok(queue) = backend.create_queue(order) else {
                continue;
            };
            let buffer = || backend.create_buffer(64, MemoryFlags::empty()).unwrap();
            let memory = buffer();
            let remembered = remembered_of(&backend, &queue, &memory, COMMANDS);
            assert!(remembered < 20, "{order:?}: {remembered} of {COMMANDS}");
            if !backend.context().quirks.failed_events_are_fragile {
                // Here a command fails after what it comes after has ended.
                continue;
            }
            // With a pending command of the queue, and on the memory, before them.
            let gate = backend.create_user_event().unwrap();
            let pending = fill(&queue, &memory, from_ref(&gate));
            let remembered = remembered_of(&backend, &queue, &memory, COMMANDS);
            assert!(
                remembered < 20,
                "{order:?}, after a pending one: {remembered} of {COMMANDS}"
            );
            let last = fill(&queue, &memory, &[]);
            assert!(!pending.has_ended() && !last.has_ended());
            gate.resolve(Outcome::Complete).unwrap();
            last.wait().unwrap();
        }
    }

    /// Many commands fail at once, and those that come later look at them by many ways.
    #[test]
    fn commands_that_failed_at_once_are_forgotten_at_the_first_look() {
        const COMMANDS: usize = 300;
        let backend = open();
        let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
        let memory = backend
            .create_buffer(64 * COMMANDS, MemoryFlags::empty())
            .unwrap();
        let [gate, fails] = [(); 2].map(|()| backend.create_user_event().unwrap());
        let first = fill(&queues[1], &memory, from_ref(&gate));
        let part = |on: &ClQueue, index, wait_for: &[ClEvent]| {
            let region = Region::new(64 * index, 64);
            backend
                .enqueue_fill(on.after(wait_for), &memory, region, &[7_u8])
                .unwrap()
        };
        let failing: Vec<_> = (0..COMMANDS)
            .map(|index| part(&queues[0], index, from_ref(&fails)))
            .collect();
        fails.resolve(Outcome::Failed).unwrap();
        let commands: Vec<_> = failing
            .iter()
            .map(|one| Arc::clone(one.tracked().unwrap()))
            .collect();
        let last = part(&queues[0], COMMANDS - 1, &[]);
        let fail_early = failing[COMMANDS - 1].has_failed();
        if fail_early {
            for command in &commands[..COMMANDS - 1] {
                let earlier = command.earlier();
                let only = |one: &Arc<TrackedCommand>| Arc::ptr_eq(one, first.tracked().unwrap());
                assert!(
                    earlier.len() == 1 && earlier.iter().all(only),
                    "{earlier:?}"
                );
            }
        }
        assert!(!last.has_ended());
        gate.resolve(Outcome::Complete).unwrap();
        assert_eq!(last.wait().is_ok(), fail_early);
    }

    #[test]
    fn what_comes_after_a_user_event_comes_after_its_companion() {
        let backend = open();
        let queue = || backend.create_queue(QueueOrder::InOrder).unwrap();
        let (one, other) = (queue(), queue());
        let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
        let gate = backend.create_user_event().unwrap();
        let fill = |on| backend.enqueue_fill(on, &memory, Region::first(64), &[7_u8]);
        let waiting = fill(one.after(from_ref(&gate))).unwrap();
        // By the bytes that both use.
        let after = fill((&other).into()).unwrap();
        let has_companion = backend.context().quirks.failed_events_are_fragile;
        assert_eq!(gate.companion().unwrap().is_some(), has_companion);
        let companions = |event: &ClEvent| event.tracked().unwrap().companions([]).unwrap().len();
        let marker = backend.enqueue_marker(&other).unwrap();
        for event in [&after, &marker] {
            assert_eq!(companions(event), usize::from(has_companion));
        }
        if has_companion {
            // The event alone has ended: what waits for it does not begin.
            sys::set_user_event_status(gate.handle(), 0).unwrap();
            let beside = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
            let another = queue();
            backend.write(&another, &beside, 0, &[1_u8; 64]).unwrap();
            assert!(!waiting.has_ended());
        }
        let _resolved = backend.resolve_user_event(&gate, Outcome::Complete);
        for event in [waiting, after, marker] {
            event.wait().unwrap();
        }
        assert_eq!(companions(&backend.enqueue_marker(&one).unwrap()), 0);
    }
    #[test]
    fn a_marker_stands_for_a_command_whose_event_would_keep_memory_that_a_thread_waits_for() {
        let backend = open_as(|context| context.quirks.events_keep_memory = true);
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let plain = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
        let host = backend.create_host_buffer([0_u8; 64], MemoryFlags::empty());
        let host = host.unwrap();
        let is_marker = |event: &ClEvent| {
            let kind = get_event_info(event.handle().raw(), CL_EVENT_COMMAND_TYPE).unwrap();
            kind.to_uint() == CL_COMMAND_MARKER
        };
        assert!(!is_marker(&fill(&queue, &plain, &[])));
        assert!(is_marker(&fill(&queue, host.memory(), &[])));
        assert_eq!(host.into_host().unwrap(), [7; 64]);
    }
}
