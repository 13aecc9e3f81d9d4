//! Transfers between the host and the device: of bytes, rectangles and pixels, each with memory of the host that is borrowed
//! for a call or for a scope, owned, shared, or made.

use std::{fmt, sync::Arc};

use binpool_allocators::{Backend, Error, Event, PendingRead, Queue, QueueOrder, Result, Sink};

use crate::{
    backend::OpenClBackend,
    error::Refused,
    event::{ClEvent, ClOn},
    order::{access::Access, memory_use::MemoryUse},
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
    /// The size of the transfer, for reports of failures.
    pub(crate) bytes: usize,
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

/// What a transfer moves: the memory and the place there, and how the host's bytes lie.
pub(crate) trait Shape {
    type Error: From<Error>;

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
    pub(crate) fn transfer<S: Shape>(
        &self,
        on: ClOn<'_>,
        shape: &S,
        host: &HostSide<'_>,
    ) -> Result<(), S::Error> {
        let ClOn { queue, wait_for } = on;
        let Some(transfer) = shape.checked(self, queue, HostPart::of(host))? else {
            // On an out-of-order queue nothing comes before this but what the list names.
            if wait_for.is_empty() && queue.order() == QueueOrder::OutOfOrder {
                return Ok(());
            }
            return Ok(self.enqueue_marker(on)?.wait()?);
        };
        let (uses, purpose) = ([transfer.used], Purpose::Memory(transfer.bytes));
        Ok(
            self.submit_and_wait(queue, purpose, &uses, wait_for, |wait| {
                transfer::enqueue_transfer(queue.handle(), transfer.device, host, wait)
            })?,
        )
    }

    /// Enqueues a transfer with the host's bytes, which the caller keeps until the command has ended.
    pub(crate) fn enqueue_transfer<S: Shape>(
        &self,
        on: ClOn<'_>,
        shape: &S,
        host: &HostSide<'_>,
    ) -> Result<ClEvent, S::Error> {
        match shape.checked(self, on.queue, HostPart::of(host))? {
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
        let purpose = Purpose::Memory(transfer.bytes);
        self.submit(queue, purpose, &[transfer.used], wait_for, |wait| {
            transfer::enqueue_transfer(queue.handle(), transfer.device, host, wait)
        })
    }

    /// Enqueues a write of `data`, which the command keeps.
    pub(crate) fn write_shared<S: Shape>(
        &self,
        on: ClOn<'_>,
        shape: &S,
        data: Arc<[u8]>,
    ) -> Result<ClEvent, S::Error> {
        let event = self.enqueue_transfer(on, shape, &HostSide::source(&data))?;
        event.retain(data);
        Ok(event)
    }

    /// Enqueues a read into new bytes, which the pending read returns.
    pub(crate) fn read_to_new<S: Shape>(
        &self,
        on: ClOn<'_>,
        shape: &S,
    ) -> Result<PendingRead<ClEvent>, S::Error> {
        let sink = Sink::default();
        let event = self.read_to(on, shape, &sink)?;
        Ok(PendingRead::new(event, sink))
    }

    /// Enqueues a read into new bytes, which go to the sink.
    pub(crate) fn read_to<S: Shape>(
        &self,
        on: ClOn<'_>,
        shape: &S,
        sink: &Sink,
    ) -> Result<ClEvent, S::Error> {
        let Some(transfer) = shape.checked(self, on.queue, HostPart::NEW)? else {
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
    pub(crate) fn transfer_owned<T: Send + 'static, S: Shape<Error = Error>>(
        &self,
        on: ClOn<'_>,
        shape: &S,
        elements: Vec<T>,
        side: impl Fn(&HostVec<T>) -> HostSide<'_>,
    ) -> Result<PendingTransfer<T>, Refused<Vec<T>>> {
        let elements = Arc::new(HostVec::new(elements));
        match self.enqueue_transfer(on, shape, &side(&elements)) {
            Ok(event) => {
                event.retain(Arc::clone(&elements));
                Ok(PendingTransfer { event, elements })
            }
            Err(error) => {
                let value = elements.take();
                Err(Refused { error, value })
            }
        }
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
/// let written = backend.enqueue_write_owned(&queue, &memory, 0, vec![1_u8; 4096])?;
/// backend.enqueue_marker(other_queue.after(from_ref(written.event())))?;
///
/// let mut staging = written.wait()?; // The same vector: nothing is allocated for the next round.
/// assert_eq!(staging.len(), 4096);
/// staging.fill(2);
/// let written = backend.enqueue_write_owned(&queue, &memory, 0, staging)?;
/// drop(written); // The command has what it needs.
/// let mut seen = [0_u8; 1];
/// backend.read(&queue, &memory, 4095, &mut seen)?;
/// assert_eq!(seen, [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the vector is thrown away unless `wait` takes it"]
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
