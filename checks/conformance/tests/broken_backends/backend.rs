//! What a broken backend is, and what its calls share.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
};

use binpool_allocators::{
    Backend, DeviceLimits, Error, Event, FailureOrder, InvalidRequest, Memory, MemoryFlags,
    MemoryKind, OutOfMemory, Outcome, QueueOrder, Region, Result, SvmBackend, VirtualMemory,
};
use binpool_mock::{MockBackend, MockDevice, MockEvent, MockMemory, MockQueue};

use crate::{
    defect::Defect,
    objects::{BrokenEvent, BrokenMemory, BrokenQueue},
};

/// The mock, with one defect.
#[derive(Clone)]
pub(crate) struct Broken {
    pub(crate) defect: Defect,
    pub(crate) mock: MockBackend,
    pub(crate) own: Arc<Own>,
}

/// What a broken backend has for itself.
pub(crate) struct Own {
    pub(crate) limits: DeviceLimits,
    pub(crate) queue: MockQueue,
    /// Stands in for foreign memory.
    spare: MockMemory,
    thread: ThreadId,
    /// Whether a user event was resolved as failed, or commands that wait for one are to fail.
    pub(crate) has_failed: AtomicBool,
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.defect.fmt(f)
    }
}

impl Broken {
    pub(crate) fn new(device: &MockDevice, defect: Defect) -> Self {
        let mock = device.backend();
        let mut limits = mock.limits().clone();
        if defect == Defect::LimitsAreZero {
            limits.capacity_bytes = 0;
        }
        limits.failure_order = FailureOrder::Kept;
        let own = Own {
            limits,
            queue: mock.create_queue(QueueOrder::InOrder).unwrap(),
            spare: mock.create_buffer(1 << 16, MemoryFlags::empty()).unwrap(),
            thread: thread::current().id(),
            has_failed: AtomicBool::new(false),
        };
        Self {
            defect,
            mock,
            own: Arc::new(own),
        }
    }

    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.own.has_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_home_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.own, &other.own)
    }

    pub(crate) fn failure(&self) -> Error {
        Error::backend("the call", None, format!("{:?}", self.defect))
    }

    /// What a call or a command that has ended with `result` tells.
    pub(crate) fn ended(&self, result: Result<()>) -> Result<()> {
        match (self.defect, result) {
            (Defect::ShortageIsHidden, Err(Error::OutOfMemory(_)))
            | (Defect::FailuresAreSwallowed, Err(Error::Backend(_))) => Ok(()),
            (_, result) => result.map_err(|error| self.told(error)),
        }
    }

    /// What is told of an error.
    pub(crate) fn told(&self, error: Error) -> Error {
        match (self.defect, error) {
            (Defect::ShortageIsAFailure, Error::OutOfMemory(_)) => self.failure(),
            (Defect::ShortageHasNoSource, Error::OutOfMemory(shortage)) => {
                OutOfMemory::new(shortage.requested, shortage.scope).into()
            }
            (Defect::FailuresAreOutOfMemory, Error::Backend(failure)) => {
                Error::device_out_of_memory(1, failure.to_string())
            }
            (_, error) => error,
        }
    }

    /// Spoils memory.
    pub(crate) fn scribble(&self, memory: &MockMemory) {
        let all = Region::first(memory.bytes());
        let queue = &self.own.queue;
        let scribble = self.mock.enqueue_fill(queue, memory, all, &[0xee_u8]);
        let _ended = scribble.and_then(|event| event.wait());
    }

    pub(crate) fn free(
        &self,
        memory: MockMemory,
        is_region: bool,
        after: &[MockEvent],
    ) -> Result<()> {
        let is_svm = matches!(memory.kind(), MemoryKind::Svm(_));
        match self.defect {
            Defect::ReleaseLeaks => {
                let _leaked = memory.into_handle();
                Ok(())
            }
            Defect::TheLastEventOfAReleaseCounts => {
                let last = after.last().map(std::slice::from_ref).unwrap_or_default();
                self.mock.release(memory, last)
            }
            Defect::TheFirstEventOfAReleaseCounts => {
                self.mock.release(memory, &after[..after.len().min(1)])
            }
            Defect::ReleaseIgnoresItsEvents => self.mock.release(memory, &[]),
            Defect::SvmIsFreedAtOnce if is_svm && !is_region => {
                let address = self.mock.svm_address(&memory);
                let _freed_below = memory.into_handle();
                address.map_or(Ok(()), |address| self.mock.free_svm_address(address))
            }
            Defect::ReservationsAreUnmappedAtOnce => {
                let page = self.mock.page_bytes();
                if self.mock.unmap(&memory, Region::first(page)).is_err() {
                    // The commands that use it find nothing there.
                    self.own.has_failed.store(true, Ordering::Relaxed);
                }
                self.mock.release(memory, after)
            }
            _ => self.mock.release(memory, after),
        }
    }

    pub(crate) fn check_thread(&self) -> Result<()> {
        if self.has(Defect::OneThreadOnly) && thread::current().id() != self.own.thread {
            return Err(self.failure());
        }
        Ok(())
    }

    pub(crate) fn queue<'q>(&'q self, queue: &'q BrokenQueue) -> &'q MockQueue {
        if self.has(Defect::ForeignQueuesAreAccepted) && !self.is_home_of(&queue.home) {
            return &self.own.queue;
        }
        &queue.inner
    }

    pub(crate) fn memory<'m>(&'m self, memory: &'m BrokenMemory) -> &'m MockMemory {
        if self.has(Defect::ForeignMemoryIsAccepted) && !self.is_home_of(&memory.home) {
            return &self.own.spare;
        }
        memory.inner()
    }

    /// A wait list, as far as it is heeded.
    pub(crate) fn events(&self, events: &[BrokenEvent]) -> Vec<MockEvent> {
        let heeded = match self.defect {
            Defect::WaitListsAreIgnored => 0,
            Defect::OneEventOfAWaitListCounts => 1,
            _ => events.len(),
        };
        let all_count = !self.has(Defect::ForeignEventsAreAccepted);
        events
            .iter()
            .take(heeded)
            .filter(|event| all_count || self.is_home_of(&event.home))
            .map(|event| event.inner.clone())
            .collect()
    }

    /// An event that nothing waits for.
    pub(crate) fn ended_event(&self) -> Result<BrokenEvent> {
        let event = self.mock.create_user_event()?;
        self.mock.resolve_user_event(&event, Outcome::Complete)?;
        Ok(BrokenEvent::new(event, self))
    }

    /// A region, as far as it is looked at.
    pub(crate) fn region(&self, region: Region, memory: &MockMemory) -> Result<Region> {
        if self.has(Defect::NoBytesAreRefused) && region.bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        let offset = match self.defect {
            Defect::BoundsAreClipped => region.offset.min(memory.bytes()),
            _ => region.offset,
        };
        let Some(room) = memory.bytes().checked_sub(offset) else {
            return Ok(region);
        };
        Ok(match self.defect {
            Defect::BoundsAreClipped | Defect::LengthsAreNotChecked => {
                Region::new(offset, region.bytes.min(room))
            }
            _ => region,
        })
    }

    pub(crate) fn event(&self, event: Result<MockEvent>, bytes: usize) -> Result<BrokenEvent> {
        if self.has(Defect::NoBytesAreDoneAtOnce) && bytes == 0 && event.is_ok() {
            return self.ended_event();
        }
        match event {
            Err(Error::OutOfMemory(_)) if self.has(Defect::ShortageIsHidden) => self.ended_event(),
            Err(error) => Err(self.told(error)),
            Ok(event) => Ok(BrokenEvent::new(event, self)),
        }
    }
}
