//! Transfers between the host and the device: of bytes, rectangles and pixels, each with memory of the host that is borrowed
//! for a call or for a scope, owned, shared, or made.

use std::{fmt, sync::Arc};

use binpool_allocators::{
    Backend, Error, Event, HostUse, PendingRead, Queue, QueueOrder, Result, Sink, runtime::Access,
};
use bytemuck::{AnyBitPattern, NoUninit};

use crate::{
    backend::OpenClBackend,
    error::Refused,
    event::{ClEvent, ClOn},
    order::memory_use::MemoryUse,
    queue::ClQueue,
    sys::{
        Purpose,
        host::{HostSide, HostVec, zeroed},
        transfer::{self, DeviceSide},
    },
};

/// The device's side of a transfer, which is checked.
#[derive(Debug)]
pub(crate) struct HostTransfer<'m> {
    pub(crate) device: DeviceSide<'m>,
    pub(crate) used: MemoryUse<'m>,
    /// The size of the host's side.
    pub(crate) host_bytes: usize,
}

/// The host's side of a transfer, as far as it is checked: how many bytes, unless they are made for the transfer, and what
/// the command does with the device's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPart {
    pub(crate) bytes: Option<usize>,
    pub(crate) access: Access,
}

impl HostPart {
    const NEW: Self = Self {
        bytes: None,
        access: Access::Read,
    };

    /// What the host does.
    pub(crate) const fn host_use(self) -> HostUse {
        match self.access {
            Access::Read => HostUse::Read,
            Access::Write => HostUse::Write,
        }
    }

    const fn of(host: &HostSide<'_>) -> Self {
        let access = if host.is_target() {
            Access::Read
        } else {
            Access::Write
        };
        Self {
            bytes: Some(host.bytes()),
            access,
        }
    }
}

/// A part of memory or of an image that a transfer writes or reads: bytes from an offset on, `(&memory, offset)`, a rectangle
/// ([`RectPart`](crate::RectPart)), or pixels ([`ImagePart`](crate::ImagePart)).
///
/// ```
/// use binpool_allocators::Error;
/// use binpool_opencl::{ClQueue, OpenClBackend, TransferPart};
///
/// /// Writes zeros to any part of any memory.
/// fn clear<P>(backend: &OpenClBackend, queue: &ClQueue, part: P, bytes: usize) -> Result<(), P::Error>
/// where
///     P: TransferPart,
/// {
///     backend.write_part(queue, part, &vec![0_u8; bytes])
/// }
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer_from(&[7_u8; 8], MemoryFlags::empty())?;
/// clear(&backend, &queue, (&memory, 2), 4)?;
/// assert_eq!(backend.map::<u8>(&queue, &memory, ..)?[..], [7, 7, 0, 0, 0, 0, 7, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TransferPart {
    /// The error of transfers.
    type Error: From<Error> + Into<Error>;

    #[doc(hidden)]
    #[expect(private_interfaces, reason = "no program implements it")]
    /// Checks both sides. `None` if there is nothing to move.
    fn checked(
        &self,
        backend: &OpenClBackend,
        queue: &ClQueue,
        host: HostPart,
    ) -> Result<Option<HostTransfer<'_>>, Self::Error>;
}

impl OpenClBackend {
    /// Makes a transfer with bytes that the host has borrowed, and waits until it has ended.
    pub(crate) fn transfer<S: TransferPart>(
        &self,
        on: ClOn<'_>,
        part: &S,
        host: &HostSide<'_>,
    ) -> Result<(), S::Error> {
        let ClOn { queue, wait_for } = on;
        let Some(transfer) = part.checked(self, queue, HostPart::of(host))? else {
            // On an out-of-order queue nothing comes before this but what the list names.
            if wait_for.is_empty() && queue.order() == QueueOrder::OutOfOrder {
                return Ok(());
            }
            return Ok(self.enqueue_marker(on)?.wait()?);
        };
        let (uses, purpose) = ([transfer.used], Purpose::Memory(transfer.host_bytes));
        Ok(
            self.submit_and_wait(queue, purpose, &uses, wait_for, |wait| {
                transfer::enqueue_transfer(queue.handle(), transfer.device, host, wait)
            })?,
        )
    }

