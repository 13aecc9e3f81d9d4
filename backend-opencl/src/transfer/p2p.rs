//! Copies between two devices without the host between them.

use binpool_allocators::{AsMemory, Error, Event, InvalidRequest, Memory, Region, Result};

use crate::{
    backend::OpenClBackend,
    cl_error::{ClError, Purpose},
    context::Context,
    device::info::has_extension,
    event::ClEvent,
    memory::cl_memory::ClMemory,
    order::access::{Access, Use},
    order::access_log::MapId,
    order::admission::Admission,
    queue::ClQueue,
    sys::{self, p2p::P2p},
};

/// The extension that has the call.
pub(crate) const EXTENSION: &str = "cl_amd_copy_buffer_p2p";

impl OpenClBackend {
    /// Copies the first `bytes` bytes of a buffer of this device to one of another device, and waits until they are
    /// there: `PyOpenCL`'s `enqueue_copy_buffer_p2p_amd`, on AMD's platforms. Where `bytes` is `None`, as many are copied
    /// as the smaller of the two has.
    ///
    /// `queue` is one of this device, on which the copy runs. `destination` belongs to another context. The call waits for
    /// the copy, other than `PyOpenCL`'s: events of one context mean nothing to the queues of another one, so that nothing
    /// there could come after the copy. Until it has ended, commands on those bytes of the destination are refused as if
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
    /// match backend.copy_p2p_amd(&queue, &source, &destination, None, &[]) {
    ///     Err(Error::Unsupported { .. }) => {
    ///         let mut bytes = [0; 60]; // By the host, then.
    ///         backend.read(&queue, &source, 0, &mut bytes, &[])?;
    ///         there.write(&there_queue, &destination, 0, &bytes, &[])?;
    ///     }
    ///     copied => copied?,
    /// }
    /// # let mut bytes = [0; 60];
    /// # there.read(&there_queue, &destination, 0, &mut bytes, &[])?;
    /// # assert_eq!(bytes, [7; 60]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) unless both devices have the extension, for shared virtual memory, and for two
    /// devices of one context, for which [`enqueue_copy`](binpool_allocators::Backend::enqueue_copy) is there;
    /// [`ZeroSize`](InvalidRequest::ZeroSize), [`OutOfBounds`](InvalidRequest::OutOfBounds),
    /// [`ForeignObject`](InvalidRequest::ForeignObject), [`Mapped`](InvalidRequest::Mapped), and the failures of the runtime.
    pub fn copy_p2p_amd(
        &self,
        queue: &ClQueue,
        source: &(impl AsMemory<Self> + ?Sized),
        destination: &ClMemory,
        bytes: Option<usize>,
        wait_for: &[ClEvent],
    ) -> Result<()> {
        self.check_own_queue(queue)?;
        self.check_own_events(wait_for)?;
        let bytes = bytes.unwrap_or_else(|| source.size().min(destination.bytes()));
        let region = Region::first(bytes);
        region.check_within(source.size())?;
        region.check_within(destination.bytes())?;
        let source = source.memory_on(queue).filter(|_| bytes > 0);
        let source = source.ok_or(InvalidRequest::ZeroSize)?;
        self.check_own_memory(source)?;
        let (Some(from), Some(to)) = (source.buffer(), destination.buffer()) else {
            return Err(Error::unsupported(
                "copies of shared virtual memory from device to device: pass `as_buffer` of it",
            ));
        };
        let call = self.p2p_call(destination.context())?;
        let into = destination.used(region, Access::Write);
        let kept_out = KeptOut::new(queue, &into)?;
        // On the host: the queue cannot wait for events of the other context.
        let control = |error: ClError| error.into_error(Purpose::Control);
        into.log.wait_until_unused().map_err(control)?;
        let uses = [source.used(region, Access::Read)];
        let purpose = Purpose::Memory(bytes);
        let copied = self.submit(queue, purpose, &uses, wait_for, |wait| {
            call.enqueue(queue.handle(), (from, 0), (to, 0), bytes, wait)
        })?;
        let ended = copied.wait();
        // A wait may fail for a reason of its own, and nobody is to use the destination before.
        if let Err(error) = sys::wait_until_ended(copied.handle()) {
            tracing::debug!(%error, "a copy between devices has failed");
        }
        drop(kept_out);
        ended
    }

    /// The extension's call, where it copies from this device to `other`.
    fn p2p_call(&self, other: &Context) -> Result<P2p> {
        let control = |error: ClError| error.into_error(Purpose::Control);
        let own = self.context();
        for context in [own, other] {
            if !has_extension(context.device, EXTENSION).map_err(control)? {
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
        P2p::of(own.device).map_err(control)
    }
}

/// Bytes that commands are kept out of, as by a map.
struct KeptOut<'a> {
    used: &'a Use<'a>,
    id: MapId,
}

impl<'a> KeptOut<'a> {
    fn new(queue: &'a ClQueue, used: &'a Use<'a>) -> Result<Self> {
        let (_admission, id) = Admission::of_map(queue, used)?;
        Ok(Self { used, id })
    }
}

impl Drop for KeptOut<'_> {
    fn drop(&mut self) {
        self.used.log.forget_map(self.id);
    }
}
