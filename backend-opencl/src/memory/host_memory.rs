//! Memory of the host that buffers, images and shared virtual memory lie over.
//!
//! A guard with a lifetime, for memory that the program keeps, would not be sound: a program may forget it, and have its
//! memory back while the device still writes there. So such memory is lent to a call, which returns when nothing uses it.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use binpool_allocators::{AsMemory, Backend, HostUse, InvalidRequest, Memory, MemoryFlags, Result};
use bytemuck::Pod;

use crate::{
    backend::OpenClBackend,
    error::Refused,
    memory::{
        cl_memory::{ClMemory, MemoryBody},
        flags::host_flags,
        root::Root,
    },
    queue::ClQueue,
    sys::{
        self, DeviceBytes, MapShape, Purpose,
        host::{self, HostVec, Lent, Loan},
        transfer::DevicePixels,
    },
};

/// A vector of the host, and the memory or the image that lies over it. The vector comes back by
/// [`into_host`](Self::into_host); if not, it is freed when nothing uses it.
///
/// Made by [`create_host_buffer`](OpenClBackend::create_host_buffer), [`system_svm`](OpenClBackend::system_svm) and
/// [`create_host_image`](OpenClBackend::create_host_image). Commands take a buffer or shared virtual memory like any memory,
/// and [`memory`](Self::memory) returns it, or the image.
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
pub struct HostMemory<T, M = ClMemory> {
    memory: M,
    elements: Lent<T>,
}

impl<T: Pod + Send, M> HostMemory<T, M> {
    /// Lends `elements` to the memory that `create` makes. All errors give the elements back.
    pub(crate) fn new(
        elements: HostVec<T>,
        create: impl FnOnce(Loan) -> Result<M>,
    ) -> Result<Self, Refused<Vec<T>>> {
        match host::lend(elements, create) {
            Ok((memory, elements)) => Ok(Self { memory, elements }),
            Err((error, value)) => Err(Refused { error, value }),
        }
    }

    /// The buffer, the shared virtual memory or the image.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Gives the elements back, once the memory has been destroyed. `settle` waits until commands no longer use it, and
    /// brings the results into the elements.
    pub(crate) fn returned(
        self,
        settle: impl FnOnce(&M) -> Result<()>,
    ) -> Result<Vec<T>, Refused<Self>> {
        if let Err(error) = settle(&self.memory) {
            return Err(Refused { error, value: self });
        }
        let Self { memory, elements } = self;
        drop(memory);
        Ok(elements.wait())
    }
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
    /// Kernels of every type may use it: elements that do not start at a multiple of 128 bytes are moved to one, in the memory of the
    /// vector, which is reallocated for that with up to 128 bytes and an element more. [`into_host`](HostMemory::into_host) moves them back.
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
    ) -> Result<HostMemory<T>, Refused<Vec<T>>> {
        HostMemory::new(HostVec::aligned(elements.into()), |loan| {
            let bytes = loan.bytes();
            let root = self.root_over(loan, flags)?;
            let body = MemoryBody::Buffer(Arc::new(root));
            Ok(ClMemory::new(self.context(), bytes, flags, body))
        })
    }

    /// Calls `run` with a buffer over `elements`, waits until every command on it has ended, even if `run` panics, and
    /// destroys it. The elements then have the results of the commands.
    ///
    /// The elements may start at any address; a launch is refused if the kernel's type may not start there. Everything that would keep the
    /// buffer beyond the call is refused: views of it, images over it, maps, callbacks at its destruction.
    ///
    /// It returns the result of `run`. It waits forever if a command waits for an event that is never resolved, or if the
    /// program has taken a reference to the `cl_mem` and does not release it. On Intel's runtime the event of a command
    /// that the program has enqueued by a call of its own is such a reference.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let mut elements = [1_u32; 100];
    /// backend.with_host_buffer(&mut elements, MemoryFlags::empty(), |buffer| {
    ///     backend.enqueue_fill(&queue, buffer, Region::first(8), &[0_u8])
    /// })??;
    /// assert_eq!(elements[..3], [0, 0, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`create_host_buffer`](Self::create_host_buffer), and a failure of the runtime to bring back what was
    /// written: the contents of `elements` are unspecified then.
    pub fn with_host_buffer<T: Pod, R>(
        &self,
        elements: &mut [T],
        flags: MemoryFlags,
        run: impl FnOnce(&ClMemory) -> R,
    ) -> Result<R> {
        let lent = bytemuck::cast_slice_mut::<T, u8>(elements);
        let (bytes, context) = (lent.len(), self.context());
        host::with_lent(
            lent,
            |loan| self.root_over(loan, flags),
            |mut root| {
                root.lent = true;
                let memory = MemoryBody::Buffer(Arc::new(root));
                let memory = ClMemory::new(context, bytes, flags, memory);
                let result = catch_unwind(AssertUnwindSafe(|| run(&memory)));
                let brought = bring_back(&memory);
                match result {
                    Ok(result) => brought.map(|()| result),
                    Err(panic) => resume_unwind(panic),
                }
            },
        )?
    }

    fn root_over(&self, loan: Loan, flags: MemoryFlags) -> Result<Root> {
        let (bytes, address) = (loan.bytes(), loan.start().addr().get());
        self.limits().check_block(bytes)?;
        flags.check()?;
        flags.check_host(HostUse::Read)?;
        let handle = sys::buffer::create_over(&self.context().handle, host_flags(flags), loan);
        let handle = handle.map_err(|error| error.into_error(Purpose::Memory(bytes)))?;
        let root = Root::new(handle, address);
        // A thread will wait for its end to take the memory back.
        root.log().await_end();
        Ok(root)
    }
}

