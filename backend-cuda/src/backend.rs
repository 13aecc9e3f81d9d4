//! The backend.

use std::{ffi::c_void, fmt, sync::Arc};

use binpool_allocators::{
    Backend, DeviceLimits, Error, InvalidRequest, MemoryFlags, Outcome, QueueOrder, Region, Result,
    Scope,
};

use crate::{
    event::CudaEvent,
    memory::CudaMemory,
    queue::CudaQueue,
    root::Body,
    shared::Shared,
    sys::{Allocation, Handle, LEGACY, PER_THREAD, Staging},
};

/// The memory of a device, in bytes.
///
/// ```no_run
/// use binpool_cuda::CudaDevice;
///
/// let memory = CudaDevice::open(0)?.device_memory()?;
/// println!("{} of {} MiB are free", memory.free_bytes >> 20, memory.total_bytes >> 20);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// What is free now, which other programs may take.
    pub free_bytes: usize,
    /// All of it.
    pub total_bytes: usize,
}

/// A CUDA device with its primary context. Clones are the same backend, and so is what opening the device again returns; any thread may use
/// them.
///
/// The context is the one that the runtime API, cudarc and PyTorch use: streams and pointers of these work here, and the other way round.
/// A call makes it current on the calling thread while it runs, and then the one that was current before.
///
/// ```no_run
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Transfers};
/// use binpool_cuda::CudaDevice;
///
/// let backend = CudaDevice::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let block = backend.create_buffer(4, MemoryFlags::empty())?;
/// backend.write(&queue, &block, 0, &[1, 2, 3, 4], &[])?;
/// let mut bytes = [0; 2];
/// backend.read(&queue, &block, 1, &mut bytes, &[])?;
/// assert_eq!(bytes, [2, 3]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// Streams of other libraries are queues, too:
///
/// ```no_run
/// # use binpool_allocators::Backend;
/// # use binpool_cuda::CudaDevice;
/// # let backend = CudaDevice::open(0)?;
/// # let stream_of_another_library = backend.legacy_default_queue().cu_stream();
/// let legacy = backend.legacy_default_queue();
/// let own = backend.per_thread_default_queue();
/// // SAFETY: it is a stream of this context, and lives as long as the queue.
/// let theirs = unsafe { backend.wrap_raw_stream(stream_of_another_library) }?;
/// for queue in [legacy, own, theirs] {
///     backend.enqueue_marker(&queue, &[])?;
/// }
/// let free = backend.device_memory()?.free_bytes; // Of the whole device.
/// let context = backend.cu_context(); // For the driver's own calls.
/// assert!(!backend.is_lost(), "a kernel has ended the context: start the process anew");
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct CudaBackend {
    pub(crate) shared: Arc<Shared>,
}

impl CudaBackend {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns how much memory the device has, and has free.
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    pub fn device_memory(&self) -> Result<DeviceMemory> {
        let (free_bytes, total_bytes) = self.shared.context.memory_info()?;
        Ok(DeviceMemory {
            free_bytes,
            total_bytes,
        })
    }

    /// Returns whether a call has answered that the context is lost ([`CudaError::is_sticky`](crate::CudaError::is_sticky)). Only a new
    /// process gets another.
    pub fn is_lost(&self) -> bool {
        self.shared.context.is_lost()
    }

    /// The `CUcontext`, which is valid while this value or a clone lives.
    pub fn cu_context(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.shared.context.raw())
    }

    /// Makes a block of managed memory, which the driver moves between host and device (`cuMemAllocManaged`). It can be larger than
    /// what the device has free.
    ///
    /// ```no_run
    /// use binpool_allocators::Memory;
    /// use binpool_cuda::CudaDevice;
    ///
    /// let block = CudaDevice::open(0)?.create_managed(1 << 20)?;
    /// assert_eq!(block.bytes(), 1 << 20);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`create_buffer`](Backend::create_buffer), or [`Unsupported`](Error::Unsupported).
    pub fn create_managed(&self, bytes: usize) -> Result<CudaMemory> {
        if !self.shared.facts.managed_memory {
            return Err(self.shared.lacks("managed memory"));
        }
        self.create(bytes, MemoryFlags::empty(), Scope::Device, || {
            Allocation::managed(&self.shared.context, bytes)
        })
    }

    fn create(
        &self,
        bytes: usize,
        flags: MemoryFlags,
        scope: Scope,
        allocate: impl Fn() -> crate::sys::CudaResult<Allocation>,
    ) -> Result<CudaMemory> {
        self.shared.limits.check_block(bytes)?;
        flags.check()?;
        let block = self.shared.allocate(bytes, scope, allocate)?;
        let body = Body::Block(block);
        Ok(CudaMemory::whole(&self.shared, body, bytes, flags))
    }

    /// The legacy default stream, which waits for all streams but those made with `CU_STREAM_NON_BLOCKING`, as those of
    /// [`create_queue`](Backend::create_queue) are.
    #[must_use]
    pub fn legacy_default_queue(&self) -> CudaQueue {
        self.adopt(LEGACY)
    }

    /// The default stream of the calling thread. Other threads may wait for it, but not enqueue commands on it.
    #[must_use]
    pub fn per_thread_default_queue(&self) -> CudaQueue {
        self.adopt(PER_THREAD)
    }

    /// Returns the queue of a `CUstream` that the program or another library has made. A null pointer is the legacy default stream.
    ///
    /// # Safety
    ///
    /// `stream` is a stream of the [context](Self::cu_context) that lives until the last clone of the queue is dropped.
    ///
    /// # Errors
    ///
    /// None so far.
    #[expect(unsafe_code, reason = "the program promises that the stream lives")]
    pub unsafe fn wrap_raw_stream(&self, stream: *mut c_void) -> Result<CudaQueue> {
        let raw = match stream.addr() {
            0 => LEGACY,
            raw => raw,
        };
        Ok(self.adopt(raw))
    }

    fn adopt(&self, raw: Handle) -> CudaQueue {
        self.shared.queues.adopt(&self.shared.context, raw)
    }
}

