//! Transfers between the host and a run of bytes, and fills of one.
//!
//! Every call that takes memory goes through [`OpenClBackend::bytes_on`], which checks the memory.

use binpool_allocators::{
    AsMemory, Error, IntoRegion, InvalidRequest, Memory, Region, Result, Span, bytes_on,
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
    sys::{Purpose, host::HostVec, transfer::DeviceSide},
};

impl OpenClBackend {
    /// Enqueues a fill, or a marker where that has no bytes.
    pub(crate) fn fill(
        &self,
        on: ClOn<'_>,
        Span { memory, region }: Span<'_, ClMemory>,
        pattern: &[u8],
    ) -> Result<ClEvent> {
        self.check_own_queue(on.queue)?;
        self.check_own_memory(memory)?;
        region.check_within(memory.bytes())?;
        InvalidRequest::check_pattern(region, pattern)?;
        let used = memory.used(region, Access::Write);
        if region.bytes == 0 {
            return self.marker(on);
        }
        let device = memory.device_bytes(region);
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
    /// Those of [`enqueue_write`](binpool_allocators::Backend::enqueue_write), with the vector.
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
    /// Those of [`enqueue_read`](binpool_allocators::Backend::enqueue_read), with the vector.
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
pub(crate) struct Linear<'a, M: ?Sized>(pub(super) &'a M, pub(super) Bytes);

/// Which bytes: as many as the host has from an offset on, or these.
pub(crate) enum Bytes {
    From(usize),
    All(Region),
}

impl<'a> Linear<'a, ClMemory> {
    pub(crate) fn of(Span { memory, region }: Span<'a, ClMemory>) -> Self {
        Self(memory, Bytes::All(region))
    }
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
        Ok((region.bytes > 0).then(|| HostTransfer {
            device: DeviceSide::Bytes(memory.device_bytes(region)),
            used: memory.used(region, host.access),
            bytes: region.bytes,
            host_bytes: region.bytes,
        }))
    }
}
