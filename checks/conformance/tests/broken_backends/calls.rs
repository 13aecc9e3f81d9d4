//! The calls of a broken backend.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering},
};

use binpool_allocators::{
    AsMemory, Backend, DeviceLimits, Error, InvalidRequest, Memory, MemoryFlags, MemoryKind, On,
    Outcome, Queue, QueueOrder, Region, Result, Sink, Span, Work,
};

use crate::{
    backend::Broken,
    defect::Defect,
    objects::{BrokenEvent, BrokenMemory, BrokenQueue, Scribble, view},
};

type BrokenOn<'a> = On<'a, BrokenQueue, BrokenEvent>;

impl Backend for Broken {
    type Memory = BrokenMemory;
    type Queue = BrokenQueue;
    type Event = BrokenEvent;

    fn limits(&self) -> &DeviceLimits {
        &self.own.limits
    }

    fn create_queue(&self, order: QueueOrder) -> Result<BrokenQueue> {
        self.check_thread()?;
        let (made, told) = match self.defect {
            Defect::InOrderQueuesAreOutOfOrder => (QueueOrder::OutOfOrder, order),
            Defect::OutOfOrderQueuesAreInOrder => (QueueOrder::InOrder, QueueOrder::InOrder),
            _ => (order, order),
        };
        let inner = self.mock.create_queue(made)?;
        Ok(BrokenQueue {
            id: inner.id(),
            inner,
            home: self.clone(),
            order: told,
        })
    }

