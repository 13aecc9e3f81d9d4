//! Export of memory to other libraries, by the `DLPack` protocol.

use binpool_allocators::{
    AsMemory, Error, Event, InvalidRequest, Memory, Queue, Region, Result, runtime::Access,
};
use dlpk::{DLDevice, DLPackTensor, GetDLPackDataType};

use crate::{
    backend::OpenClBackend,
    error::Refused,
    memory::cl_memory::ClMemory,
    queue::ClQueue,
    sys::{self, MemHandle, Purpose},
};

/// Available with the feature `dlpack`.
impl OpenClBackend {
    /// Hands `memory`, bare or pooled, to another library as a tensor of `T`: `DLPack` 1.3, device type `kDLOpenCL`, the
    /// elements from the start of the memory on, in row-major order, without gaps. The tensor owns the memory; its deleter,
    /// which dropping it calls, gives it back, to its pool if it has one.
    ///
    /// The data pointer is the `cl_mem` of the whole buffer, or null if the shape has no elements; the byte offset says where the elements
    /// begin in it, which is not 0 in a block that was carved from a segment. `device_id` is the consumer's number of this device. The
    /// context is that of the `cl_mem` (`CL_MEM_CONTEXT`).
    ///
    /// # Order
    ///
    /// `DLPack` does not know OpenCL's queues, so the host and `queue` put both ends in order:
    ///
    /// - *Before*: this waits until everything has ended that conflicts with the memory, on any queue, and everything that was
    ///   enqueued on `queue`. So the consumer may use the memory at once, on any queue of its own.
    /// - *After*: the memory counts as used on `queue` until the tensor is deleted. What the consumer has enqueued there by then
    ///   comes before the pool's next user. What it has enqueued elsewhere has to have ended by then (Safety, 2).
    ///
    /// ```
    /// use binpool_allocators::{Backend, ImmediateAllocator, QueueOrder};
    /// use binpool_opencl::{DeviceSelector, OpenClBackend, dlpk::DLDeviceType};
    ///
    /// let backend = OpenClBackend::open(&DeviceSelector::Any)?;
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = binpool::MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(6 * size_of::<f32>())?;
    /// block.enqueue_fill(&queue, 0..24, &1.0_f32.to_ne_bytes())?;
    /// // SAFETY: the consumer waits for its own commands before it deletes the tensor.
    /// let tensor = unsafe { backend.export_dlpack::<f32, _>(&queue, block, &[2, 3], 0) }?;
    /// assert_eq!(tensor.device().device_type, DLDeviceType::kDLOpenCL);
    /// assert_eq!(tensor.shape(), [2, 3]);
    /// drop(tensor); // Or `into_raw`, for a consumer in C.
    /// assert_eq!(pool.statistics().active_blocks, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All errors return the memory: [`OutOfBounds`](InvalidRequest::OutOfBounds) for a shape of more bytes than the
    /// memory has; [`Unsupported`](Error::Unsupported) for shared virtual memory, which has no `cl_mem` (export a
    /// buffer [over it](crate::SvmPointer::as_buffer)); [`ForeignObject`](InvalidRequest::ForeignObject);
    /// [`Mapped`](InvalidRequest::Mapped); [`Lent`](InvalidRequest::Lent); the failure of a command that was waited
    /// for.
    ///
    /// # Safety
    ///
    /// The consumer of the tensor:
    ///
    /// 1. keeps to the protocol: it uses the `cl_mem` within the elements, as a reference that is borrowed until the tensor is
    ///    deleted, and deletes it once;
    /// 2. deletes it only when its commands on the memory have ended, unless they are on `queue`. A bare [`ClMemory`], and
    ///    one that was [detached](https://docs.rs/binpool/latest/binpool/struct.PooledBuffer.html#method.detach) from a
    ///    pool, has no next user, and the runtime keeps it for its commands: there this condition does not apply;
    /// 3. orders its commands with those on other values of the same buffer (views of it, say), which do not see them.
    ///
    /// If commands on bare handles may still use the memory, `queue` is the one that the memory was allocated for, or comes
    /// after it ([`order_before`](https://docs.rs/binpool/latest/binpool/struct.PooledBuffer.html#method.order_before)).
    #[allow(unsafe_code)]
    pub unsafe fn export_dlpack<T, M>(
        &self,
        queue: &ClQueue,
        memory: M,
        shape: &[usize],
        device_id: i32,
    ) -> Result<DLPackTensor, Refused<M>>
    where
        T: GetDLPackDataType,
        M: AsMemory<Self> + Send + 'static,
    {
        let exported = row_major::<T>(shape, memory.size()).and_then(|layout| {
            let handle = self.idle_handle(queue, &memory, &layout)?;
            Ok((layout, handle))
        });
        match exported {
            Ok((layout, handle)) => Ok(sys::dlpack::tensor(
                handle.map_or((std::ptr::null_mut(), 0), |(handle, offset)| {
                    (handle.raw(), offset)
                }),
                DLDevice::opencl(device_id),
                T::get_dlpack_data_type(),
                layout.shape,
                layout.strides,
                Box::new(memory),
            )),
            Err(error) => Err(Refused {
                error,
                value: memory,
            }),
        }
    }

