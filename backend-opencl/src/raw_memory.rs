//! Memory for commands that the program enqueues itself, with `opencl3`, `ocl` or bare calls of OpenCL.

use std::{
    cell::{Cell, OnceCell},
    ffi::c_void,
    fmt,
    marker::PhantomData,
    mem::{self, ManuallyDrop},
    ops::Deref,
    ptr,
};

use binpool_allocators::{AsMemory, Error, Region, Result, runtime::Access};
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use smallvec::SmallVec;

use crate::{
    backend::OpenClBackend,
    memory::cl_memory::{ClMemory, no_handle},
    order::{memory_use::MemoryUse, role::OrderRole},
    queue::ClQueue,
    sys,
};

/// Memory for commands that the program enqueues itself, while a guard of [`lend`](OpenClBackend::lend) lives.
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let buffer = backend.create_buffer(8192, MemoryFlags::empty())?;
/// let half = buffer.slice(4096..)?;
/// let lent = backend.lend(&queue, &[&half])?;
/// let (whole, offset) = lent[0].whole_and_offset()?;
/// assert_eq!((Some(whole), offset), (buffer.raw(), 4096));
/// // An object that begins there, for kernels that take no offset.
/// assert_ne!(lent[0].kernel_argument()?, whole);
/// lent.end()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RawMemory<'m> {
    /// `None` for a block of 0 bytes.
    bytes: Option<(&'m ClMemory, Region)>,
    /// The view of these bytes, where they are a part of the memory.
    part: OnceCell<ClMemory>,
}

impl RawMemory<'_> {
    /// Returns a `cl_mem` that begins at the first of these bytes, for the argument of a kernel and for nothing else. It is null for a
    /// block of 0 bytes.
    ///
    /// It is borrowed: not to be released, and valid while the guard lives. It is the buffer or a sub-buffer of it; on NVIDIA's driver,
    /// which crashes after kernels have used sub-buffers that share bytes, one of a single byte, after which a kernel finds the
    /// others.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) for shared virtual memory; [`Misaligned`](binpool_allocators::InvalidRequest::Misaligned)
    /// for a slice that starts where no sub-buffer can; a failure of the runtime.
    pub fn kernel_argument(&self) -> Result<*mut c_void> {
        let Some((memory, region)) = self.bytes else {
            return Ok(ptr::null_mut());
        };
        let memory = match (self.part.get(), region.offset) {
            (Some(part), _) => part,
            (None, 0) => memory,
            (None, _) => {
                let part = memory.view(region)?;
                self.part.get_or_init(|| part)
            }
        };
        memory.kernel_argument()
    }

    /// Returns the `cl_mem` of the whole buffer, and the offset of these bytes in it: for copies, fills and maps, and for kernels that
    /// take both. No sub-buffer is made. The handle is null for a block of 0 bytes, borrowed, and valid while the guard
    /// lives.
    ///
    /// Other bytes of the buffer may be other blocks of a pool.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) for shared virtual memory.
    pub fn whole_and_offset(&self) -> Result<(*mut c_void, usize)> {
        let Some((memory, region)) = self.bytes else {
            return Ok((ptr::null_mut(), 0));
        };
        let (whole, offset) = memory.whole_and_offset().ok_or_else(no_handle)?;
        Ok((whole, offset.saturating_add(region.offset)))
    }
}

/// A guard of memory that is lent to commands of the program's own. Made by [`OpenClBackend::lend`], which has an example.
///
/// What the program enqueues while it lives is one command to this crate and its pools. A drop ends it, and logs the failure that
/// [`end`](Self::end) would return. If it is forgotten ([`mem::forget`]), commands on other queues may overlap what the program enqueued,
/// its thread gets no other guard, and on NVIDIA's driver other threads wait forever if they make or release a view.
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::{LentMemory, OpenClBackend};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let [from, to] = [(); 2].map(|()| backend.create_buffer(8192, MemoryFlags::empty()).unwrap());
/// let lent: LentMemory = backend.lend(&queue, &[&from, &to])?;
/// let (from, to) = (lent[0].kernel_argument()?, lent[1].kernel_argument()?);
/// // ... a builder that sets them as arguments, and launches ...
/// lent.end()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the program's commands are enqueued while it lives"]
pub struct LentMemory<'m> {
    raw: SmallVec<[RawMemory<'m>; 4]>,
    backend: &'m OpenClBackend,
    queue: &'m ClQueue,
    /// Taken out before the second barrier, which may wait for a turn.
    no_views_change: Option<ReentrantMutexGuard<'static, ()>>,
    /// It stays on its thread.
    _thread: PhantomData<*const ()>,
}

thread_local! {
    /// Set while this thread has a guard. It waits for no turn meanwhile, so it may not take a second one.
    static HAS_LENT: Cell<bool> = const { Cell::new(false) };
}

impl LentMemory<'_> {
    /// Ends the program's commands.
    ///
    /// # Errors
    ///
    /// A failure of the runtime: commands on other queues may then overlap them.
    pub fn end(self) -> Result<()> {
        ManuallyDrop::new(self).close()
    }

    /// Leaves nothing to drop.
    fn close(&mut self) -> Result<()> {
        self.no_views_change = None;
        HAS_LENT.set(false);
        barrier(self.backend, self.queue, &mem::take(&mut self.raw))
    }
}

impl Drop for LentMemory<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "cannot follow the program's own commands: a barrier after them failed");
        }
    }
}

