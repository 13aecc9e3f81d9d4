//! Memory for commands that the program enqueues itself, with `opencl3`, `ocl` or bare calls of OpenCL.

use std::{
    cell::OnceCell,
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr,
};

use binpool_allocators::{AsMemory, Region, Result, runtime::Access};
use smallvec::SmallVec;

use crate::{
    backend::OpenClBackend,
    event::ClEvent,
    memory::cl_memory::{ClMemory, no_handle},
    order::{memory_use::MemoryUse, role::OrderRole},
    queue::ClQueue,
    sys,
};

/// Memory for commands that the program enqueues itself, within a call of
/// [`with_raw_memory`](OpenClBackend::with_raw_memory), where they are shown.
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let buffer = backend.create_buffer(8192, MemoryFlags::empty())?;
/// let half = buffer.slice(4096..)?;
/// backend.with_raw_memory(&queue, &[&half], |raw| {
///     let (whole, offset) = raw[0].whole_and_offset()?;
///     assert_eq!((Some(whole), offset), (buffer.raw(), 4096));
///     // An object that begins there, for kernels that take no offset.
///     assert_ne!(raw[0].kernel_argument()?, whole);
///     Ok::<(), binpool_allocators::Error>(())
/// })??;
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
    /// It is borrowed: not to be released, and valid within the call. It is the buffer or a sub-buffer of it; on NVIDIA's driver,
    /// which crashes after kernels have used sub-buffers that share bytes, one of a single byte, behind which a kernel finds the
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
    /// take both. No sub-buffer is made. The handle is null for a block of 0 bytes, borrowed, and valid within the call.
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

impl OpenClBackend {
    /// Calls `enqueue` with the handles of `memory`, for commands of the program's own on `queue`.
    ///
    /// To this crate and its pools these commands are one command that writes all of `memory`: on whatever queue, commands of this
    /// crate before and after this call do not overlap them. Two barriers are enqueued for it, one before and one after.
    ///
    /// On NVIDIA's driver, which crashes where a thread enqueues a command on a buffer while another thread makes or releases a view
    /// of it, no other thread of the process does either during `enqueue`. So `enqueue` does not wait for commands or for other
    /// threads, and calls nothing else of this crate.
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
    /// backend.with_raw_memory(&wrapped, &[&a, &b], |raw| {
    ///     let (a, (whole, offset)) = (raw[0].kernel_argument()?, raw[1].whole_and_offset()?);
    ///     // SAFETY: each work item writes the float of its id, of 1000 in each block.
    ///     unsafe {
    ///         ExecuteKernel::new(&one).set_arg(&a).set_global_work_size(1000).enqueue_nd_range(&queue)?;
    ///         let mut two = ExecuteKernel::new(&two);
    ///         two.set_arg(&whole).set_arg(&(offset as u64)).set_global_work_size(1000);
    ///         two.enqueue_nd_range(&queue)?;
    ///     }
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })??;
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
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject), [`Mapped`](binpool_allocators::InvalidRequest::Mapped), and
    /// the failures of the runtime. `enqueue` is not called, except where the second barrier fails.
    ///
    /// # Panics
    ///
    /// Where `enqueue` panics. The second barrier is enqueued all the same.
    pub fn with_raw_memory<R>(
        &self,
        queue: &ClQueue,
        memory: &[&dyn AsMemory<Self>],
        enqueue: impl FnOnce(&[RawMemory<'_>]) -> R,
    ) -> Result<R> {
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
        let all = raw.iter().filter_map(|raw| raw.bytes);
        let uses: SmallVec<[MemoryUse<'_>; 4]> = all
            .map(|(memory, region)| memory.used(region, Access::Write))
            .collect();
        self.barrier_for(queue, &uses)?;
        let result = {
            let _no_views_change = self.context().quirks.view_lock.hold();
            catch_unwind(AssertUnwindSafe(|| enqueue(&raw)))
        };
        let ended = self.barrier_for(queue, &uses);
        let result = result.unwrap_or_else(|panic| {
            if let Err(error) = &ended {
                tracing::error!(%error, "commands of the program's own are not followed: a barrier after them failed");
            }
            resume_unwind(panic)
        });
        ended.map(|_| result)
    }

    fn barrier_for(&self, queue: &ClQueue, uses: &[MemoryUse<'_>]) -> Result<ClEvent> {
        let roles = [OrderRole::FullBarrier, OrderRole::Barrier];
        self.order(queue.into(), roles, uses, sys::enqueue_barrier)
    }
}
