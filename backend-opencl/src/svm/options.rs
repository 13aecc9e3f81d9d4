//! The options of shared virtual memory.

use binpool_allocators::{Align, MemoryFlags, SvmGrain};

use crate::queue::ClQueue;

/// The options of shared virtual memory: its grain, its alignment, the queue that it is freed on, and the access of
/// kernels. `PyOpenCL`'s `flags`, `alignment` and `queue` of `SVMAllocation` and `svm_empty`.
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
    pub(super) flags: MemoryFlags,
}

impl SvmOptions {
    /// Returns options for memory of this grain, aligned like the device's buffers, and bound to no queue.
    pub const fn new(grain: SvmGrain) -> Self {
        Self {
            grain,
            alignment: None,
            queue: None,
            flags: MemoryFlags::empty(),
        }
    }

    /// Returns options for coarse-grained memory, which every device with shared virtual memory has.
    pub const fn coarse() -> Self {
        Self::new(SvmGrain::Coarse)
    }

    /// Returns options for fine-grained memory.
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
    pub const fn fine() -> Self {
        Self::new(SvmGrain::Fine)
    }

    /// Asks for memory on a multiple of `alignment`.
    #[must_use]
    pub const fn aligned_to(mut self, alignment: Align) -> Self {
        self.alignment = Some(alignment);
        self
    }

    /// Binds the memory to `queue`, an in-order queue: it is freed after everything that was enqueued there.
    #[must_use]
    pub fn bound_to(mut self, queue: &ClQueue) -> Self {
        self.queue = Some(queue.clone());
        self
    }

    /// Asks for memory that kernels only read. The host and its commands may write it. Memory that kernels only read and
    /// [only write](Self::write_only) is refused when it is allocated
    /// ([`ContradictoryFlags`](binpool_allocators::InvalidRequest::ContradictoryFlags)).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter, SvmOptions};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let source = "kernel void clear(global float *data) { data[get_global_id(0)] = 0.0f; }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// # // SAFETY: each work item writes the float of its id, and touches nothing else.
    /// # let clear = unsafe { program.kernel("clear", &[Parameter::output::<f32>(Extent::PerItem(1))]) }?;
    /// let options = SvmOptions::coarse().read_only();
    /// let table = backend.svm_empty::<f32>(100, &options)?;
    /// let table = table.fill_all(&queue, 1.0)?;
    /// let refused = clear.launch(&queue, &[100]).memory(&table).enqueue().unwrap_err();
    /// assert!(refused.to_string().contains(&MemoryFlags::READ_ONLY.to_string()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn read_only(mut self) -> Self {
        self.flags = self.flags.union(MemoryFlags::READ_ONLY);
        self
    }

    /// Asks for memory that kernels only write, and so not [only read](Self::read_only).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Memory, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{OpenClBackend, SvmOptions};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let results = backend.svm_empty::<f32>(100, &SvmOptions::coarse().write_only())?;
    /// assert_eq!(results.memory().flags(), MemoryFlags::WRITE_ONLY);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn write_only(mut self) -> Self {
        self.flags = self.flags.union(MemoryFlags::WRITE_ONLY);
        self
    }
}