impl<'m> Deref for LentMemory<'m> {
    type Target = [RawMemory<'m>];

    /// What was lent, in the order of the request.
    fn deref(&self) -> &[RawMemory<'m>] {
        &self.raw
    }
}

impl fmt::Debug for LentMemory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LentMemory").field(&self.raw).finish()
    }
}

/// Enqueues a barrier that comes after what uses the memory, and before what will.
fn barrier(backend: &OpenClBackend, queue: &ClQueue, raw: &[RawMemory<'_>]) -> Result<()> {
    let all = raw.iter().filter_map(|raw| raw.bytes);
    let uses: SmallVec<[MemoryUse<'_>; 4]> = all
        .map(|(memory, region)| memory.used(region, Access::Write))
        .collect();
    let roles = [OrderRole::FullBarrier, OrderRole::Barrier];
    let barrier = backend.order(queue.into(), roles, &uses, sys::enqueue_barrier);
    barrier.map(drop)
}

impl OpenClBackend {
    /// Lends the handles of `memory`, for commands that the program itself enqueues on `queue`, until the guard is
    /// [ended](LentMemory::end) or dropped.
    ///
    /// To this crate and its pools these commands are one command that writes all of `memory`: on whatever queue, commands of this crate
    /// that were enqueued before the guard was made, or after it ended, do not overlap them. Two barriers ensure that, one at each end.
    /// Commands that other threads enqueue on the same memory while the guard lives may overlap them: the program keeps those back.
    ///
    /// On NVIDIA's driver, which crashes if a thread enqueues a command on a buffer while another thread makes or releases a view of it,
    /// other threads of the process wait before they do either while the guard lives. So meanwhile its thread must not wait for commands or
    /// for other threads, nor call anything else of this crate.
    ///
    /// ```
    /// # use binpool_allocators::QueueOrder;
    /// # use binpool_opencl::OpenClBackend;
    /// # use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
    /// # use opencl3::{kernel::{ExecuteKernel, Kernel}, program::Program};
    /// use binpool::{ImmediateAllocator, MemoryPool};
    ///
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// # // SAFETY: the device is the context's.
    /// # let queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    /// # // SAFETY: the context and the queue are ones that `opencl3` has made.
    /// # let (backend, wrapped) = unsafe {
    /// #     let backend = OpenClBackend::from_raw(context.get(), context.default_device())?;
    /// #     let wrapped = backend.wrap_raw_queue(queue.get())?;
    /// #     (backend, wrapped)
    /// # };
    /// let source = "kernel void one(global float *to) { to[get_global_id(0)] = 1; }
    ///     kernel void two(global char *whole, ulong offset) {
    ///         ((global float *)(whole + offset))[get_global_id(0)] = 2;
    ///     }";
    /// # let program = Program::create_and_build_from_source(&context, source, "")?;
    /// let (one, two) = (Kernel::create(&program, "one")?, Kernel::create(&program, "two")?);
    /// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &wrapped)?;
    /// let (a, b) = (pool.allocate(4000)?, pool.allocate(4000)?);
    ///
    /// let lent = backend.lend(&wrapped, &[&a, &b])?;
    /// let (first, (whole, offset)) = (lent[0].kernel_argument()?, lent[1].whole_and_offset()?);
    /// // SAFETY: each work item writes the float of its id, of 1000 in each block.
    /// unsafe {
    ///     ExecuteKernel::new(&one).set_arg(&first).set_global_work_size(1000).enqueue_nd_range(&queue)?;
    ///     let mut two = ExecuteKernel::new(&two);
    ///     two.set_arg(&whole).set_arg(&(offset as u64)).set_global_work_size(1000);
    ///     two.enqueue_nd_range(&queue)?;
    /// }
    /// lent.end()?;
    ///
    /// let (mut ones, mut twos) = (vec![0_u8; 4000], vec![0_u8; 4000]);
    /// a.read(&wrapped, 0, &mut ones)?;
    /// b.read(&wrapped, 0, &mut twos)?;
    /// assert_eq!((ones, twos), (1_f32.to_ne_bytes().repeat(1000), 2_f32.to_ne_bytes().repeat(1000)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A program that wants no lock and no barriers takes whole buffers, by a pool of them
    /// ([`PoolOptions::segments(false)`](https://docs.rs/binpool/latest/binpool/struct.PoolOptions.html#method.segments)) and
    /// [`ClMemory::raw`], and orders its commands itself.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject), [`Mapped`](binpool_allocators::InvalidRequest::Mapped);
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) if this thread already has a guard, of any backend; and the failures of the
    /// runtime.
    pub fn lend<'m>(
        &'m self,
        queue: &'m ClQueue,
        memory: &[&'m dyn AsMemory<Self>],
    ) -> Result<LentMemory<'m>> {
        if HAS_LENT.get() {
            return Err(Error::unsupported(
                "a second guard on this thread: lend all memory of a command together, and end the guard before the next",
            ));
        }
        let mut raw = SmallVec::<[RawMemory<'_>; 4]>::new();
        for memory in memory {
            let bytes = self.bytes_on(queue, *memory, ..)?;
            if let Some((memory, region)) = bytes {
                memory.check_may_be_retained()?;
                memory.prepare_for_kernels(region.offset)?;
            }
            raw.push(RawMemory {
                bytes,
                part: OnceCell::new(),
            });
        }
        barrier(self, queue, &raw)?;
        HAS_LENT.set(true);
        Ok(LentMemory {
            raw,
            backend: self,
            queue,
            no_views_change: self.context().quirks.view_lock.map(ReentrantMutex::lock),
            _thread: PhantomData,
        })
    }
}
