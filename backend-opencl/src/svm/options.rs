//! What shared virtual memory is asked for with.

use binpool_allocators::{Align, SvmGrain};

use crate::queue::ClQueue;

/// How shared virtual memory is to be allocated: its grain, its alignment, and the queue that it is freed on.
/// `PyOpenCL`'s `flags`, `alignment` and `queue` of `SVMAllocation` and `svm_empty`.
///
/// ```
/// use binpool_allocators::{Align, Backend, QueueOrder};
/// use binpool_opencl::{OpenClBackend, SvmOptions};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let alignment = Align::new(64).ok_or("no power of two")?;
/// let options = SvmOptions::coarse().aligned_to(alignment).bound_to(&queue);
/// let numbers = backend.svm_empty::<f32>(1000, &options)?;
///
/// let info = numbers.into_memory().svm_info()?;
/// assert!(info.alignment >= alignment);
/// assert_eq!(info.bound_queue, Some(queue));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SvmOptions {
    pub(super) grain: SvmGrain,
    pub(super) alignment: Option<Align>,
    pub(super) queue: Option<ClQueue>,
}

impl SvmOptions {
    /// Memory of this grain, aligned to what the device's buffers are, and bound to no queue.
    #[must_use]
    pub const fn new(grain: SvmGrain) -> Self {
        Self {
            grain,
            alignment: None,
            queue: None,
        }
    }

    /// Coarse-grained memory, which every device with shared virtual memory has.
    #[must_use]
    pub const fn coarse() -> Self {
        Self::new(SvmGrain::Coarse)
    }

    /// Fine-grained memory.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryKind, Memory, SvmGrain};
    /// # use binpool_opencl::{OpenClBackend, SvmOptions};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// // With atomics where the device has them: then a kernel that runs sees what the host writes.
    /// let options = match backend.limits().svm {
    ///     svm if svm.atomics => SvmOptions::new(SvmGrain::FineAtomics),
    ///     svm if svm.fine => SvmOptions::fine(),
    ///     _ => SvmOptions::coarse(),
    /// };
    /// let flags = backend.svm_empty::<u32>(16, &options)?.into_memory();
    /// assert!(matches!(flags.kind(), MemoryKind::Svm(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn fine() -> Self {
        Self::new(SvmGrain::Fine)
    }

    /// The same, on a multiple of `alignment`.
    #[must_use]
    pub const fn aligned_to(mut self, alignment: Align) -> Self {
        self.alignment = Some(alignment);
        self
    }

    /// The same, freed after everything that was enqueued on `queue`, which is in order.
    #[must_use]
    pub fn bound_to(mut self, queue: &ClQueue) -> Self {
        self.queue = Some(queue.clone());
        self
    }
}
