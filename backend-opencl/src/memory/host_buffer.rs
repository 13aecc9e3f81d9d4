//! Buffers over memory of the host that they own.

use std::{fmt, sync::Arc};

use binpool_allocators::{AsMemory, Backend, HostUse, InvalidRequest, MemoryFlags, Result};
use bytemuck::Pod;

use crate::{
    backend::OpenClBackend,
    context::Context,
    memory::cl_memory::{ClMemory, MemoryBody},
    memory::flags::host_flags,
    memory::root::Root,
    queue::ClQueue,
    refused::Refused,
    sys::{self, Purpose, buffer::LentElements},
};

/// A buffer over a vector of the host, which it owns. The vector comes back by [`into_host`](Self::into_host); if not,
/// it is freed when the runtime has destroyed the buffer.
///
/// Made by [`create_host_buffer`](OpenClBackend::create_host_buffer). Commands take it like any memory, and
/// [`memory`](Self::memory) returns it as a [`ClMemory`].
///
/// ```
/// use binpool_allocators::{Error, InvalidRequest};
/// # use binpool_allocators::{Backend, MemoryFlags};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
///
/// let buffer = backend.create_host_buffer(vec![1_u8; 4096], MemoryFlags::empty())?;
/// let tail = buffer.memory().slice(1024..)?;
/// let Err(refused) = buffer.into_host() else {
///     panic!("the view lies over the vector");
/// };
/// let left = InvalidRequest::ViewsLeft { views: 1, bytes: 4096 };
/// assert!(matches!(refused.error, Error::InvalidRequest(request) if request == left));
///
/// drop(tail);
/// let buffer = refused.value; // Here it is again.
/// assert_eq!(buffer.into_host()?, [1; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HostBuffer<T> {
    memory: ClMemory,
    elements: LentElements<T>,
}

/// Buffers over memory of the host.
impl OpenClBackend {
    /// Makes a buffer over `elements`, a vector or a boxed slice, and keeps them until the runtime has destroyed it.
    ///
    /// Devices that share memory with the host (processors, integrated GPUs) use the elements where they are; others
    /// copy them when they need them. `PyOpenCL` calls it `Buffer(context, USE_HOST_PTR, hostbuf=elements)`
    /// (OpenCL 3.0, section 5.2.1).
    ///
    /// Such a buffer is always [`HOST_RESIDENT`](MemoryFlags::HOST_RESIDENT).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let buffer = backend.create_host_buffer(vec![1_u32; 100], MemoryFlags::empty())?;
    /// backend.enqueue_fill(&queue, buffer.memory(), Region::first(8), &[0_u8])?;
    /// let elements = buffer.into_host()?;
    /// assert_eq!(elements[..3], [0, 0, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All errors give the elements back: those of [`create_buffer`](Backend::create_buffer), and
    /// [`HostAccess`](InvalidRequest::HostAccess) for flags that forbid the host to read the elements that it gets back.
    pub fn create_host_buffer<T: Pod + Send>(
        &self,
        elements: impl Into<Vec<T>>,
        flags: MemoryFlags,
    ) -> Result<HostBuffer<T>, Refused<Vec<T>>> {
        let elements = elements.into();
        let bytes = size_of_val(elements.as_slice());
        if let Err(error) = self.check_host_buffer(bytes, flags) {
            let value = elements;
            return Err(Refused { error, value });
        }
        let context = self.context();
        match sys::buffer::create_over_own(&context.handle, host_flags(flags), elements) {
            Ok((handle, elements)) => {
                let body = MemoryBody::Buffer(Arc::new(Root::over_host_memory(handle)));
                let memory = ClMemory::new(context, bytes, flags, body);
                Ok(HostBuffer { memory, elements })
            }
            Err((error, value)) => Err(Refused {
                error: error.into_error(Purpose::Memory(bytes)),
                value,
            }),
        }
    }

    pub(crate) fn check_host_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<()> {
        self.limits().check_block(bytes)?;
        flags.check()?;
        flags.check_host(HostUse::Read)
    }
}

/// Waits until no command uses `root`, a buffer of `bytes` bytes over memory of the host, and brings the results there.
pub(crate) fn bring_back(context: &Context, root: &Root, bytes: usize) -> Result<()> {
    let memory = Purpose::Memory(bytes);
    root.log().wait_until_unused()?;
    // A new queue, which has no other command to wait for.
    sys::create_queue(&context.handle, context.device, false)
        .and_then(|queue| sys::buffer::bring_back(&queue, &root.handle, bytes))
        .map_err(|error| error.into_error(memory))
}

impl<T: Pod + Send> HostBuffer<T> {
    /// The buffer.
    #[must_use]
    pub fn memory(&self) -> &ClMemory {
        &self.memory
    }

    /// Waits until every command on the buffer has ended, destroys it, and gives the elements back as the commands have
    /// left them.
    ///
    /// If the program keeps a reference of its own to the `cl_mem`, this also waits until that is released. On Intel's
    /// runtime the event of a command that the program has enqueued by a call of its own is such a reference.
    ///
    /// # Errors
    ///
    /// [`ViewsLeft`](InvalidRequest::ViewsLeft) where there are views of the buffer, [`Mapped`](InvalidRequest::Mapped)
    /// where a map of it was forgotten, or a failure of the runtime. The buffer comes back with the error.
    #[expect(clippy::result_large_err, reason = "a refusal gives the value back")]
    pub fn into_host(self) -> Result<Vec<T>, Refused<Self>> {
        match self.settled() {
            Ok(()) => {}
            Err(error) => return Err(Refused { error, value: self }),
        }
        let Self { memory, elements } = self;
        drop(memory);
        Ok(elements.wait())
    }

    /// Brings the results of the commands into the elements. No other thread can enqueue commands any more.
    fn settled(&self) -> Result<()> {
        let bytes = self.memory.size();
        let MemoryBody::Buffer(root) = self.memory.body() else {
            return Ok(());
        };
        let views = Arc::strong_count(root) - 1;
        if views > 0 {
            return Err(InvalidRequest::ViewsLeft { views, bytes }.into());
        }
        // A map that was forgotten never ends.
        root.log().check_unmapped()?;
        bring_back(self.memory.context(), root, bytes)
    }
}

impl<T: Pod + Send> AsMemory<OpenClBackend> for HostBuffer<T> {
    fn size(&self) -> usize {
        self.memory.size()
    }

    fn memory_on(&self, _queue: &ClQueue) -> Option<&ClMemory> {
        Some(&self.memory)
    }
}

impl<T> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}