impl Backend for CudaBackend {
    type Memory = CudaMemory;
    type Queue = CudaQueue;
    type Event = CudaEvent;

    fn limits(&self) -> &DeviceLimits {
        &self.shared.limits
    }

    fn free_bytes(&self) -> Option<u64> {
        let (free, _) = self.shared.context.memory_info().ok()?;
        Some(free as u64)
    }

    fn create_queue(&self, order: QueueOrder) -> Result<CudaQueue> {
        if order == QueueOrder::OutOfOrder {
            return Err(Error::unsupported(
                "out-of-order queues of CUDA: make an in-order queue for each chain of commands, and order them by events",
            ));
        }
        Ok(self.shared.queues.create(&self.shared.context)?)
    }

    fn check_queue(&self, queue: &CudaQueue) -> Result<()> {
        self.shared.check_queue(queue)
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<CudaMemory> {
        let context = &self.shared.context;
        if flags.contains(MemoryFlags::HOST_RESIDENT) {
            return self.create(bytes, flags, Scope::Host, || {
                Allocation::host(context, bytes)
            });
        }
        self.create(bytes, flags, Scope::Device, || {
            Allocation::device(context, bytes)
        })
    }

    fn create_sub_region(&self, parent: &CudaMemory, region: Region) -> Result<CudaMemory> {
        parent.check_belongs(&self.shared)?;
        parent.view(region)
    }

    /// Calls nothing: the driver commits memory when it allocates it.
    fn commit(&self, queue: &CudaQueue, memory: &CudaMemory) -> Result<()> {
        self.shared.check_queue(queue)?;
        memory.check_belongs(&self.shared)?;
        memory.address().map(drop)
    }

    /// Where the driver does not free the block at once, that is logged, and later calls ask again.
    fn release(&self, memory: CudaMemory, after: &[CudaEvent]) -> Result<()> {
        memory.check_belongs(&self.shared)?;
        self.shared.check_events(after)?;
        memory
            .root()
            .free_after(after.iter().filter_map(CudaEvent::end));
        drop(memory);
        self.shared.graveyard.reap_some();
        Ok(())
    }

    fn enqueue_marker(&self, queue: &CudaQueue, wait_for: &[CudaEvent]) -> Result<CudaEvent> {
        if wait_for.is_empty() && queue.is_out_of_reach() {
            self.shared.check_queue(queue)?;
            self.shared.graveyard.reap_some();
            return Ok(CudaEvent::of_command(Arc::new(queue.mark_out_of_reach()?)));
        }
        self.check_command(queue, &[], wait_for)?;
        self.submit(queue, &[], wait_for, |_, _| Ok(()))
    }

    /// A marker: every command of a stream waits for those before.
    fn enqueue_barrier(&self, queue: &CudaQueue, wait_for: &[CudaEvent]) -> Result<CudaEvent> {
        self.enqueue_marker(queue, wait_for)
    }

    fn enqueue_fill(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        region: Region,
        pattern: &[u8],
        wait_for: &[CudaEvent],
    ) -> Result<CudaEvent> {
        self.check_command(queue, &[memory], wait_for)?;
        let part = memory.part(region)?;
        let to = part.address();
        InvalidRequest::check_pattern(region, pattern)?;
        let is_one_byte = pattern.iter().all(|byte| *byte == pattern[0]);
        let pattern = if is_one_byte { &pattern[..1] } else { pattern };
        self.submit(queue, &[part], wait_for, |stream, held| {
            if region.bytes == 0 || stream.fill(to, region.bytes, pattern)? {
                return Ok(());
            }
            let staging = Staging::of(&self.shared.context, pattern)?;
            let staging = held.staging.insert(Arc::new(staging));
            stream.copy_in(to, staging, pattern.len())?;
            stream.repeat(to, pattern.len(), region.bytes)
        })
    }

    fn create_user_event(&self) -> Result<CudaEvent> {
        Ok(CudaEvent::of_user(&self.shared.context)?)
    }

    /// CUDA has no way to fail a command: [`Outcome::Failed`] is [`Unsupported`](Error::Unsupported), and leaves the event as it is.
    fn resolve_user_event(&self, event: &CudaEvent, outcome: Outcome) -> Result<()> {
        self.shared.check_events(std::slice::from_ref(event))?;
        if outcome == Outcome::Complete {
            return event.resolve();
        }
        event.check_unresolved()?;
        Err(Error::unsupported(
            "user events of CUDA that fail: resolve it as complete, and let the program skip what depends on it",
        ))
    }
}

impl fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBackend")
            .field("device", &self.shared.limits.device_name)
            .finish_non_exhaustive()
    }
}
