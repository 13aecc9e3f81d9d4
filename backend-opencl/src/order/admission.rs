//! Commands enter the logs of what they use, and come after what stands there.

use std::sync::Arc;

use binpool_allocators::Result;
use parking_lot::MutexGuard;
use smallvec::SmallVec;

use crate::{
    cl_error::Purpose,
    order::access::Use,
    order::access_log::{AccessLog, Earlier, MapId, Record, behind},
    order::logged::Logged,
    queue::ClQueue,
    sys::EventHandle,
};

/// A command that stands in the logs of what it uses, and is about to be enqueued. Dropping it before means that it
/// never will be.
///
/// All logs are locked while it enters, so the commands on any object stand there in one order; a thread waits only for
/// threads whose commands entered before its own, to enqueue them. No lock is held meanwhile.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    queue: &'a ClQueue,
    uses: &'a [Use<'a>],
    earlier: Earlier,
    command: Option<Arc<Logged>>,
}

impl<'a> Admission<'a> {
    /// Enters a command of `queue`.
    ///
    /// # Errors
    ///
    /// [`Mapped`](binpool_allocators::InvalidRequest::Mapped). The command stands nowhere then.
    pub(crate) fn of_command(queue: &'a ClQueue, uses: &'a [Use<'a>]) -> Result<Self> {
        Self::enter(queue, uses, None)
    }

    /// Enters the command that ends the map `own`.
    pub(crate) fn of_unmap(queue: &'a ClQueue, uses: &'a [Use<'a>], own: MapId) -> Result<Self> {
        Self::enter(queue, uses, Some(own))
    }

    /// Enters a map of `used`, which keeps conflicting commands out from now on. The command that makes it need not
    /// stand there: the map does.
    ///
    /// # Errors
    ///
    /// [`Mapped`](binpool_allocators::InvalidRequest::Mapped).
    pub(crate) fn of_map(queue: &'a ClQueue, used: &'a Use<'a>) -> Result<(Self, MapId)> {
        let mut earlier = Earlier::new();
        let mut record = used.log.record.lock();
        record.check_maps(used.region, used.access, None)?;
        if used.block.is_some() {
            record.check_address(used.region)?;
        }
        record.gather(used.region, used.access, &mut earlier);
        let id = record.add_map(used.region, used.access);
        let discarded = record.take_discarded();
        drop(record);
        drop(discarded);
        let admission = Self {
            queue,
            uses: std::slice::from_ref(used),
            earlier,
            command: None,
        };
        Ok((admission, id))
    }

    fn enter(queue: &'a ClQueue, uses: &'a [Use<'a>], own_map: Option<MapId>) -> Result<Self> {
        let mut admission = Self {
            queue,
            uses,
            earlier: Earlier::new(),
            command: None,
        };
        if uses.is_empty() {
            return Ok(admission);
        }
        let mut logs = Logs::lock(uses);
        for used in uses {
            let record = logs.of(used);
            record.check_maps(used.region, used.access, own_map)?;
        }
        for used in uses {
            let record = logs.of(used);
            record.gather(used.region, used.access, &mut admission.earlier);
        }
        let command = Arc::new(Logged::entering(queue));
        for used in uses {
            logs.of(used).enter(used.region, used.access, &command);
        }
        let discarded = logs.take_discarded();
        drop(logs);
        drop(discarded);
        command.tidy_up();
        admission.command = Some(command);
        Ok(admission)
    }

    pub(crate) const fn uses(&self) -> &'a [Use<'a>] {
        self.uses
    }

    /// Waits until everything that stands before is enqueued.
    pub(crate) fn wait_for_turn(&self) {
        for command in &self.earlier {
            command.wait_until_decided();
        }
    }

    /// The events that the command has to wait for.
    pub(crate) fn events(&self, purpose: Purpose) -> Result<SmallVec<[EventHandle; 4]>> {
        behind(Some(self.queue), self.earlier.clone()).map_err(|error| error.into_error(purpose))
    }

    /// The command is enqueued, with this event and number; `waits` says whether it waits for any event.
    pub(crate) fn enqueued(&mut self, event: &EventHandle, number: u64, waits: bool) {
        if let Some(command) = self.command.take() {
            command.enqueued(event, number, waits);
        }
    }
}

impl Drop for Admission<'_> {
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
    fn lock(uses: &'a [Use<'a>]) -> Self {
        let mut logs: SmallVec<[&AccessLog; 4]> = uses.iter().map(|used| used.log).collect();
        logs.sort_unstable_by_key(|log| std::ptr::from_ref(*log));
        logs.dedup_by_key(|log| std::ptr::from_ref(*log));
        Self {
            locked: logs
                .into_iter()
                .map(|log| (std::ptr::from_ref(log), log.record.lock()))
                .collect(),
        }
    }

    fn of(&mut self, used: &Use<'_>) -> &mut Record {
        let log = std::ptr::from_ref(used.log);
        let place = self.locked.partition_point(|(other, _)| *other < log);
        &mut self.locked[place].1
    }

    fn take_discarded(&mut self) -> Vec<Arc<Logged>> {
        let all = self.locked.iter_mut();
        all.flat_map(|(_, record)| record.take_discarded())
            .collect()
    }
}
