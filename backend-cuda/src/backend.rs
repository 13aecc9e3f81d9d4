//! A CUDA device as a `Backend`: what it needs of the driver for memory, commands and pages.

#![expect(unsafe_code, reason = "streams and blocks that the core did not make")]

use std::{ffi::c_void, sync::Arc};

use binpool_allocators::{
    Error, MemoryFlags, QueueOrder, Result, Scope, debug_by,
    runtime::{Core, CoreEvent, CoreMemory, CoreQueue, adopt_block, adopt_queue},
};
use parking_lot::Mutex;

use crate::{
    block::{Body, CudaBlock},
    queue::QueueStream,
    sys::{Allocation, Context, DeviceFacts, Handle, LEGACY, PER_THREAD, Staging},
    thread_number::ThreadNumber,
};

/// Memory of a CUDA device.
pub type CudaMemory = CoreMemory<CudaBackend>;
/// A stream.
pub type CudaQueue = CoreQueue<CudaBackend>;
/// The event of a command, or a user event.
pub type CudaEvent = CoreEvent<CudaBackend>;

/// What the clones of a backend share.
pub(crate) struct Shared {
    pub(crate) core: Arc<Core<CudaBackend>>,
    pub(crate) context: Arc<Context>,
    pub(crate) facts: DeviceFacts,
    /// The size that sizes and offsets of pages are multiples of.
    pub(crate) page_bytes: usize,
    /// The bytes that captured writes copy, which each launch of their graph copies again.
    pub(crate) captured: Mutex<Vec<Arc<Staging>>>,
    /// What commands hold that were enqueued before a call of the same thread failed.
    pub(crate) abandoned: Mutex<Vec<(ThreadNumber, Held)>>,
}

/// What a command needs until it has ended, beside its memory.
pub(crate) struct Held {
    /// Pinned memory that host bytes pass through.
    pub(crate) staging: Option<Arc<Staging>>,
    /// The contexts of other devices whose events it waits for.
    pub(crate) contexts: Vec<Arc<Context>>,
}

/// The memory of a device, in bytes.
///
/// ```no_run
/// use binpool_cuda::CudaBackend;
///
/// let memory = CudaBackend::open(0)?.device_memory()?;
/// println!("{} of {} MiB are free", memory.free_bytes >> 20, memory.total_bytes >> 20);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The bytes that are free now. Other programs may take them.
    pub free_bytes: usize,
    /// The total, in bytes.
    pub total_bytes: usize,
}

