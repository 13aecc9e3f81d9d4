//! Kernels: closures on the host.

use std::borrow::Cow;

use binpool_allocators::{Backend, Result};
use smallvec::SmallVec;

use crate::{
    CallKind, MockBackend, MockEvent, MockMemory, MockQueue,
    state::{Operand, Submission},
    work::Work,
};

impl MockBackend {
    /// Enqueues a kernel: a closure that is given the bytes of `reads`, and those of `writes` to change (and to
    /// read). It runs once, when its queue and its wait list allow, on whichever thread drives the device, and
    /// without the device's lock.
    ///
    /// Inside the kernel, calls to the device enqueue and allocate as ever; what they enqueue runs after the
    /// kernel. Waiting for the device there is an error. A kernel that panics fails, and does no more harm than
    /// to its own bytes.
    ///
    /// # Errors
    ///
    /// Those of every enqueue; and as the source of an [`Error::Backend`](binpool_allocators::Error::Backend):
    /// [`OverlappingArguments`](crate::MockError::OverlappingArguments) where `writes` share bytes with each
    /// other or with `reads`, and [`AccessDenied`](crate::MockError::AccessDenied) where the flags of a buffer
    /// forbid it.
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
    /// backend.write(&queue, &source, 0, &[1, 2, 3, 4], &[])?;
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
    ///     &[],
    /// )?;
    /// let mut bytes = [0; 4];
    /// backend.read(&queue, &target, 0, &mut bytes, &[])?;
    /// assert_eq!(bytes, [2, 4, 6, 8]);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn launch(
        &self,
        queue: &MockQueue,
        name: impl Into<Cow<'static, str>>,
        reads: &[&MockMemory],
        writes: &[&MockMemory],
        kernel: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) + Send + 'static,
        wait_for: &[MockEvent],
    ) -> Result<MockEvent> {
        self.check_queue(queue)?;
        let whole = |arguments: &[&MockMemory]| -> Result<SmallVec<[Operand; 2]>> {
            let operands = arguments.iter().map(|memory| {
                self.check_memory(memory)?;
                Ok(memory.operand())
            });
            operands.collect()
        };
        let (reads, writes) = (whole(reads)?, whole(writes)?);
        let wait_for = self.events(wait_for)?;
        self.submit(Submission {
            name: name.into(),
            reads,
            writes,
            work: Work::Kernel(Box::new(kernel)),
            ..Submission::new(CallKind::Launch, queue.key(), &wait_for)
        })
    }
}
