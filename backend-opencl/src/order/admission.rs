//! The admission of a command: it enters the logs of the objects that it uses, and comes after the commands in them.

use std::sync::Arc;

use binpool_allocators::Result;
use parking_lot::MutexGuard;
use smallvec::SmallVec;

use crate::{
    order::{
        access_log::{AccessLog, MapId, Record, dependencies},
        memory_use::MemoryUse,
        role::OrderRole,
        tracked_command::{Earlier, TrackedCommand},
    },
    queue::ClQueue,
    sys::{ClError, EventHandle, Purpose},
};

/// A tracked command that is in the logs of the objects that it uses and is about to be enqueued. If this value is dropped
/// before that, it is never enqueued.
///
/// All logs are locked while it enters, so all logs have their commands in one order. A thread waits only for threads whose commands
/// entered before its own, and holds no lock meanwhile, so threads cannot wait for each other in a circle.
#[derive(Debug)]
pub(crate) struct CommandAdmission<'a> {
    queue: &'a ClQueue,
    role: OrderRole,
    uses: &'a [MemoryUse<'a>],
    /// Commands that it conflicts with.
    earlier: Earlier,
    /// Commands that it has to wait for by their events, even on its own queue: those of its wait list, and those that its
    /// queue's log puts before it.
    by_event: Earlier,
    /// Commands of its queue that the runtime makes it wait for, without their events.
    by_runtime: Earlier,
    command: Option<Arc<TrackedCommand>>,
}

impl<'a> CommandAdmission<'a> {
    /// Enters a command of `queue` that waits for the commands in `named`.
    ///
    /// # Errors
    ///
    /// [`Mapped`](binpool_allocators::InvalidRequest::Mapped). The command is in no log then.
    pub(crate) fn of_command(
        queue: &'a ClQueue,
        uses: &'a [MemoryUse<'a>],
        role: OrderRole,
        named: Earlier,
    ) -> Result<Self> {
        Self::enter((queue, queue), uses, role, named, OfMap::No)
    }

    /// Enters the command of the queue `home` that ends the map `own` and runs on `queue`, the same one or another.
    ///
    /// # Errors
    ///
    /// [`Mapped`](binpool_allocators::InvalidRequest::Mapped) where another map conflicts with that one.
    pub(crate) fn of_unmap(
        (queue, home): (&'a ClQueue, &'a ClQueue),
        used: &'a MemoryUse<'a>,
        own: MapId,
        named: Earlier,
    ) -> Result<Self> {
        let role = if queue.identity() == home.identity() {
            OrderRole::Command
        } else {
            OrderRole::Elsewhere
        };
        let ends = OfMap::Ends(own);
        Self::enter((queue, home), std::slice::from_ref(used), role, named, ends)
    }

    /// Enters a map of `used`, which refuses conflicting commands from now on, and the command that makes it.
    ///
    /// # Errors
    ///
    /// [`Mapped`](binpool_allocators::InvalidRequest::Mapped).
    pub(crate) fn of_map(
        queue: &'a ClQueue,
        used: &'a MemoryUse<'a>,
        named: Earlier,
    ) -> Result<(Self, MapId)> {
        let id = MapId::fresh();
        let (used, makes) = (std::slice::from_ref(used), OfMap::Makes(id));
        let admission = Self::enter((queue, queue), used, OrderRole::Command, named, makes)?;
        Ok((admission, id))
    }

    /// Enters a command of `home` that runs on `queue`.
    fn enter(
        (queue, home): (&'a ClQueue, &'a ClQueue),
        uses: &'a [MemoryUse<'a>],
        role: OrderRole,
        named: Earlier,
        of_map: OfMap,
    ) -> Result<Self> {
        let mut admission = Self {
            queue,
            role,
            uses,
            earlier: Earlier::new(),
            by_event: named,
            by_runtime: Earlier::new(),
            command: None,
        };
        let own_log = home.order_log();
        let mut logs = Logs::lock(uses, own_log);
        for used in uses {
            let record = logs.of(used.log);
            record.check_maps(used.region, used.access, of_map.ended())?;
            if matches!(of_map, OfMap::Makes(_)) && used.is_svm {
                record.check_address(used.region)?;
            }
        }
        for used in uses {
            let record = logs.of(used.log);
            record.collect_conflicting(used.region, used.access, &mut admission.earlier);
        }
        let is_in_order = home.is_in_order();
        let mut before = Earlier::new();
        let (by_event, by_runtime) = (&mut admission.by_event, &mut admission.by_runtime);
        role.collect_conflicting(is_in_order, logs.of(own_log), by_event, by_runtime);
        // The runtime does not know of commands that run elsewhere.
        by_event.extend(by_runtime.iter().filter(|it| it.runs_elsewhere()).cloned());
        by_runtime.retain(|command| !command.runs_elsewhere());
        let all = [&admission.earlier, by_event, by_runtime];
        before.extend(all.into_iter().flatten().cloned());
        let command = Arc::new(TrackedCommand::entering(
            queue.downgrade(),
            home.identity(),
            before,
        ));
        for used in uses {
            logs.of(used.log).enter(used.region, used.access, &command);
        }
        role.enter(is_in_order, logs.of(own_log), &command);
        if let (OfMap::Makes(id), [used]) = (of_map, uses) {
            logs.of(used.log)
                .add_map(id, used.region, used.access, &command);
        }
        let discarded = logs.take_discarded();
        drop(logs);
        drop(discarded);
        command.tidy_up();
        admission.command = Some(command);
        Ok(admission)
    }

    pub(crate) const fn uses(&self) -> &'a [MemoryUse<'a>] {
        self.uses
    }

    /// Returns the tracked command, for its event.
    pub(crate) fn command(&self) -> Option<&Arc<TrackedCommand>> {
        self.command.as_ref()
    }

    /// Waits until all commands that it comes after are enqueued or given up.
    ///
    /// Called before the locks of [`Quirks::while_enqueueing`](crate::quirks::Quirks::while_enqueueing) are taken. Otherwise three threads
    /// could wait for each other: this one would hold the failure lock and wait for an earlier command to be enqueued, while that command's
    /// thread waited for the failure lock after a third thread that wants it exclusively.
    pub(crate) fn wait_for_turn(&self) {
        let by_event = self.earlier.iter().chain(&self.by_event);
        for command in by_event.chain(&self.by_runtime) {
            command.wait_until_decided();
        }
    }

    /// Takes out the commands that it comes after, for a caller that waits for them itself. Then [`events`](Self::events) returns none of
    /// them.
    pub(crate) fn take_earlier(&mut self) -> Earlier {
        self.wait_for_turn();
        let mut all = std::mem::take(&mut self.earlier);
        all.extend(std::mem::take(&mut self.by_event));
        all.extend(std::mem::take(&mut self.by_runtime));
        all
    }

    /// Returns the events that the command has to wait for.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) for a marker or barrier without a wait list where the queue
    /// [may have lost its order](ClQueue::check_order), and failures of the runtime.
    pub(crate) fn events(&self, purpose: Purpose) -> Result<SmallVec<[EventHandle; 4]>> {
        let control = |error: ClError| error.into_error(purpose);
        let own = self.queue.identity();
        let by_event = self.by_event.iter();
        let by_event = by_event.filter(|command| !command.is_put_first_by(own));
        let by_event = by_event.cloned().collect();
        let mut events = dependencies(None, by_event).map_err(control)?.events;
        if self.role.comes_after_all() {
            self.queue.check_order()?;
        }
        // If one has failed, the runtime no longer waits for the commands that it was to come after, so this one may have to.
        let by_runtime = dependencies(None, self.by_runtime.clone()).map_err(control)?;
        if by_runtime.any_failed {
            events.extend(by_runtime.events);
        }
        let conflicting = dependencies(Some(own), self.earlier.clone()).map_err(control)?;
        events.extend(conflicting.events);
        Ok(events)
    }

    /// Returns the events of the pending commands that only the queue's order puts before this one.
    pub(crate) fn put_first_by_queue(
        &self,
        purpose: Purpose,
    ) -> Result<SmallVec<[EventHandle; 4]>> {
        let own = self.queue.identity();
        let by_event = self.by_event.iter();
        let put_first = by_event.filter(|command| command.is_put_first_by(own));
        let found = dependencies(None, put_first.cloned().collect());
        found
            .map(|found| found.events)
            .map_err(|error| error.into_error(purpose))
    }

    /// Records that the command is enqueued, with this event and number; `waits` says whether it waits for any event.
    pub(crate) fn enqueued(&mut self, event: &EventHandle, number: u64, waits: bool) {
        if let Some(command) = self.command.take() {
            command.enqueued(event, number, waits || !self.by_runtime.is_empty());
        }
    }
}

