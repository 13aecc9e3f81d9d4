//! Transfers between the host and a run of bytes, and fills of one.
//!
//! Every call that takes memory goes through [`OpenClBackend::bytes_on`], which checks the memory.

use std::sync::Arc;

use binpool_allocators::{
    AsMemory, Error, IntoRegion, InvalidRequest, PendingRead, Region, Result, bytes_on,
};
use bytemuck::{AnyBitPattern, NoUninit};

use super::{
    fill,
    host::{HostPart, HostTransfer, PendingTransfer, Shape},
};
use crate::{
    backend::OpenClBackend,
    error::Refused,
    event::{ClEvent, ClOn},
    memory::cl_memory::ClMemory,
    order::access::Access,
    queue::ClQueue,
    sys::{
        Purpose,
        host::{HostSide, HostVec},
        transfer::DeviceSide,
    },
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
        let bytes = Linear(memory, Bytes::From(offset));
        self.transfer(on.into(), &bytes, &HostSide::source(data))
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
        let bytes = Linear(memory, Bytes::From(offset));
        self.transfer(on.into(), &bytes, &HostSide::target(data))
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
        self.write_shared(on.into(), &Linear(memory, Bytes::From(offset)), data)
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
        let region = region.into_region(memory.size())?;
        self.read_to_new(on.into(), &Linear(memory, Bytes::All(region)))
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
        let sides = found.and_then(|(memory, region)| {
            Some((
                memory.used(region, Access::Write),
                memory.device_bytes(region)?,
            ))
        });
        let Some((used, device)) = sides.filter(|_| region.bytes > 0) else {
            return self.enqueue_marker(on);
        };
        let purpose = Purpose::Memory(region.bytes);
        self.submit(on.queue, purpose, &[used], on.wait_for, |wait| {
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
}

/// Transfers that take a vector: `PyOpenCL`'s `enqueue_copy` with `is_blocking=False`. The host cannot free or touch the
/// vector before the command has ended.
impl OpenClBackend {
    /// Enqueues a write of all of `elements`, from byte `offset` of the memory on.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer(16, MemoryFlags::empty())?;
    /// let rows = [[1.0_f32, 2.0], [3.0, 4.0]].map(|row| row.to_vec());
    /// let mut written = Vec::new();
    /// for (row, elements) in rows.into_iter().enumerate() {
    ///     // Enqueued, and the loop goes on; offsets are in bytes.
    ///     written.push(backend.enqueue_write_owned(&queue, &memory, row * 8, elements)?);
    /// }
    /// let last = written.pop().ok_or("there are two")?;
    /// assert_eq!(last.wait()?, [3.0, 4.0]); // The vector is back.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_write`](binpool_allocators::Transfers::enqueue_write), with the vector.
    pub fn enqueue_write_owned<'q, T: NoUninit + Send>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        elements: Vec<T>,
    ) -> Result<PendingTransfer<T>, Refused<Vec<T>>> {
        let bytes = Linear(memory, Bytes::From(offset));
        self.transfer_owned(on.into(), &bytes, elements, HostVec::as_source)
    }

    /// Enqueues a read into all of `elements`, from byte `offset` of the memory on.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer_from(&[1.0_f32, 2.0, 3.0, 4.0], MemoryFlags::empty())?;
    /// // As many elements as the vector has, from byte 4 on.
    /// let read = backend.enqueue_read_owned(&queue, &memory, 4, vec![0.0_f32; 2])?;
    /// assert_eq!(read.wait()?, [2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_read`](binpool_allocators::Transfers::enqueue_read), with the vector.
    pub fn enqueue_read_owned<'q, T: AnyBitPattern + NoUninit + Send>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        elements: Vec<T>,
    ) -> Result<PendingTransfer<T>, Refused<Vec<T>>> {
        let bytes = Linear(memory, Bytes::From(offset));
        self.transfer_owned(on.into(), &bytes, elements, HostVec::as_target)
    }
}

/// A run of bytes.
pub(super) struct Linear<'a, M: ?Sized>(pub(super) &'a M, pub(super) Bytes);

/// Which bytes: as many as the host has from an offset on, or these.
pub(super) enum Bytes {
    From(usize),
    All(Region),
}

impl<M: AsMemory<OpenClBackend> + ?Sized> Shape for Linear<'_, M> {
    type Error = Error;

    fn checked(
        &self,
        backend: &OpenClBackend,
        queue: &ClQueue,
        host: HostPart,
    ) -> Result<Option<HostTransfer<'_>>> {
        let region = match self.1 {
            Bytes::From(offset) => Region::new(offset, host.bytes.unwrap_or(0)),
            Bytes::All(region) => region,
        };
        let Some((memory, region)) = backend.bytes_on(queue, self.0, region)? else {
            return Ok(None);
        };
        memory.check_host(host.access.host_use())?;
        let device = memory.device_bytes(region).filter(|_| region.bytes > 0);
        Ok(device.map(|device| HostTransfer {
            device: DeviceSide::Bytes(device),
            used: memory.used(region, host.access),
            bytes: region.bytes,
            host_bytes: region.bytes,
        }))
    }
}