    fn check_queue(&self, queue: &BrokenQueue) -> Result<()> {
        self.mock.check_queue(self.queue(queue))
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<BrokenMemory> {
        self.check_thread()?;
        let largest = self.limits().largest_block_bytes;
        let kernel = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
        let (mut size, mut allowed) = (bytes, flags);
        match self.defect {
            Defect::NoBytesAreOneByte => size = bytes.max(1),
            Defect::TooLargeIsOutOfMemory if bytes > largest => {
                return Err(Error::device_out_of_memory(bytes, "too large"));
            }
            Defect::TheLargestIsTooLarge if bytes == largest => size = largest + 1,
            Defect::FlagsAreNotChecked if flags.check().is_err() => allowed = MemoryFlags::empty(),
            Defect::KernelFlagsKeepTheHostOut if flags.intersects(kernel) => {
                allowed |= MemoryFlags::HOST_NO_ACCESS;
            }
            Defect::HostFlagsAreDropped if flags.check().is_ok() => allowed &= kernel,
            _ => {}
        }
        let memory = self.mock.create_buffer(size, allowed)?;
        Ok(BrokenMemory::new(memory, self, false))
    }

    fn create_sub_region(&self, parent: &BrokenMemory, asked: Region) -> Result<BrokenMemory> {
        let inner = self.memory(parent);
        let mut region = asked;
        match self.defect {
            Defect::NoBytesAreOneByte => region.bytes = asked.bytes.max(1),
            Defect::RegionsOfRegionsStartAtTheBlock if parent.is_region => region.offset = 0,
            Defect::RegionsAreClipped => {
                region.offset = asked.offset.min(inner.bytes());
                region.bytes = asked.bytes.min(inner.bytes() - region.offset);
            }
            Defect::RegionsAreAlignedForTheCaller => {
                region.offset -= asked.offset % self.limits().alignment.bytes();
            }
            _ => {}
        }
        let mut made = self.mock.create_sub_region(inner, region)?;
        if self.has(Defect::RegionsAreCopies) {
            made = self
                .mock
                .create_buffer(region.bytes, MemoryFlags::empty())?;
        }
        Ok(BrokenMemory::new(made, self, true))
    }

    fn commit(&self, queue: &BrokenQueue, memory: &BrokenMemory) -> Result<()> {
        let is_again = memory.was_committed.load(Ordering::Relaxed);
        let refuses = match self.defect {
            Defect::CommitIsRefused => true,
            Defect::CommitMayNotBeRepeated | Defect::FailedCommitsLoseTheBlock => is_again,
            Defect::RegionsCannotBeCommitted => memory.is_region,
            _ => false,
        };
        if refuses {
            return Err(self.failure());
        }
        if self.has(Defect::PagesCanBeCommitted) && memory.kind() == MemoryKind::Pages {
            return Ok(());
        }
        let result = self.mock.commit(self.queue(queue), self.memory(memory));
        let counts = result.is_err() || self.has(Defect::CommitMayNotBeRepeated);
        memory.was_committed.store(counts, Ordering::Relaxed);
        if self.has(Defect::CommitSucceedsAlways) {
            return Ok(());
        }
        self.ended(result)
    }

    fn release(&self, memory: BrokenMemory, after: &[BrokenEvent]) -> Result<()> {
        self.check_thread()?;
        if self.has(Defect::ForeignMemoryIsAccepted) && !self.is_home_of(&memory.home) {
            return Ok(());
        }
        if self.has(Defect::ScribblesOnRelease) {
            self.scribble(memory.inner());
        }
        let (is_region, after) = (memory.is_region, self.events(after));
        self.free(memory.into_inner(), is_region, &after)
    }

    fn submit(
        &self,
        On { queue, wait_for }: BrokenOn<'_>,
        work: Work<'_, Span<'_, BrokenMemory>>,
    ) -> Result<BrokenEvent> {
        match work {
            Work::Marker => self.marker(queue, wait_for),
            Work::Barrier => self.barrier(queue, wait_for),
            Work::Fill(to, pattern) => self.fill(queue, to, pattern, wait_for),
            Work::Write(to, data) => self.write_later(queue, to, data, wait_for),
            Work::Read(from, sink) => self.read_later(queue, from, &sink, wait_for),
            Work::Copy(from, to) => self.copy(queue, from, to, wait_for),
            _ => Err(Error::unsupported("this command")),
        }
    }

    fn write_directly(
        &self,
        On { queue, wait_for }: BrokenOn<'_>,
        Span { memory, region }: Span<'_, BrokenMemory>,
        data: &[u8],
    ) -> Result<bool> {
        let (queue, memory, mut wait_for) = (
            self.queue(queue),
            self.memory(memory),
            self.events(wait_for),
        );
        let region = self.region(region, memory)?;
        let (mut offset, mut data) = (region.offset, Cow::from(&data[..region.bytes]));
        match self.defect {
            Defect::WritesIgnoreTheirOffset => offset = 0,
            Defect::WritesAreLost => data = Cow::from(&[]),
            Defect::BlockingIgnoresItsWaitList => wait_for.clear(),
            _ => {}
        }
        self.ended(
            self.mock
                .write(queue.after(&wait_for), memory, offset, &data),
        )?;
        Ok(true)
    }

    fn read_directly(
        &self,
        On { queue, wait_for }: BrokenOn<'_>,
        Span { memory, region }: Span<'_, BrokenMemory>,
        data: &mut [u8],
    ) -> Result<bool> {
        let (queue, memory, mut wait_for) = (
            self.queue(queue),
            self.memory(memory),
            self.events(wait_for),
        );
        let region = self.region(region, memory)?;
        if self.has(Defect::BlockingIgnoresItsWaitList) {
            wait_for.clear();
        }
        let data = &mut data[..region.bytes];
        self.ended(
            self.mock
                .read(queue.after(&wait_for), memory, region.offset, data),
        )?;
        Ok(true)
    }

    fn create_user_event(&self) -> Result<BrokenEvent> {
        let event = self.mock.create_user_event()?;
        Ok(BrokenEvent::new(event, self))
    }

    fn resolve_user_event(&self, event: &BrokenEvent, mut outcome: Outcome) -> Result<()> {
        if self.has(Defect::ForeignEventsAreAccepted) && !self.is_home_of(&event.home) {
            return Ok(());
        }
        if self.has(Defect::UserEventsComplete) {
            outcome = Outcome::Complete;
        }
        if self.has(Defect::ReservationsAreUnmappedAtOnce) && self.has_failed() {
            outcome = Outcome::Failed;
        }
        let resolved = self.mock.resolve_user_event(&event.inner, outcome);
        if resolved.is_ok() && outcome == Outcome::Failed {
            self.own.has_failed.store(true, Ordering::Relaxed);
        }
        match resolved {
            Err(Error::InvalidRequest(InvalidRequest::AlreadyResolved))
                if self.has(Defect::UserEventsAreResolvedTwice) =>
            {
                Ok(())
            }
            Err(Error::InvalidRequest(InvalidRequest::NotAUserEvent))
                if self.has(Defect::AnyEventIsAUserEvent) =>
            {
                Ok(())
            }
            resolved => resolved,
        }
    }
}

impl Broken {
    fn fill(
        &self,
        queue: &BrokenQueue,
        Span { memory, region }: Span<'_, BrokenMemory>,
        mut pattern: &[u8],
        wait_for: &[BrokenEvent],
    ) -> Result<BrokenEvent> {
        if self.has(Defect::FailuresStopTheBackend) && self.has_failed() {
            return Err(self.failure());
        }
        let (queue, memory, wait_for) = (
            self.queue(queue),
            self.memory(memory),
            self.events(wait_for),
        );
        let mut region = self.region(region, memory)?;
        match self.defect {
            Defect::FillsRepeatOneByte => pattern = pattern.get(..1).unwrap_or_default(),
            Defect::FillsIgnoreTheirOffset => region.offset = 0,
            Defect::FillsIgnoreTheirLength => region = Region::first(memory.bytes()),
            Defect::PatternsAreNotChecked
                if InvalidRequest::check_pattern(Region::first(region.bytes), pattern).is_err() =>
            {
                return self.ended_event();
            }
            _ => {}
        }
        let fill = Work::Fill(Span { memory, region }, pattern);
        let event = self.mock.submit(queue.after(&wait_for), fill);
        self.event(event, region.bytes)
    }

