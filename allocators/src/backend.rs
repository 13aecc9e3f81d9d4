//! The trait of backends: the interface of a device runtime, and what its commands take as memory.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytemuck::{AnyBitPattern, NoUninit};

use crate::{
    DeviceLimits, Error, Event, IntoRegion, InvalidRequest, Memory, MemoryFlags, On, Outcome,
    PendingRead, Queue, QueueOrder, Region, Result, Sink, Span, Work,
};

/// A device runtime: one device, and the context that its memory, queues and events belong to.
///
/// Most backends implement [`Runtime`](crate::runtime::Runtime) instead, which is what a device does without the checks, and get this from the core. An
/// implementation of the eight calls without a body works with the allocators, the adaptors, the pool and the tools. Check it with the suite (the crate
/// `binpool-conformance`). The calls for programs, from [`enqueue_marker`](Self::enqueue_marker) on, need no implementation: they call
/// [`submit`](Self::submit). Values are cheap handles; clones stand for the same device and context. All methods may be called from any thread.
///
/// # Objects and their backend
///
/// Memory, queues and events belong to the backend that made them. A method that is passed an object of
/// another backend returns [`ForeignObject`](crate::InvalidRequest::ForeignObject) and does nothing. Backends of several devices may take
/// each other's queues and events as their own, and copy to each other's memory, as CUDA's do.
///
/// # Deferred memory
///
/// [`create_buffer`](Self::create_buffer) may return memory that the device does not have; the failure then
/// appears in the first command that uses the buffer, from [`commit`](Self::commit) on.
///
/// # Commands
///
/// A command runs when its queue's order and its wait list allow. Its memory and its host bytes stay valid
/// until it has ended, whatever the caller drops meanwhile. A command over no bytes does nothing to memory,
/// but is ordered like any other. An out-of-bounds region, a foreign object or a bad pattern is refused
/// before anything is enqueued.
///
/// A command that waits for an event that fails does not run, and its own event fails. If the event has failed
/// before the command is enqueued, the call itself may return the error. The effect on later commands of the same in-order
/// queue depends on the runtime: some also fail the commands that were enqueued already.
///
/// The program must order commands of different queues, or of an out-of-order queue, that use the same bytes: by wait lists
/// or barriers. A backend may order them itself, as OpenCL's does: such a command then waits for all earlier commands
/// that it conflicts with, and fails if one of them does.
///
/// A call that fails has no effect: nothing is enqueued, nothing is leaked.
///
/// # Examples
///
/// Programs that are written against the trait run on any device:
///
/// ```
/// use binpool_allocators::{Queue, Backend, Event, MemoryFlags, QueueOrder, Region, Result};
/// use binpool_mock::MockDevice;
///
/// fn ones<B: Backend>(backend: &B, bytes: usize) -> Result<Vec<u8>> {
///     let queue = backend.create_queue(QueueOrder::InOrder)?;
///     let buffer = backend.create_buffer(bytes, MemoryFlags::empty())?;
///     backend.commit(&queue, &buffer)?; // Fails where the device does not have the memory.
///     let filled = backend.enqueue_fill(&queue, &buffer, Region::first(bytes), &[1_u8])?;
///     backend.enqueue_read(queue.after(&[filled]), &buffer, Region::first(bytes))?.wait()
/// }
///
/// assert_eq!(ones(&MockDevice::new().backend(), 3)?, [1, 1, 1]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// On other queues the program sets the order: by wait lists, by markers for everything so far, by barriers for
/// everything after them, and by user events for what the host does in between:
///
/// ```
/// # use binpool_allocators::{
/// #     Backend, Event, EventStatus, MemoryFlags, Outcome, Queue, QueueOrder, Region,
/// # };
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let [one, two] = [(); 2].map(|()| backend.create_buffer(8, MemoryFlags::empty()).unwrap());
/// let upload = backend.create_queue(QueueOrder::InOrder)?;
/// let compute = backend.create_queue(QueueOrder::OutOfOrder)?;
/// let ready = backend.create_user_event()?;
/// backend.enqueue_fill(upload.after(&[ready.clone()]), &one, Region::first(8), &[1_u8])?;
/// backend.enqueue_fill(&upload, &two, Region::first(8), &[2_u8])?;
/// let uploaded = backend.enqueue_marker(&upload)?; // Ends after both fills.
/// upload.flush()?; // Otherwise a wait on another queue need not start it.
/// backend.enqueue_barrier(compute.after(&[uploaded]))?; // Later commands of `compute` run after both fills.
/// let read = backend.enqueue_read(&compute, &one, Region::first(8))?;
/// assert_eq!(read.event().status()?, EventStatus::Pending);
/// backend.resolve_user_event(&ready, Outcome::Complete)?;
/// assert_eq!(read.wait()?, [1; 8]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// Transfers either wait, or return an event to wait for. On one in-order queue they need no wait lists:
///
/// ```
/// # use binpool_allocators::{Backend, Event, MemoryFlags, On, QueueOrder, Region, Span, Work};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let [input, output] = [(); 2].map(|()| backend.create_buffer(8, MemoryFlags::empty()).unwrap());
/// backend.write(&queue, &input, 0, &[1_u8, 2, 3, 4])?; // Waits: the host may change its bytes again.
/// backend.enqueue_write(&queue, &input, 4, [5, 6, 7, 8].into())?; // The backend keeps the bytes.
/// backend.enqueue_fill(&queue, &output, ..4, &[0xAB_u8, 0xCD])?;
/// backend.enqueue_copy(&queue, &input, 2..6, &output, 4)?.wait()?; // Everything before it has ended, too.
/// let mut bytes = [0_u8; 8];
/// backend.read(&queue, &output, 0, &mut bytes)?;
/// assert_eq!(bytes, [0xAB, 0xCD, 0xAB, 0xCD, 3, 4, 5, 6]);
///
/// // What is below these calls.
/// let memory = &output;
/// let part = Span { memory, region: Region::first(2) };
/// backend.submit(On::from(&queue), Work::Fill(part, &[9]))?;
/// assert!(backend.write_directly(On::from(&queue), part, &[9, 8])?); // The mock can.
/// assert!(backend.read_directly(On::from(&queue), part, &mut bytes[..2])?);
/// assert_eq!(bytes[..2], [9, 8]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// Views are memory like any other, and keep their block alive:
///
/// ```
/// # use binpool_allocators::{Backend, Memory, MemoryFlags, QueueOrder, Region};
/// # use binpool_mock::MockDevice;
/// # let device = MockDevice::new();
/// # let backend = device.backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let block = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let step = backend.limits().alignment.bytes(); // Views start on multiples of it.
/// let view = backend.create_sub_region(&block, Region::new(2 * step, 100))?;
/// backend.release(block, &[])?; // Nothing is freed yet.
/// assert_eq!((view.bytes(), device.statistics().live_blocks), (100, 1));
/// backend.write(&queue, &view, 0, &[7_u8; 100])?; // Offsets count from the start of the view.
/// backend.release(view, &[])?;
/// assert_eq!(device.statistics().live_blocks, 0);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub trait Backend: Clone + fmt::Debug + Send + Sync + 'static {
    /// A block of memory.
    type Memory: Memory + AsMemory<Self>;
    /// A queue of commands.
    type Queue: Queue;
    /// The event of a command.
    type Event: Event;

    /// The limits and capabilities of the device.
    fn limits(&self) -> &DeviceLimits;

    /// The bytes of the device that are free now, counting what all programs use. `None` if the runtime does not say, as
    /// OpenCL's do not. May call the device.
    ///
    /// ```
    /// use binpool_allocators::{Backend, VirtualMemory};
    /// use binpool_mock::MockDevice;
    ///
    /// let device = MockDevice::builder().capacity_bytes(1 << 30).virtual_memory(true).build();
    /// let _others = device.backend().create_pages(256 << 20)?;
    /// assert_eq!(device.backend().free_bytes(), Some(768 << 20));
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// The time on a clock that only goes forward, from any moment on. By default it is the host's; a simulated device has one of its own.
    ///
    /// ```
    /// use binpool_allocators::Backend;
    /// use binpool_mock::MockDevice;
    /// use std::time::Duration;
    ///
    /// let device = MockDevice::new();
    /// let backend = device.backend();
    /// let before = backend.now();
    /// device.pass(Duration::from_secs(1));
    /// assert_eq!(backend.now() - before, Duration::from_secs(1));
    /// ```
    fn now(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    /// Makes a queue.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported) if the device has no out-of-order queues.
    fn create_queue(&self, order: QueueOrder) -> Result<Self::Queue>;

    /// Checks that `queue` belongs to this backend, or to another whose queues it takes, without a call to the device.
    ///
    /// ```
    /// use binpool_allocators::{Backend, Error, InvalidRequest, ObjectKind, QueueOrder};
    /// # use binpool_mock::MockDevice;
    ///
    /// let [here, there] = [(); 2].map(|()| MockDevice::new().backend());
    /// let queue = there.create_queue(QueueOrder::InOrder)?;
    /// assert!(there.clone().check_queue(&queue).is_ok()); // Clones are the same backend.
    /// let Err(Error::InvalidRequest(refusal)) = here.check_queue(&queue) else { unreachable!() };
    /// assert_eq!(refusal, InvalidRequest::ForeignObject { kind: ObjectKind::Queue });
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject).
    fn check_queue(&self, queue: &Self::Queue) -> Result<()>;

    /// Checks that commands on `queue` can take this backend's memory, without a call to the device: the queue belongs to this
    /// backend, or to one that shares its memory, as those of two devices of one OpenCL context do.
    ///
    /// Such a queue also takes this backend's [markers](Self::enqueue_marker) and [barriers](Self::enqueue_barrier), so that
    /// the owner of the memory learns when commands on the queue have ended. A backend that does not share its memory need not
    /// implement this.
    ///
    /// ```
    /// use binpool_allocators::{Backend, QueueOrder};
    /// # use binpool_mock::MockDevice;
    ///
    /// let [here, there] = [(); 2].map(|()| MockDevice::new().backend());
    /// assert!(here.check_use(&here.create_queue(QueueOrder::InOrder)?).is_ok());
    /// assert!(here.check_use(&there.create_queue(QueueOrder::InOrder)?).is_err());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject).
    fn check_use(&self, queue: &Self::Queue) -> Result<()> {
        self.check_queue(queue)
    }

    /// Makes a buffer of `bytes` bytes. The device may commit it later. Its contents are undefined.
    ///
    /// # Errors
    ///
    /// [`ZeroSize`](crate::InvalidRequest::ZeroSize), [`TooLarge`](crate::InvalidRequest::TooLarge),
    /// [`ContradictoryFlags`](crate::InvalidRequest::ContradictoryFlags), or
    /// [`OutOfMemory`](crate::Error::OutOfMemory).
    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<Self::Memory>;

    /// Makes a view of a region of `parent`, which keeps the whole block alive. A view of a view is a view of
    /// the block.
    ///
    /// # Errors
    ///
    /// [`Misaligned`](crate::InvalidRequest::Misaligned) unless the region starts, within the whole block, on
    /// a multiple of [`DeviceLimits::alignment`]; [`OutOfBounds`](crate::InvalidRequest::OutOfBounds);
    /// [`ZeroSize`](crate::InvalidRequest::ZeroSize).
    fn create_sub_region(&self, parent: &Self::Memory, region: Region) -> Result<Self::Memory>;

    /// Makes the device commit `memory` now, and waits for that.
    ///
    /// Contents may be lost. Costs nothing if the memory is always committed (SVM).
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if the device has no room. The block remains and
    /// can be committed later, or released.
    fn commit(&self, queue: &Self::Queue, memory: &Self::Memory) -> Result<()>;

    /// Releases `memory` to the runtime, to be freed once the events in `after` and every command that was
    /// enqueued with it through this trait have ended. Does not wait for them.
    ///
    /// # Errors
    ///
    /// A failure of the runtime. The block is gone in any case.
    fn release(&self, memory: Self::Memory, after: &[Self::Event]) -> Result<()>;

    /// Enqueues a command. All calls below use this.
    ///
    /// # Errors
    ///
    /// Those of the calls below.
    fn submit(
        &self,
        on: On<'_, Self::Queue, Self::Event>,
        work: Work<'_, Span<'_, Self::Memory>>,
    ) -> Result<Self::Event>;

    /// Writes `data` and waits, if the backend can do that without a copy of the bytes. Otherwise it returns false, without
    /// an effect, and [`write`](Self::write) writes a copy.
    ///
    /// # Errors
    ///
    /// Those of [`write`](Self::write). No command uses `data` any more.
    fn write_directly(
        &self,
        _on: On<'_, Self::Queue, Self::Event>,
        _to: Span<'_, Self::Memory>,
        _data: &[u8],
    ) -> Result<bool> {
        Ok(false)
    }

    /// Reads into `data` and waits, if the backend can do that without a copy of the bytes. Otherwise it returns false, without
    /// an effect, and [`read`](Self::read) reads into a copy.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read). No command uses `data` any more.
    fn read_directly(
        &self,
        _on: On<'_, Self::Queue, Self::Event>,
        _from: Span<'_, Self::Memory>,
        _data: &mut [u8],
    ) -> Result<bool> {
        Ok(false)
    }

    /// Makes an event that the host resolves. Unsupported by default: pools do not need it, but two of the conformance
    /// suites hold commands back with it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported), or a failure of the runtime.
    fn create_user_event(&self) -> Result<Self::Event> {
        Err(Error::unsupported("user events on this backend"))
    }

    /// Resolves a user event.
    ///
    /// # Errors
    ///
    /// [`NotAUserEvent`](crate::InvalidRequest::NotAUserEvent) or
    /// [`AlreadyResolved`](crate::InvalidRequest::AlreadyResolved).
    fn resolve_user_event(&self, event: &Self::Event, outcome: Outcome) -> Result<()> {
        let _ = (event, outcome);
        Err(InvalidRequest::NotAUserEvent.into())
    }

    /// Enqueues a marker: its event completes when the events that it waits for have, or, without any,
    /// when every command that was enqueued before has.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject), or a failure of the runtime.
    fn enqueue_marker<'q>(
        &self,
        on: impl Into<On<'q, Self::Queue, Self::Event>>,
    ) -> Result<Self::Event> {
        self.submit(on.into(), Work::Marker)
    }

    /// Enqueues a barrier: a marker that every later command of the queue waits for.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject), or a failure of the runtime.
    fn enqueue_barrier<'q>(
        &self,
        on: impl Into<On<'q, Self::Queue, Self::Event>>,
    ) -> Result<Self::Event> {
        self.submit(on.into(), Work::Barrier)
    }

    /// Enqueues a fill of a region with repetitions of `pattern`, which may have any length.
    ///
    /// # Errors
    ///
    /// [`EmptyPattern`](crate::InvalidRequest::EmptyPattern), or
    /// [`PatternMismatch`](crate::InvalidRequest::PatternMismatch) unless offset and length are multiples of the pattern's
    /// length in bytes, where the offset counts from the start of `memory`, which may be a part of a block;
    /// [`OutOfBounds`](crate::InvalidRequest::OutOfBounds),
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject), [`OutOfMemory`](crate::Error::OutOfMemory) if deferred memory
    /// cannot be committed, or a failure of the runtime.
    fn enqueue_fill<'q, T: NoUninit>(
        &self,
        on: impl Into<On<'q, Self::Queue, Self::Event>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
        pattern: &[T],
    ) -> Result<Self::Event> {
        let (on, pattern) = (on.into(), bytemuck::cast_slice(pattern));
        let region = region.into_region(memory.size())?;
        // Here, where it is known what the offset counts from.
        InvalidRequest::check_pattern(region, pattern)?;
        let to = span(self, memory, on.queue, region)?;
        self.submit(on, to.map_or(Work::Marker, |to| Work::Fill(to, pattern)))
    }

    /// Writes `data` from `offset` on, and waits until it is there.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](crate::InvalidRequest::OutOfBounds), [`ForeignObject`](crate::InvalidRequest::ForeignObject),
    /// [`HostAccess`](crate::InvalidRequest::HostAccess) if the memory's flags forbid it,
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if deferred memory cannot be committed, the failure of
    /// the command or of something that it waits for.
    fn write<'q, T: NoUninit>(
        &self,
        on: impl Into<On<'q, Self::Queue, Self::Event>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        data: &[T],
    ) -> Result<()> {
        let (on, data) = (on.into(), bytemuck::cast_slice(data));
        match span(self, memory, on.queue, Region::new(offset, data.len()))? {
            Some(to) if self.write_directly(on, to, data)? => Ok(()),
            Some(to) => self.submit(on, Work::Write(to, data.into()))?.wait(),
            None => Ok(()),
        }
    }

    /// Reads into `data` from `offset` on, and waits until it is there.
    ///
    /// On an error the contents of `data` are unspecified, but no command writes to it any more.
    ///
    /// # Errors
    ///
    /// Those of [`write`](Self::write).
    fn read<'q, T: AnyBitPattern + NoUninit>(
        &self,
        on: impl Into<On<'q, Self::Queue, Self::Event>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        data: &mut [T],
    ) -> Result<()> {
        let (on, data) = (on.into(), bytemuck::cast_slice_mut(data));
        let region = Region::new(offset, data.len());
        match span(self, memory, on.queue, region)? {
            Some(from) if self.read_directly(on, from, data)? => {}
            Some(_) => data.copy_from_slice(&self.enqueue_read(on, memory, region)?.wait()?),
            None => {}
        }
        Ok(())
    }

    /// Enqueues a write of `data` from `offset` on. The backend keeps `data` until it is done.
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_fill`](Self::enqueue_fill), except for the pattern's, and
    /// [`HostAccess`](crate::InvalidRequest::HostAccess) if the memory's flags forbid it.
    fn enqueue_write<'q>(
        &self,
        on: impl Into<On<'q, Self::Queue, Self::Event>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        data: Arc<[u8]>,
    ) -> Result<Self::Event> {
        let on = on.into();
        let to = span(self, memory, on.queue, Region::new(offset, data.len()))?;
        self.submit(on, to.map_or(Work::Marker, |to| Work::Write(to, data)))
    }

    /// Enqueues a read of a region.
    ///
    /// ```
    /// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer(8, MemoryFlags::empty())?;
    /// backend.enqueue_write(&queue, &memory, 0, [1, 2, 3, 4, 5, 6, 7, 8].into())?;
    /// let read = backend.enqueue_read(&queue, &memory, 2..5)?;
    /// assert_eq!(read.wait()?, [3, 4, 5]);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_write`](Self::enqueue_write).
    fn enqueue_read<'q>(
        &self,
        on: impl Into<On<'q, Self::Queue, Self::Event>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
    ) -> Result<PendingRead<Self::Event>> {
        let (on, sink) = (on.into(), Sink::default());
        let from = span(self, memory, on.queue, region)?;
        let work = from.map_or(Work::Marker, |from| Work::Read(from, sink.clone()));
        let event = self.submit(on, work)?;
        Ok(PendingRead::new(event, sink))
    }

    /// Enqueues a copy of the region `from` of `source` to `destination`, from offset `to` on.
    ///
    /// The region says how much is copied: `..` is all of the source, and an error if the destination is smaller. To copy what both have room
    /// for, as `PyOpenCL` does if it is given no `byte_count`, say so:
    ///
    /// ```
    /// use binpool_allocators::{AsMemory, Backend, MemoryFlags, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let [large, small] = [(8, 1_u8), (4, 0)].map(|(bytes, byte)| {
    ///     let memory = backend.create_buffer(bytes, MemoryFlags::empty()).unwrap();
    ///     backend.enqueue_fill(&queue, &memory, .., &[byte]).unwrap();
    ///     memory
    /// });
    /// assert!(backend.enqueue_copy(&queue, &large, .., &small, 0).is_err());
    /// backend.enqueue_copy(&queue, &large, ..large.size().min(small.size()), &small, 0)?;
    /// assert_eq!(backend.enqueue_read(&queue, &small, ..)?.wait()?, [1; 4]);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_fill`](Self::enqueue_fill), except for the pattern's, and
    /// [`OverlappingCopy`](crate::InvalidRequest::OverlappingCopy) if both are the same memory and the regions share a
    /// byte. The caller must avoid overlaps between different views of one block: they are not detected, and leave the
    /// bytes undefined.
    fn enqueue_copy<'q>(
        &self,
        on: impl Into<On<'q, Self::Queue, Self::Event>>,
        source: &(impl AsMemory<Self> + ?Sized),
        from: impl IntoRegion,
        destination: &(impl AsMemory<Self> + ?Sized),
        to: usize,
    ) -> Result<Self::Event> {
        let on = on.into();
        let from = from.into_region(source.size())?;
        let source = span(self, source, on.queue, from)?;
        let destination = span(self, destination, on.queue, Region::new(to, from.bytes))?;
        let ends = source.zip(destination);
        self.submit(
            on,
            ends.map_or(Work::Marker, |(from, to)| Work::Copy(from, to)),
        )
    }
}