    /// Waits until no command uses the memory, and returns its handle and the offset of the elements; `None` if there are
    /// none.
    fn idle_handle<'m>(
        &self,
        queue: &ClQueue,
        memory: &'m impl AsMemory<Self>,
        layout: &Layout,
    ) -> Result<Option<(&'m MemHandle, usize)>> {
        let elements = Region::first(layout.bytes);
        let Some((memory, elements)) = self.bytes_on(queue, memory, elements)? else {
            return Ok(None);
        };
        memory.check_may_be_retained()?;
        // Never a sub-buffer: NVIDIA's driver crashes after kernels have used two that share bytes.
        let (root, start) = memory.exposed_root().ok_or_else(no_handle)?;
        self.wait_until_idle(queue, memory)?;
        let offset = start.saturating_add(elements.offset);
        Ok((elements.bytes > 0).then_some((&root.handle, offset)))
    }

    fn wait_until_idle(&self, queue: &ClQueue, memory: &ClMemory) -> Result<()> {
        let all = memory.used(Region::first(memory.bytes()), Access::Write);
        let conflicts = self.submit(queue, Purpose::Control, &[all], &[], |wait| {
            sys::enqueue_marker(queue.handle(), wait)
        })?;
        conflicts.wait()?;
        // Commands on bare handles are in no log, so the queue is finished.
        queue.finish()
    }
}

fn no_handle() -> Error {
    Error::unsupported(
        "a DLPack tensor over shared virtual memory, which has no `cl_mem`: export a buffer over it (`as_buffer`)",
    )
}

/// The shape of a tensor and the strides between its elements, in elements.
struct Layout {
    shape: Vec<i64>,
    strides: Vec<i64>,
    bytes: usize,
}

/// Lays `shape` out in `size` bytes, in row-major order.
fn row_major<T>(shape: &[usize], size: usize) -> Result<Layout> {
    // No memory is as large as a product that overflows.
    let too_large = || InvalidRequest::OutOfBounds {
        offset: 0,
        bytes: usize::MAX,
        size,
    };
    let mut strides = Vec::with_capacity(shape.len());
    let mut elements = 1_usize;
    for extent in shape.iter().rev() {
        strides.push(i64::try_from(elements).map_err(|_| too_large())?);
        // An extent of 0 counts as 1 in the strides.
        elements = elements
            .checked_mul((*extent).max(1))
            .ok_or_else(too_large)?;
    }
    strides.reverse();
    let bytes = if shape.contains(&0) {
        0
    } else {
        elements.checked_mul(size_of::<T>()).ok_or_else(too_large)?
    };
    let shape = shape.iter().map(|extent| i64::try_from(*extent));
    let shape: Result<Vec<i64>, _> = shape.collect();
    Ok(Layout {
        shape: shape.map_err(|_| too_large())?,
        strides,
        bytes,
    })
}