    /// Launches a kernel that adds floats to others.
    pub(crate) fn add(
        &self,
        queue: &BrokenQueue,
        sum: &BrokenMemory,
        operand: &BrokenMemory,
        wait_for: &[BrokenEvent],
    ) -> Result<BrokenEvent> {
        let mut wait_for = self.events(wait_for);
        if self.has(Defect::KernelsIgnoreTheirWaitList) {
            wait_for.clear();
        }
        let add = |operands: &[&[u8]], sums: &mut [&mut [u8]]| {
            for (sum, operand) in sums[0].chunks_mut(4).zip(operands[0].chunks(4)) {
                let [left, right] =
                    [&*sum, operand].map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()));
                sum.copy_from_slice(&(left + right).to_ne_bytes());
            }
        };
        let on = self.queue(queue).after(&wait_for);
        let (sum, operand) = (self.memory(sum), self.memory(operand));
        let added = self.mock.launch(on, "add", &[operand], &[sum], add)?;
        Ok(BrokenEvent::new(added, self))
    }

    fn marker(&self, queue: &BrokenQueue, wait_for: &[BrokenEvent]) -> Result<BrokenEvent> {
        let event = self
            .mock
            .enqueue_marker(self.queue(queue).after(&self.events(wait_for)))?;
        if self.has(Defect::MarkersWaitForNothing) {
            return self.ended_event();
        }
        Ok(BrokenEvent::new(event, self))
    }

    fn barrier(&self, queue: &BrokenQueue, wait_for: &[BrokenEvent]) -> Result<BrokenEvent> {
        let (queue, wait_for) = (self.queue(queue), self.events(wait_for));
        let event = match self.defect {
            Defect::BarriersAreMarkers => self.mock.enqueue_marker(queue.after(&wait_for))?,
            Defect::BarriersWithWaitListsAreMarkers if !wait_for.is_empty() => {
                self.mock.enqueue_marker(queue.after(&wait_for))?
            }
            _ => self.mock.enqueue_barrier(queue.after(&wait_for))?,
        };
        Ok(BrokenEvent::new(event, self))
    }

    fn write_later(
        &self,
        queue: &BrokenQueue,
        Span { memory, region }: Span<'_, BrokenMemory>,
        mut data: Arc<[u8]>,
        wait_for: &[BrokenEvent],
    ) -> Result<BrokenEvent> {
        let (queue, memory, wait_for) = (
            self.queue(queue),
            self.memory(memory),
            self.events(wait_for),
        );
        let region = self.region(region, memory)?;
        match self.defect {
            Defect::WritesBorrowTheirData if Arc::strong_count(&data) == 1 => {
                data = vec![0; data.len()].into();
            }
            Defect::WritesKeepTheirData => std::mem::forget(Arc::clone(&data)),
            Defect::BoundsAreClipped => data = data[..region.bytes].into(),
            _ => {}
        }
        let event = self
            .mock
            .enqueue_write(queue.after(&wait_for), memory, region.offset, data);
        self.event(event, region.bytes)
    }

    fn read_later(
        &self,
        queue: &BrokenQueue,
        Span { memory, region }: Span<'_, BrokenMemory>,
        sink: &Sink,
        wait_for: &[BrokenEvent],
    ) -> Result<BrokenEvent> {
        if self.has(Defect::ReadsAreRefused) {
            return Err(self.failure());
        }
        let (queue, memory, wait_for) = (
            self.queue(queue),
            self.memory(memory),
            self.events(wait_for),
        );
        let region = self.region(region, memory)?;
        let read = self
            .mock
            .enqueue_read(queue.after(&wait_for), memory, region)?;
        let event = self.event(Ok(read.event().clone()), region.bytes)?;
        let home = self.clone();
        match self.defect {
            Defect::ReadsAreZeros => sink.put(move || vec![0; region.bytes]),
            Defect::ReadsAreLate => {
                let view = view(self, memory);
                sink.put(move || {
                    let mut bytes = vec![0_u8; region.bytes];
                    let (mock, queue) = (&home.mock, &home.own.queue);
                    mock.read(queue, &view, region.offset, &mut bytes).unwrap();
                    bytes
                });
            }
            Defect::DroppedReadsScribble => {
                let memory = Some(view(self, memory));
                let scribble = Scribble { memory, home };
                sink.put(move || {
                    scribble.disarm();
                    read.wait().unwrap()
                });
            }
            _ => sink.put(move || read.wait().unwrap_or_default()),
        }
        Ok(event)
    }

    fn copy(
        &self,
        queue: &BrokenQueue,
        from: Span<'_, BrokenMemory>,
        to: Span<'_, BrokenMemory>,
        wait_for: &[BrokenEvent],
    ) -> Result<BrokenEvent> {
        let (queue, wait_for) = (self.queue(queue), self.events(wait_for));
        let (source, destination) = (self.memory(from.memory), self.memory(to.memory));
        let (mut from, mut to) = (self.region(from.region, source)?, to.region.offset);
        from.bytes = self.region(Region::new(to, from.bytes), destination)?.bytes;
        match self.defect {
            Defect::CopiesAreOneByteShort => from.bytes = from.bytes.saturating_sub(1),
            Defect::CopiesIgnoreTheirTarget => to = 0,
            Defect::BoundsAreClipped => to = to.min(destination.bytes()),
            Defect::OffsetsAloneOverlap if from.overlaps(Region::new(to, from.bytes)) => {
                let (from, bytes) = (from.offset, from.bytes);
                return Err(InvalidRequest::OverlappingCopy { from, to, bytes }.into());
            }
            _ => {}
        }
        let copy = self
            .mock
            .enqueue_copy(queue.after(&wait_for), source, from, destination, to);
        match copy {
            Err(Error::InvalidRequest(InvalidRequest::OverlappingCopy { .. }))
                if self.has(Defect::CopiesMayOverlap) =>
            {
                self.ended_event()
            }
            copy => self.event(copy, from.bytes),
        }
    }
}

impl AsMemory<Broken> for BrokenMemory {
    fn size(&self) -> usize {
        self.bytes()
    }

    fn memory_on(&self, _queue: &BrokenQueue) -> Option<&Self> {
        Some(self)
    }
}