    /// Enqueues a transfer with the host's bytes, which the caller keeps until the command has ended.
    pub(crate) fn enqueue_transfer<S: TransferPart>(
        &self,
        on: ClOn<'_>,
        part: &S,
        host: &HostSide<'_>,
    ) -> Result<ClEvent, S::Error> {
        match part.checked(self, on.queue, HostPart::of(host))? {
            Some(transfer) => Ok(self.enqueue_checked(on, &transfer, host)?),
            None => Ok(self.enqueue_marker(on)?),
        }
    }

    fn enqueue_checked(
        &self,
        ClOn { queue, wait_for }: ClOn<'_>,
        transfer: &HostTransfer<'_>,
        host: &HostSide<'_>,
    ) -> Result<ClEvent> {
        let purpose = Purpose::Memory(transfer.host_bytes);
        self.submit(queue, purpose, &[transfer.used], wait_for, |wait| {
            transfer::enqueue_transfer(queue.handle(), transfer.device, host, wait)
        })
    }

    /// Enqueues a read into new bytes, which go to the sink.
    pub(crate) fn read_to<S: TransferPart>(
        &self,
        on: ClOn<'_>,
        part: &S,
        sink: &Sink,
    ) -> Result<ClEvent, S::Error> {
        let Some(transfer) = part.checked(self, on.queue, HostPart::NEW)? else {
            return Ok(self.marker(on)?);
        };
        let target = zeroed(transfer.host_bytes).map_err(Error::from)?;
        let target = Arc::new(HostVec::new(target));
        let event = self.enqueue_checked(on, &transfer, &target.as_target())?;
        event.retain(Arc::clone(&target));
        let own = event.clone();
        sink.put(move || {
            if own.has_ended() {
                target.take()
            } else {
                Vec::new()
            }
        });
        Ok(event)
    }

    /// Enqueues a transfer with a vector, which the command keeps and the pending transfer returns.
    fn transfer_owned<T: Send + 'static, S: TransferPart>(
        &self,
        on: ClOn<'_>,
        part: &S,
        elements: Vec<T>,
        side: impl Fn(&HostVec<T>) -> HostSide<'_>,
    ) -> Result<PendingTransfer<T>, Refused<Vec<T>>> {
        let elements = Arc::new(HostVec::new(elements));
        match self.enqueue_transfer(on, part, &side(&elements)) {
            Ok(event) => {
                event.retain(Arc::clone(&elements));
                Ok(PendingTransfer { event, elements })
            }
            Err(error) => {
                let (error, value) = (error.into(), elements.take());
                Err(Refused { error, value })
            }
        }
    }
}