/// A CUDA device with its primary context. Clones are the same backend, as is one opened again; any thread may use
/// them.
///
/// The context is the one that the runtime API, cudarc and PyTorch use: streams and pointers of these work here, and the other way round.
/// A call makes it current on the calling thread while it runs, and restores the one that was current before.
///
/// ```no_run
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_cuda::CudaBackend;
///
/// let backend = CudaBackend::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let block = backend.create_buffer(4, MemoryFlags::empty())?;
/// backend.write(&queue, &block, 0, &[1_u8, 2, 3, 4])?;
/// let mut bytes = [0_u8; 2];
/// backend.read(&queue, &block, 1, &mut bytes)?;
/// assert_eq!(bytes, [2, 3]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// Streams of other libraries are queues, too:
///
/// ```no_run
/// # use binpool_allocators::Backend;
/// # use binpool_cuda::CudaBackend;
/// # let backend = CudaBackend::open(0)?;
/// # let stream_of_another_library = backend.legacy_default_queue().raw();
/// let legacy = backend.legacy_default_queue();
/// let own = backend.per_thread_default_queue();
/// // SAFETY: it is a stream of this context, and lives as long as the queue.
/// let theirs = unsafe { backend.wrap_raw_queue(stream_of_another_library) }?;
/// for queue in [legacy, own, theirs] {
///     backend.enqueue_marker(&queue)?;
/// }
/// let free = backend.device_memory()?.free_bytes; // Of the whole device.
/// let context = backend.raw_context(); // For the driver's own calls.
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

    /// Returns how much memory the device has, and how much is free.
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

    /// Waits for all commands on the device, of all streams and libraries.
    ///
    /// ```no_run
    /// binpool_cuda::CudaBackend::open(0)?.finish_device()?;
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the driver; also if a stream is captured into a graph, which invalidates the capture.
    pub fn finish_device(&self) -> Result<()> {
        Ok(self.shared.context.synchronize()?)
    }

    /// Returns whether a call has reported that the context is lost ([`CudaError::is_sticky`](crate::CudaError::is_sticky)). Only a new
    /// process gets another.
    pub fn is_lost(&self) -> bool {
        self.shared.context.is_lost()
    }

    /// The `CUcontext`, which is valid while this value or a clone lives.
    pub fn raw_context(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.shared.context.raw())
    }

    /// Makes a block of managed memory, which the driver moves between host and device (`cuMemAllocManaged`). It can be larger than
    /// the device's free memory.
    ///
    /// ```no_run
    /// use binpool_allocators::Memory;
    /// use binpool_cuda::CudaBackend;
    ///
    /// let block = CudaBackend::open(0)?.create_managed(1 << 20)?;
    /// assert_eq!(block.bytes(), 1 << 20);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`create_buffer`](binpool_allocators::Backend::create_buffer), or [`Unsupported`](Error::Unsupported).
    pub fn create_managed(&self, bytes: usize) -> Result<CudaMemory> {
        if !self.shared.facts.managed_memory {
            return Err(self.lacks("managed memory"));
        }
        let context = &self.shared.context;
        self.create(bytes, || {
            let allocation = Allocation::managed(context, bytes);
            Ok(Body::Allocation(
                allocation.map_err(|error| error.shortage(bytes, Scope::Device))?,
            ))
        })
    }

    /// Makes a block by another call than `cuMemAlloc`.
    pub(crate) fn create(
        &self,
        bytes: usize,
        allocate: impl Fn() -> Result<Body>,
    ) -> Result<CudaMemory> {
        let core = &self.shared.core;
        core.limits().check_block(bytes)?;
        let block = CudaBlock(core.allocate(allocate)?);
        // SAFETY: each caller allocates `bytes` bytes on this device.
        Ok(unsafe { adopt_block(self, block, bytes, MemoryFlags::empty()) })
    }

    pub(crate) fn lacks(&self, what: &str) -> Error {
        let name = &self.shared.core.limits().device_name;
        Error::unsupported(format!("{what} on {name}: use `create_buffer`"))
    }

    /// The legacy default stream, which waits for all streams but those made with `CU_STREAM_NON_BLOCKING`, as those of
    /// [`create_queue`](binpool_allocators::Backend::create_queue) are.
    #[must_use]
    pub fn legacy_default_queue(&self) -> CudaQueue {
        self.adopt(LEGACY)
    }

    /// The default stream of the calling thread. Other threads may wait for it, but not enqueue commands on it.
    #[must_use]
    pub fn per_thread_default_queue(&self) -> CudaQueue {
        self.adopt(PER_THREAD)
    }

    /// Wraps a `CUstream` of the program or of another library as a queue. A null pointer is the legacy default stream.
    ///
    /// # Safety
    ///
    /// `stream` is a stream of the [context](Self::raw_context) that lives until the last clone of the queue is dropped.
    ///
    /// # Errors
    ///
    /// None at present.
    pub unsafe fn wrap_raw_queue(&self, stream: *mut c_void) -> Result<CudaQueue> {
        let raw = match stream.addr() {
            0 => LEGACY,
            raw => raw,
        };
        Ok(self.adopt(raw))
    }

    fn adopt(&self, raw: Handle) -> CudaQueue {
        let make = || {
            let stream = QueueStream::adopt(&self.shared.context, raw);
            (stream, QueueOrder::InOrder)
        };
        // SAFETY: as the callers promise, the stream is one of this driver and lives; streams are in order.
        unsafe { adopt_queue(self, |stream| stream.is(raw), make) }
    }
}

debug_by!(CudaBackend, |this| device: this.shared.core.limits().device_name);