/// The bytes of a command. `None` for a block of 0 bytes.
fn span<'m, B: Backend>(
    backend: &B,
    memory: &'m (impl AsMemory<B> + ?Sized),
    queue: &B::Queue,
    region: impl IntoRegion,
) -> Result<Option<Span<'m, B::Memory>>> {
    // Before a pool notes the use.
    backend.check_queue(queue)?;
    let found = bytes_on::<B, _>(memory, queue, region)?;
    Ok(found.map(|(memory, region)| Span { memory, region }))
}

/// Memory that can be passed to commands: a block of a backend itself, a pooled block, or a typed view of either.
///
/// A call that enqueues a command asks for the memory *for the queue that the command will run on*, so that a pool
/// learns of every use. It stays within the [`size`](Self::size) bytes from [`start`](Self::start) on: the size that was
/// requested, not the rounded size of the block.
///
/// Such a call reads the memory by [`bytes_on`], which checks the bounds.
///
/// ```
/// use binpool_allocators::{AsMemory, Backend, Error, MemoryFlags, QueueOrder, bytes_on};
/// use binpool_mock::MockDevice;
///
/// fn clear<B: Backend>(backend: &B, queue: &B::Queue, block: &impl AsMemory<B>) -> Result<(), Error> {
///     if let Some((memory, region)) = bytes_on::<B, _>(block, queue, ..)? {
///         backend.enqueue_fill(queue, memory, region, &[0_u8])?;
///     }
///     Ok(())
/// }
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(64, MemoryFlags::empty())?;
/// clear(&backend, &queue, &memory)?;
///
/// // All of its 64 bytes, from its first one on.
/// assert_eq!((memory.size(), memory.start()), (64, 0));
/// assert!(memory.memory_on(&queue).is_some());
/// # Ok::<(), Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not memory of `{B}`",
    label = "expected memory of the backend, a pooled block, or a view of one"
)]
pub trait AsMemory<B: Backend> {
    /// The requested size in bytes. No command goes beyond it.
    fn size(&self) -> usize;