/// Transfers between the host and a part of memory or of an image: `PyOpenCL`'s `enqueue_copy` with the host on one side.
///
/// # Errors
///
/// All of them: those of the part; objects of another backend, [`HostAccess`](binpool_allocators::InvalidRequest::HostAccess) if the
/// flags of the memory forbid it, [`Mapped`](binpool_allocators::InvalidRequest::Mapped), and the failures of the runtime. Those that wait
/// also return the failure of the command, or of a command that it waits for.
#[expect(
    clippy::needless_pass_by_value,
    reason = "parts are small, and calls read better so"
)]
impl OpenClBackend {
    /// Writes `data`, and waits until it is there.
    ///
    /// ```
    /// use binpool_opencl::{Rect, RectPart};
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// let matrix = backend.create_buffer_from(&[0_u8; 100 * 100], MemoryFlags::empty())?; // Row by row.
    /// let corner = [7_u8; 3 * 4];
    /// let target = Rect::in_rows([10, 20, 0], 100); // Column 10, row 20.
    /// backend.write_part(&queue, RectPart::new((&matrix, target), Rect::default(), [3, 4, 1]), &corner)?;
    /// let mut row = [0_u8; 5];
    /// backend.read(&queue, &matrix, 23 * 100 + 9, &mut row)?; // Of the last row, with its neighbours.
    /// assert_eq!(row, [0, 7, 7, 7, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Pixels of an image:
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::ImagePart;
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
    /// let shape = ImageShape::d2(8, 8);
    /// let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
    /// // Two pixels, one above the other, of four floats each.
    /// let two = ImageRegion::new([5, 2], [1, 2]);
    /// let colors = [[0.5_f32, 0.0, 0.0, 1.0], [0.0, 0.5, 0.0, 1.0]];
    /// backend.write_part(&queue, ImagePart::new(&image, two), &colors)?;
    ///
    /// let mut lower = [0.0_f32; 4];
    /// let pixel = ImageRegion::new([5, 3], [1, 1]);
    /// backend.read_part(&queue, ImagePart::new(&image, pixel), &mut lower)?;
    /// assert_eq!(lower, colors[1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn write_part<'q, T: NoUninit, P: TransferPart>(
        &self,
        on: impl Into<ClOn<'q>>,
        part: P,
        data: &[T],
    ) -> Result<(), P::Error> {
        self.transfer(on.into(), &part, &HostSide::source(data))
    }

    /// Reads into `data`, and waits until it is there.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn read_part<'q, T: AnyBitPattern + NoUninit, P: TransferPart>(
        &self,
        on: impl Into<ClOn<'q>>,
        part: P,
        data: &mut [T],
    ) -> Result<(), P::Error> {
        self.transfer(on.into(), &part, &HostSide::target(data))
    }

    /// Enqueues a write of `data`, which the command keeps until it has ended.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use binpool_opencl::{Rect, RectPart};
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// // The two halves of a picture of 4 × 3 bytes, which the commands share.
    /// let picture: Arc<[u8]> = (0..12).collect();
    /// let left = backend.create_buffer(6, MemoryFlags::empty())?;
    /// let right = backend.create_buffer(6, MemoryFlags::empty())?;
    /// for (memory, column) in [(&left, 0), (&right, 2)] {
    ///     let source = (Arc::clone(&picture), Rect::in_rows([column, 0, 0], 4));
    ///     backend.enqueue_write_part(&queue, RectPart::new((memory, Rect::default()), source.1, [2, 3, 1]), source.0)?;
    /// }
    /// let mut seen = [0_u8; 6];
    /// backend.read(&queue, &right, 0, &mut seen)?;
    /// assert_eq!(seen, [2, 3, 6, 7, 10, 11]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// # use binpool_allocators::{Backend, Event, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::ImagePart;
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
    /// # let shape = ImageShape::d2(3, 2);
    /// # let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
    /// let data: Arc<[u8]> = [1, 2, 3, 4, 5, 6].into();
    /// let (all, tight) = (ImageRegion::all(shape), HostPitches::TIGHT);
    /// let write = backend.enqueue_write_part(&queue, ImagePart::new(&image, all).with_pitches(tight), data)?;
    ///
    /// // Meanwhile the host does other work. What reads the image comes after the write by itself.
    /// let corner = ImageRegion::new([1, 1], [2, 1]);
    /// let read = backend.enqueue_read_part(&queue, ImagePart::new(&image, corner))?;
    /// assert_eq!(read.wait()?, [5, 6]);
    /// assert!(write.status()?.has_ended());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn enqueue_write_part<'q, P: TransferPart>(
        &self,
        on: impl Into<ClOn<'q>>,
        part: P,
        data: Arc<[u8]>,
    ) -> Result<ClEvent, P::Error> {
        let event = self.enqueue_transfer(on.into(), &part, &HostSide::source(&data))?;
        event.retain(data);
        Ok(event)
    }

    /// Enqueues a read into new bytes, which the pending read returns.
    ///
    /// ```
    /// use binpool_opencl::{Rect, RectPart};
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// let matrix = backend.create_buffer_from(&[1_u8, 2, 3, 4, 5, 6, 7, 8, 9], MemoryFlags::empty())?;
    /// let corner = (&matrix, Rect::in_rows([1, 1, 0], 3));
    /// let pending = backend.enqueue_read_part(&queue, RectPart::new(corner, Rect::default(), [2, 2, 1]))?;
    /// // What comes later on the same bytes waits for the read.
    /// backend.write(&queue, &matrix, 0, &[0_u8; 9])?;
    /// assert_eq!(pending.wait()?, [5, 6, 8, 9]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory) if the host has no room for them, and those [above](#errors).
    pub fn enqueue_read_part<'q, P: TransferPart>(
        &self,
        on: impl Into<ClOn<'q>>,
        part: P,
    ) -> Result<PendingRead<ClEvent>, P::Error> {
        let sink = Sink::default();
        let event = self.read_to(on.into(), &part, &sink)?;
        Ok(PendingRead::new(event, sink))
    }

    /// Enqueues a write of all of `elements`. The host cannot free or touch the vector before the command has ended.
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
    ///     written.push(backend.enqueue_write_owned(&queue, (&memory, row * 8), elements)?);
    /// }
    /// let last = written.pop().ok_or("there are two")?;
    /// assert_eq!(last.wait()?, [3.0, 4.0]); // The vector is back.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors), with the vector.
    pub fn enqueue_write_owned<'q, T: NoUninit + Send, P: TransferPart>(
        &self,
        on: impl Into<ClOn<'q>>,
        part: P,
        elements: Vec<T>,
    ) -> Result<PendingTransfer<T>, Refused<Vec<T>>> {
        self.transfer_owned(on.into(), &part, elements, HostVec::as_source)
    }

    /// Enqueues a read into all of `elements`. The host cannot free or touch the vector before the command has ended.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer_from(&[1.0_f32, 2.0, 3.0, 4.0], MemoryFlags::empty())?;
    /// // As many elements as the vector has, from byte 4 on.
    /// let read = backend.enqueue_read_owned(&queue, (&memory, 4), vec![0.0_f32; 2])?;
    /// assert_eq!(read.wait()?, [2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors), with the vector.
    pub fn enqueue_read_owned<'q, T: AnyBitPattern + NoUninit + Send, P: TransferPart>(
        &self,
        on: impl Into<ClOn<'q>>,
        part: P,
        elements: Vec<T>,
    ) -> Result<PendingTransfer<T>, Refused<Vec<T>>> {
        self.transfer_owned(on.into(), &part, elements, HostVec::as_target)
    }
}

