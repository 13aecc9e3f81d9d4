//! The mock device as a backend.

use std::{fmt, sync::Arc, time::Duration};

use binpool_allocators::{
    AsMemory, Backend, DeviceLimits, Error, InvalidRequest, Memory, MemoryFlags, MemoryId,
    MemoryKind, ObjectKind, On, Outcome, QueueOrder, Region, Result, Sink, Span, Work,
};
use smallvec::{SmallVec, smallvec};

use crate::{
    CallKind, MockEvent, MockHandle, MockMemory, MockQueue,
    effect::Effect,
    memory::Binding,
    shared::Shared,
    state::{EventKey, ObjectKey, Operand, Submission},
};

/// The backend of a [`MockDevice`](crate::MockDevice). Clones are the same backend.
#[derive(Clone)]
pub struct MockBackend {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for MockBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockBackend")
            .field("device", &self.shared.number)
            .finish_non_exhaustive()
    }
}

type MockOn<'a> = On<'a, MockQueue, MockEvent>;

pub(crate) type EventKeys = SmallVec<[EventKey; 4]>;

/// Refuses an object of another device.
fn check_own(is_own: bool, kind: ObjectKind) -> Result<()> {
    if is_own {
        Ok(())
    } else {
        Err(InvalidRequest::ForeignObject { kind }.into())
    }
}

impl MockBackend {
    pub(crate) fn check_memory(&self, memory: &MockMemory) -> Result<()> {
        check_own(memory.is_of(&self.shared), ObjectKind::Memory)
    }

    /// A region of a block, as an operand of a command.
    pub(crate) fn part(&self, memory: &MockMemory, region: Region) -> Result<Operand> {
        self.check_memory(memory)?;
        if memory.kind() == MemoryKind::Pages {
            return Err(Error::unsupported(
                "a command or a view of pages: map them, and use the reservation",
            ));
        }
        region.check_within(memory.bytes())?;
        Ok(memory.part(region))
    }

    pub(crate) fn events(&self, events: &[MockEvent]) -> Result<EventKeys> {
        let keys = events.iter().map(|event| {
            check_own(event.is_of(&self.shared), ObjectKind::Event)?;
            Ok(event.key())
        });
        keys.collect()
    }

    pub(crate) fn new_memory(
        &self,
        (key, id): (ObjectKey, MemoryId),
        region: Region,
        kind: MemoryKind,
        binding: Option<Binding>,
    ) -> MockMemory {
        MockMemory::new(&self.shared, Operand { key, id, region }, kind, binding)
    }

    /// Enqueues a command.
    pub(crate) fn enqueue(&self, mut submission: Submission<'_>) -> Result<MockEvent> {
        let queue = submission.queue;
        self.shared
            .enqueue(|state| state.submit(&mut submission))
            .map(|event| MockEvent::new(&self.shared, event, Some(queue)))
    }