    /// The offset in bytes at which it starts in the memory of [`memory_on`](Self::memory_on): 0, unless it is a view without
    /// a memory object of its own.
    fn start(&self) -> usize {
        0
    }

    /// Returns the memory for commands on `queue`, or `None` for a block of 0 bytes. It may be larger than
    /// [`size`](Self::size).
    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory>;
}

macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<B: Backend, M: AsMemory<B> + ?Sized> AsMemory<B> for $pointer {
            fn size(&self) -> usize {
                (**self).size()
            }

            fn start(&self) -> usize {
                (**self).start()
            }

            fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
                (**self).memory_on(queue)
            }
        }
    )*};
}

pointers!(&M, Box<M>, Arc<M>);

/// Returns the memory for commands on `queue`, and where in it `region` of `memory` lies; `None` for a block of 0
/// bytes.
///
/// Both bounds are checked: the requested size, and the size of the memory itself, since an
/// implementation of [`AsMemory`] may report a wrong size.
///
/// ```
/// use binpool_allocators::{AsMemory, Backend, Memory, MemoryFlags, QueueOrder, Region, bytes_on};
/// use binpool_mock::{MockBackend, MockDevice, MockMemory, MockQueue};
///
/// /// The second half of some memory.
/// struct Half<'a>(&'a MockMemory);
///
/// impl AsMemory<MockBackend> for Half<'_> {
///     fn size(&self) -> usize {
///         self.0.size() / 2
///     }
///
///     fn start(&self) -> usize {
///         self.0.size() / 2
///     }
///
///     fn memory_on(&self, queue: &MockQueue) -> Option<&MockMemory> {
///         self.0.memory_on(queue)
///     }
/// }
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(64, MemoryFlags::empty())?;
/// let half = Half(&memory);
/// let (whole, region) = bytes_on::<MockBackend, _>(&half, &queue, 8..16)?.ok_or("0 bytes")?;
/// assert_eq!((whole.id(), region), (memory.id(), Region::new(40, 8)));
/// assert!(bytes_on::<MockBackend, _>(&half, &queue, ..33).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`OutOfBounds`](InvalidRequest::OutOfBounds).
pub fn bytes_on<'m, B: Backend, M: AsMemory<B> + ?Sized>(
    memory: &'m M,
    queue: &B::Queue,
    region: impl IntoRegion,
) -> Result<Option<(&'m B::Memory, Region)>> {
    let part = region.into_region(memory.size())?;
    let Some(whole) = memory.memory_on(queue) else {
        part.check_within(0)?;
        return Ok(None);
    };
    let out_of_bounds = InvalidRequest::OutOfBounds {
        offset: part.offset,
        bytes: part.bytes,
        size: whole.bytes(),
    };
    let offset = memory.start().checked_add(part.offset);
    let region = Region::new(offset.ok_or(out_of_bounds)?, part.bytes);
    region.check_within(whole.bytes())?;
    Ok(Some((whole, region)))
}
