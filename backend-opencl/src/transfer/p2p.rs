//! Copies between two devices without the host between them.

use binpool_allocators::{
    AsMemory, Error, InvalidRequest, Memory, On, Region, Result, runtime::Access,
};

use crate::{
    backend::OpenClBackend,
    context::Context,
    device::info::has_extension,
    event::ClOn,
    memory::cl_memory::ClMemory,
    order::{
        access_log::MapId, admission::CommandAdmission, memory_use::MemoryUse,
        tracked_command::Earlier,
    },
    queue::ClQueue,
    sys::{Purpose, p2p::P2p},
};

/// The name of the extension that has the call.
pub(crate) const EXTENSION: &str = "cl_amd_copy_buffer_p2p";

impl OpenClBackend {
    /// Copies the first `bytes` bytes of a buffer of this device to one of another device, and waits until they are there: `PyOpenCL`'s
    /// `enqueue_copy_buffer_p2p_amd`, on AMD's platforms. With `None`, as many bytes are copied as the smaller of the two has.
    ///
    /// `queue` is one of this device, on which the copy runs. `destination` belongs to another context. Unlike
    /// `PyOpenCL`'s, the call waits for the copy: queues of one context cannot use events of another, so no
    /// command there could come after the copy. Until then, commands on those bytes of the destination are refused as if
    /// the host had mapped them.
    ///
    /// ```
    /// use binpool_allocators::Error;
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// # let there = OpenClBackend::open(&"any".parse()?)?;
    /// # let there_queue = there.create_queue(QueueOrder::InOrder)?;
    /// let source = backend.create_buffer_from(&[7_u8; 60], MemoryFlags::empty())?;
    /// let destination = there.create_buffer(60, MemoryFlags::empty())?; // Of another context.
    /// match backend.copy_p2p_amd(&queue, &source, &destination, None) {
    ///     Err(Error::Unsupported { .. }) => {
    ///         let mut bytes = [0_u8; 60]; // By the host, then.
    ///         backend.read(&queue, &source, 0, &mut bytes)?;
    ///         there.write(&there_queue, &destination, 0, &bytes)?;
    ///     }
    ///     copied => copied?,
    /// }
    /// # let mut bytes = [0_u8; 60];
    /// # there.read(&there_queue, &destination, 0, &mut bytes)?;
    /// # assert_eq!(bytes, [7; 60]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) unless both devices have the extension, for shared virtual memory, and for two devices of one
    /// context, which have [`enqueue_copy`](binpool_allocators::Backend::enqueue_copy); [`ZeroSize`](InvalidRequest::ZeroSize),
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), [`ForeignObject`](InvalidRequest::ForeignObject), [`Mapped`](InvalidRequest::Mapped),
    /// and the failures of the runtime.
    pub fn copy_p2p_amd<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        source: &(impl AsMemory<Self> + ?Sized),
        destination: &ClMemory,
        bytes: Option<usize>,
    ) -> Result<()> {
        let On { queue, wait_for } = on.into();
        self.check_own_queue(queue)?;
        self.check_own_events(wait_for)?;
        let bytes = bytes.unwrap_or_else(|| source.size().min(destination.bytes()));
        let region = Region::first(bytes);
        region.check_within(destination.bytes())?;
        let found = self.bytes_on(queue, source, region)?;
        let found = found.filter(|_| bytes > 0);
        let (source, taken) = found.ok_or(InvalidRequest::ZeroSize)?;
        let (Some(from), Some(to)) = (source.object()?, destination.object()?) else {
            return Err(Error::unsupported(
                "copies of shared virtual memory from device to device: pass `as_buffer` of it",
            ));
        };
        let call = self.p2p_call(destination.context())?;
        let into = destination.used(region, Access::Write);
        let kept_out = KeptOut::new(queue, &into)?;
        // The host waits, since the queue cannot wait for events of the other context.
        into.log.wait_until_unused()?;
        let uses = [source.used(taken, Access::Read)];
        let purpose = Purpose::Memory(bytes);
        let copied = self.submit_and_wait(queue, purpose, &uses, wait_for, |wait| {
            call.enqueue(queue.handle(), (from, taken.offset), (to, 0), bytes, wait)
        });
        drop(kept_out);
        copied
    }

    /// Returns the extension's call, if it copies from this device to `other`.
    fn p2p_call(&self, other: &Context) -> Result<P2p> {
        let own = self.context();
        for context in [own, other] {
            if !has_extension(context.device, EXTENSION)? {
                return Err(Error::unsupported(format!(
                    "copies between devices on {}, which has no {EXTENSION}: read the bytes to the host and write them \
                     from there",
                    context.limits.device_name
                )));
            }
        }
        if own.is_same(other) {
            return Err(Error::unsupported(
                "copies between devices of one context by the extension: use `enqueue_copy`",
            ));
        }
        P2p::of(own.device).map_err(Error::from)
    }
}

/// Bytes on which commands are refused, as by a map.
struct KeptOut<'a> {
    used: &'a MemoryUse<'a>,
    id: MapId,
}

impl<'a> KeptOut<'a> {
    fn new(queue: &'a ClQueue, used: &'a MemoryUse<'a>) -> Result<Self> {
        let (_admission, id) = CommandAdmission::of_map(queue, used, Earlier::new())?;
        Ok(Self { used, id })
    }
}

impl Drop for KeptOut<'_> {
    fn drop(&mut self) {
        self.used.log.forget_map(self.id);
    }
}
