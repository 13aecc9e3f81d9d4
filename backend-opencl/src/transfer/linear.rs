//! Transfers between the host and a run of bytes, and fills of one.
//!
//! Every call that takes memory goes through [`OpenClBackend::bytes_on`], which checks the memory.

use std::sync::Arc;

use binpool_allocators::{
    AsMemory, Event, HostUse, IntoRegion, InvalidRequest, On, PendingRead, Queue, QueueOrder,
    Region, Result, bytes_on,
};
use bytemuck::{AnyBitPattern, NoUninit};

use super::fill;
use crate::{
    ClOn,
    backend::OpenClBackend,
    event::ClEvent,
    memory::cl_memory::ClMemory,
    order::access::Access,
    queue::ClQueue,
    submit::Waited,
    sys::{self, ClResult, DeviceBytes, EventHandle, HostBytes, Purpose, WaitList},
};

/// A command over no bytes becomes a marker. On an out-of-order queue a marker without a wait list waits for everything
/// before it, which is more than such a command has to wait for; a blocking command returns at once there.
///
/// # Errors
///
/// All of them: [`OutOfBounds`](InvalidRequest::OutOfBounds), [`ForeignObject`](InvalidRequest::ForeignObject),
/// [`HostAccess`](InvalidRequest::HostAccess) where the memory's flags forbid it, [`Mapped`](InvalidRequest::Mapped),
/// [`OutOfMemory`](binpool_allocators::Error::OutOfMemory) where memory that the runtime allocates at first use does not
/// fit, and the failures of the runtime.
impl OpenClBackend {
    /// Writes `data` to memory of any kind from byte `offset` on, and waits until it is there.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, ImmediateAllocator, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = binpool::MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(10 * size_of::<f32>())?;
    /// backend.write(&queue, &block, 16, &[0.5_f32, 1.5])?;
    /// let mut seen = [0.0_f32; 2];
    /// backend.read(&queue, &block, 16, &mut seen)?;
    /// assert_eq!(seen, [0.5, 1.5]);
    /// assert!(backend.write(&queue, &block, 40, &[7_u8]).is_err()); // It has 40 bytes.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors), and the failure of a command that it waits for.
    pub fn write<'q, T: NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        data: &[T],
    ) -> Result<()> {
        let (on, data) = (on.into(), bytemuck::cast_slice(data));
        let region = Region::new(offset, data.len());
        let target = (memory, region, Access::Write);
        self.linear_blocking(on, target, |device, wait, enqueued| {
            sys::write_borrowed(on.queue.handle(), device, data, wait, enqueued)
        })
    }

    /// Reads into `data` from memory of any kind, from byte `offset` on, and waits until it is there.
    ///
    /// On an error the contents of `data` are unspecified, but no command writes to it any more.
    ///
    /// # Errors
    ///
    /// See [above](#errors), and the failure of a command that it waits for.
    pub fn read<'q, T: AnyBitPattern + NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        data: &mut [T],
    ) -> Result<()> {
        let (on, data) = (on.into(), bytemuck::cast_slice_mut(data));
        let region = Region::new(offset, data.len());
        let source = (memory, region, Access::Read);
        self.linear_blocking(on, source, |device, wait, enqueued| {
            sys::read_borrowed(on.queue.handle(), device, data, wait, enqueued)
        })
    }

    /// Enqueues a write of `data`, which the command keeps, to memory of any kind from byte `offset` on.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer(8, MemoryFlags::empty())?;
    /// backend.enqueue_write(&queue, &memory, 0, vec![1; 8].into())?;
    /// backend.enqueue_write(&queue, &memory, 6, [2, 3].into())?;
    /// assert_eq!(backend.enqueue_read(&queue, &memory, 5..)?.wait()?, [1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn enqueue_write<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        data: Arc<[u8]>,
    ) -> Result<ClEvent> {
        let on = on.into();
        let target = (memory, Region::new(offset, data.len()), Access::Write);
        let event = self.linear(on, target, |device, wait| {
            sys::write_retained(on.queue.handle(), device, &data, wait)
        })?;
        event.retain(data);
        Ok(event)
    }

    /// Enqueues a read of a region of memory of any kind, whose bytes [`PendingRead::wait`] returns.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn enqueue_read<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
    ) -> Result<PendingRead<ClEvent>> {
        let on = on.into();
        // Checked before the bytes are allocated: a region that is too large must not be reported as a lack of host memory.
        let Some((memory, region)) = self.bytes_on(on.queue, memory, region)? else {
            return Ok(PendingRead::new(self.enqueue_marker(on)?, Vec::new));
        };
        memory.check_host(HostUse::Read)?;
        let target = Arc::new(HostBytes::new(region.bytes)?);
        let event = self.command(on, (memory, region, Access::Read), |device, wait| {
            sys::read_retained(on.queue.handle(), device, &target, wait)
        })?;
        event.retain(Arc::clone(&target));
        Ok(PendingRead::new(event, move || target.take()))
    }

    /// Enqueues a fill of a region of memory of any kind with repetitions of `pattern`, which are elements of any size.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let points = backend.create_buffer(100 * size_of::<[f32; 3]>(), MemoryFlags::empty())?;
    /// backend.enqueue_fill(&queue, &points, .., &[[1.0_f32, 2.0, 3.0]])?;
    /// backend.enqueue_fill(&queue, &points, 12..24, &[0_u8])?;
    /// let mut seen = [[9.0_f32; 3]; 3];
    /// backend.read(&queue, &points, 0, &mut seen)?;
    /// assert_eq!(seen, [[1.0, 2.0, 3.0], [0.0; 3], [1.0, 2.0, 3.0]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`EmptyPattern`](InvalidRequest::EmptyPattern); [`PatternMismatch`](InvalidRequest::PatternMismatch) unless offset and
    /// length are multiples of the pattern's; and see [above](#errors).
    pub fn enqueue_fill<'q, T: NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
        pattern: &[T],
    ) -> Result<ClEvent> {
        let (on, pattern) = (on.into(), bytemuck::cast_slice(pattern));
        let found = self.bytes_on(on.queue, memory, region)?;
        let region = found.map_or(Region::default(), |(_, region)| region);
        InvalidRequest::check_pattern(region, pattern)?;
        let Some((memory, region)) = found else {
            return self.enqueue_marker(on);
        };
        self.command(on, (memory, region, Access::Write), |device, wait| {
            fill::enqueue(on.queue, device, region.bytes, pattern, wait)
        })
    }

    /// Returns the memory for commands on `queue`, and the bytes of it that are `region` of `memory`; `None` for the block
    /// of 0 bytes. Checks the queue, the memory and the bounds.
    pub(crate) fn bytes_on<'m>(
        &self,
        queue: &ClQueue,
        memory: &'m (impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
    ) -> Result<Option<(&'m ClMemory, Region)>> {
        // Checked before a pool notes the use.
        self.check_own_queue(queue)?;
        let found = bytes_on::<Self, _>(memory, queue, region)?;
        if let Some((memory, _)) = found {
            self.check_own_memory(memory)?;
        }
        Ok(found)
    }

    /// Enqueues a transfer of a region by `enqueue`: a write of the memory, or a read.
    pub(super) fn linear(
        &self,
        on: ClOn<'_>,
        (memory, region, access): (&(impl AsMemory<Self> + ?Sized), Region, Access),
        enqueue: impl FnOnce(DeviceBytes<'_>, &WaitList<'_>) -> ClResult<EventHandle>,
    ) -> Result<ClEvent> {
        let Some((memory, region)) = self.bytes_on(on.queue, memory, region)? else {
            return self.enqueue_marker(on);
        };
        memory.check_host(access.host_use())?;
        self.command(on, (memory, region, access), enqueue)
    }

    /// Makes a transfer of a region by `run`, which waits for it, with memory of the host that is borrowed until then.
    fn linear_blocking(
        &self,
        on: ClOn<'_>,
        (memory, region, access): (&(impl AsMemory<Self> + ?Sized), Region, Access),
        run: impl FnOnce(
            DeviceBytes<'_>,
            &WaitList<'_>,
            &mut dyn FnMut(&EventHandle),
        ) -> ClResult<Waited>,
    ) -> Result<()> {
        let On { queue, wait_for } = on;
        let found = self.bytes_on(queue, memory, region)?;
        if let Some((memory, region)) = found {
            memory.check_host(access.host_use())?;
            if let Some(device) = memory.device_bytes(region).filter(|_| region.bytes > 0) {
                let purpose = Purpose::Memory(region.bytes);
                let used = memory.used(region, access);
                return self.submit_and_wait(
                    queue,
                    purpose,
                    &[used],
                    wait_for,
                    |wait, enqueued| run(device, wait, enqueued),
                );
            }
        }
        if wait_for.is_empty() && queue.order() == QueueOrder::OutOfOrder {
            return Ok(());
        }
        self.enqueue_marker(on)?.wait()
    }

    /// Enqueues a command on one region, which it checks, or a marker if the region is empty.
    fn command(
        &self,
        on: ClOn<'_>,
        (memory, region, access): (&ClMemory, Region, Access),
        enqueue: impl FnOnce(DeviceBytes<'_>, &WaitList<'_>) -> ClResult<EventHandle>,
    ) -> Result<ClEvent> {
        match memory.device_bytes(region) {
            Some(device) if region.bytes > 0 => {
                let purpose = Purpose::Memory(region.bytes);
                let used = memory.used(region, access);
                self.submit(on.queue, purpose, &[used], on.wait_for, |wait| {
                    enqueue(device, wait)
                })
            }
            _ => self.enqueue_marker(on),
        }
    }
}