    /// What a command does with which bytes, without what it waits for.
    fn submission(
        &self,
        queue: &MockQueue,
        work: Work<'_, Span<'_, MockMemory>>,
    ) -> Result<Submission<'static>> {
        let new = |kind| Submission::new(kind, queue.key(), &[]);
        let part = |span: Span<'_, MockMemory>| {
            Ok::<_, Error>(smallvec![self.part(span.memory, span.region)?])
        };
        Ok(match work {
            Work::Marker => new(CallKind::Marker),
            Work::Barrier => new(CallKind::Barrier),
            Work::Fill(to, pattern) => {
                let writes = part(to)?;
                InvalidRequest::check_pattern(Region::first(to.region.bytes), pattern)?;
                Submission {
                    writes,
                    effect: Effect::Fill(pattern.into()),
                    ..new(CallKind::Fill)
                }
            }
            Work::Write(to, data) => Submission {
                writes: part(to)?,
                effect: Effect::Write(data),
                ..new(CallKind::EnqueueWrite)
            },
            Work::Read(from, sink) => Submission {
                reads: part(from)?,
                effect: Effect::Read(sink),
                ..new(CallKind::EnqueueRead)
            },
            Work::Copy(from, to) => {
                let (reads, writes) = (part(from)?, part(to)?);
                if from.memory.id() == to.memory.id() && from.region.overlaps(to.region) {
                    let (to, Region { offset, bytes }) = (to.region.offset, from.region);
                    let from = offset;
                    return Err(InvalidRequest::OverlappingCopy { from, to, bytes }.into());
                }
                Submission {
                    reads,
                    writes,
                    effect: Effect::Copy,
                    ..new(CallKind::Copy)
                }
            }
            _ => return Err(Error::unsupported("this command on the mock device")),
        })
    }

    /// Runs a transfer that waits.
    fn run(
        &self,
        On { queue, wait_for }: MockOn<'_>,
        kind: CallKind,
        work: Work<'_, Span<'_, MockMemory>>,
    ) -> Result<()> {
        self.check_queue(queue)?;
        let submission = self.submission(queue, work)?;
        let wait_for = self.events(wait_for)?;
        self.submit_and_wait(Submission {
            kind,
            name: kind.name().into(),
            wait_for: &wait_for,
            ..submission
        })
    }

    /// Enqueues a command and waits until it has ended. A command that would never end is not enqueued.
    fn submit_and_wait(&self, mut submission: Submission<'_>) -> Result<()> {
        let (kind, queue) = (submission.kind, submission.queue);
        let event = self.shared.enqueue(|state| {
            state.check_wait(&submission)?;
            state.submit(&mut submission)
        })?;
        MockEvent::new(&self.shared, event, Some(queue)).wait_in(kind)
    }

    /// Releases the memory that `handle` names as [`Backend::release`] does, even while the program still holds it.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject), and [`Error::Backend`] with the code -38 (`CL_INVALID_MEM_OBJECT`) for a double free,
    /// which is also recorded as a [`Violation`](crate::Violation).
    ///
    /// ```
    /// use binpool_allocators::{Backend, MemoryFlags};
    /// use binpool_mock::{MockDevice, Violation};
    ///
    /// let device = MockDevice::new();
    /// let backend = device.backend();
    /// let buffer = backend.create_buffer(1024, MemoryFlags::empty())?;
    /// let handle = buffer.into_handle();
    /// backend.release_handle(handle)?;
    /// assert!(device.leaks().is_empty());
    /// // A program that releases memory twice, as C-like code can, is caught.
    /// assert!(backend.release_handle(handle).is_err());
    /// let violation = device.violations().pop();
    /// let (memory, bytes) = (handle.id(), Some(1024));
    /// assert_eq!(violation, Some(Violation::DoubleFree { memory, bytes }));
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn release_handle(&self, handle: MockHandle) -> Result<()> {
        check_own(handle.device == self.shared.number, ObjectKind::Memory)?;
        self.shared.with(|state| state.release(handle.operand, &[]))
    }
}

impl Backend for MockBackend {
    type Memory = MockMemory;
    type Queue = MockQueue;
    type Event = MockEvent;

    fn limits(&self) -> &DeviceLimits {
        &self.shared.config.limits
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(self.shared.with(|state| state.free_bytes()))
    }

    fn now(&self) -> Duration {
        self.shared.with(|state| state.now())
    }

    fn create_queue(&self, order: QueueOrder) -> Result<MockQueue> {
        if order == QueueOrder::OutOfOrder && !self.limits().out_of_order_queues {
            let name = &self.limits().device_name;
            return Err(Error::unsupported(format!(
                "{name} has no out-of-order queues: use in-order queues and events"
            )));
        }
        let (key, id) = self.shared.call(CallKind::CreateQueue, 0, |state| {
            Ok(state.create_queue(order))
        })?;
        Ok(MockQueue::new(&self.shared, order, key, id))
    }