/// A pending transfer, and the vector that it works on.
///
/// Dropping or forgetting this value early is safe: the vector is kept until the command has ended, and then dropped.
/// `PyOpenCL`'s `NannyEvent`, whose deletion waits.
///
/// ```
/// use std::slice::from_ref;
/// # use binpool_allocators::{Backend, MemoryFlags, Queue, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let other_queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let written = backend.enqueue_write_owned(&queue, (&memory, 0), vec![1_u8; 4096])?;
/// backend.enqueue_marker(other_queue.after(from_ref(written.event())))?;
///
/// let mut staging = written.wait()?; // The same vector: nothing is allocated for the next round.
/// assert_eq!(staging.len(), 4096);
/// staging.fill(2);
/// let written = backend.enqueue_write_owned(&queue, (&memory, 0), staging)?;
/// drop(written); // The command has what it needs.
/// let mut seen = [0_u8; 1];
/// backend.read(&queue, &memory, 4095, &mut seen)?;
/// assert_eq!(seen, [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the vector is lost unless `wait` returns it"]
pub struct PendingTransfer<T> {
    event: ClEvent,
    elements: Arc<HostVec<T>>,
}

impl<T> PendingTransfer<T> {
    /// The event of the transfer.
    pub fn event(&self) -> &ClEvent {
        &self.event
    }

    /// Waits for the transfer, and returns the vector.
    ///
    /// # Errors
    ///
    /// The failure of the transfer, or of a command that it waited for, with the vector, which is empty if the command may
    /// still run. After a failed read its contents are unspecified.
    pub fn wait(self) -> Result<Vec<T>, Refused<Vec<T>>> {
        match self.event.wait() {
            Ok(()) => Ok(self.elements.take()),
            Err(error) => Err(Refused {
                error,
                // A wait may fail while the command still runs.
                value: if self.event.has_ended() {
                    self.elements.take()
                } else {
                    Vec::new()
                },
            }),
        }
    }
}

impl<T> fmt::Debug for PendingTransfer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingTransfer")
            .field("event", &self.event)
            .field("elements", &self.elements)
            .finish()
    }
}