/// What a command does with a map.
#[derive(Clone, Copy)]
enum OfMap {
    No,
    Makes(MapId),
    Ends(MapId),
}

impl OfMap {
    const fn ended(self) -> Option<MapId> {
        match self {
            Self::Ends(id) => Some(id),
            Self::No | Self::Makes(_) => None,
        }
    }
}

impl Drop for CommandAdmission<'_> {
    fn drop(&mut self) {
        if let Some(command) = self.command.take() {
            command.gone();
        }
    }
}

/// The logs of some uses, all locked, in the order of their addresses.
struct Logs<'a> {
    locked: SmallVec<[(*const AccessLog, MutexGuard<'a, Record>); 2]>,
}

impl<'a> Logs<'a> {
    fn lock(uses: &'a [MemoryUse<'a>], own: &'a AccessLog) -> Self {
        let mut logs: SmallVec<[&AccessLog; 4]> = uses.iter().map(|used| used.log).collect();
        logs.push(own);
        logs.sort_unstable_by_key(|log| std::ptr::from_ref(*log));
        logs.dedup_by_key(|log| std::ptr::from_ref(*log));
        Self {
            locked: logs
                .into_iter()
                .map(|log| (std::ptr::from_ref(log), log.record.lock()))
                .collect(),
        }
    }

    fn of(&mut self, log: &AccessLog) -> &mut Record {
        let log = std::ptr::from_ref(log);
        let index = self.locked.partition_point(|(other, _)| *other < log);
        &mut self.locked[index].1
    }

    fn take_discarded(&mut self) -> Vec<Arc<TrackedCommand>> {
        let all = self.locked.iter_mut();
        all.flat_map(|(_, record)| record.take_discarded())
            .collect()
    }
}
