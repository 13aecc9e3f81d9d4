//! Kernels: closures on the host.

use std::borrow::Cow;

use binpool_allocators::{AsMemory, Backend, InvalidRequest, On, Result, bytes_on};
use smallvec::{SmallVec, smallvec};

use crate::{
    CallKind, MockBackend, MockEvent, MockQueue,
    effect::Effect,
    state::{Operand, Submission},
};

impl MockBackend {
    /// Enqueues a kernel: a closure that takes the bytes of `reads`, and those of `writes` to change (and to
    /// read), in their requested sizes. It runs once, when its queue and its wait list allow, on the thread that drives the
    /// device at that moment, and without the device's lock.
    ///
    /// Inside the kernel, calls to the device may enqueue and allocate; commands that they enqueue run after the
    /// kernel. Waiting for the device there is an error. A kernel that panics fails, and leaves only its own bytes
    /// half written.
    ///
    /// # Errors
    ///
    /// Those of every enqueue; and an [`Error::Backend`](binpool_allocators::Error::Backend) with the code -50 (`CL_INVALID_ARG_VALUE`) if
    /// `writes` share bytes with each other or with `reads`, and -59 (`CL_INVALID_OPERATION`) if the flags of a buffer forbid it.
    ///
    /// # Examples
    ///
    /// ```
    /// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// use binpool_mock::MockDevice;
    ///
    /// let backend = MockDevice::new().backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let [source, target] = [(); 2].map(|()| backend.create_buffer(4, MemoryFlags::empty()).unwrap());
    /// backend.write(&queue, &source, 0, &[1_u8, 2, 3, 4])?;
    /// backend.launch(
    ///     &queue,
    ///     "double",
    ///     &[&source],
    ///     &[&target],
    ///     |reads, writes| {
    ///         for (target, source) in writes[0].iter_mut().zip(reads[0]) {
    ///             *target = source * 2;
    ///         }
    ///     },
    /// )?;
    /// let mut bytes = [0_u8; 4];
    /// backend.read(&queue, &target, 0, &mut bytes)?;
    /// assert_eq!(bytes, [2, 4, 6, 8]);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn launch<'q>(
        &self,
        on: impl Into<On<'q, MockQueue, MockEvent>>,
        name: impl Into<Cow<'static, str>>,
        reads: &[&dyn AsMemory<Self>],
        writes: &[&dyn AsMemory<Self>],
        kernel: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) + Send + 'static,
    ) -> Result<MockEvent> {
        let On { queue, wait_for } = on.into();
        self.check_queue(queue)?;
        let arguments = |arguments: &[&dyn AsMemory<Self>]| -> Result<SmallVec<[Operand; 2]>> {
            let operands = arguments
                .iter()
                .map(|argument| self.argument(queue, *argument));
            operands.collect()
        };
        let (reads, writes) = (arguments(reads)?, arguments(writes)?);
        let wait_for = self.events(wait_for)?;
        self.enqueue(Submission {
            name: name.into(),
            reads,
            writes,
            effect: Effect::Kernel(Box::new(kernel)),
            ..Submission::new(CallKind::Launch, queue.key(), &wait_for)
        })
    }

    /// Enqueues a command that uses memory as a writing kernel would, but changes no bytes. The host keeps no contents
    /// for it, and it costs nothing in the profile: use it to simulate programs that are larger than the host's memory.
    ///
    /// # Errors
    ///
    /// Those of [`launch`](Self::launch).
    ///
    /// ```
    /// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// use binpool_mock::{Completion, MockDevice};
    ///
    /// let device = MockDevice::builder().capacity_bytes(1 << 40).completion(Completion::Manual).build();
    /// let backend = device.backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let buffer = backend.create_buffer(1 << 40, MemoryFlags::empty())?;
    /// backend.enqueue_use(&queue, &buffer)?;
    /// drop(buffer);
    /// assert_eq!(device.statistics().live_blocks, 1); // The command uses it.
    /// device.run();
    /// assert_eq!(device.statistics().live_blocks, 0);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn enqueue_use<'q>(
        &self,
        on: impl Into<On<'q, MockQueue, MockEvent>>,
        memory: &dyn AsMemory<Self>,
    ) -> Result<MockEvent> {
        let On { queue, wait_for } = on.into();
        self.check_queue(queue)?;
        let wait_for = self.events(wait_for)?;
        self.enqueue(Submission {
            name: "use".into(),
            writes: smallvec![self.argument(queue, memory)?],
            ..Submission::new(CallKind::Launch, queue.key(), &wait_for)
        })
    }

    /// The bytes of an argument of a kernel, as an operand.
    fn argument(&self, queue: &MockQueue, argument: &dyn AsMemory<Self>) -> Result<Operand> {
        let found = bytes_on::<Self, _>(argument, queue, ..)?;
        let (memory, region) = found.ok_or(InvalidRequest::ZeroSize)?;
        self.part(memory, region)
    }
}