/// Waits until no command uses the buffer, and brings the results into the host's memory that it lies over.
fn bring_back(memory: &ClMemory) -> Result<()> {
    let (MemoryBody::Buffer(root), bytes) = (memory.body(), memory.bytes()) else {
        return Ok(());
    };
    root.log().wait_until_unused()?;
    let shape = MapShape {
        bytes,
        item: 1,
        rows_are_layers: false,
    };
    let pixels = DevicePixels::Bytes(DeviceBytes::Buffer(&root.handle, 0));
    memory.context().bring_back(pixels, shape)
}

impl<T: Pod + Send> HostMemory<T> {
    /// Waits until every command on the memory has ended, destroys it, and gives the elements back as the commands have
    /// left them.
    ///
    /// If the program keeps a reference of its own to the `cl_mem`, this also waits until that is released. On Intel's
    /// runtime the event of a command that the program has enqueued by a call of its own is such a reference.
    ///
    /// # Errors
    ///
    /// [`ViewsLeft`](InvalidRequest::ViewsLeft) if there are views of the memory or buffers over it,
    /// [`Mapped`](InvalidRequest::Mapped) if a map of it was forgotten, or a failure of the runtime. The memory comes
    /// back with the error.
    #[expect(clippy::result_large_err, reason = "a refusal returns the value")]
    pub fn into_host(self) -> Result<Vec<T>, Refused<Self>> {
        self.returned(|memory| {
            let (used, owners) = match memory.body() {
                MemoryBody::Buffer(root) => (root.log(), Arc::strong_count(root)),
                MemoryBody::Svm { block, .. } => (block.log(), Arc::strong_count(block)),
                MemoryBody::Part(_) => return Ok(()),
            };
            let (views, bytes) = (owners - 1, memory.bytes());
            if views > 0 {
                return Err(InvalidRequest::ViewsLeft { views, bytes }.into());
            }
            // A map that was forgotten never ends.
            used.check_unmapped()?;
            match memory.body() {
                MemoryBody::Svm { block, .. } => block.wait_until_unused(),
                _ => bring_back(memory),
            }
        })
    }
}

impl<T: Pod + Send> AsMemory<OpenClBackend> for HostMemory<T> {
    fn size(&self) -> usize {
        self.memory.size()
    }

    fn memory_on(&self, _queue: &ClQueue) -> Option<&ClMemory> {
        Some(&self.memory)
    }
}

impl<T, M: fmt::Debug> fmt::Debug for HostMemory<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}