    fn check_queue(&self, queue: &MockQueue) -> Result<()> {
        check_own(queue.is_of(&self.shared), ObjectKind::Queue)
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<MockMemory> {
        self.limits().check_block(bytes)?;
        flags.check()?;
        let object = self.shared.call(CallKind::CreateBuffer, bytes, |state| {
            state.create_buffer(bytes, flags)
        })?;
        Ok(self.new_memory(object, Region::first(bytes), MemoryKind::Buffer, None))
    }

    fn create_sub_region(&self, parent: &MockMemory, region: Region) -> Result<MockMemory> {
        let part = self.part(parent, region)?;
        if region.bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        let (alignment, offset) = (self.limits().alignment, part.region.offset);
        if !alignment.divides(offset) {
            return Err(InvalidRequest::Misaligned { offset, alignment }.into());
        }
        let object = self
            .shared
            .call(CallKind::CreateSubRegion, region.bytes, |state| {
                state.create_view(part)
            })?;
        let binding = parent.binding.clone();
        let view = self.new_memory(object, part.region, parent.kind(), binding);
        Ok(view.into_view_of(parent))
    }

    fn commit(&self, queue: &MockQueue, memory: &MockMemory) -> Result<()> {
        self.check_queue(queue)?;
        self.submit_and_wait(Submission {
            writes: smallvec![self.part(memory, Region::first(memory.bytes()))?],
            ..Submission::new(CallKind::Commit, queue.key(), &[])
        })
    }

    fn release(&self, memory: MockMemory, after: &[MockEvent]) -> Result<()> {
        self.check_memory(&memory)?;
        let own: EventKeys = after
            .iter()
            .filter(|event| event.is_of(&self.shared))
            .map(MockEvent::key)
            .collect();
        let all_own = check_own(own.len() == after.len(), ObjectKind::Event);
        let result = memory.release(&own);
        all_own.and(result)
    }

    fn submit(
        &self,
        On { queue, wait_for }: MockOn<'_>,
        work: Work<'_, Span<'_, MockMemory>>,
    ) -> Result<MockEvent> {
        self.check_queue(queue)?;
        let mut submission = self.submission(queue, work)?;
        let wait_for = self.events(wait_for)?;
        submission.wait_for = &wait_for;
        self.enqueue(submission)
    }

    fn write_directly(
        &self,
        on: MockOn<'_>,
        to: Span<'_, MockMemory>,
        data: &[u8],
    ) -> Result<bool> {
        self.run(on, CallKind::Write, Work::Write(to, data.into()))?;
        Ok(true)
    }

    fn read_directly(
        &self,
        on: MockOn<'_>,
        from: Span<'_, MockMemory>,
        data: &mut [u8],
    ) -> Result<bool> {
        let sink = Sink::default();
        self.run(on, CallKind::Read, Work::Read(from, sink.clone()))?;
        // `sink` is empty where `data` is, since a command over no bytes does nothing.
        data.copy_from_slice(&sink.take());
        Ok(true)
    }

    fn create_user_event(&self) -> Result<MockEvent> {
        let event = self.shared.with(|state| {
            state.charge(|costs| costs.user_event);
            state.call(CallKind::CreateUserEvent, 0, |state| {
                Ok(state.new_event(None))
            })
        })?;
        Ok(MockEvent::new(&self.shared, event, None))
    }

    fn resolve_user_event(&self, event: &MockEvent, outcome: Outcome) -> Result<()> {
        check_own(event.is_of(&self.shared), ObjectKind::Event)?;
        self.shared.with(|state| {
            state.check_unresolved(event.key())?;
            state.charge(|costs| costs.user_event);
            state.call(CallKind::ResolveUserEvent, 0, |state| {
                state.resolve_user_event(event.key(), outcome);
                Ok(())
            })
        })?;
        self.shared.event_was_resolved();
        Ok(())
    }
}

impl AsMemory<MockBackend> for MockMemory {
    fn size(&self) -> usize {
        self.bytes()
    }

    fn memory_on(&self, _queue: &MockQueue) -> Option<&Self> {
        Some(self)
    }
}
