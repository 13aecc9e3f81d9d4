//! The trait of backends: the interface of a device runtime.

use std::fmt;

use crate::{
    DeviceLimits, Error, Event, InvalidRequest, Memory, MemoryFlags, Outcome, Queue, QueueOrder,
    Region, Result,
};

/// A device runtime: one device, and the context that its memory, queues and events belong to.
///
/// An implementation of the nine calls without a body gets the allocators, the adaptors, the pool and the tools. With
/// [`Transfers`](crate::Transfers) and the others it also gets a suite that checks it (the crate `binpool-conformance`). Values
/// are cheap handles; clones stand for the same device and context. All methods may be called from any thread.
///
/// # Objects and their backend
///
/// Memory, queues and events belong to the backend that made them. A method that is passed an object of
/// another backend returns [`ForeignObject`](crate::InvalidRequest::ForeignObject) and does nothing. Backends of several devices may take
/// each other's queues and events as their own, and copy to each other's memory, as CUDA's do.
///
/// # Deferred memory
///
/// [`create_buffer`](Self::create_buffer) may promise memory that the device does not have; the failure then
/// shows in the first command that uses the buffer, from [`commit`](Self::commit) on.
///
/// # Commands
///
/// A command runs when its queue's order and its wait list allow. Its memory and its host bytes stay valid
/// until it has ended, whatever the caller drops meanwhile. A command over no bytes does nothing to memory,
/// but is ordered like any other. An out-of-bounds region, a foreign object or a bad pattern is refused
/// before anything is enqueued.
///
/// A command that waits for an event that fails does not run, and its own event fails. Where the event has failed
/// before the command is enqueued, the call itself may return the error. The effect on later commands of the same in-order
/// queue depends on the runtime: some also fail the commands that were enqueued already.
///
/// The program must order commands of different queues, or of an out-of-order queue, that use the same bytes: by wait lists
/// or barriers. A backend may order them itself, as OpenCL's does: such a command then waits for all earlier commands
/// that it conflicts with, and fails where one of them does.
///
/// A call that fails has no effect: nothing is enqueued, nothing is leaked.
///
/// # Examples
///
/// Programs that are written against the trait run on any device:
///
/// ```
/// use binpool_allocators::{Backend, Event, MemoryFlags, QueueOrder, Region, Result, Transfers};
/// use binpool_mock::MockDevice;
///
/// fn ones<B: Transfers>(backend: &B, bytes: usize) -> Result<Vec<u8>> {
///     let queue = backend.create_queue(QueueOrder::InOrder)?;
///     let buffer = backend.create_buffer(bytes, MemoryFlags::empty())?;
///     backend.commit(&queue, &buffer)?; // Fails where the device does not have the memory.
///     let filled = backend.enqueue_fill(&queue, &buffer, Region::first(bytes), &[1], &[])?;
///     backend.enqueue_read(&queue, &buffer, Region::first(bytes), &[filled])?.wait()
/// }
///
/// assert_eq!(ones(&MockDevice::new().backend(), 3)?, [1, 1, 1]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// On other queues the program defines the order: by wait lists, by markers for everything so far, by barriers for
/// everything after them, and by user events for what the host does in between:
///
/// ```
/// # use binpool_allocators::{
/// #     Backend, Event, EventStatus, MemoryFlags, Outcome, Queue, QueueOrder, Region, Transfers,
/// # };
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let [one, two] = [(); 2].map(|()| backend.create_buffer(8, MemoryFlags::empty()).unwrap());
/// let upload = backend.create_queue(QueueOrder::InOrder)?;
/// let compute = backend.create_queue(QueueOrder::OutOfOrder)?;
/// let ready = backend.create_user_event()?;
/// backend.enqueue_fill(&upload, &one, Region::first(8), &[1], &[ready.clone()])?;
/// backend.enqueue_fill(&upload, &two, Region::first(8), &[2], &[])?;
/// let uploaded = backend.enqueue_marker(&upload, &[])?; // Ends after both fills.
/// upload.flush()?; // Otherwise a wait on another queue need not start it.
/// backend.enqueue_barrier(&compute, &[uploaded])?; // Later commands of `compute` run after both fills.
/// let read = backend.enqueue_read(&compute, &one, Region::first(8), &[])?;
/// assert_eq!(read.event().status()?, EventStatus::Pending);
/// backend.resolve_user_event(&ready, Outcome::Complete)?;
/// assert_eq!(read.wait()?, [1; 8]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// Views are memory like any other, and keep their block alive:
///
/// ```
/// # use binpool_allocators::{Backend, Memory, MemoryFlags, QueueOrder, Region, Transfers};
/// # use binpool_mock::MockDevice;
/// # let device = MockDevice::new();
/// # let backend = device.backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let block = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let step = backend.limits().alignment.bytes(); // Views start on multiples of it.
/// let view = backend.create_sub_region(&block, Region::new(2 * step, 100))?;
/// backend.release(block, &[])?; // Nothing is freed yet.
/// assert_eq!((view.bytes(), device.statistics().live_blocks), (100, 1));
/// backend.write(&queue, &view, 0, &[7; 100], &[])?; // Offsets count from the start of the view.
/// backend.release(view, &[])?;
/// assert_eq!(device.statistics().live_blocks, 0);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub trait Backend: Clone + fmt::Debug + Send + Sync + 'static {
    /// A block of memory.
    type Memory: Memory;
    /// A queue of commands.
    type Queue: Queue;
    /// The event of a command.
    type Event: Event;

    /// The limits and capabilities of the device.
    fn limits(&self) -> &DeviceLimits;

    /// The bytes of the device that are free at this moment, whichever programs have the others. `None` where the runtime does not tell, as
    /// OpenCL's do not. May be a call to the device.
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

    /// Makes a queue.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported) where the device has no out-of-order queues.
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

    /// Makes a buffer of `bytes` bytes, which may be deferred. Its contents are undefined.
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

    /// Makes the device commit `memory` now, and waits until it has.
    ///
    /// Contents may be lost. Costs nothing where the memory is always committed (SVM).
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::Error::OutOfMemory) where the device has no room. The block remains and
    /// can be committed later, or released.
    fn commit(&self, queue: &Self::Queue, memory: &Self::Memory) -> Result<()>;

    /// Releases `memory` to the runtime, to be freed once the events in `after` and every command that was
    /// enqueued with it through this trait have ended. Does not wait for them.
    ///
    /// # Errors
    ///
    /// A failure of the runtime. The block is gone in any case.
    fn release(&self, memory: Self::Memory, after: &[Self::Event]) -> Result<()>;

    /// Enqueues a marker: its event completes when the events in `wait_for` have, or, where that is empty,
    /// when every command that was enqueued before has.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject), or a failure of the runtime.
    fn enqueue_marker(&self, queue: &Self::Queue, wait_for: &[Self::Event]) -> Result<Self::Event>;

    /// Enqueues a barrier: a marker that every later command of the queue waits for.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject), or a failure of the runtime.
    fn enqueue_barrier(&self, queue: &Self::Queue, wait_for: &[Self::Event])
    -> Result<Self::Event>;

    /// Enqueues a fill of `region` of `memory` with repetitions of `pattern`, which may have any length.
    ///
    /// A pool calls this where it scrubs. By default it is unsupported.
    ///
    /// # Errors
    ///
    /// [`EmptyPattern`](crate::InvalidRequest::EmptyPattern), or
    /// [`PatternMismatch`](crate::InvalidRequest::PatternMismatch) unless offset and length are multiples of the pattern's
    /// length; [`Unsupported`](crate::Error::Unsupported).
    fn enqueue_fill(
        &self,
        queue: &Self::Queue,
        memory: &Self::Memory,
        region: Region,
        pattern: &[u8],
        wait_for: &[Self::Event],
    ) -> Result<Self::Event> {
        let _ = (queue, memory, region, pattern, wait_for);
        Err(Error::unsupported("fills on this backend"))
    }

    /// Makes an event that the host resolves. By default that is unsupported: no pool calls this, but two of the conformance
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
}
